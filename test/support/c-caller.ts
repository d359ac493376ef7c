import { constants } from "node:os";
import { nativeLibraryPath } from "../../src/arena/active-arena.js";
import { addon } from "../../src/native/load.js";
import { compile } from "./compile.js";

/**
 * A C library that allocates by the addon's symbols; every call runs on threads of its own. See
 * c-caller.c.
 */
export interface CCaller {
  /** 0 for null; `touch` fills what was given with 0x5a. */
  malloc(bytes: number, device: number, touch?: 0 | 1): bigint;
  free(address: bigint, bytes: number, device: number): void;
  /** Threads that allocate and free until `stop`. `touch` writes to what they were given. */
  start(threads: number, bytes: number, device: number, touch: 0 | 1): void;
  /** `[given, refused]` */
  stop(): [given: number, refused: number, ns: number];
  /** So many mallocs with their frees on each thread. */
  pairs(threads: number, bytes: number, device: number, count: number): [given: number, refused: number, ns: number];
}

/** Compiles it. Its threads may run on when Node has given it up, so it stays loaded. */
export function cCallerPath(): string {
  return compile("c-caller.c", ["-shared", "-fPIC", "-pthread", "-ldl", "-Wl,-z,nodelete"]);
}

/** Loads it, and shows it the addon that this process has loaded. */
export function cCaller() {
  addon();
  const library = { exports: {} as CCaller & { open(path: string): void } };
  process.dlopen(library, cCallerPath(), constants.dlopen.RTLD_NOW);
  const { open, malloc, free, start, stop, pairs } = library.exports;
  open(nativeLibraryPath);
  return {
    malloc: (bytes: number, device: number, touch = false) => malloc(bytes, device, touch ? 1 : 0),
    free,
    start: (threads: number, bytes: number, device: number, touch: boolean) => start(threads, bytes, device, touch ? 1 : 0),
    stop,
    pairs,
  };
}
