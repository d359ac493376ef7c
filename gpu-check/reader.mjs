// The other process of the step `remote-read`: reads all tensors of the job in one transfer, and
// answers with their digests.
import { hex, product } from "./support.mjs";

const job = await new Promise((resolve) => process.once("message", resolve));
const { cudaBackend, hostBackend, NixlAgent, VmmArena } = await product();
const onDevice = job.into === "device";
const number = Number(job.device.slice("cuda:".length));
const arena = new VmmArena({ backend: onDevice ? cudaBackend({ device: job.device }) : hostBackend(), totalBytes: job.bytes });
const base = arena.malloc(job.bytes);
const reader = await NixlAgent.create({ name: "reader", plugins: { UCX: {} } });
const own = await arena.register(reader);
const remoteAgent = await reader.loadRemote(Buffer.from(job.metadata, "base64"));
const addresses = BigUint64Array.from(job.tensors, ([, address]) => BigInt(address));
// In the order of files and offsets, which is that of addresses.
const length = Float64Array.from(job.tensors, ([, , bytes]) => bytes);
const local = {
  kind: onDevice ? "VRAM" : "DRAM",
  device: onDevice ? number : 0,
  address: addresses.map((address) => base + address - addresses[0]),
  length,
};
const remote = { kind: "VRAM", device: number, address: addresses, length };
const transfer = await reader.createTransfer({ operation: "read", local, remote, remoteAgent, registrations: [own] });
const begin = performance.now();
transfer.post();
await transfer.wait({ timeoutMs: 60_000 });
const ms = performance.now() - begin;
await transfer.release();
const bytes = length.reduce((sum, each) => sum + each, 0);
const digests = [];
for (const [row, [name, , byteLength]] of job.tensors.entries()) {
  const at = local.address[row];
  const copy = onDevice ? await arena.native.copyToHost(at, byteLength) : new Uint8Array(arena.view(at, byteLength));
  digests.push([name, hex(copy)]);
}
process.send({ ms, gigabytesPerSecond: bytes / ms / 1e6, digests }, () => process.disconnect());
await own.close();
await reader.close();
arena.close();
