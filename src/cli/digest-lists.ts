/** One line of a list of digests. */
export interface ListedDigest {
  readonly algorithm: DigestAlgorithm;
  /** Lower-case hex digits. */
  readonly digest: string;
  /**
   * Path as the list gives it; `undefined` where a line is a digest alone, which then belongs to
   * the file the list is named after.
   */
  readonly path: string | undefined;
}

/** As `node:crypto` names them; `blake3` is known but cannot be computed. */
export type DigestAlgorithm = "md5" | "sha1" | "sha224" | "sha256" | "sha384" | "sha512" | "blake2b512" | "blake3";

const byDigits = new Map<number, DigestAlgorithm>([
  [32, "md5"],
  [40, "sha1"],
  [56, "sha224"],
  [64, "sha256"],
  [96, "sha384"],
  [128, "sha512"],
]);

const byTag = new Map<string, DigestAlgorithm>([
  ["MD5", "md5"],
  ["SHA1", "sha1"],
  ["SHA224", "sha224"],
  ["SHA256", "sha256"],
  ["SHA384", "sha384"],
  ["SHA512", "sha512"],
  ["BLAKE2B", "blake2b512"],
  ["BLAKE3", "blake3"],
]);

const listNames = [
  /^(sha-?\d*|md5|b2|b3|blake2b?|blake3|check)[-_]?sums?(\.(txt|asc|sha\d+|md5))?$/i,
  /\.(sha1|sha224|sha256|sha384|sha512|md5|b2|b3|blake3)(sums?)?(\.(txt|asc))?$/i,
];

/**
 * Whether a file's name is that of a list of digests: `SHA256SUMS`, `sha256sum.txt`,
 * `checksums.txt`, `model.safetensors.sha256` and the like.
 */
export function isDigestList(name: string): boolean {
  return !name.startsWith(".") && listNames.some((pattern) => pattern.test(name));
}

/** Name of the one file that `model.safetensors.sha256` belongs to. */
export function listedFile(list: string): string | undefined {
  return /^(.+)\.(sha\d+|md5|b2|b3|blake3)(sums?)?(\.(txt|asc))?$/is.exec(list)?.[1];
}

/**
 * Text of a list: UTF-8, or UTF-16, as PowerShell writes it; every second byte of that is 0, with
 * or without a byte-order mark.
 */
export function listText(bytes: Buffer): string {
  const [first, second] = bytes;
  if ((first === 0xff && second === 0xfe) || (first !== 0 && second === 0)) return new TextDecoder("utf-16le").decode(bytes);
  if ((first === 0xfe && second === 0xff) || (first === 0 && second !== 0)) {
    const swapped = Buffer.from(bytes.subarray(0, bytes.length & ~1)).swap16();
    return new TextDecoder("utf-16le").decode(swapped);
  }
  return new TextDecoder("utf-8").decode(bytes);
}

/** A line by the names of its parts; the first form that fits counts. */
const forms = [
  // sha256sum in text and binary mode, also with the algorithm in front; a digest alone.
  /^\s*(?<escape>\\?)(?:(?<tag>sha\d+|md5):)?(?<digest>[0-9a-f]{32,128})(?:\s+\*?|\s*$)(?<name>.*)$/i,
  // --tag, and BSD.
  /^\s*(?<escape>\\?)(?<tag>[a-z0-9-]+) ?\((?<name>.+)\) ?= ?(?<digest>[0-9a-f]{32,128})\s*$/i,
  // PowerShell's Get-FileHash.
  /^\s*(?<tag>sha\d+|md5)\s+(?<digest>[0-9a-f]{32,128})\s+(?<name>\S.*?)\s*$/i,
  // The name in front, also in a table.
  /^[\s|]*(?<name>\S.*?)[\s:|]+(?<digest>[0-9a-f]{32,128})[\s|]*$/i,
];

/**
 * The digests of a list. Lines of other kinds, such as comments and signatures, are passed over.
 */
export function parseDigests(text: string, list: string): ListedDigest[] {
  const found: ListedDigest[] = [];
  for (const whole of text.split(/\r?\n|\r/)) {
    // A clear-signed text marks lines that begin with a dash.
    const line = whole.replace(/^- /, "");
    const parts = forms.map((form) => form.exec(line)?.groups).find((groups) => groups !== undefined);
    if (parts === undefined) continue;
    const { tag, name = "" } = parts;
    const digest = (parts.digest ?? "").toLowerCase();
    const algorithm = tag === undefined ? unnamed(digest, list) : byTag.get(tag.replace("-", "").toUpperCase());
    if (algorithm === undefined || !fits(algorithm, digest)) continue;
    found.push({ algorithm, digest, path: name === "" ? undefined : parts.escape === "\\" ? unescaped(name) : name });
  }
  return found;
}

function fits(algorithm: DigestAlgorithm, digest: string): boolean {
  return algorithm === "blake2b512" || algorithm === "blake3" || byDigits.get(digest.length) === algorithm;
}

/** Some algorithms have digests of the same length; then the list's name tells. */
function unnamed(digest: string, list: string): DigestAlgorithm | undefined {
  if (digest.length === 128 && /(^|\.)(b2|blake2)/i.test(list)) return "blake2b512";
  if (digest.length === 64 && /(^|\.)(b3|blake3)/i.test(list)) return "blake3";
  return byDigits.get(digest.length);
}

function unescaped(name: string): string {
  return name.replace(/\\([\\nr])/g, (_, c: string) => ({ n: "\n", r: "\r" })[c] ?? c);
}
