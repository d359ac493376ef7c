import { spawn } from "node:child_process";
import { open } from "node:fs/promises";

/** Bytes of one read. */
const blockBytes = 8 * 2 ** 20;

/**
 * Reads files whole through the page cache, with `parallelism` reads at a time into as many buffers
 * that are used again and again: what reading alone costs, without memory to put the bytes into.
 * Resolves to the bytes read.
 */
export async function plainRead(
  files: readonly string[],
  parallelism: number,
  signal: AbortSignal,
  onProgress: (bytes: number) => void,
): Promise<number> {
  const buffers = Array.from({ length: parallelism }, () => Buffer.allocUnsafeSlow(blockBytes).fill(0));
  let bytes = 0;
  for (const file of files) {
    const handle = await open(file);
    try {
      const { size } = await handle.stat();
      let next = 0;
      const reader = async (buffer: Buffer) => {
        while (next < size) {
          signal.throwIfAborted();
          const offset = next;
          next += blockBytes;
          const length = Math.min(blockBytes, size - offset);
          for (let done = 0; done < length; ) {
            const { bytesRead } = await handle.read(buffer, 0, length - done, offset + done);
            if (bytesRead === 0) return;
            done += bytesRead;
            bytes += bytesRead;
            onProgress(bytes);
          }
        }
      };
      await Promise.all(buffers.map(reader));
    } finally {
      await handle.close();
    }
  }
  return bytes;
}

/**
 * Asks the kernel to drop what it caches of each file, through `dd` (posix_fadvise, which Node
 * lacks). False where there is no such `dd`. That it returns true does not mean that anything was
 * dropped: a report's `bytesFromCache` tells.
 */
export async function dropCache(files: readonly string[]): Promise<boolean> {
  for (const file of files) {
    const dd = spawn("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"], { stdio: "ignore" });
    const code = await new Promise((resolve) => dd.once("error", () => resolve(-1)).once("close", resolve));
    if (code !== 0) return false;
  }
  return true;
}
