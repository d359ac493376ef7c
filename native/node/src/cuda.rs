//! Binding of `mx_core::cuda`.

use std::sync::Arc;

use mx_core::cuda::{self, CudaBackend, CudaDevice, HandleType, Notice};
use mx_core::error::Result as CoreResult;
use napi::bindgen_prelude::{FnArgs, Function, Object};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Env, Result};
use napi_derive::napi;

use crate::arena::NativeBackend;
use crate::background::in_background;
use crate::failure::thrown;

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
    in_background(env, "mx-cuda-facts", move || {
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
    // The notice may come from any thread that allocates first, and keeps no process alive.
    let notice = notice.build_threadsafe_function::<NoticeArgs>().callee_handled::<false>().weak::<true>().build()?;
    let tell = move |told: Notice| {
        notice.call((handle_name(told.handle_type), told.reason).into(), ThreadsafeFunctionCallMode::NonBlocking);
    };
    let open = || -> CoreResult<CudaBackend> { CudaBackend::new(CudaDevice::open(cuda::open(library.as_deref())?, device)?, tell) };
    open().map(|backend| NativeBackend::new(Arc::new(backend))).map_err(thrown)
}

fn handle_name(handle_type: HandleType) -> &'static str {
    match handle_type {
        HandleType::None => "none",
        HandleType::PosixFile => "posix-file",
        HandleType::Fabric => "fabric",
    }
}
