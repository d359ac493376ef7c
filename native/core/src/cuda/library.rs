//! Finding and initialising the driver library.

use std::ffi::{CStr, c_void};
use std::sync::Mutex;

use libloading::Library;
use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};

use super::api::{CudaApi, Functions};
use crate::error::{Error, Result};

/// The driver's own name first: `libcuda.so` is the development link, and in toolkits without a
/// driver a stub.
pub(super) const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// Libraries that were initialised, by what was asked for.
static OPEN: Mutex<Vec<(Option<String>, &'static CudaApi)>> = Mutex::new(Vec::new());

/// The driver library at `path`, or where the loader finds it, loaded and initialised at the first
/// call and kept for the life of the process. What failed is tried again at the next call. Any
/// thread; a first call may take a second on a machine with many devices. Errors: ERR_CUDA_LIBRARY,
/// ERR_CUDA_SYMBOLS, ERR_CUDA_NOT_INITIALIZED.
pub fn open(path: Option<&str>) -> Result<&'static CudaApi> {
    let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((_, api)) = open.iter().find(|(asked, _)| asked.as_deref() == path) {
        return Ok(api);
    }
    let (library, name) = load(path)?;
    let functions = Functions::load(&library).map_err(|missing| {
        let missing = missing.join(", ");
        let message = format!("the CUDA driver library {name} lacks {missing}: it needs a driver for CUDA 11.7 or newer");
        Error::new("ERR_CUDA_SYMBOLS", message).with("library", name.as_str()).with("missing", missing)
    })?;
    // Its functions stay valid for as long as anyone may call them, and a driver that was asked to
    // initialise is not made to be unloaded.
    std::mem::forget(library);
    let file = file_of(functions.init as *const c_void).unwrap_or(name);
    let api = CudaApi::initialize(functions, file.clone()).map_err(|failure| {
        let message = format!("the CUDA driver {file} cannot be initialised: is there a device, and is the kernel module of the same version loaded (nvidia-smi)?");
        failure.error("ERR_CUDA_NOT_INITIALIZED", message).with("library", file)
    })?;
    let api: &'static CudaApi = Box::leak(Box::new(api));
    open.push((path.map(str::to_owned), api));
    Ok(api)
}

/// The library and the name under which it was loaded.
fn load(path: Option<&str>) -> Result<(Library, String)> {
    let names = path.map_or(NAMES.to_vec(), |path| vec![path]);
    let mut refusals = Vec::new();
    for name in &names {
        // SAFETY: the initialisers of a CUDA driver library are made to be run by dlopen, on any
        // thread.
        match unsafe { UnixLibrary::open(Some(*name), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok((library.into(), (*name).to_owned())),
            Err(error) => refusals.push(words(&error)),
        }
    }
    let tried = refusals.join("; ");
    let advice = match path {
        Some(_) => "check the path",
        None => "install NVIDIA's driver, run the container with --gpus, or name the library with MX_CUDA_LIBRARY",
    };
    let message = format!("there is no CUDA driver library ({tried}): {advice}");
    Err(Error::new("ERR_CUDA_LIBRARY", message).with("tried", tried))
}

/// The loader's own words, which begin with the name.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

/// The file that holds the function at `address`.
fn file_of(address: *const c_void) -> Option<String> {
    // SAFETY: all zeros is a valid Dl_info, and dladdr only fills it.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(address, &mut found) != 0 && !found.dli_fname.is_null();
        known.then(|| CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned())
    }
}
