// Ranges of a file by GdsTransferManager, aligned and not, compared.
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { checkpointFiles, product, requireNixl } from "../support.mjs";

export default async function ranges(options) {
  await requireNixl();
  const { device, answer, open } = options;
  const { GdsTransferManager } = await product();
  const [file] = checkpointFiles(options);
  const { size } = statSync(file);
  const asked = [
    [0, 4096],
    [4096, 2 ** 20],
    [12_345, 6_789],
    [size - 1000, 1000],
  ];
  const gds = open(await GdsTransferManager.create({ agentName: "gpu-check", device }));
  const batch = open(await gds.batchLoadFile(file, size, asked));
  answer("batch", batch.report);
  for (const [row, [offset, length]] of asked.entries()) {
    const copy = await batch.buffers[row].copyToHost();
    if (Buffer.compare(copy, readRange(file, offset, length)) !== 0) throw new Error(`bytes ${offset} to ${offset + length} differ`);
  }
}

function readRange(file, offset, length) {
  const fd = openSync(file, "r");
  const bytes = Buffer.alloc(length);
  readSync(fd, bytes, 0, length, offset);
  closeSync(fd);
  return bytes;
}
