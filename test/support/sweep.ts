import { expect } from "vitest";
import { errorCodes } from "../../src/error-codes.js";
import type { Ledger } from "./fakes.js";

/** What a release that failed was to give back, and what may not legally go before that. */
const held: Readonly<Record<string, readonly string[]>> = {
  cuMemUnmap: ["mapping", "reservation"],
  cuMemRelease: ["handle"],
  cuMemAddressFree: ["reservation"],
  cuDevicePrimaryCtxRelease_v2: ["context"],
  cuFileHandleDeregister: ["cufile-file"],
  cuFileDriverClose_v2: ["cufile-driver"],
  nixl_capi_destroy_mem_list: ["nixl-list"],
  nixl_capi_destroy_string_list: ["nixl-list"],
  nixl_capi_destroy_reg_dlist: ["nixl-list"],
  nixl_capi_destroy_xfer_dlist: ["nixl-list"],
  nixl_capi_destroy_params: ["nixl-parameters"],
  nixl_capi_destroy_opt_args: ["nixl-backend", "nixl-options"],
  nixl_capi_destroy_backend: ["nixl-backend"],
  nixl_capi_destroy_agent: ["cufile-driver", "nixl-agent"],
};

/**
 * Calls whose failure takes nothing from the load: NIXL, CUDA or this package has another way, or
 * nobody to tell.
 */
const harmless =
  /^(cuFile(BufRegister|HandleDeregister|DriverClose_v2)|cuMemGetHandleForAddressRange|cuCtx\w+|cuDevicePrimaryCtxRelease_v2|nixl_capi_(destroy_(mem_list|string_list|reg_dlist|xfer_dlist|params)|string_list_get))$/;

/**
 * NIXL keeps this failure to its log and forgets the buffer, so that nobody can know that it is
 * still registered.
 */
const hidden = "cuFileBufDeregister";

function statusOf(name: string): string {
  if (name.startsWith("nixl_")) return "NIXL_CAPI_ERROR_BACKEND";
  if (name.startsWith("cuFile")) return "CU_FILE_INTERNAL_ERROR";
  return name.startsWith("cuda") ? "999" : "CUDA_ERROR_LAUNCH_FAILED";
}

export interface Swept {
  /** Codes of what was thrown, and of what was published because it could not be thrown. */
  readonly thrown: readonly string[];
  readonly published: readonly string[];
  readonly ledger: Ledger;
}

/** Every call of every function of a clean run, to be failed one at a time. */
export function planned(counts: Ledger["counts"]): { name: string; n: number }[] {
  return Object.entries(counts)
    .filter(([name]) => !/^cuGetError|^cudaGetError/.test(name) && name !== hidden && name !== "nixl_capi_is_stub")
    .flatMap(([name, count]) => Array.from({ length: count }, (_, at) => ({ name, n: at + 1 })));
}

/**
 * Fails call n of every function for every n, and expects each time: documented codes, exactly one
 * thrown where the failure matters, no crash, and nothing left open save what the failed release
 * itself held.
 * @param recovers true where another way may be taken after a failure, so that nothing needs to be
 *   thrown
 */
export async function sweep(counts: Ledger["counts"], run: (plan: string) => Promise<Swept>, recovers = false): Promise<void> {
  const faults = planned(counts);
  const lane = async () => {
    for (let fault = faults.shift(); fault !== undefined; fault = faults.shift()) {
      const { name, n } = fault;
      const plan = `${name}#${n}=${statusOf(name)}`;
      const { thrown, published, ledger } = await run(plan);
      // How often a status is asked for depends on the clock.
      if (name !== "nixl_capi_get_xfer_status") expect([plan, ledger.faults.length]).toEqual([plan, 1]);
      expect([plan, ledger.killed]).toEqual([plan, undefined]);
      for (const code of [...thrown, ...published]) expect([plan, code in errorCodes, code]).toEqual([plan, true, code]);
      if (recovers) expect([plan, thrown.length <= 1]).toEqual([plan, true]);
      else if (ledger.faults.length > 0 && !harmless.test(name)) expect([plan, thrown.length]).toEqual([plan, 1]);
      const left = ledger.open.map(({ kind }) => kind).sort();
      expect([plan, left]).toEqual([plan, [...(held[name] ?? [])].sort()]);
    }
  };
  await Promise.all([lane(), lane()]);
}
