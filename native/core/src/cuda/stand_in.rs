//! A driver of this thread for tests: strict about order, fails planned calls, lists what was
//! called.
//!
//! The stand-in in C (`native/fakes`) cannot take its place: it takes its plan once, from the
//! environment, and counts calls for the whole process, as UCX and cuFile need it. So each plan
//! costs a process, and tests could not run beside each other in one. Here a plan belongs to a
//! thread: a life in which each call fails once takes milliseconds, where the other needs more than
//! ten seconds (`test/faults/cuda-arena.test.ts`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::api::{CudaApi, Functions};
use super::types::*;

pub const GRANULE: usize = 2 << 20;
pub const TOTAL_BYTES: usize = 1 << 34;
pub const BASE: u64 = 0x7000_0000_0000;
const CONTEXT: usize = 0xc0de;
pub const OTHER_CONTEXT: usize = 0xbeef;
const INVALID_CONTEXT: Status = 201;

#[derive(Default)]
pub struct Driver {
    pub calls: Vec<String>,
    /// Calls that fail, by name and count from 1.
    pub failing: Vec<(&'static str, usize, Status)>,
    pub attributes: BTreeMap<c_int, c_int>,
    /// Status of `cuMemCreate` for FABRIC handles.
    pub fabric: Status,
    pub contexts: Vec<usize>,
    pub retained: usize,
    pub reserved: Option<(u64, usize)>,
    /// Bytes of each handle.
    pub handles: BTreeMap<MemoryHandle, usize>,
    /// `(bytes, handle, accessible)` by address.
    pub mapped: BTreeMap<u64, (usize, MemoryHandle, bool)>,
    pub requested_handle_types: Vec<c_int>,
    pub rdma_flags: Vec<u8>,
    counts: BTreeMap<&'static str, usize>,
    next_handle: MemoryHandle,
}

thread_local!(static DRIVER: RefCell<Driver> = RefCell::default());

/// Looks at, or changes, the driver of this thread.
pub fn driver<T>(work: impl FnOnce(&mut Driver) -> T) -> T {
    DRIVER.with(|driver| work(&mut driver.borrow_mut()))
}

/// A fresh driver whose one device can everything; FABRIC handles are refused on this host.
pub fn api() -> &'static CudaApi {
    let abilities = [102, 103, 110, 124, 128].map(|which| (which, 1));
    let attributes = abilities.into_iter().chain([(75, 9), (76, 0)]).collect();
    driver(|driver| *driver = Driver { attributes, fabric: ERROR_NOT_SUPPORTED, ..Driver::default() });
    let functions = Functions {
        init,
        driver_version,
        error_name,
        error_string,
        device_count,
        device_get,
        device_name,
        device_total_memory,
        device_attribute,
        primary_context_retain,
        primary_context_release,
        context_get_current,
        context_push,
        context_pop,
        memory_granularity,
        address_reserve,
        address_free,
        memory_info,
        memory_create,
        memory_release,
        memory_map,
        memory_unmap,
        memory_set_access,
        range_handle,
        copy_to_host,
        host_register,
        host_unregister,
        stream_create,
        stream_synchronize,
        stream_destroy,
        event_create,
        event_record,
        event_synchronize,
        event_destroy,
        copy_to_device,
    };
    Box::leak(Box::new(CudaApi::initialize(functions, "stand-in".to_owned()).unwrap()))
}

impl Driver {
    /// True when nothing of the arena or the context is left.
    pub fn empty(&self) -> bool {
        self.retained == 0 && self.reserved.is_none() && self.handles.is_empty() && self.mapped.is_empty() && self.contexts.is_empty()
    }

