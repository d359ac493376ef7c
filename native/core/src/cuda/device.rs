//! Devices, and the context that calls need.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use super::api::CudaApi;
use super::failure::Failure;
use super::types::*;
use crate::error::{Error, Result};

/// What a device offers, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    pub name: String,
    pub total_bytes: usize,
    /// Such as `9.0`.
    pub compute_capability: String,
    /// Virtual memory management: without it there is no arena.
    pub virtual_memory: bool,
    /// Handles that another process of this host can be given.
    pub posix_handles: bool,
    /// Handles that another host of the same NVLink fabric can be given. Whether this host may make
    /// them only an allocation tells.
    pub fabric_handles: bool,
    /// Memory that network cards and storage reach.
    pub gpu_direct_rdma: bool,
    pub dma_buf: bool,
}

/// One device with its primary context, which is shared with every other user of the device in this
/// process.
pub struct CudaDevice {
    api: &'static CudaApi,
    ordinal: i32,
    number: DeviceNumber,
    context: Context,
    abilities: Abilities,
}

// SAFETY: a context is used from any thread, by making it current there.
unsafe impl Send for CudaDevice {}
// SAFETY: as above.
unsafe impl Sync for CudaDevice {}

/// The context is current on this thread until this goes, which restores the one before.
pub struct Current<'device> {
    device: &'device CudaDevice,
    pushed: bool,
}

/// Every device of the driver, in its order. Makes no context. ERR_CUDA_CALL.
pub fn device_facts(api: &CudaApi) -> Result<Vec<Abilities>> {
    (0..count(api)?).map(|ordinal| look_up(api, ordinal).map(|(_, abilities)| abilities)).collect()
}

impl CudaDevice {
    /// Retains the primary context of device `ordinal`, and makes it when this process has none
    /// yet: some 100 ms. ERR_CUDA_DEVICE where there is no such device, or it has no virtual memory
    /// management; ERR_CUDA_NO_CONTEXT; ERR_CUDA_CALL.
    pub fn open(api: &'static CudaApi, ordinal: i32) -> Result<Self> {
        let count = count(api)?;
        if !(0..count).contains(&ordinal) {
            let message = format!(
                "there is no device cuda:{ordinal}: the driver has {count} (CUDA_VISIBLE_DEVICES and the container decide which are seen)"
            );
            return Err(Error::new("ERR_CUDA_DEVICE", message).with("device", name(ordinal)).with("deviceCount", count as usize));
        }
        let (number, abilities) = look_up(api, ordinal)?;
        if !abilities.virtual_memory {
            let message = format!(
                "{} ({}) has no virtual memory management, which an arena needs: use another device or driver",
                name(ordinal),
                abilities.name
            );
            return Err(Error::new("ERR_CUDA_DEVICE", message).with("device", name(ordinal)));
        }
        let mut context = ptr::null_mut();
        // SAFETY: the result is ours.
        let status = unsafe { (api.functions.primary_context_retain)(&mut context, number) };
        api.check("cuDevicePrimaryCtxRetain", status).map_err(|failure| no_context(ordinal, &failure))?;
        Ok(CudaDevice { api, ordinal, number, context, abilities })
    }

