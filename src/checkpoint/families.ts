/**
 * What may be loaded from a folder, judged by file names alone. Names of one export share a stem:
 * `model.safetensors.index.json`, `model-00001-of-00003.safetensors`; a variant belongs to the stem
 * (`model.fp16`).
 */
export interface WeightChoice {
  /** What the option `weights` takes to pick it: a file name, or `stem-*-of-00003.safetensors`. */
  readonly name: string;
  readonly stem: string;
  readonly kind: "index" | "file" | "family";
  /** The index, the file, or the files of the numbered family in order. */
  readonly files: readonly string[];
  /** How many files there should be: of a numbered family what its names say, else 1. */
  readonly total: number;
  /** Names of those that are not there. */
  readonly missing: readonly string[];
}

const indexName = /^(.+)\.safetensors\.index(?:\.([^.]+))?\.json$/s;
const plainIndexName = /^(.+)\.index\.json$/s;
/** Indexes of other formats, as transformers writes them beside. */
const foreignIndexName = /\.(bin|h5|msgpack|pt|pth|ckpt|gguf|onnx)\.index(\.[^.]+)?\.json$/;
const numberedName = /^(.+)-(\d+)-of-(\d+)((?:\.[^.]+)?)\.safetensors$/s;
const weightsName = /^(.+)\.safetensors$/s;

/** Whether a file name is that of an index of safetensors, in full. */
export function isIndexName(name: string): boolean {
  return indexName.test(name);
}

/** Whether a file name is that of safetensors weights or of their index. */
export function isWeightName(name: string): boolean {
  return weightsName.test(name) || isIndexName(name);
}

/** Longest list of missing shards that is worked out; the name of the first is what matters. */
const missingLimit = 1000;

/**
 * Sorts the names of a folder into choices: indexes, single files, numbered families. Hidden names
 * (`._` companions too) do not count.
 */
export function weightChoices(names: readonly string[]): WeightChoice[] {
  const choices: WeightChoice[] = [];
  const families = new Map<string, { readonly match: RegExpExecArray; readonly file: string }[]>();
  for (const name of [...names].sort()) {
    if (name.startsWith(".")) continue;
    const stem = indexStem(name);
    const numbered = numberedName.exec(name);
    const single = weightsName.exec(name);
    if (stem !== undefined) {
      choices.push({ name, stem, kind: "index", files: [name], total: 1, missing: [] });
    } else if (numbered !== null) {
      const key = familyName(numbered, "*");
      families.set(key, [...(families.get(key) ?? []), { match: numbered, file: name }]);
    } else if (single !== null) {
      choices.push({ name, stem: single[1] ?? "", kind: "file", files: [name], total: 1, missing: [] });
    }
  }
  for (const [name, members] of families) choices.push(family(name, members));
  return choices;
}

function indexStem(name: string): string | undefined {
  const [, stem, variant] = indexName.exec(name) ?? [];
  if (stem !== undefined) return variant === undefined ? stem : `${stem}.${variant}`;
  return foreignIndexName.test(name) ? undefined : plainIndexName.exec(name)?.[1];
}

function familyName([, stem, , total, variant]: RegExpExecArray, number: string): string {
  return `${stem}-${number}-of-${total}${variant}.safetensors`;
}

function family(name: string, members: readonly { readonly match: RegExpExecArray; readonly file: string }[]): WeightChoice {
  const numbered = members.map(({ match, file }) => ({ number: Number(match[2]), file })).sort((a, b) => a.number - b.number);
  const match = members[0]?.match;
  const present = new Set(numbered.map(({ number }) => number));
  const total = Number(match?.[3]);
  const first = present.has(0) ? 0 : 1;
  const missing: string[] = [];
  for (let number = first; match !== undefined && number < first + total && missing.length < missingLimit; number++) {
    if (!present.has(number)) missing.push(familyName(match, String(number).padStart(match[2]?.length ?? 0, "0")));
  }
  return { name, stem: `${match?.[1]}${match?.[4]}`, kind: "family", files: numbered.map(({ file }) => file), total, missing };
}

/**
 * The choices that stand for the folder when nobody picks, in tiers: of the first tier that has any
 * left, one is the answer and several are ambiguous. The standard index first, then the standard
 * file, then other indexes, then whatever else there is. Indexes that have nothing to do with the
 * weights here are taken out by whoever reads them.
 */
export function defaultTiers(choices: readonly WeightChoice[]): readonly (readonly WeightChoice[])[] {
  const named = (name: string) => choices.filter((choice) => choice.name === name);
  const [index, file] = [named("model.safetensors.index.json"), named("model.safetensors")];
  if (index.length > 0 || file.length > 0) return [index, file];
  return byKind(choices);
}

/**
 * The choices that `weights` picks, in tiers as above: a file or index by its name, a numbered
 * family as {@link WeightChoice.name}, or a stem, of which an index goes first.
 */
export function pickedTiers(choices: readonly WeightChoice[], weights: string): readonly (readonly WeightChoice[])[] {
  const exact = choices.filter((choice) => choice.name === weights);
  if (exact.length > 0) return [exact];
  const member = choices.find((choice) => choice.files.includes(weights));
  if (member !== undefined) return [[{ name: weights, stem: member.stem, kind: "file", files: [weights], total: 1, missing: [] }]];
  return byKind(choices.filter((choice) => choice.stem === weights));
}

function byKind(choices: readonly WeightChoice[]) {
  return [choices.filter(({ kind }) => kind === "index"), choices.filter(({ kind }) => kind !== "index")];
}
