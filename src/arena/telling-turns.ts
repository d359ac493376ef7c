import { setImmediate } from "node:timers/promises";

/**
 * Turns of the event loop at which the engine may tell of a view that it has collected. Until then
 * it could be one whose memory was moved.
 */
const tellingTurns = 5;

/**
 * Asks until the answer is no longer `unsure`, once in each of these turns; gives the last answer.
 */
export async function onceTold<T>(ask: () => T, unsure: (answer: T) => boolean): Promise<T> {
  let answer = ask();
  for (let turn = 0; turn < tellingTurns && unsure(answer); turn++) {
    await setImmediate();
    answer = ask();
  }
  return answer;
}
