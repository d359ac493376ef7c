//! Binding of `mx_core::cuda`.

use std::sync::Arc;

use mx_core::cuda::{self, CudaBackend, CudaDevice, HandleType, Notice, Piece, Staging, StagingSpec};
use mx_core::error::{Error, Result as CoreResult};
use napi::bindgen_prelude::{BigUint64Array, Float64Array, FnArgs, Function, Object};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Env, Result};
use napi_derive::napi;

use crate::arena::{Address, NativeArena, NativeBackend};
use crate::background::{FILES, in_background};
use crate::failure::{failure_json, thrown};

#[napi(object, object_from_js = false)]
pub struct CudaFacts {
    pub library: String,
    pub driver_version: String,
    pub devices: Vec<CudaDeviceFacts>,
}

#[napi(object, object_from_js = false)]
pub struct CudaDeviceFacts {
    pub name: String,
    pub total_bytes: f64,
    pub compute_capability: String,
    pub virtual_memory: bool,
    pub posix_handles: bool,
    pub fabric_handles: bool,
    pub gpu_direct_rdma: bool,
    pub dma_buf: bool,
}

#[napi]
pub fn cuda_facts(env: &Env, library: Option<String>) -> Result<Object<'_>> {
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

#[napi]
pub fn open_cuda_backend(device: i32, library: Option<String>, notice: Function<'_, NoticeArgs, ()>) -> Result<NativeBackend> {
    opener(device, library, notice)?().map_err(thrown)
}

#[napi]
pub fn open_cuda_backend_in_background<'env>(
    env: &'env Env,
    device: i32,
    library: Option<String>,
    notice: Function<'_, NoticeArgs, ()>,
) -> Result<Object<'env>> {
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

/// Ordinal, or -1.
#[napi]
pub fn current_cuda_device(library: Option<String>) -> i32 {
    cuda::current_device(library.as_deref()).unwrap_or(-1)
}

#[napi(object, object_to_js = false)]
pub struct StagingMemory {
    pub address: Address,
    pub slot_bytes: f64,
    pub slots: u32,
}

type ReportArgs = FnArgs<(u32, Option<String>)>;
type EndedArgs = FnArgs<(Vec<String>,)>;

#[napi]
pub fn open_staging(
    memory_arena: &NativeArena,
    memory: StagingMemory,
    target_arena: &NativeArena,
    target: Address,
    target_bytes: f64,
    report: Function<'_, ReportArgs, ()>,
    ended: Function<'_, EndedArgs, ()>,
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

#[napi]
pub struct NativeStaging {
    staging: Staging,
}

#[napi]
impl NativeStaging {
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

    #[napi]
    pub fn close(&self) {
        self.staging.close();
    }
}
