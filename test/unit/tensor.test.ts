import { describe, expect, it, onTestFinished, vi } from "vitest";
import { type Dtype, dtypes } from "../../src/checkpoint/dtype.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import type { TensorArray } from "../../src/loader/tensor.js";

import { errorFrom, writeCheckpoint } from "../support/loading.js";
import { moveBytes } from "../support/moved-bytes.js";

const hex = (text: string) => Buffer.from(text.replaceAll(" ", ""), "hex");

/** From Node 24 on. */
const float16 = (globalThis as { Float16Array?: Uint16ArrayConstructor }).Float16Array;

/** Bytes as they stand in the file, little-endian, and the array that they are. */
const arrays: Readonly<Record<Dtype, readonly [shape: readonly number[], bytes: Buffer, array: TensorArray]>> = {
  BOOL: [[2], hex("01 00"), new Uint8Array([1, 0])],
  F4: [[4], hex("21 43"), new Uint8Array([0x21, 0x43])],
  F6_E2M3: [[4], hex("01 02 03"), new Uint8Array([1, 2, 3])],
  F6_E3M2: [[4], hex("04 05 06"), new Uint8Array([4, 5, 6])],
  U8: [[2], hex("ff 00"), new Uint8Array([255, 0])],
  I8: [[2], hex("ff 7f"), new Int8Array([-1, 127])],
  F8_E5M2: [[1], hex("3c"), new Uint8Array([0x3c])],
  F8_E4M3: [[1], hex("38"), new Uint8Array([0x38])],
  F8_E8M0: [[1], hex("7f"), new Uint8Array([0x7f])],
  F8_E4M3FNUZ: [[1], hex("40"), new Uint8Array([0x40])],
  F8_E5M2FNUZ: [[1], hex("40"), new Uint8Array([0x40])],
  I16: [[2], hex("fe ff 00 01"), new Int16Array([-2, 256])],
  U16: [[2], hex("fe ff 00 01"), new Uint16Array([65_534, 256])],
  F16: [[1], hex("00 3c"), new (float16 ?? Uint16Array)(new Uint16Array([0x3c00]).buffer)],
  BF16: [[1], hex("80 3f"), new Uint16Array([0x3f80])],
  I32: [[1], hex("fe ff ff ff"), new Int32Array([-2])],
  U32: [[1], hex("fe ff ff ff"), new Uint32Array([4_294_967_294])],
  F32: [[2], hex("00 00 80 3f 00 00 00 c0"), new Float32Array([1, -2])],
  C64: [[1], hex("00 00 80 3f 00 00 00 c0"), new Float32Array([1, -2])],
  F64: [[1], hex("00 00 00 00 00 00 f0 3f"), new Float64Array([1])],
  I64: [[1], hex("fe ff ff ff ff ff ff ff"), new BigInt64Array([-2n])],
  U64: [[1], hex("fe ff ff ff ff ff ff ff"), new BigUint64Array([18_446_744_073_709_551_614n])],
};

describe("copyToHost()", () => {
  it("copies the bytes, or a part, which stay when the model is closed", async () => {
    const model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [4], bytes: hex("01 02 03 04") } }));
    const tensor = model.tensors.get("t");
    const [whole, part, none] = await Promise.all([tensor?.copyToHost(), tensor?.copyToHost(1, 2), tensor?.copyToHost(4)]);
    tensor?.bytes().fill(9);
    expect([tensor?.device, whole, part, none]).toEqual(["host", new Uint8Array([1, 2, 3, 4]), new Uint8Array([2, 3]), new Uint8Array(0)]);
    expect(await errorFrom(Promise.resolve(tensor?.copyToHost(3, 2)))).toMatchObject({
      code: "ERR_TENSOR_RANGE",
      tensor: "t",
      offset: 3,
      length: 2,
    });
    await model.close();
    expect(whole).toEqual(new Uint8Array([1, 2, 3, 4]));
    expect(await errorFrom(Promise.resolve(tensor?.copyToHost()))).toMatchObject({ code: "ERR_TENSOR_RELEASED" });
  });
});

