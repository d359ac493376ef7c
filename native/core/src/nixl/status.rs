//! Statuses of NIXL's C interface. It folds nine internal ones into `NIXL_CAPI_ERROR_BACKEND` and
//! tells the cause only in its own log, so an error has to carry what was asked of which plugin.

use std::ffi::c_int;

use crate::error::{Error, Result};

pub const SUCCESS: c_int = 0;
pub const IN_PROGRESS: c_int = 1;

/// Name of a status as in NIXL's header.
pub fn status_name(status: c_int) -> String {
    let name = match status {
        SUCCESS => "NIXL_CAPI_SUCCESS",
        IN_PROGRESS => "NIXL_CAPI_IN_PROG",
        -1 => "NIXL_CAPI_ERROR_INVALID_PARAM",
        -2 => "NIXL_CAPI_ERROR_BACKEND",
        -3 => "NIXL_CAPI_ERROR_INVALID_STATE",
        -4 => "NIXL_CAPI_ERROR_EXCEPTION",
        -5 => "NIXL_CAPI_ERROR_NO_TELEMETRY",
        -6 => "NIXL_CAPI_ERROR_NOT_FOUND",
        _ => return format!("NIXL status {status}"),
    };
    name.to_owned()
}

/// Ok for success; else `code` with what was being done, the function and the status.
pub fn check(status: c_int, code: &'static str, what: impl FnOnce() -> String, function: &'static str) -> Result<()> {
    if status == SUCCESS { Ok(()) } else { Err(failed(status, code, what(), function)) }
}

pub fn failed(status: c_int, code: &'static str, what: String, function: &'static str) -> Error {
    let name = status_name(status);
    Error::new(code, format!("{what}: {function} answered {name}; NIXL's own log on stderr has the cause"))
        .with("operation", function)
        .with("status", name)
}
