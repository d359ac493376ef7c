//! Version, and what this machine offers.

use std::path::Path;

use mx_core::io::support;
use mx_core::sys;
use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;

use crate::background::{FILES, in_background};

/// What the io_uring and direct I/O checks of the probe found: name of the errno, null where it
/// works.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct IoSupport {
    pub io_uring: Option<String>,
    pub direct_io: Option<String>,
    /// As in `ShardColumns`.
    pub dio_offset_align: u32,
    pub dio_mem_align: u32,
}

#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[napi]
pub fn page_bytes() -> u32 {
    sys::page_bytes() as u32
}

/// Processors this process may use: affinity and cgroup quota counted in.
#[napi]
pub fn available_parallelism() -> u32 {
    mx_core::parallel::available_parallelism() as u32
}

#[napi]
pub fn io_support<'env>(env: &'env Env, path: String) -> napi::Result<PromiseRaw<'env, IoSupport>> {
    in_background(env, &FILES, move || {
        let found = support::io_support(Path::new(&path));
        Ok(IoSupport {
            io_uring: found.io_uring,
            direct_io: found.direct_io,
            dio_offset_align: found.dio_offset_align,
            dio_mem_align: found.dio_mem_align,
        })
    })
}
