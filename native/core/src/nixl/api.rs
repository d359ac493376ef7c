//! The functions of `libnixl_capi.so`, looked up at run time. Signatures follow NIXL's C wrapper
//! (`src/bindings/rust/wrapper.h`, 1.0 to 1.5).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Error, Result};

/// An object of NIXL's; null never stands for one.
pub type Handle = *mut c_void;

/// `nixl_capi_agent_config_t`.
#[repr(C)]
pub struct AgentConfig {
    pub progress_thread: bool,
    pub listen_thread: bool,
    pub listen_port: c_int,
    pub thread_sync: c_int,
    pub workers: u32,
    pub progress_delay_us: u64,
    pub listen_delay_us: u64,
    pub capture_telemetry: bool,
}

macro_rules! api {
    ($($field:ident: $symbol:literal ($($kind:ty),*);)*) => {
        /// One field per function; every one answers a status, 0 for success.
        pub struct NixlApi {
            $(pub $field: unsafe extern "C" fn($($kind),*) -> c_int,)*
            /// Where the library was loaded from, as the loader says.
            pub path: String,
        }

        fn look_up(library: &Library, path: String) -> std::result::Result<NixlApi, Vec<&'static str>> {
            let mut missing = Vec::new();
            $(
                // SAFETY: the type is that of NIXL's header; the library stays loaded for ever.
                let $field = unsafe { library.get::<unsafe extern "C" fn($($kind),*) -> c_int>($symbol.as_bytes()) };
                if $field.is_err() {
                    missing.push($symbol);
                }
            )*
            match ($($field,)*) {
                ($(Ok($field),)*) => Ok(NixlApi { $($field: *$field,)* path }),
                _ => Err(missing),
            }
        }
    };
}

api! {
    create_configured_agent: "nixl_capi_create_configured_agent" (*const c_char, *const AgentConfig, *mut Handle);
    destroy_agent: "nixl_capi_destroy_agent" (Handle);
    get_local_md: "nixl_capi_get_local_md" (Handle, *mut *mut c_void, *mut usize);
    load_remote_md: "nixl_capi_load_remote_md" (Handle, *const c_void, usize, *mut *mut c_char);
    invalidate_remote_md: "nixl_capi_invalidate_remote_md" (Handle, *const c_char);
    get_available_plugins: "nixl_capi_get_available_plugins" (Handle, *mut Handle);
    string_list_size: "nixl_capi_string_list_size" (Handle, *mut usize);
    string_list_get: "nixl_capi_string_list_get" (Handle, usize, *mut *const c_char);
    destroy_string_list: "nixl_capi_destroy_string_list" (Handle);
    get_plugin_params: "nixl_capi_get_plugin_params" (Handle, *const c_char, *mut Handle, *mut Handle);
    params_add: "nixl_capi_params_add" (Handle, *const c_char, *const c_char);
    destroy_params: "nixl_capi_destroy_params" (Handle);
    destroy_mem_list: "nixl_capi_destroy_mem_list" (Handle);
    create_backend: "nixl_capi_create_backend" (Handle, *const c_char, Handle, *mut Handle);
    destroy_backend: "nixl_capi_destroy_backend" (Handle);
    create_opt_args: "nixl_capi_create_opt_args" (*mut Handle);
    opt_args_add_backend: "nixl_capi_opt_args_add_backend" (Handle, Handle);
    destroy_opt_args: "nixl_capi_destroy_opt_args" (Handle);
    // Older versions take a third argument, whether the list is sorted; newer ones ignore it.
    create_reg_dlist: "nixl_capi_create_reg_dlist" (c_int, *mut Handle, bool);
    reg_dlist_add_desc: "nixl_capi_reg_dlist_add_desc" (Handle, usize, usize, u64, *const c_void, usize);
    destroy_reg_dlist: "nixl_capi_destroy_reg_dlist" (Handle);
    register_mem: "nixl_capi_register_mem" (Handle, Handle, Handle);
    deregister_mem: "nixl_capi_deregister_mem" (Handle, Handle, Handle);
    create_xfer_dlist: "nixl_capi_create_xfer_dlist" (c_int, *mut Handle, bool);
    xfer_dlist_add_desc: "nixl_capi_xfer_dlist_add_desc" (Handle, usize, usize, u64);
    destroy_xfer_dlist: "nixl_capi_destroy_xfer_dlist" (Handle);
    create_xfer_req: "nixl_capi_create_xfer_req" (Handle, c_int, Handle, Handle, *const c_char, *mut Handle, Handle);
    post_xfer_req: "nixl_capi_post_xfer_req" (Handle, Handle, Handle);
    get_xfer_status: "nixl_capi_get_xfer_status" (Handle, Handle);
    release_xfer_req: "nixl_capi_release_xfer_req" (Handle, Handle);
    destroy_xfer_req: "nixl_capi_destroy_xfer_req" (Handle);
}

impl NixlApi {
    /// Loads the library at `path` (a name without a slash goes through the loader's search). It is
    /// never unloaded: NIXL starts threads. ERR_NIXL_LOAD with the loader's words, ERR_NIXL_SYMBOLS
    /// with what it lacks, ERR_NIXL_STUB for the stub of NIXL's Rust bindings.
    pub fn load(path: &str) -> Result<Self> {
        // SAFETY: NIXL's initialisers start no threads and read only its own environment.
        let library = unsafe { Library::open(Some(Path::new(path)), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|cause| Error::new("ERR_NIXL_LOAD", words(&cause)).with("file", path))?;
        let found = look_up(&library, path.to_owned());
        // SAFETY: the signature is that of NIXL's header.
        let is_stub = unsafe { library.get::<unsafe extern "C" fn() -> bool>(b"nixl_capi_is_stub") }
            // SAFETY: as above.
            .is_ok_and(|is_stub| unsafe { is_stub() });
        std::mem::forget(library);
        let mut api = found.map_err(|missing| {
            let first = missing.iter().take(3).copied().collect::<Vec<_>>().join(", ");
            let more = if missing.len() > 3 { ", ..." } else { "" };
            let message = format!("{path} lacks {} of the functions needed: {first}{more}", missing.len());
            Error::new("ERR_NIXL_SYMBOLS", message).with("file", path).with("missing", missing.join(" "))
        })?;
        if is_stub {
            let message = format!("{path} is the stub that NIXL's Rust bindings bring along, not NIXL");
            return Err(Error::new("ERR_NIXL_STUB", message).with("file", path));
        }
        if let Some(origin) = origin(api.create_configured_agent as *const c_void) {
            api.path = origin;
        }
        Ok(api)
    }
}

/// File that the code at `address` was loaded from.
fn origin(address: *const c_void) -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is large enough; its name lives as long as the library.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 || (*info.as_ptr()).dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr((*info.as_ptr()).dli_fname).to_string_lossy().into_owned())
    }
}

/// Why a shared library cannot be loaded; None when it can. What can be loaded stays so.
pub fn why_not_loadable(name: &str) -> Option<String> {
    // SAFETY: initialisers of the libraries asked for (NVIDIA's) may run in any process.
    match unsafe { Library::open(Some(Path::new(name)), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => {
            std::mem::forget(library);
            None
        }
        Err(cause) => Some(words(&cause)),
    }
}

/// What the loader said: it is in the source of libloading's error.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
