/** What a download that is not done leaves beside, or instead of, the file that it brings. */
export interface Leftover {
  /** Name in its folder. */
  readonly name: string;
  /** Name of the file that it will be, or that it tells of. */
  readonly target: string;
  /** Who leaves such a thing. */
  readonly tool: string;
  /** What to do, as the end of "to finish it, ...". */
  readonly remedy: string;
  /**
   * `part`: the bytes so far. `control`: the target itself is being written, whatever its length.
   * `guess`: a name that others might give, too.
   */
  readonly kind: "part" | "control" | "guess";
}

interface Form {
  /** Its one group is the target's name. */
  readonly pattern: RegExp;
  readonly tool: string;
  readonly remedy: string;
  readonly kind: Leftover["kind"];
}

const again = "run the same download again";
const part = { kind: "part", remedy: again } as const;
const guess = { kind: "guess", remedy: "run the same copy again" } as const;

const forms: readonly Form[] = [
  { pattern: /^(.+)\.aria2$/s, tool: "aria2", kind: "control", remedy: "run aria2c again with --continue" },
  { pattern: /^(.+)\.lftp-pget-status$/s, tool: "lftp", kind: "control", remedy: "run pget again with -c" },
  { pattern: /^(.+\.safetensors)\.st$/s, tool: "axel", kind: "control", remedy: "run axel again in the same folder" },
  { pattern: /^(.+)\.incomplete$/s, tool: "huggingface_hub", kind: "part", remedy: "run `hf download` again" },
  {
    pattern: /^(.+)\.(?:crdownload|opdownload)$/s,
    tool: "a browser (Chrome, Edge, Opera)",
    kind: "part",
    remedy: "resume it in the browser",
  },
  { pattern: /^(.+)\.download$/s, tool: "a browser (Safari)", kind: "part", remedy: "resume it in the browser" },
  { pattern: /^(.+)\.part\.minio$/s, tool: "MinIO's mc", ...part },
  { pattern: /^(.+)\.part$/s, tool: "a downloader (Firefox, KDE, scripts of curl or wget)", ...part },
  { pattern: /^(.+?)(?:\.[0-9a-f]{8})?\.partial$/s, tool: "rclone, or a downloader", ...part },
  { pattern: /^(.+)\.filepart$/s, tool: "WinSCP", ...part },
  { pattern: /^(.+)\.!(?:qB|ut)$/s, tool: "a BitTorrent client", kind: "part", remedy: "let the client finish" },
  { pattern: /^(.+)\.xltd?$/s, tool: "Thunder", ...part },
  { pattern: /^(.+)_\.gstmp$/s, tool: "gsutil or gcloud", ...part },
  { pattern: /^\.azDownload-[0-9a-f-]+-(.+)$/s, tool: "AzCopy", ...part },
  { pattern: /^\.(.+\.(?:safetensors|json))\.[A-Za-z0-9]{6}$/s, tool: "rsync", ...guess },
  { pattern: /^(.+\.(?:safetensors|json))\.[A-Za-z0-9]{8}$/s, tool: "the AWS CLI or s3transfer", ...guess },
  { pattern: /^(.+\.(?:safetensors|json))\.te?mp$/s, tool: "a program that writes under another name first", ...guess },
  { pattern: /^(.+)\.dvc$/s, tool: "DVC, which keeps the file elsewhere", kind: "guess", remedy: "run `dvc pull`" },
];

/** Endings of files that tell of a file beside them that it is still being written. */
export const controlEndings = [".aria2", ".lftp-pget-status", ".st"] as const;

/** What a name says, if it is that of an unfinished download. */
export function leftoverOf(name: string): Leftover | undefined {
  for (const { pattern, ...what } of forms) {
    const target = pattern.exec(name)?.[1];
    if (target !== undefined) return { name, target, ...what };
  }
  return undefined;
}

/** What a name ending tells beyond doubt. */
export function certainLeftover(name: string): Leftover | undefined {
  const found = leftoverOf(name);
  return found?.kind === "guess" ? undefined : found;
}
