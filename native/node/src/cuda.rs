//! Binding of `mx_core::cuda`.

use std::sync::Arc;

use mx_core::cuda::{self, CudaBackend, CudaDevice, HandleType, Notice, Piece, Staging, StagingSpec};
use mx_core::error::{Error, Result as CoreResult};
use napi::bindgen_prelude::{BigUint64Array, Float64Array, FnArgs, Function, PromiseRaw};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Env, Result};
use napi_derive::napi;

use crate::arena::{Address, NativeArena, NativeBackend};
use crate::background::{FILES, in_background};
use crate::failure::{failure_json, thrown};

/// The CUDA driver.
#[napi(object, object_from_js = false)]
pub struct CudaFacts {
    /// Path of the library, as the loader resolved it.
    pub library: String,
    /// Newest CUDA version that the driver serves, such as `12.4`.
    pub driver_version: String,
    /// In the driver's order.
    #[napi(ts_type = "readonly CudaDeviceFacts[]")]
    pub devices: Vec<CudaDeviceFacts>,
}

#[napi(object, object_from_js = false)]
pub struct CudaDeviceFacts {
    pub name: String,
    pub total_bytes: f64,
    /// Such as `9.0`.
    pub compute_capability: String,
    /// Virtual memory management, without which there is no arena.
    pub virtual_memory: bool,
    /// Memory can be exported to another process of this host.
    pub posix_handles: bool,
    /// To another host of the NVLink fabric, where this host is part of one.
    pub fabric_handles: bool,
    /// Network cards and storage reach an arena's memory.
    pub gpu_direct_rdma: bool,
    pub dma_buf: bool,
}

#[napi]
pub fn cuda_facts(env: &Env, library: Option<String>) -> Result<PromiseRaw<'_, CudaFacts>> {
    in_background(env, &FILES, move || {
        let api = cuda::open(library.as_deref())?;
        let devices = cuda::device_facts(api)?.into_iter().map(js_facts).collect();
        Ok(CudaFacts { library: api.library().to_owned(), driver_version: api.driver_version(), devices })
    })
}

fn js_facts(facts: cuda::Abilities) -> CudaDeviceFacts {
    CudaDeviceFacts {
        name: facts.name,
        total_bytes: facts.total_bytes as f64,
        compute_capability: facts.compute_capability,
        virtual_memory: facts.virtual_memory,
        posix_handles: facts.posix_handles,
        fabric_handles: facts.fabric_handles,
        gpu_direct_rdma: facts.gpu_direct_rdma,
        dma_buf: facts.dma_buf,
    }
}

type NoticeArgs = FnArgs<(&'static str, String)>;

/// Memory of the device of that number, by the CUDA driver in `library` or where the loader finds
/// it. `notice` comes at most once, when FABRIC handles turn out not to be had; it keeps no process
/// alive.
#[napi]
pub fn open_cuda_backend(
    device: i32,
    library: Option<String>,
    #[napi(ts_arg_type = "(handleType: string, reason: string) => void")] notice: Function<'_, NoticeArgs, ()>,
) -> Result<NativeBackend> {
    opener(device, library, notice)?().map_err(thrown)
}

/// The same on a native thread: making a context can take a second.
#[napi]
pub fn open_cuda_backend_in_background<'env>(
    env: &'env Env,
    device: i32,
    library: Option<String>,
    #[napi(ts_arg_type = "(handleType: string, reason: string) => void")] notice: Function<'_, NoticeArgs, ()>,
) -> Result<PromiseRaw<'env, NativeBackend>> {
    in_background(env, &FILES, opener(device, library, notice)?)
}

/// What opens a backend, on any thread.
fn opener(
    device: i32,
    library: Option<String>,
    notice: Function<'_, NoticeArgs, ()>,
) -> Result<impl FnOnce() -> CoreResult<NativeBackend> + Send + use<>> {
    // The notice may come from any thread that allocates first, and keeps no process alive.
    let notice = notice.build_threadsafe_function::<NoticeArgs>().callee_handled::<false>().weak::<true>().build()?;
    let tell = move |told: Notice| {
        notice.call((handle_name(told.handle_type), told.reason).into(), ThreadsafeFunctionCallMode::NonBlocking);
    };
    Ok(move || {
        let backend = CudaBackend::new(CudaDevice::open(cuda::open(library.as_deref())?, device)?, tell)?;
        Ok(NativeBackend::new(Arc::new(backend)))
    })
}

