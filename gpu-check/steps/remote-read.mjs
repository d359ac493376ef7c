// The loaded checkpoint registered once with UCX, and read by another process: from device to
// device, then to the host. Bytes compared.
import { fork } from "node:child_process";
import { checkpointFolder, expectedDigests, product, requireNixl } from "../support.mjs";

export default async function remoteRead(options) {
  await requireNixl();
  const { device, answer, open } = options;
  const { loadCheckpoint, NixlAgent } = await product();
  const model = open(await loadCheckpoint(checkpointFolder(options), { device, driver: "staged" }));
  const owner = open(await NixlAgent.create({ name: "owner", plugins: { UCX: {} } }));
  const begin = performance.now();
  const shared = open(await model.arena.register(owner));
  answer("register", { layout: shared.layout, regions: shared.regions, reason: shared.reason, ms: performance.now() - begin });
  const tensors = [...model.tensors.values()].filter(({ byteLength }) => byteLength > 0);
  const job = {
    device,
    metadata: Buffer.from(await owner.exportMetadata()).toString("base64"),
    bytes: model.report.allocationBytes,
    tensors: tensors.map(({ name, address, byteLength }) => [name, String(address), byteLength]),
  };
  for (const into of ["device", "host"]) await ask({ ...job, into }, options);
}

/** One process that reads; its answers are told as they come. */
function ask(job, options) {
  const expected = expectedDigests(options);
  return new Promise((resolve, reject) => {
    const child = fork(new URL("../reader.mjs", import.meta.url), { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    child.send(job);
    child.on("message", ({ digests, ...facts }) => {
      options.answer("read", { into: job.into, ...facts });
      for (const [name, digest] of digests) if (expected.get(name) !== digest) reject(new Error(`tensor ${name} differs after the read`));
    });
    child.once("exit", (code, signal) =>
      code === 0 ? resolve() : reject(new Error(`the reader ended with ${code ?? signal}, into ${job.into}`)),
    );
  });
}
