import { availableParallelism } from "node:os";
import { basename, join, relative } from "node:path";
import { requireNotAborted } from "../aborts.js";
import { requireKnown } from "../arguments.js";
import type { NativeIndex } from "../native/addon.js";
import { addon } from "../native/load.js";
import { awaitUntilAborted } from "../native/until-aborted.js";
import { abortable } from "./abortable.js";
import { Checkpoint } from "./checkpoint.js";
import { explained } from "./explained.js";
import { ambiguous, type Resolved, resolveCheckpoint } from "./resolve.js";
import { shardPath } from "./shard-path.js";
import { controlsOf, listedControls, requireFinished } from "./unfinished.js";

export interface OpenCheckpointOptions {
  /**
   * Picks among the weights of a folder: the name of a file or of an index, the stem that its files
   * share (`model`, `consolidated`, `model.fp16`), or a numbered family as the error
   * ERR_CHECKPOINT_AMBIGUOUS names it.
   */
  readonly weights?: string | undefined;
  /** Ends the opening early: it rejects with ERR_ABORTED, whose `cause` is the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Headers are small: threads help where the storage answers slowly, so there are more of them than
 * processors.
 */
const maxThreads = 16;
/**
 * Of so many files each is asked whether a downloader still writes it; for more their folders are
 * listed, which may hold thousands.
 */
const maxAskedFiles = 4;

/**
 * Opens a checkpoint: finds its shards, reads and validates every header and the index, and closes
 * the files again. Nothing is returned before all of it is known to be right; no tensor's bytes are
 * read.
 *
 * `path` is a safetensors file, an index (`*.json`), a folder, or a repository of the Hub. In a
 * folder `model.safetensors.index.json` counts first, then `model.safetensors`, then another index
 * if it is the only one that names weights there and it names them all, then the `*.safetensors` if
 * they are one file or one complete numbered family. Hidden files and sub-folders do not count, nor
 * do indexes that have nothing to do with the weights. A repository's folder of the Hub's cache
 * (`models--org--name`) stands for the snapshot of its `main`. Where there is no local path
 * `org/name` or `org/name@revision`, that repository is looked up in the local cache (HF_HUB_CACHE,
 * HF_HOME); nothing is downloaded.
 * @throws the errors ERR_CHECKPOINT_*; ERR_OPTION_*; ERR_ABORTED
 */
export async function openCheckpoint(path: string | URL, options: OpenCheckpointOptions = {}): Promise<Checkpoint> {
  requireKnown("options", options, ["weights", "signal"]);
  const { weights, signal } = options;
  requireNotAborted(signal);
  const opening = open(path, weights, signal).catch(async (error) => {
    throw await explained(error);
  });
  return abortable(opening, signal);
}

async function open(path: string | URL, weights: string | undefined, signal: AbortSignal | undefined): Promise<Checkpoint> {
  const found = await resolveCheckpoint(path, weights);
  requireNotAborted(signal);
  const { indexFile, folder } = found;
  const index =
    indexFile === undefined ? null : (found.index ?? (await awaitUntilAborted(signal, (stop) => addon().readIndex(indexFile, stop))));
  requireNotAborted(signal);
  const { files, names, shardOfFile } =
    index === null || indexFile === undefined
      ? { files: found.shards.map((name) => join(folder, name)), names: found.shards, shardOfFile: new Uint32Array() }
      : indexedFiles(index, indexFile, found);
  const threads = Math.min(maxThreads, Math.max(4, 2 * availableParallelism()));
  const all = indexFile === undefined ? files : [indexFile, ...files];
  const few = all.length <= maxAskedFiles;
  const listing = few ? undefined : listedControls(all);
  const asked = few ? controlsOf(all) : [];
  const headers = await awaitUntilAborted(signal, (stop) => addon().openShards(files, index, shardOfFile, threads, asked, stop));
  requireFinished(all, (await listing) ?? headers.existing());
  requireNotAborted(signal);
  const shards = files.map((file, i) => ({ file, name: names[i] ?? file }));
  return new Checkpoint({ path: found.path, kind: found.kind, indexFile, shards }, headers);
}

/** The files that an index names; two spellings of one path are one file. */
function indexedFiles(index: NativeIndex, indexFile: string, { path, folder, rivals }: Resolved) {
  const names = index.files;
  const paths = names.map((name) => shardPath(folder, name, indexFile));
  const row = new Map<string, number>();
  const shardOfFile = Uint32Array.from(paths, (file) => {
    if (!row.has(file)) row.set(file, row.size);
    return row.get(file) as number;
  });
  const files = [...row.keys()];
  const unnamed = rivals.filter((rival) => !row.has(join(folder, rival)));
  if (unnamed.length > 0) throw ambiguous(path, [basename(indexFile), ...unnamed]);
  return { files, names: files.map((file) => relative(folder, file)), shardOfFile };
}
