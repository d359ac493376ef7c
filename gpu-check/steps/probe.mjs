// What the product's probe finds, and why not more.
import { product } from "../support.mjs";

export default async function probeStep({ answer, folder }) {
  const { probe } = await product();
  const { findings } = await probe(folder);
  for (const { name, found, why } of findings) answer("finding", { name, found, why });
}
