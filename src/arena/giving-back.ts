/** Closes of this thread whose memory is not given back yet. */
const running = new Set<Promise<unknown>>();

/** Counts `work`, which does not reject, among them until it has ended. */
export function countGivingBack(work: Promise<unknown>): void {
  running.add(work);
  work.finally(() => running.delete(work));
}

/** Resolves once their memory is back: what a load measures before counts it as taken. */
export async function givenBack(): Promise<void> {
  await Promise.all(running);
}
