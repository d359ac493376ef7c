// Moves memory out of views as a program can, in a worker that ends, and out of a model that is
// closed: the bytes must stay what they are. For .ci/run, under every version of Node, in a folder
// with the installed package. Argument: a checkpoint. Prints "kept".
import { once } from "node:events";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { loadCheckpoint } from "modelexpress-client";

/** By a stream of bytes, and by `ArrayBuffer.transfer()` where Node has it. */
const moves = {
  async stream(bytes) {
    const source = new ReadableStream({
      type: "bytes",
      start(controller) {
        controller.enqueue(bytes);
        controller.close();
      },
    });
    return (await source.getReader().read()).value.buffer;
  },
  ...("transfer" in ArrayBuffer.prototype && { transfer: async (bytes) => bytes.buffer.transfer() }),
};

const path = isMainThread ? process.argv[2] : workerData.path;

async function moved(move) {
  const model = await loadCheckpoint(path);
  const bytes = [...model.tensors.values()].find(({ byteLength }) => byteLength > 0).bytes();
  const before = Buffer.from(bytes);
  return { model, before, buffer: await moves[move](bytes) };
}

function requireKept(move, where, before, buffer) {
  if (!Buffer.from(buffer).equals(before)) throw new Error(`${move}, ${where}: the bytes are not what they were`);
}

if (isMainThread) {
  for (const move of Object.keys(moves)) {
    const { model, before, buffer } = await moved(move);
    await model.close();
    requireKept(move, "after the model was closed", before, buffer);
    const worker = new Worker(new URL(import.meta.url), { workerData: { path, move } });
    const [there] = await once(worker, "message");
    await worker.terminate();
    requireKept(move, "after its worker ended", there.before, there.buffer);
  }
  console.log("kept");
} else {
  const { before, buffer } = await moved(workerData.move);
  parentPort.postMessage({ before, buffer }, [buffer]);
  setInterval(() => {}, 1000);
}
