// Is there a device, whose driver is it, and does the product's addon load at all?
import { loadedLibraries, product, Skip } from "../support.mjs";

export default async function device({ answer }) {
  const { cudaFacts } = await product();
  let facts;
  try {
    facts = await cudaFacts();
  } catch (error) {
    throw new Skip(error.message);
  }
  const standIn = loadedLibraries().some((library) => library.includes("libmx_fakes"));
  answer("driver", { library: facts.library, version: facts.driverVersion, ...(standIn && { standIn: facts.library }) });
  for (const each of facts.devices) answer("device", each);
}
