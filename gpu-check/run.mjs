// Runs the steps of the check one after the other, each in a process of its own with a deadline: a
// hang or a crash loses that step alone. Every answer is a line of JSON, written to the report the
// moment it comes.
import { spawn } from "node:child_process";
import { appendFileSync, closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { programPath } from "./programs.mjs";
import { steps } from "./steps.mjs";

const help = `Checks and times modelexpress-client on a machine with a GPU.

  --device <name>      device to check (default cuda:0)
  --bytes <count>      bytes of the checkpoint that is written and loaded (default 2147483648)
  --folder <path>      where checkpoint, report and logs go, on the storage to be checked (default ./gpu-check-results)
  --only <steps>       these steps alone, and what they need: names with commas (${steps.map(({ name }) => name).join(", ")})
  --env <step:N=V>     a variable for one step, such as load-nixl:NIXL_LOG_LEVEL=DEBUG; may be repeated
  --limit <step:S>     another deadline in seconds for one step; may be repeated
  --json               the lines of the report on stdout
  --over-stand-ins     allow the stand-ins for CUDA in the real library's place: checks this check, not a GPU

The report is <folder>/report.jsonl, and what a step prints <folder>/logs/<step>.log.
Exits with 1 when a step fails, hangs or crashes, with 69 where there is no CUDA device.
`;

/** Exit code of a step that cannot be made here (EX_UNAVAILABLE of sysexits.h). */
const unavailable = 69;
/** How long a killed step may take to go; one that is stuck in the kernel is left behind. */
const killedMs = 3000;
const bad = new Set(["failed", "hung", "crashed"]);

/** @returns the exit code */
export async function runCheck(args) {
  let options;
  let list;
  try {
    options = readOptions(args);
    if (options === undefined) return 0;
    list = chosen(options.only);
  } catch (error) {
    console.error(`${error.message}\nSee --help.`);
    return 64;
  }
  const { folder, json } = options;
  mkdirSync(join(folder, "logs"), { recursive: true });
  const report = join(folder, "report.jsonl");
  rmSync(report, { force: true });
  const tell = (line) => {
    const text = JSON.stringify(line);
    appendFileSync(report, `${text}\n`);
    console.log(json ? text : forReader(line));
  };
  const outcomes = new Map();
  for (const step of list) {
    const answers = [];
    const lacking = step.needs !== undefined && outcomes.get(step.needs) !== "ok" ? step.needs : undefined;
    const end =
      lacking === undefined
        ? await runStep(step, options, (answer) => {
            answers.push(answer);
            tell({ step: step.name, ...answer });
          })
        : { outcome: "not run", why: `step ${lacking} gave it nothing to work on` };
    outcomes.set(step.name, end.outcome);
    tell({ step: step.name, ...end });
    if (step.name === "device") {
      if (end.outcome === "skipped") return stop(`There is no CUDA device here: ${end.why}`);
      const standIn = answers.find(({ standIn }) => standIn !== undefined);
      if (standIn !== undefined && !options.overStandIns)
        return stop(`${standIn.standIn} is the stand-in of the tests, not CUDA's driver.`);
    }
  }
  const lost = [...outcomes].filter(([, outcome]) => bad.has(outcome)).map(([name]) => name);
  tell({ end: true, steps: outcomes.size, lost });
  return lost.length > 0 ? 1 : 0;
}

function readOptions(args) {
  const { values } = parseArgs({
    args,
    options: {
      help: { type: "boolean" },
      device: { type: "string", default: "cuda:0" },
      bytes: { type: "string", default: String(2 ** 31) },
      folder: { type: "string", default: join(process.cwd(), "gpu-check-results") },
      only: { type: "string" },
      env: { type: "string", multiple: true, default: [] },
      limit: { type: "string", multiple: true, default: [] },
      json: { type: "boolean", default: false },
      "over-stand-ins": { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(help);
    return undefined;
  }
  const number = /^cuda:(\d+)$/.exec(values.device)?.[1];
  if (number === undefined) throw new Error(`--device is ${values.device}: name a device such as cuda:0`);
  const environments = {};
  for (const text of values.env) {
    const [, step, name, value] = /^([\w-]+):(\w+)=(.*)$/s.exec(text) ?? [];
    if (!isStep(step)) throw new Error(`--env is ${text}: write STEP:NAME=VALUE with the name of a step`);
    environments[step] = { ...environments[step], [name]: value };
  }
  const limits = {};
  for (const text of values.limit) {
    const [, step, seconds] = /^([\w-]+):(\d+)$/.exec(text) ?? [];
    if (!isStep(step)) throw new Error(`--limit is ${text}: write STEP:SECONDS with the name of a step`);
    limits[step] = Number(seconds);
  }
  const bytes = Number(values.bytes);
  return {
    device: values.device,
    number,
    bytes,
    // What the sweep of the bus moves at a time.
    busMib: String(Math.max(4, Math.min(256, Math.floor(bytes / 2 ** 20)))),
    folder: resolve(values.folder),
    only: values.only?.split(","),
    environments,
    limits,
    json: values.json,
    overStandIns: values["over-stand-ins"],
  };
}

function isStep(name) {
  return steps.some((step) => step.name === name);
}

/** The steps asked for, with what they need and the one that finds the device. */
function chosen(only) {
  if (only === undefined) return steps;
  const unknown = only.find((name) => !isStep(name));
  if (unknown !== undefined) throw new Error(`--only names ${unknown}: the steps are ${steps.map(({ name }) => name).join(", ")}`);
  const needed = steps.filter(({ name }) => only.includes(name)).map(({ needs }) => needs);
  return steps.filter(({ name }) => name === "device" || only.includes(name) || needed.includes(name));
}

/**
 * @returns outcome `ok`, `skipped`, `failed`, `hung` or `crashed`, its reason, and the milliseconds
 *   it took
 */
async function runStep(step, options, onAnswer) {
  const { folder, number, busMib } = options;
  const seconds = options.limits[step.name] ?? step.seconds;
  const log = join(folder, "logs", `${step.name}.log`);
  let command = [process.execPath, fileURLToPath(new URL("step.mjs", import.meta.url)), step.name, JSON.stringify(options)];
  if (step.program !== undefined) {
    const [program, ...args] = step.program({ device: number, busMib, file: join(folder, "checkpoint/model-00001-of-00004.safetensors") });
    try {
      command = [programPath(program, folder), ...args];
    } catch (error) {
      return { outcome: "skipped", why: error.message, ms: 0 };
    }
  }
  const begin = performance.now();
  const out = openSync(log, "w");
  const env = { ...process.env, ...step.environment, ...options.environments[step.name] };
  // A process group of its own, so that its children end with it. cuFile writes its log into the
  // working directory.
  const child = spawn(command[0], command.slice(1), {
    detached: true,
    cwd: join(folder, "logs"),
    env,
    stdio: ["ignore", out, out, "pipe"],
  });
  closeSync(out);
  createInterface({ input: child.stdio[3] }).on("line", (line) => onAnswer(parsed(line)));
  const { code, signal, hung } = await ended(child, seconds * 1000);
  const ms = Math.round(performance.now() - begin);
  const why = existsSync(log) ? readFileSync(log, "utf8").trim().split("\n").slice(-3).join("\n") : "";
  if (hung) return { outcome: "hung", why: `no end within ${seconds} s`, ms };
  if (code === 0) return { outcome: "ok", ms };
  if (code === unavailable) return { outcome: "skipped", why, ms };
  if (code !== null) return { outcome: "failed", code, why, ms };
  return { outcome: "crashed", signal, why, ms };
}

function ended(child, limitMs) {
  return new Promise((resolve) => {
    const killGroup = () => {
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // It has ended already.
      }
    };
    let hung = false;
    const end = (code, signal) => {
      clearTimeout(limit);
      clearTimeout(patience);
      killGroup();
      resolve({ code, signal, hung });
    };
    let patience;
    const limit = setTimeout(() => {
      hung = true;
      killGroup();
      patience = setTimeout(() => {
        child.unref();
        child.stdio[3].destroy();
        end(null, "SIGKILL");
      }, killedMs);
    }, limitMs);
    child.once("error", (error) => {
      if (child.pid === undefined) end(126, error.message);
    });
    child.once("close", end);
  });
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return { what: "unreadable", line };
  }
}

function stop(message) {
  console.error(message);
  return unavailable;
}

function forReader({ step, outcome, what, why, ms, end, lost, ...rest }) {
  if (end) return `\n${lost.length === 0 ? "No step was lost." : `Lost: ${lost.join(", ")}`}`;
  if (outcome === undefined) return `        ${step} ${what ?? ""} ${JSON.stringify(rest)}`;
  return `${outcome.padEnd(8)}${step}${ms === undefined ? "" : `, ${ms} ms`}${why ? `\n        ${why.replaceAll("\n", "\n        ")}` : ""}`;
}
