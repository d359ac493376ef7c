import { posix } from "node:path";
import type { ReadText } from "./read-text.js";

/**
 * The control group that limits this process in one resource: its folders, from its own up to the
 * root of what is mounted here.
 */
export interface CgroupFolders {
  readonly version: 1 | 2;
  readonly folders: readonly string[];
}

/**
 * The groups that may limit `controller`, of both versions; a machine has one or the other, or both
 * mounted side by side. Empty where nothing is mounted. Formats: proc_pid_cgroup(5) in cgroups(7),
 * and proc_pid_mountinfo(5).
 */
export function cgroupFolders(controller: "memory" | "cpu", read: ReadText): CgroupFolders[] {
  const own = ownPaths(controller, read("/proc/self/cgroup") ?? "");
  const found: CgroupFolders[] = [];
  for (const line of (read("/proc/self/mountinfo") ?? "").split("\n")) {
    // Most lines tell of something else, and a container may have hundreds.
    if (!line.includes(" - cgroup")) continue;
    const [left, right] = line.split(" - ");
    const fields = (left ?? "").split(" ");
    const [type, , superOptions] = (right ?? "").split(" ");
    const root = unescapeOctal(fields[3] ?? "/");
    const mount = unescapeOctal(fields[4] ?? "");
    if (type === "cgroup2" && own.v2 !== undefined) {
      found.push({ version: 2, folders: foldersUp(mount, relativeTo(root, own.v2)) });
    } else if (type === "cgroup" && own.v1 !== undefined && (superOptions ?? "").split(",").includes(controller)) {
      found.push({ version: 1, folders: foldersUp(mount, relativeTo(root, own.v1)) });
    }
  }
  return found;
}

function ownPaths(controller: string, text: string): { v1: string | undefined; v2: string | undefined } {
  let v1: string | undefined;
  let v2: string | undefined;
  for (const line of text.split("\n")) {
    const [hierarchy, controllers, ...path] = line.split(":");
    if (path.length === 0) continue;
    if (hierarchy === "0" && controllers === "") v2 = path.join(":");
    else if ((controllers ?? "").split(",").includes(controller)) v1 = path.join(":");
  }
  return { v1, v2 };
}

/**
 * A container often sees a part of the tree as its root, or its own group by a path of the host:
 * what lies outside is cut off.
 */
function relativeTo(root: string, path: string): string {
  if (root === "/" || path === "/") return path;
  return path === root || path.startsWith(`${root}/`) ? path.slice(root.length) : "/";
}

function foldersUp(mount: string, path: string): string[] {
  const folders: string[] = [];
  const parts = path.split("/").filter((part) => part !== "" && part !== "..");
  for (let depth = parts.length; depth >= 0; depth--) folders.push(posix.join(mount, ...parts.slice(0, depth)));
  return folders;
}

function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
