/** Whether a file name is that of weights in a format other than safetensors. */
export function isForeignWeights(name: string): boolean {
  return /\.(bin|pt|pth|ckpt|gguf|h5|msgpack|onnx|npz)$/.test(name);
}