fn handle_name(handle_type: HandleType) -> &'static str {
    match handle_type {
        HandleType::None => "none",
        HandleType::PosixFile => "posix-file",
        HandleType::Fabric => "fabric",
    }
}

/// Number of the device whose context is current on this thread, in the driver's order; null where
/// there is none, or the driver library is not loaded. Loads nothing.
#[napi]
pub fn current_cuda_device(library: Option<String>) -> Option<i32> {
    cuda::current_device(library.as_deref())
}

/// Slots of pinned host memory that follow one another, within one allocation.
#[napi(object, object_to_js = false)]
pub struct StagingMemory {
    pub address: Address,
    pub slot_bytes: f64,
    pub slots: u32,
}

type ReportArgs = FnArgs<(u32, Option<String>)>;
type EndedArgs = FnArgs<(Vec<String>,)>;

/// Makes slots of host memory ready for copies to `[target, target + targetBytes)`, within one
/// allocation of an arena over a CUDA backend; both allocations are pinned until the end. `report`
/// says that a slot is free: once when it is ready, and once after each copy; after a failure, of
/// every slot that waits. `ended` comes once after `close`, when nothing is in flight or held any
/// more, with what could not be given back; never where copies are stuck. Neither keeps a process
/// alive. ERR_ARENA_ADDRESS, ERR_ARENA_CLOSED, ERR_ARENA_NOT_LOADABLE, ERR_TRANSFER_NO_THREAD
#[napi]
pub fn open_staging(
    memory_arena: &NativeArena,
    memory: StagingMemory,
    target_arena: &NativeArena,
    target: Address,
    target_bytes: f64,
    #[napi(ts_arg_type = "(slot: number, failureJson: string | null) => void")] report: Function<'_, ReportArgs, ()>,
    #[napi(ts_arg_type = "(failuresJson: string[]) => void")] ended: Function<'_, EndedArgs, ()>,
) -> Result<NativeStaging> {
    let (address, slot_bytes, slots) = (memory.address.0 as usize, memory.slot_bytes as usize, memory.slots as usize);
    let (begin, target_bytes) = (target.0 as usize, target_bytes as usize);
    let spec = StagingSpec {
        memory: memory_arena.arena().pin(address, slots * slot_bytes).map_err(thrown)?,
        address,
        slot_bytes,
        slots,
        target: target_arena.arena().pin(begin, target_bytes).map_err(thrown)?,
        begin,
        end: begin + target_bytes,
    };
    // Whoever waits for a batch keeps the event loop alive; copies that are stuck must not.
    let report = report.build_threadsafe_function::<ReportArgs>().callee_handled::<false>().weak::<true>().build()?;
    let ended = ended.build_threadsafe_function::<EndedArgs>().callee_handled::<false>().weak::<true>().build()?;
    let staging = Staging::start(
        spec,
        Box::new(move |slot, outcome: CoreResult<()>| {
            let failure = outcome.err().map(|error| failure_json(&error));
            report.call((slot as u32, failure).into(), ThreadsafeFunctionCallMode::NonBlocking);
        }),
        Box::new(move |errors| {
            let failures = errors.iter().map(failure_json).collect();
            ended.call((failures,).into(), ThreadsafeFunctionCallMode::NonBlocking);
        }),
    );
    staging.map(|staging| NativeStaging { staging }).map_err(thrown)
}

/// Slots of pinned host memory, and a thread that copies from there to a device. Dropped unclosed
/// it closes itself.
#[napi]
pub struct NativeStaging {
    staging: Staging,
}

#[napi]
impl NativeStaging {
    /// Copies pieces of a slot that is free and filled; `from` counts from the slot's start, `to`
    /// are addresses of the target. `report` comes when they are over.
    #[napi]
    pub fn copy(&self, slot: u32, from: Float64Array, to: BigUint64Array, length: Float64Array) -> Result<()> {
        if from.len() != to.len() || from.len() != length.len() {
            return Err(thrown(Error::new("ERR_INTERNAL", "columns of copies do not fit together")));
        }
        let slot = slot as usize;
        let base = self.staging.slot_address(slot);
        let pieces = (0..from.len())
            .map(|row| Piece { from: base + from[row] as usize, to: to[row] as usize, length: length[row] as usize })
            .collect();
        self.staging.copy(slot, pieces).map_err(thrown)
    }

    /// Waits for copies in flight, gives everything back, ends. No read into a slot may be in
    /// flight.
    #[napi]
    pub fn close(&self) {
        self.staging.close();
    }
}
