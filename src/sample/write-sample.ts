import { type Cipher, createCipheriv, createHash } from "node:crypto";
import { type FileHandle, mkdir, open, readdir, rename, rm, rmdir, stat, statfs } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { requireInteger, requireOneOf } from "../arguments.js";
import { errorOf, ModelExpressError } from "../errors.js";
import { type SampleShape, type SampleTensor, sampleShapes, sampleTensors } from "./shapes.js";

export interface SampleOptions {
  readonly shape: SampleShape;
  /** Bytes of all tensors together; the sample comes within a few rows of it. */
  readonly bytes: number;
  /** Number of files; more than one get an index. Default 1. */
  readonly shards?: number;
  /** Equal seeds give equal bytes, tensor by tensor, however many shards there are. Default 1. */
  readonly seed?: number;
  /** Replace weights and index that are in the folder already. */
  readonly force?: boolean;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: { readonly bytes: number; readonly totalBytes: number }) => void;
}

export interface Sample {
  /** Absolute or relative as the folder was given. */
  readonly files: readonly string[];
  readonly indexFile: string | undefined;
  readonly tensorCount: number;
  /** Bytes of all tensors. */
  readonly byteLength: number;
}

/** Bytes made and written at a time. */
const blockBytes = 4 * 1024 * 1024;

/**
 * Writes a checkpoint with real names and proportions into `folder`. The bytes are noise (an
 * AES-CTR key stream), so they do not compress and read as any BF16 value, NaN among them. Files
 * get their names once they are whole and on the disk; a failure or an abort leaves none behind.
 * @throws ERR_OPTION_INVALID, ERR_SAMPLE_EXISTS, ERR_SAMPLE_NO_SPACE, ERR_SAMPLE_WRITE, or the
 *   reason of `signal`
 */
export async function writeSample(folder: string, options: SampleOptions): Promise<Sample> {
  const { shape, bytes, shards = 1, seed = 1, force = false, signal, onProgress } = options;
  requireOneOf("shape", shape, sampleShapes);
  requireInteger("seed", seed, { min: 0 });
  const tensors = sampleTensors(shape, bytes);
  requireInteger("shards", shards, { min: 1, max: Math.min(tensors.length, 99_999) });
  const parts = split(tensors, shards);
  const names = parts.map((_, i) => (shards === 1 ? "model.safetensors" : `model-${pad(i + 1)}-of-${pad(shards)}.safetensors`));
  const totalBytes = sum(tensors);
  const written: string[] = [];
  let made = false;
  try {
    made = await makeFolder(resolve(folder));
    await checkFolder(folder, totalBytes, force);
    let bytesBefore = 0;
    for (const [i, part] of parts.entries()) {
      const name = names[i] as string;
      written.push(temporary(name));
      await writeShard(join(folder, temporary(name)), part, seed, signal, (bytes) =>
        onProgress?.({ bytes: bytesBefore + bytes, totalBytes }),
      );
      bytesBefore += sum(part);
    }
    if (shards > 1) {
      written.push(temporary(indexName));
      await writeIndex(join(folder, temporary(indexName)), parts, names, totalBytes);
    }
    if (force) for (const name of await weightsIn(folder)) await rm(join(folder, name));
    for (const name of written) await rename(join(folder, name), join(folder, final(name)));
  } catch (thrown) {
    for (const name of written) await rm(join(folder, name), { force: true });
    if (made) await rmdir(folder).catch(() => {}); // Unless somebody else put something there.
    throw explain(thrown, folder, signal);
  }
  return {
    files: names.map((name) => join(folder, name)),
    indexFile: shards > 1 ? join(folder, indexName) : undefined,
    tensorCount: tensors.length,
    byteLength: totalBytes,
  };
}

const indexName = "model.safetensors.index.json";
const suffix = ".partial";
const temporary = (name: string) => `${name}${suffix}`;
const final = (name: string) => name.slice(0, -suffix.length);
const pad = (n: number) => String(n).padStart(5, "0");
const sum = (tensors: readonly SampleTensor[]) => tensors.reduce((bytes, { byteLength }) => bytes + byteLength, 0);

/** Cuts the list into `count` runs of about equal bytes, none of them empty. */
function split(tensors: readonly SampleTensor[], count: number): SampleTensor[][] {
  const total = sum(tensors);
  const parts: SampleTensor[][] = [[]];
  let bytes = 0;
  for (const [i, tensor] of tensors.entries()) {
    const part = parts.at(-1) as SampleTensor[];
    const mustGoOn = tensors.length - i === count - parts.length;
    const reached = bytes + tensor.byteLength / 2 > (total * parts.length) / count;
    if (part.length > 0 && parts.length < count && (mustGoOn || reached)) parts.push([tensor]);
    else part.push(tensor);
    bytes += tensor.byteLength;
  }
  return parts;
}

/**
 * Makes the folder, and those above it; false when it was there. Not `mkdir` with `recursive`:
 * where a file system refuses with ENOENT under a folder that is there (/proc), Node never comes
 * back from it.
 */