    pub fn count(&self, name: &str) -> usize {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

/// Counts and lists the call of `name`, then does `work`, unless it is planned to fail.
fn call(name: &'static str, text: String, work: impl FnOnce(&mut Driver) -> Status) -> Status {
    driver(|driver| {
        let count = driver.counts.entry(name).or_default();
        *count += 1;
        let nth = *count;
        driver.calls.push(text);
        match driver.failing.iter().find(|(failing, at, _)| *failing == name && *at == nth) {
            Some((_, _, status)) => *status,
            None => work(driver),
        }
    })
}

fn in_context(driver: &Driver, outcome: Status) -> Status {
    if driver.contexts.last() == Some(&CONTEXT) { outcome } else { INVALID_CONTEXT }
}

unsafe extern "C" fn init(_flags: c_uint) -> Status {
    call("cuInit", "init".into(), |_| SUCCESS)
}

unsafe extern "C" fn driver_version(version: *mut c_int) -> Status {
    // SAFETY: the caller's result.
    unsafe { *version = 12040 };
    SUCCESS
}

unsafe extern "C" fn error_name(status: Status, text: *mut *const c_char) -> Status {
    let name = match status {
        ERROR_OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        ERROR_NOT_PERMITTED => c"CUDA_ERROR_NOT_PERMITTED",
        ERROR_NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        _ => return ERROR_INVALID_VALUE,
    };
    // SAFETY: the caller's result.
    unsafe { *text = name.as_ptr() };
    SUCCESS
}

unsafe extern "C" fn error_string(status: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's result.
    unsafe { *text = c"as planned".as_ptr() };
    if status < 999 { SUCCESS } else { ERROR_INVALID_VALUE }
}

unsafe extern "C" fn device_count(count: *mut c_int) -> Status {
    // SAFETY: the caller's result.
    call("cuDeviceGetCount", "device_count".into(), |_| unsafe {
        *count = 1;
        SUCCESS
    })
}

unsafe extern "C" fn device_get(number: *mut DeviceNumber, ordinal: c_int) -> Status {
    // SAFETY: the caller's result.
    unsafe { *number = ordinal };
    SUCCESS
}

unsafe extern "C" fn device_name(text: *mut c_char, _length: c_int, _number: DeviceNumber) -> Status {
    // SAFETY: the caller's buffer is longer.
    unsafe { std::ptr::copy_nonoverlapping(c"Stand-in".as_ptr(), text, 9) };
    SUCCESS
}

unsafe extern "C" fn device_total_memory(bytes: *mut usize, _number: DeviceNumber) -> Status {
    // SAFETY: the caller's result.
    unsafe { *bytes = TOTAL_BYTES };
    SUCCESS
}

unsafe extern "C" fn device_attribute(value: *mut c_int, which: c_int, _number: DeviceNumber) -> Status {
    call("cuDeviceGetAttribute", format!("attribute {which}"), |driver| match driver.attributes.get(&which) {
        Some(known) => {
            // SAFETY: the caller's result.
            unsafe { *value = *known };
            SUCCESS
        }
        None => ERROR_INVALID_VALUE,
    })
}

unsafe extern "C" fn primary_context_retain(context: *mut Context, _number: DeviceNumber) -> Status {
    call("cuDevicePrimaryCtxRetain", "retain".into(), |driver| {
        // SAFETY: the caller's result.
        unsafe { *context = CONTEXT as Context };
        driver.retained += 1;
        SUCCESS
    })
}

unsafe extern "C" fn primary_context_release(_number: DeviceNumber) -> Status {
    call("cuDevicePrimaryCtxRelease", "release context".into(), |driver| {
        driver.retained -= 1;
        SUCCESS
    })
}

unsafe extern "C" fn context_get_current(context: *mut Context) -> Status {
    driver(|driver| {
        // SAFETY: the caller's result.
        unsafe { *context = driver.contexts.last().copied().unwrap_or(0) as Context };
        SUCCESS
    })
}

unsafe extern "C" fn context_push(context: Context) -> Status {
    call("cuCtxPushCurrent", "push".into(), |driver| {
        driver.contexts.push(context as usize);
        SUCCESS
    })
}

unsafe extern "C" fn context_pop(context: *mut Context) -> Status {
    call("cuCtxPopCurrent", "pop".into(), |driver| {
        let Some(top) = driver.contexts.pop() else { return INVALID_CONTEXT };
        // SAFETY: the caller's result.
        unsafe { *context = top as Context };
        SUCCESS
    })
}

unsafe extern "C" fn memory_granularity(granularity: *mut usize, properties: *const AllocationProperties, _option: c_int) -> Status {
    // SAFETY: the caller's.
    let asked = unsafe { (*properties).requested_handle_types };
    call("cuMemGetAllocationGranularity", format!("granularity {asked}"), |_| {
        // SAFETY: the caller's result.
        unsafe { *granularity = if asked == 8 { GRANULE } else { GRANULE / 2 } };
        SUCCESS
    })
}

unsafe extern "C" fn address_reserve(
    base: *mut DevicePointer,
    bytes: usize,
    alignment: usize,
    _wish: DevicePointer,
    _flags: c_ulonglong,
) -> Status {
    call("cuMemAddressReserve", format!("reserve {bytes} {alignment}"), |driver| {
        // SAFETY: the caller's result.
        unsafe { *base = BASE };
        driver.reserved = Some((BASE, bytes));
        in_context(driver, SUCCESS)
    })
}

unsafe extern "C" fn address_free(base: DevicePointer, bytes: usize) -> Status {
    call("cuMemAddressFree", "free addresses".into(), |driver| {
        if driver.reserved != Some((base, bytes)) || !driver.mapped.is_empty() {
            return ERROR_INVALID_VALUE;
        }
        driver.reserved = None;
        SUCCESS
    })
}

unsafe extern "C" fn memory_create(
    handle: *mut MemoryHandle,
    bytes: usize,
    properties: *const AllocationProperties,
    _flags: c_ulonglong,
) -> Status {
    // SAFETY: the caller's.
    let properties = unsafe { *properties };
    let asked = properties.requested_handle_types;
    call("cuMemCreate", format!("create {bytes} {asked}"), |driver| {
        driver.requested_handle_types.push(asked);
        driver.rdma_flags.push(properties.gpu_direct_rdma_capable);
        if asked == 8 && driver.fabric != SUCCESS {
            return driver.fabric;
        }
        if properties.kind != 1 || properties.location != (Location { kind: 1, device: 0 }) {
            return ERROR_INVALID_VALUE;
        }
        driver.next_handle += 1;
        driver.handles.insert(driver.next_handle, bytes);
        // SAFETY: the caller's result.
        unsafe { *handle = driver.next_handle };
        in_context(driver, SUCCESS)
    })
}

unsafe extern "C" fn memory_release(handle: MemoryHandle) -> Status {
    call("cuMemRelease", format!("release {handle}"), |driver| match driver.handles.remove(&handle) {
        Some(_) => SUCCESS,
        None => ERROR_INVALID_VALUE,
    })
}

unsafe extern "C" fn memory_map(address: DevicePointer, bytes: usize, offset: usize, handle: MemoryHandle, _flags: c_ulonglong) -> Status {
    call("cuMemMap", format!("map {handle}"), |driver| {
        if offset != 0 || driver.handles.get(&handle) != Some(&bytes) || driver.mapped.contains_key(&address) {
            return ERROR_INVALID_VALUE;
        }
        driver.mapped.insert(address, (bytes, handle, false));
        SUCCESS
    })
}

unsafe extern "C" fn memory_unmap(address: DevicePointer, bytes: usize) -> Status {
    call("cuMemUnmap", "unmap".into(), |driver| match driver.mapped.get(&address) {
        Some((mapped, _, _)) if *mapped == bytes => {
            driver.mapped.remove(&address);
            SUCCESS
        }
        _ => ERROR_INVALID_VALUE,
    })
}

/// A range is one region when one mapping holds it.
unsafe extern "C" fn range_handle(handle: *mut c_void, from: DevicePointer, bytes: usize, kind: c_int, _flags: c_ulonglong) -> Status {
    call("cuMemGetHandleForAddressRange", format!("range {bytes} {kind}"), |driver| match driver.mapped.get(&from) {
        Some((mapped, _, _)) if bytes <= *mapped => {
            // SAFETY: the caller's result; a descriptor of any file does.
            unsafe { *handle.cast::<c_int>() = libc::dup(2) };
            in_context(driver, SUCCESS)
        }
        _ => ERROR_INVALID_VALUE,
    })
}

/// Device memory reads as the low bytes of its addresses.
unsafe extern "C" fn memory_info(free: *mut usize, total: *mut usize) -> Status {
    call("cuMemGetInfo", "memory info".into(), |driver| {
        let taken: usize = driver.handles.values().sum();
        // SAFETY: the caller's results.
        unsafe { (*free, *total) = (TOTAL_BYTES - taken, TOTAL_BYTES) };
        in_context(driver, SUCCESS)
    })
}

unsafe extern "C" fn copy_to_host(to: *mut c_void, from: DevicePointer, bytes: usize) -> Status {
    call("cuMemcpyDtoH", format!("copy {bytes}"), |driver| {
        for at in 0..bytes {
            // SAFETY: the caller's buffer.
            unsafe { *to.cast::<u8>().add(at) = (from as usize + at) as u8 };
        }
        in_context(driver, SUCCESS)
    })
}

unsafe extern "C" fn memory_set_access(address: DevicePointer, bytes: usize, access: *const AccessDescriptor, count: usize) -> Status {
    // SAFETY: the caller's.
    let access = unsafe { *access };
    call("cuMemSetAccess", format!("access {}", access.flags), |driver| match driver.mapped.get_mut(&address) {
        Some((mapped, _, accessible)) if *mapped == bytes && count == 1 => {
            *accessible = true;
            SUCCESS
        }
        _ => ERROR_INVALID_VALUE,
    })
}

unsafe extern "C" fn host_register(_address: *mut c_void, bytes: usize, _flags: c_uint) -> Status {
    call("cuMemHostRegister", format!("pin {bytes}"), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn host_unregister(_address: *mut c_void) -> Status {
    call("cuMemHostUnregister", "unpin".into(), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn stream_create(_stream: *mut Stream, flags: c_uint) -> Status {
    call("cuStreamCreate", format!("stream {flags}"), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn stream_synchronize(_stream: Stream) -> Status {
    call("cuStreamSynchronize", "drain".into(), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn stream_destroy(_stream: Stream) -> Status {
    call("cuStreamDestroy", "destroy stream".into(), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn event_create(_event: *mut Event, flags: c_uint) -> Status {
    call("cuEventCreate", format!("event {flags}"), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn event_record(_event: Event, _stream: Stream) -> Status {
    call("cuEventRecord", "record".into(), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn event_synchronize(_event: Event) -> Status {
    call("cuEventSynchronize", "wait".into(), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn event_destroy(_event: Event) -> Status {
    call("cuEventDestroy", "destroy event".into(), |driver| in_context(driver, SUCCESS))
}

unsafe extern "C" fn copy_to_device(_to: DevicePointer, _from: *const c_void, bytes: usize, _stream: Stream) -> Status {
    call("cuMemcpyHtoDAsync", format!("to device {bytes}"), |driver| in_context(driver, SUCCESS))
}
