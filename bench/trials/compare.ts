import { closeSync, openSync, readSync } from "node:fs";
import type { LoadedModel } from "../../src/index.js";
import type { TrialJob } from "./job.js";

const stepBytes = 8 * 2 ** 20;

interface Entry {
  readonly data_offsets: readonly [number, number];
}

/**
 * Bytes of a loaded model, each held against the files where the job asks for that; else what the
 * report says.
 */
export function comparedBytes({ compare, files }: TrialJob, model: LoadedModel): number {
  if (!compare) return model.report.bytes;
  return compareWithFiles(files, (name, offset, length) => {
    const tensor = model.tensors.get(name);
    if (tensor === undefined) throw new Error(`tensor ${name} was not loaded`);
    return tensor.bytes(offset, length);
  });
}

/**
 * Holds every tensor of the files against what was loaded, byte for byte. The header is read here,
 * not by the product. Returns the bytes.
 */
export function compareWithFiles(files: readonly string[], bytesOf: (name: string, offset: number, length: number) => Uint8Array): number {
  const expected = Buffer.allocUnsafe(stepBytes);
  let total = 0;
  for (const file of files) {
    const fd = openSync(file, "r");
    const prefix = read(fd, Buffer.alloc(8), 0);
    const headerBytes = Number(prefix.readBigUInt64LE());
    const header = JSON.parse(read(fd, Buffer.alloc(headerBytes), 8).toString()) as Record<string, Entry>;
    for (const [name, entry] of Object.entries(header)) {
      if (name === "__metadata__") continue;
      const [begin, end] = entry.data_offsets;
      for (let at = begin; at < end; at += stepBytes) {
        const length = Math.min(stepBytes, end - at);
        const actual = bytesOf(name, at - begin, length);
        if (Buffer.compare(read(fd, expected.subarray(0, length), 8 + headerBytes + at), actual) !== 0) {
          throw new Error(`${file}: tensor ${name} differs in the ${length} bytes from byte ${at - begin}`);
        }
      }
      total += end - begin;
    }
    closeSync(fd);
  }
  return total;
}

function read(fd: number, into: Buffer, offset: number): Buffer {
  for (let done = 0; done < into.length; ) {
    const got = readSync(fd, into, done, into.length - done, offset + done);
    if (got === 0) throw new Error(`the file ends at ${offset + done}`);
    done += got;
  }
  return into;
}
