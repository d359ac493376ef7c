import { type ReadText, readText } from "../../probe/read-text.js";

/**
 * What cuFile's configuration says, as far as it matters here; undefined where cuFile's own
 * defaults count.
 */
export interface CufileConfiguration {
  readonly path: string;
  readonly found: boolean;
  /**
   * Bytes that one process may register (`max_device_pinned_mem_size_kb`). Past it registrations
   * fail, and reads go through cuFile's own buffers.
   */
  readonly limitBytes: number | undefined;
  /** Whether cuFile may read and copy where direct reads are impossible (`allow_compat_mode`). */
  readonly compatibilityMode: boolean | undefined;
  /**
   * Whether cuFile may read by the kernel's own PCI P2PDMA, without nvidia-fs (`use_pci_p2pdma`).
   */
  readonly p2pDma: boolean | undefined;
}

/** Reads the file named by CUFILE_ENV_PATH_JSON, else /etc/cufile.json, as cuFile does. */
export function cufileConfiguration(environment: NodeJS.ProcessEnv = process.env, read: ReadText = readText): CufileConfiguration {
  const path = environment.CUFILE_ENV_PATH_JSON || "/etc/cufile.json";
  const text = read(path);
  // The file has comments, which JSON has not; each key occurs once outside of them.
  const plain = text?.replaceAll(/^\s*\/\/.*$/gm, "");
  const kib = plain?.match(/"max_device_pinned_mem_size_kb"\s*:\s*(\d+)/)?.[1];
  const flag = (key: string) => {
    const value = plain?.match(new RegExp(`"${key}"\\s*:\\s*(true|false)`))?.[1];
    return value === undefined ? undefined : value === "true";
  };
  return {
    path,
    found: text !== undefined,
    limitBytes: kib === undefined ? undefined : Number(kib) * 1024,
    compatibilityMode: flag("allow_compat_mode"),
    p2pDma: flag("use_pci_p2pdma"),
  };
}
