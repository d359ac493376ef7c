import type { TestContext } from "vitest";

declare module "vitest" {
  interface TaskMeta {
    /** What the kernel, or this user's rights, lack for the test. */
    unavailable?: string;
  }
}

/**
 * Ends a test that needs what only the machine can give: a kernel feature, a privilege. `npm test`
 * counts it as not available, apart from what is skipped because nobody fetched it, which fails
 * under CI=true.
 */
export function unavailable(context: TestContext, reason: string): never {
  context.task.meta.unavailable = reason;
  return context.skip(`not available here: ${reason}`);
}
