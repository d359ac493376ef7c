/**
 * Moves the memory of a view into another buffer, as any stream of bytes does; the view's own
 * buffer is detached.
 */
export async function moveBytes(view: Uint8Array): Promise<Uint8Array> {
  const stream = new ReadableStream({
    type: "bytes",
    start(controller) {
      controller.enqueue(view);
      controller.close();
    },
  });
  return (await stream.getReader().read()).value as Uint8Array;
}
