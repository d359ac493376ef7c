import { onTestFailed } from "vitest";

/**
 * A random stream for one test: `TEST_SEED` in the environment sets the seed, and a test that fails
 * prints it.
 */
export interface RandomStream {
  readonly seed: number;
  /** A number in [0, 1). */
  next(): number;
  /** An integer in [0, end). */
  below(end: number): number;
}

export function randomStream(): RandomStream {
  const seed = testSeed();
  let state = seed >>> 0;
  // mulberry32: full period over 32 bits, passes gjrand's small tests.
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { seed, next, below: (end) => Math.floor(next() * end) };
}

/** The seed alone, for libraries that bring their own generator. */
export function testSeed(): number {
  const given = process.env.TEST_SEED;
  const seed = given === undefined ? Math.floor(Math.random() * 2 ** 32) : Number(given);
  onTestFailed(() => console.error(`seed: run again with TEST_SEED=${seed}`));
  return seed;
}
