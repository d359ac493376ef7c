//! Addresses and sizes on their way from JavaScript.

use mx_core::error::Error;
use napi::bindgen_prelude::{FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue};
use napi::{Result, Status, ValueType, sys};

use crate::failure::thrown;

/// A bigint from 0 to 2^64 - 1, without the heap allocation that napi's own BigInt costs.
pub struct Address(pub u64);

impl TypeName for Address {
    fn type_name() -> &'static str {
        "BigInt"
    }
    fn value_type() -> ValueType {
        ValueType::BigInt
    }
}

impl ValidateNapiValue for Address {}

impl FromNapiValue for Address {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Self> {
        let (mut number, mut lossless) = (0, false);
        // SAFETY: the caller's contract; both results are ours.
        let status = unsafe { sys::napi_get_value_bigint_uint64(env, value, &mut number, &mut lossless) };
        if status != sys::Status::napi_ok || !lossless {
            return Err(napi::Error::new(Status::BigintExpected, "a bigint from 0 to 2^64 - 1 is expected"));
        }
        Ok(Address(number))
    }
}

impl ToNapiValue for Address {
    unsafe fn to_napi_value(env: sys::napi_env, value: Self) -> Result<sys::napi_value> {
        // SAFETY: the caller's contract.
        unsafe { u64::to_napi_value(env, value.0) }
    }
}

/// A positive safe integer, or ERR_ARENA_SIZE.
pub fn size(bytes: f64) -> Result<usize> {
    const LIMIT: f64 = (1u64 << 53) as f64;
    if (1.0..LIMIT).contains(&bytes) && bytes.fract() == 0.0 {
        return Ok(bytes as usize);
    }
    let message = format!("a size in bytes must be a positive safe integer, it is {bytes}");
    Err(thrown(Error::new("ERR_ARENA_SIZE", message).with("length", bytes.to_string())))
}
