import { join } from "node:path";
import { errorOf } from "../errors.js";

/**
 * Path of a shard that an index names. The name is untrusted: it must stay in the index's folder or
 * below, judged by its text alone, so that the error for a name that leaves it tells nothing of
 * what is there. Symbolic links are followed later as they come: the Hub's cache is made of them.
 * @throws ERR_CHECKPOINT_INDEX_PATH_ESCAPE, ERR_CHECKPOINT_INDEX_INVALID
 */
export function shardPath(folder: string, name: string, indexFile: string): string {
  const facts = { file: indexFile, shard: name };
  const parts = name.split("/");
  const leaves = name.startsWith("/") || name.includes("\\") || /^[a-z]:/i.test(name) || parts.includes("..");
  if (leaves) {
    const message = `${indexFile}: the index names the shard ${JSON.stringify(name)}, which is not a plain path inside its folder`;
    throw errorOf("ERR_CHECKPOINT_INDEX_PATH_ESCAPE", message, { facts });
  }
  const last = parts.at(-1);
  if (last === "" || last === "." || name.includes("\0")) {
    throw errorOf(
      "ERR_CHECKPOINT_INDEX_INVALID",
      `${indexFile}: the index names the shard ${JSON.stringify(name)}, which is no file name`,
      { facts },
    );
  }
  return join(folder, name);
}
