import { entryOf } from "../../columns.js";
import type { TransferFiles, TransferPieces } from "../../native/addon.js";
import { hugePageBytes } from "../../units.js";
import { directBlocks } from "../files.js";

/**
 * From this length on the addresses of a sequence follow the file modulo a huge page, so that long
 * direct reads are single requests of the device; those of shorter ones modulo a block.
 */
const largeSequenceBytes = 2 * hugePageBytes;

/** At most so many copies in a window, so that an abort takes effect soon. */
const maxCopies = 4096;

/** What fills a slot once. Offsets count from the slot's start. */
export interface StagingWindow {
  readonly bytes: number;
  /** Sequences of files, in order, not overlapping. */
  readonly reads: {
    readonly file: Uint32Array;
    readonly offset: Float64Array;
    readonly length: Float64Array;
    readonly slotOffset: Float64Array;
  };
  /** From where in the slot to which address. */
  readonly copies: { readonly from: Float64Array; readonly to: BigUint64Array; readonly length: Float64Array };
}

/**
 * Cuts pieces, in their order, into windows that each fit a slot: every byte once, file-adjacent
 * pieces as one sequence, addresses congruent to file offsets, and sequences that are longer than a
 * slot cut at blocks of the file. Made one by one, as slots become free.
 * @param slotBytes a multiple of 2 MiB, two of them at least
 */
export function* stagingWindows(files: TransferFiles, pieces: TransferPieces, slotBytes: number): Generator<StagingWindow, void, void> {
  const blocks = directBlocks(files);
  let window = new WindowBuilder();
  let sequenceEnd = 0;
  for (let row = 0; row < pieces.length.length; row++) {
    const [file, begin] = [entryOf(pieces.file, row), entryOf(pieces.offset, row)];
    const end = begin + entryOf(pieces.length, row);
    if (begin === end) continue;
    if (!window.continues(file, begin)) sequenceEnd = endOfSequence(pieces, row);
    for (let at = begin; at < end; ) {
      const period = sequenceEnd - at >= largeSequenceBytes ? hugePageBytes : Math.min(entryOf(blocks, file), hugePageBytes);
      const place = window.placeFor(file, at, period);
      if (place >= slotBytes || window.copyCount >= maxCopies) {
        yield window.build();
        window = new WindowBuilder();
        continue;
      }
      const length = Math.min(end - at, slotBytes - place);
      window.add(file, at, length, place, entryOf(pieces.address, row) + BigInt(at - begin));
      at += length;
    }
  }
  if (window.bytes > 0) yield window.build();
}

/** End of the file-adjacent pieces from this one on. */
function endOfSequence(pieces: TransferPieces, row: number): number {
  const file = pieces.file[row];
  let end = entryOf(pieces.offset, row) + entryOf(pieces.length, row);
  for (let next = row + 1; pieces.file[next] === file && pieces.offset[next] === end; next++) end += entryOf(pieces.length, next);
  return end;
}

interface Sequence {
  readonly file: number;
  readonly offset: number;
  readonly slotOffset: number;
  length: number;
}

interface Copy {
  readonly from: number;
  readonly to: bigint;
  length: number;
}

class WindowBuilder {
  bytes = 0;
  readonly #sequences: Sequence[] = [];
  readonly #copies: Copy[] = [];

  get copyCount(): number {
    return this.#copies.length;
  }

  /** Whether these bytes follow the last ones of this window in their file. */
  continues(file: number, offset: number): boolean {
    const sequence = this.#sequences.at(-1);
    return sequence !== undefined && sequence.file === file && sequence.offset + sequence.length === offset;
  }

  placeFor(file: number, offset: number, periodBytes: number): number {
    const sequence = this.#sequences.at(-1);
    const cursor = sequence === undefined ? 0 : sequence.slotOffset + sequence.length;
    return this.continues(file, offset) ? cursor : cursor + ((((offset - cursor) % periodBytes) + periodBytes) % periodBytes);
  }

  add(file: number, offset: number, length: number, slotOffset: number, address: bigint): void {
    const sequence = this.#sequences.at(-1);
    if (sequence !== undefined && this.continues(file, offset)) sequence.length += length;
    else this.#sequences.push({ file, offset, length, slotOffset });
    const copy = this.#copies.at(-1);
    if (copy !== undefined && copy.from + copy.length === slotOffset && copy.to + BigInt(copy.length) === address) copy.length += length;
    else this.#copies.push({ from: slotOffset, to: address, length });
    this.bytes += length;
  }

  build(): StagingWindow {
    const [sequences, copies] = [this.#sequences, this.#copies];
    return {
      bytes: this.bytes,
      reads: {
        file: Uint32Array.from(sequences, (sequence) => sequence.file),
        offset: Float64Array.from(sequences, (sequence) => sequence.offset),
        length: Float64Array.from(sequences, (sequence) => sequence.length),
        slotOffset: Float64Array.from(sequences, (sequence) => sequence.slotOffset),
      },
      copies: {
        from: Float64Array.from(copies, (copy) => copy.from),
        to: BigUint64Array.from(copies, (copy) => copy.to),
        length: Float64Array.from(copies, (copy) => copy.length),
      },
    };
  }
}