describe("typed()", () => {
  it("knows all 22 dtypes", () => {
    expect(Object.keys(arrays)).toEqual(dtypes.map(({ name }) => name));
  });

  it.each(Object.entries(arrays))("%s", async (dtype, [shape, bytes, array]) => {
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: dtype as Dtype, shape, bytes } }));
    const tensor = model.tensors.get("t");
    expect(tensor?.typed()).toEqual(array);
    expect(tensor).toMatchObject({ dtype, shape, byteLength: bytes.length });
    expect(tensor?.bytes()).toEqual(new Uint8Array(bytes));
  });

  it("gives the array of the dtype that is named, and refuses another", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "F32", shape: [1], bytes: hex("00 00 80 3f") } }));
    const tensor = model.requireTensor("t");
    const floats: Float32Array = tensor.typed("F32");
    expect([...floats]).toEqual([1]);
    const error = await errorFrom(() => tensor.typed("BF16") satisfies Uint16Array);
    expect(error).toMatchObject({ code: "ERR_TENSOR_DTYPE", tensor: "t", dtype: "F32", expected: "BF16" });
    expect(error.message).toBe('tensor "t" is F32, not BF16');
  });

  it("gives a Float16Array where there is one", async () => {
    class Halves extends Uint16Array {}
    vi.stubGlobal("Float16Array", Halves);
    onTestFinished(() => {
      vi.unstubAllGlobals();
    });
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "F16", shape: [1], bytes: hex("00 3c") } }));
    const tensor = model.requireTensor("t");
    expect(tensor.typed()).toBeInstanceOf(Halves);
    expect(tensor.typed("F16").buffer).toBe(tensor.bytes().buffer);
  });

  it("shares its bytes with bytes(), and writes show", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U16", shape: [2], bytes: hex("01 00 02 00") } }));
    const tensor = model.tensors.get("t");
    const typed = tensor?.typed();
    tensor?.bytes().set([9], 2);
    expect(typed).toEqual(new Uint16Array([1, 9]));
  });

  it("refuses a tensor that packed placement left off its element size, which bytes() does not mind", async () => {
    const path = writeCheckpoint({ one: { dtype: "U8", shape: [1] }, f: { dtype: "F32", shape: [1], bytes: hex("00 00 80 3f") } });
    await using packed = await loadCheckpoint(path, { placement: "packed" });
    // The reference for packed placement is the tensor with the largest alignment, so a second one
    // of another offset must be off.
    await using aligned = await loadCheckpoint(path);
    expect(aligned.tensors.get("f")?.typed()).toEqual(new Float32Array([1]));
    const tensor = packed.tensors.get("f");
    expect(tensor?.bytes()).toEqual(new Uint8Array(hex("00 00 80 3f")));

    const two = writeCheckpoint({ f: { dtype: "F32", shape: [1] }, one: { dtype: "U8", shape: [1] }, g: { dtype: "F32", shape: [1] } });
    await using off = await loadCheckpoint(two, { placement: "packed" });
    expect(await errorFrom(() => off.tensors.get("g")?.typed())).toMatchObject({
      code: "ERR_TENSOR_UNALIGNED",
      tensor: "g",
      alignBytes: 4,
    });
    expect(off.tensors.get("g")?.bytes().length).toBe(4);
  });
});

describe("bytes(offset, length)", () => {
  const content = Buffer.from(Array.from({ length: 10 }, (_, index) => index));

  it("gives parts without a copy", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [10], bytes: content } }));
    const tensor = model.tensors.get("t");
    expect(tensor?.bytes(3)).toEqual(new Uint8Array([3, 4, 5, 6, 7, 8, 9]));
    expect(tensor?.bytes(3, 2)).toEqual(new Uint8Array([3, 4]));
    expect(tensor?.bytes(10)).toEqual(new Uint8Array(0));
    expect(tensor?.bytes(10, 0)).toEqual(new Uint8Array(0));
    tensor?.bytes(4, 1).fill(99);
    expect(tensor?.bytes()[4]).toBe(99);
    expect(tensor?.bytes().buffer).toBe(tensor?.bytes(3, 2).buffer);
  });

  it.each([
    [-1, 1],
    [0, 11],
    [10, 1],
    [11, 0],
    [0, -1],
    [1.5, 1],
    [0, Number.NaN],
    [Number.MAX_SAFE_INTEGER, 1],
  ])("refuses (%d, %d) of 10", async (offset, length) => {
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [10], bytes: content } }));
    const error = await errorFrom(() => model.tensors.get("t")?.bytes(offset, length));
    expect(error).toMatchObject({ code: "ERR_TENSOR_RANGE", tensor: "t", offset, byteLength: 10, name: "TensorError" });
  });

  it("makes a new view where somebody detached the old one", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({ t: { dtype: "U8", shape: [10], bytes: content } }));
    const tensor = model.tensors.get("t");
    const view = tensor?.bytes();
    const moved = await moveBytes(view ?? new Uint8Array());
    expect([view?.length, [...moved]]).toEqual([0, [...content]]);
    expect(tensor?.bytes()).toEqual(new Uint8Array(content));
  });
});

describe("a tensor", () => {
  it("as JSON tells everything but its bytes", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({ "model.embed": { dtype: "BF16", shape: [3, 4] } }));
    const tensor = model.tensors.get("model.embed");
    expect(JSON.parse(JSON.stringify(tensor))).toEqual({
      name: "model.embed",
      dtype: "BF16",
      shape: [3, 4],
      byteLength: 24,
      address: `0x${tensor?.address.toString(16)}`,
      device: "host",
      shard: "model.safetensors",
    });
  });

  it("has a shape that cannot be written to, and scalars have none", async () => {
    await using model = await loadCheckpoint(writeCheckpoint({ s: { dtype: "F64", shape: [] }, t: { dtype: "U8", shape: [2, 1] } }));
    expect(model.tensors.get("s")?.shape).toEqual([]);
    expect(Object.isFrozen(model.tensors.get("t")?.shape)).toBe(true);
  });
});
