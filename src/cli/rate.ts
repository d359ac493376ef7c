/** Samples older than this say nothing of the rate now. */
const windowMs = 5000;

/** How fast bytes come, over the last seconds. */
export class Rate {
  readonly #samples: { readonly at: number; readonly bytes: number }[] = [];

  /** Bytes so far, at a point in milliseconds. */
  add(bytes: number, at: number): void {
    const samples = this.#samples;
    samples.push({ at, bytes });
    // The newest sample before the window stays: where samples are rare, it is what the rate is
    // known by.
    while ((samples[1]?.at ?? Number.POSITIVE_INFINITY) < at - windowMs) samples.shift();
  }

  /** Undefined until there is something to go by. */
  get bytesPerSecond(): number | undefined {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (first === undefined || last === undefined || last.at <= first.at || last.bytes <= first.bytes) return undefined;
    return ((last.bytes - first.bytes) / (last.at - first.at)) * 1000;
  }
}