    pub fn api(&self) -> &'static CudaApi {
        self.api
    }

    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    pub fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// `cuda:0` and so on.
    pub fn name(&self) -> String {
        name(self.ordinal)
    }

    /// Memory of the device that nobody has now, whichever process: bytes. Blocks.
    /// ERR_CUDA_NO_CONTEXT, ERR_CUDA_CALL.
    pub fn free_bytes(&self) -> Result<usize> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the results are ours.
        let asked = self.api.check("cuMemGetInfo", unsafe { (self.api.functions.memory_info)(&mut free, &mut total) });
        asked.map(|()| free).map_err(|failure| {
            let message = format!("{} does not say how much of its memory is free", self.name());
            failure.error("ERR_CUDA_CALL", message).with("device", self.name())
        })
    }

    /// Makes the context current on this thread. A thread that has another one, a framework's say,
    /// gets it back. ERR_CUDA_NO_CONTEXT.
    pub fn enter(&self) -> Result<Current<'_>> {
        let functions = &self.api.functions;
        let mut current = ptr::null_mut();
        // SAFETY: the result is ours.
        let asked = self.api.check("cuCtxGetCurrent", unsafe { (functions.context_get_current)(&mut current) });
        asked.map_err(|failure| no_context(self.ordinal, &failure))?;
        if current == self.context {
            return Ok(Current { device: self, pushed: false });
        }
        // SAFETY: the context is retained for as long as this device lives, and the guard cannot
        // outlive it.
        let pushed = self.api.check("cuCtxPushCurrent", unsafe { (functions.context_push)(self.context) });
        pushed.map_err(|failure| no_context(self.ordinal, &failure))?;
        Ok(Current { device: self, pushed: true })
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // A driver that is going down with the process refuses, and there is nobody to tell.
        // SAFETY: retained once by `open`.
        let _ = unsafe { (self.api.functions.primary_context_release)(self.number) };
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // Fails only when the driver is gone, and the thread's contexts with it. SAFETY: the
            // context that `enter` pushed on this thread is on top: guards are dropped in reverse
            // order.
            let _ = unsafe { (self.device.api.functions.context_pop)(&mut popped) };
        }
    }
}

fn name(ordinal: i32) -> String {
    format!("cuda:{ordinal}")
}

fn count(api: &CudaApi) -> Result<i32> {
    let mut count = 0;
    // SAFETY: the result is ours.
    let status = unsafe { (api.functions.device_count)(&mut count) };
    api.check("cuDeviceGetCount", status).map_err(|failure| failure.error("ERR_CUDA_CALL", "the CUDA devices cannot be counted"))?;
    Ok(count)
}

fn look_up(api: &CudaApi, ordinal: i32) -> Result<(DeviceNumber, Abilities)> {
    ask(api, ordinal).map_err(|failure| {
        let message = format!("{} cannot be asked what it is", name(ordinal));
        failure.error("ERR_CUDA_CALL", message).with("device", name(ordinal))
    })
}

fn ask(api: &CudaApi, ordinal: i32) -> std::result::Result<(DeviceNumber, Abilities), Failure> {
    let functions = &api.functions;
    let (mut number, mut total_bytes) = (0, 0);
    let mut text: [c_char; 256] = [0; 256];
    // SAFETY: the results are ours, and the buffer is as long as said.
    unsafe {
        api.check("cuDeviceGet", (functions.device_get)(&mut number, ordinal))?;
        api.check("cuDeviceGetName", (functions.device_name)(text.as_mut_ptr(), text.len() as c_int, number))?;
        api.check("cuDeviceTotalMem", (functions.device_total_memory)(&mut total_bytes, number))?;
    }
    text[text.len() - 1] = 0;
    // SAFETY: the last byte is a zero.
    let name = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
    let is = |which| attribute_of(api, number, which).map(|value| value != 0);
    let major = attribute_of(api, number, attribute::COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute_of(api, number, attribute::COMPUTE_CAPABILITY_MINOR)?;
    let abilities = Abilities {
        name,
        total_bytes,
        compute_capability: format!("{major}.{minor}"),
        virtual_memory: is(attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?,
        posix_handles: is(attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?,
        fabric_handles: is(attribute::HANDLE_TYPE_FABRIC_SUPPORTED)?,
        gpu_direct_rdma: is(attribute::GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)?,
        dma_buf: is(attribute::DMA_BUF_SUPPORTED)?,
    };
    Ok((number, abilities))
}

/// 0 for an attribute that is younger than the driver.
fn attribute_of(api: &CudaApi, number: DeviceNumber, which: c_int) -> std::result::Result<c_int, Failure> {
    let mut value = 0;
    // SAFETY: the result is ours.
    match unsafe { (api.functions.device_attribute)(&mut value, which, number) } {
        ERROR_INVALID_VALUE => Ok(0),
        status => api.check("cuDeviceGetAttribute", status).map(|()| value),
    }
}

fn no_context(ordinal: i32, failure: &Failure) -> Error {
    let message = format!("there is no context of {} on this thread", name(ordinal));
    failure.error("ERR_CUDA_NO_CONTEXT", message).with("device", name(ordinal))
}
