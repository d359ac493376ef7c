import { describe, expect, it } from "vitest";
import { openCheckpoint } from "../../src/checkpoint/open.js";
import { loadCheckpoint } from "../../src/loader/load-checkpoint.js";
import { errorFrom, writeCheckpoint } from "../support/loading.js";

const tensors = { "model.norm.weight": { dtype: "U8", shape: [1] }, "lm_head.weight": { dtype: "U8", shape: [2] } } as const;

describe("requireTensor()", () => {
  it("of a checkpoint gives what its header says, or an error with the nearest names", async () => {
    const path = writeCheckpoint(tensors);
    const checkpoint = await openCheckpoint(path);
    expect(checkpoint.requireTensor("lm_head.weight")).toMatchObject({ name: "lm_head.weight", shape: [2] });
    expect(await errorFrom(() => checkpoint.requireTensor("lm_heat.weight"))).toMatchObject({
      name: "TensorError",
      code: "ERR_TENSOR_UNKNOWN",
      tensor: "lm_heat.weight",
      near: ["lm_head.weight"],
      message: `there is no tensor "lm_heat.weight" in ${path}; did you mean "lm_head.weight"?`,
    });
  });

  it("of a model gives the tensor, also when it is closed", async () => {
    const model = await loadCheckpoint(writeCheckpoint(tensors));
    const tensor = model.requireTensor("lm_head.weight");
    expect(tensor).toBe(model.tensors.get("lm_head.weight"));
    await model.close();
    expect(model.requireTensor("lm_head.weight")).toBe(tensor);
  });

  it("says where the selection left a tensor out", async () => {
    const path = writeCheckpoint(tensors);
    await using model = await loadCheckpoint(path, { exclude: "lm_head.*" });
    const error = await errorFrom(() => model.requireTensor("lm_head.weight"));
    expect(error).toMatchObject({ near: [] });
    expect(error.message).toBe(
      `there is no tensor "lm_head.weight" in what was loaded of ${path}: \`include\` or \`exclude\` left it out; its names look like "model.norm.weight"`,
    );
  });

  it.each([undefined, null, 7, {}, Symbol("s")])("refuses %s for a name", async (name) => {
    const checkpoint = await openCheckpoint(writeCheckpoint(tensors));
    expect(await errorFrom(() => checkpoint.requireTensor(name as string))).toMatchObject({ code: "ERR_TENSOR_UNKNOWN" });
  });

  it("of an empty checkpoint says that there is nothing", async () => {
    const checkpoint = await openCheckpoint(writeCheckpoint({}));
    const { message } = await errorFrom(() => checkpoint.requireTensor("x"));
    expect(message).toMatch(/; it has no tensors$/);
  });
});
