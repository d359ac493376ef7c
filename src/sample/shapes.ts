import { requireInteger } from "../arguments.js";

/**
 * Kinds of sample checkpoints: a dense transformer, thousands of small expert tensors, a few fused
 * ones.
 */
export const sampleShapes = ["llama", "many-small", "few-large"] as const;
export type SampleShape = (typeof sampleShapes)[number];

/** A tensor to be written; every sample tensor is BF16. */
export interface SampleTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly byteLength: number;
}

/** Bytes of one BF16 element. */
const elementBytes = 2;

/** The least bytes for which each kind keeps its proportions. */
export const leastSampleBytes: Readonly<Record<SampleShape, number>> = { llama: 64 * 1024, "many-small": 1024 * 1024, "few-large": 1024 };

/**
 * Names and shapes of a sample of about `bytes` bytes, in the order of the layers. The vocabulary
 * takes up the remainder, so the sum is within one row of the embedding (and of the head) of what
 * was asked.
 * @throws ERR_OPTION_INVALID when `bytes` is below {@link leastSampleBytes}
 */
export function sampleTensors(shape: SampleShape, bytes: number): SampleTensor[] {
  requireInteger("bytes", bytes, { min: leastSampleBytes[shape] });
  if (shape === "llama") return llama(bytes);
  return shape === "many-small" ? manySmall(bytes) : fewLarge(bytes);
}

function tensor(name: string, ...shape: number[]): SampleTensor {
  return { name, shape, byteLength: shape.reduce((product, dim) => product * dim, elementBytes) };
}

function bytesOf(tensors: readonly SampleTensor[]): number {
  return tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/** Embedding, layers, norm, head; the vocabulary fills up to `bytes`. */
function model(layers: readonly SampleTensor[], hidden: number, bytes: number): SampleTensor[] {
  const norm = tensor("model.norm.weight", hidden);
  const vocabulary = Math.max(1, Math.floor((bytes - bytesOf(layers) - norm.byteLength) / (2 * hidden * elementBytes)));
  return [tensor("model.embed_tokens.weight", vocabulary, hidden), ...layers, norm, tensor("lm_head.weight", vocabulary, hidden)];
}

/** Grouped-query attention (a key or value for four queries) and the two norms of layer `i`. */
function attention(i: number, hidden: number): SampleTensor[] {
  const at = `model.layers.${i}`;
  return [
    tensor(`${at}.input_layernorm.weight`, hidden),
    tensor(`${at}.self_attn.q_proj.weight`, hidden, hidden),
    tensor(`${at}.self_attn.k_proj.weight`, hidden / 4, hidden),
    tensor(`${at}.self_attn.v_proj.weight`, hidden / 4, hidden),
    tensor(`${at}.self_attn.o_proj.weight`, hidden, hidden),
    tensor(`${at}.post_attention_layernorm.weight`, hidden),
  ];
}

/**
 * Proportions of Llama 3 8B (hidden 4096, feed-forward 3.5 times that, 32 layers, vocabulary
 * 128,256), scaled to `bytes`.
 */
function llama(bytes: number): SampleTensor[] {
  const layerCount = (hidden: number) => Math.max(2, Math.round(hidden / 128));
  // 26 bytes per squared width and layer: 13 weights of two bytes each; 125: embedding and head.
  const total = (hidden: number) => hidden * hidden * (26 * layerCount(hidden) + 125);
  let hidden = 16;
  for (let next = hidden; total(next) <= bytes; next += next < 128 ? 16 : 64) hidden = next;
  const layers: SampleTensor[] = [];
  for (let i = 0; i < layerCount(hidden); i++) {
    const wide = 3.5 * hidden;
    layers.push(
      ...attention(i, hidden),
      tensor(`model.layers.${i}.mlp.gate_proj.weight`, wide, hidden),
      tensor(`model.layers.${i}.mlp.up_proj.weight`, wide, hidden),
      tensor(`model.layers.${i}.mlp.down_proj.weight`, hidden, wide),
    );
  }
  return model(layers, hidden, bytes);
}

/** A mixture of experts: 11 layers of 90 experts with three matrices each, 3,050 tensors in all. */
function manySmall(bytes: number): SampleTensor[] {
  const [layerCount, expertCount] = [11, 90];
  const elements = (0.9 * bytes) / (layerCount * expertCount * 3) / elementBytes;
  const hidden = Math.max(16, 16 * Math.round(Math.sqrt(elements * 1.6) / 16));
  const wide = Math.max(8, Math.floor(elements / hidden));
  const layers: SampleTensor[] = [];
  for (let i = 0; i < layerCount; i++) {
    layers.push(...attention(i, hidden), tensor(`model.layers.${i}.mlp.gate.weight`, expertCount, hidden));
    for (let e = 0; e < expertCount; e++) {
      const expert = `model.layers.${i}.mlp.experts.${e}`;
      layers.push(
        tensor(`${expert}.gate_proj.weight`, wide, hidden),
        tensor(`${expert}.up_proj.weight`, wide, hidden),
        tensor(`${expert}.down_proj.weight`, hidden, wide),
      );
    }
  }
  return model(layers, hidden, bytes);
}

/** Eight fused expert matrices of equal size. */
function fewLarge(bytes: number): SampleTensor[] {
  const [count, expertCount] = [8, 8];
  const elements = bytes / count / expertCount / elementBytes;
  const hidden = 2 ** Math.floor(Math.log2(elements) / 2);
  const wide = Math.floor(elements / hidden);
  return Array.from({ length: count }, (_, i) => tensor(`model.layers.${i}.mlp.experts.down_proj`, expertCount, wide, hidden));
}
