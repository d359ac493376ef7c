//! Binding of `mx_core::digest`.

use std::path::PathBuf;

use mx_core::digest;
use mx_core::error::Error;
use napi::Env;
use napi::bindgen_prelude::{BigUint64Array, Float64Array, PromiseRaw, Uint8Array};
use napi_derive::napi;

use crate::arena::NativeArena;
use crate::background::{FILES, MEMORY, in_background};
use crate::failure::thrown;
use crate::transfer::pin_all;

/// SHA-256 of memory ranges, 32 bytes each, on `threads` native threads. The arena is pinned
/// meanwhile.
#[napi]
pub fn digest_memory<'env>(
    env: &'env Env,
    arena: &NativeArena,
    address: BigUint64Array,
    length: Float64Array,
    threads: u32,
) -> napi::Result<PromiseRaw<'env, Uint8Array>> {
    if address.len() != length.len() {
        return Err(thrown(Error::new("ERR_INTERNAL", "columns of a digest do not fit together")));
    }
    let ranges: Vec<(usize, usize)> =
        address.iter().zip(length.iter()).map(|(address, length)| (*address as usize, *length as usize)).collect();
    let pin = pin_all(&arena.arena(), ranges.iter().copied()).map_err(thrown)?;
    in_background(env, &MEMORY, move || {
        // SAFETY: every range lies in one pinned allocation of host memory.
        let digests = unsafe { digest::digest_memory(&ranges, threads as usize) };
        drop(pin);
        digests.map(Uint8Array::new)
    })
}

/// SHA-256 of whole files, 32 bytes each.
#[napi]
pub fn digest_files<'env>(env: &'env Env, paths: Vec<String>, threads: u32) -> napi::Result<PromiseRaw<'env, Uint8Array>> {
    let paths: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
    in_background(env, &FILES, move || digest::digest_files(&paths, threads as usize).map(Uint8Array::new))
}