async function makeFolder(folder: string): Promise<boolean> {
  try {
    await mkdir(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return false;
    const parent = dirname(folder);
    if (code !== "ENOENT" || parent === folder || (await isThere(parent))) throw error;
    await makeFolder(parent);
    await mkdir(folder);
  }
  return true;
}

async function isThere(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}

async function weightsIn(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => name.endsWith(".safetensors") || name.endsWith(".safetensors.index.json"));
}

async function checkFolder(folder: string, totalBytes: number, force: boolean): Promise<void> {
  const present = await weightsIn(folder);
  if (present.length > 0 && !force) {
    const [first] = present;
    throw errorOf(
      "ERR_SAMPLE_EXISTS",
      `${folder} holds weights already (${first}): give another folder, or --force (option force) to replace them`,
      {
        facts: { file: join(folder, String(first)) },
      },
    );
  }
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize < totalBytes + blockBytes) {
    throw errorOf("ERR_SAMPLE_NO_SPACE", `${folder} has ${bavail * bsize} bytes free, the sample needs ${totalBytes + blockBytes}`, {
      facts: { file: folder, length: totalBytes },
    });
  }
}

/**
 * Header as the reference writer lays it out: entries by name, padded with spaces so that the data
 * starts at a multiple of 8.
 */
function header(tensors: readonly SampleTensor[]): Buffer {
  const entries: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let begin = 0;
  for (const { name, shape, byteLength } of tensors) {
    entries[name] = { dtype: "BF16", shape, data_offsets: [begin, begin + byteLength] };
    begin += byteLength;
  }
  const json = Buffer.from(JSON.stringify(entries));
  const out = Buffer.alloc(8 + Math.ceil(json.length / 8) * 8, " ");
  out.writeBigUInt64LE(BigInt(out.length - 8));
  json.copy(out, 8);
  return out;
}

async function writeShard(
  path: string,
  part: readonly SampleTensor[],
  seed: number,
  signal: AbortSignal | undefined,
  onBytes: (bytes: number) => void,
): Promise<void> {
  const sorted = part.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const file = await open(path, "w");
  try {
    await writeAll(file, header(sorted));
    const block = Buffer.allocUnsafe(blockBytes);
    let filled = 0;
    let bytes = 0;
    const flush = async () => {
      signal?.throwIfAborted();
      await writeAll(file, block.subarray(0, filled));
      bytes += filled;
      filled = 0;
      onBytes(bytes);
    };
    for (const { name, byteLength } of sorted) {
      const noise = noiseOf(seed, name);
      for (let left = byteLength; left > 0; ) {
        const length = Math.min(left, blockBytes - filled);
        noise.update(zeros.subarray(0, length)).copy(block, filled);
        filled += length;
        left -= length;
        if (filled === blockBytes) await flush();
      }
    }
    if (filled > 0) await flush();
    // Clean pages can be dropped from the cache, and a file under its final name is whole whatever
    // happens to the machine.
    await file.datasync();
  } finally {
    await file.close();
  }
}

const zeros = Buffer.alloc(blockBytes);

/** The key stream of a tensor: the key from the seed, the counter from the name. */
function noiseOf(seed: number, name: string): Cipher {
  const digest = (text: string) => createHash("sha256").update(text).digest().subarray(0, 16);
  return createCipheriv("aes-128-ctr", digest(`seed ${seed}`), digest(`name ${name}`));
}

async function writeIndex(path: string, parts: readonly SampleTensor[][], names: readonly string[], totalBytes: number): Promise<void> {
  const map = Object.fromEntries(parts.flatMap((part, i) => part.map(({ name }) => [name, names[i]])));
  const file = await open(path, "w");
  try {
    await writeAll(file, Buffer.from(`${JSON.stringify({ metadata: { total_size: totalBytes }, weight_map: map }, null, 2)}\n`));
    await file.datasync();
  } finally {
    await file.close();
  }
}

async function writeAll(file: FileHandle, bytes: Buffer): Promise<void> {
  for (let done = 0; done < bytes.length; ) done += (await file.write(bytes, done, bytes.length - done)).bytesWritten;
}

function explain(thrown: unknown, folder: string, signal: AbortSignal | undefined): unknown {
  if (thrown instanceof ModelExpressError || (signal?.aborted && thrown === signal.reason)) return thrown;
  const { code, syscall, path, message } = thrown as NodeJS.ErrnoException;
  if (code === undefined) return thrown;
  if (code === "ENOSPC")
    return errorOf("ERR_SAMPLE_NO_SPACE", `the disk of ${folder} is full`, { facts: { file: folder, errno: code }, cause: thrown });
  return errorOf("ERR_SAMPLE_WRITE", `the sample cannot be written to ${folder}: ${message}`, {
    facts: { file: path ?? folder, operation: syscall ?? "write", errno: code },
    cause: thrown,
  });
}
