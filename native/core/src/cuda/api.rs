//! The table of functions looked up in the CUDA driver library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::failure::Failure;
use super::types::*;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// One field per function, each named for what it does; all return a `CUresult`.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Functions {
            /// Looks every symbol up; the names of all that are missing otherwise.
            pub fn load(library: &Library) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                // SAFETY: the types are those of cuda.h for these symbols; the caller never unloads
                // the library.
                $(let $field = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> Status>($symbol.as_bytes()) };)*
                $(if $field.is_err() { missing.push($symbol); })*
                match ($($field,)*) {
                    ($(Ok($field),)*) => Ok(Functions { $($field: *$field,)* }),
                    _ => Err(missing),
                }
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    error_name = "cuGetErrorName" (Status, *mut *const c_char);
    error_string = "cuGetErrorString" (Status, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut DeviceNumber, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, DeviceNumber);
    device_total_memory = "cuDeviceTotalMem_v2" (*mut usize, DeviceNumber);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, DeviceNumber);
    primary_context_retain = "cuDevicePrimaryCtxRetain" (*mut Context, DeviceNumber);
    primary_context_release = "cuDevicePrimaryCtxRelease_v2" (DeviceNumber);
    context_get_current = "cuCtxGetCurrent" (*mut Context);
    context_push = "cuCtxPushCurrent_v2" (Context);
    context_pop = "cuCtxPopCurrent_v2" (*mut Context);
    memory_granularity = "cuMemGetAllocationGranularity" (*mut usize, *const AllocationProperties, c_int);
    address_reserve = "cuMemAddressReserve" (*mut DevicePointer, usize, usize, DevicePointer, c_ulonglong);
    address_free = "cuMemAddressFree" (DevicePointer, usize);
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    memory_create = "cuMemCreate" (*mut MemoryHandle, usize, *const AllocationProperties, c_ulonglong);
    memory_release = "cuMemRelease" (MemoryHandle);
    memory_map = "cuMemMap" (DevicePointer, usize, usize, MemoryHandle, c_ulonglong);
    memory_unmap = "cuMemUnmap" (DevicePointer, usize);
    memory_set_access = "cuMemSetAccess" (DevicePointer, usize, *const AccessDescriptor, usize);
    range_handle = "cuMemGetHandleForAddressRange" (*mut c_void, DevicePointer, usize, c_int, c_ulonglong);
    copy_to_host = "cuMemcpyDtoH_v2" (*mut c_void, DevicePointer, usize);
    host_register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister" (*mut c_void);
    stream_create = "cuStreamCreate" (*mut Stream, c_uint);
    stream_synchronize = "cuStreamSynchronize" (Stream);
    stream_destroy = "cuStreamDestroy_v2" (Stream);
    event_create = "cuEventCreate" (*mut Event, c_uint);
    event_record = "cuEventRecord" (Event, Stream);
    event_synchronize = "cuEventSynchronize" (Event);
    event_destroy = "cuEventDestroy_v2" (Event);
    copy_to_device = "cuMemcpyHtoDAsync_v2" (DevicePointer, *const c_void, usize, Stream);
}

/// An initialised driver library. It stays loaded: a CUDA driver is not made to be unloaded.
pub struct CudaApi {
    pub(super) functions: Functions,
    /// Where the loader found it.
    library: String,
    driver_version: i32,
}

impl CudaApi {
    /// `cuInit`. The driver has its devices afterwards, and no context.
    pub(super) fn initialize(functions: Functions, library: String) -> Result<Self, Failure> {
        let mut api = CudaApi { functions, library, driver_version: 0 };
        // SAFETY: the only flag there is is 0.
        api.check("cuInit", unsafe { (api.functions.init)(0) })?;
        // SAFETY: the result is ours.
        let status = unsafe { (api.functions.driver_version)(&mut api.driver_version) };
        api.check("cuDriverGetVersion", status)?;
        Ok(api)
    }

    /// Path of the library, as the loader resolved it.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Newest CUDA version that the driver serves, such as `12.4`.
    pub fn driver_version(&self) -> String {
        format!("{}.{}", self.driver_version / 1000, self.driver_version % 1000 / 10)
    }

    /// The outcome of `operation`, the name of the function that returned `status`.
    pub(super) fn check(&self, operation: &'static str, status: Status) -> Result<(), Failure> {
        if status == SUCCESS { Ok(()) } else { Err(self.failure(operation, status)) }
    }

    #[cold]
    fn failure(&self, operation: &'static str, status: Status) -> Failure {
        let name = self.text(self.functions.error_name, status).unwrap_or_else(|| format!("CUresult {status}"));
        let meaning = self.text(self.functions.error_string, status).unwrap_or_else(|| "unknown to this driver".to_owned());
        Failure { operation, status, name, meaning }
    }

    fn text(&self, function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status, status: Status) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: the result is ours; what it points to are constants of the library, which stays
        // loaded.
        unsafe {
            let known = function(status, &mut text) == SUCCESS && !text.is_null();
            known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}
