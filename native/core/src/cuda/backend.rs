//! Device memory for an arena: physical memory of its own for every allocation, mapped into one
//! reserve.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use super::api::CudaApi;
use super::device::{CudaDevice, Current};
use super::failure::Failure;
use super::types::*;
use crate::error::{Error, Result};
use crate::vmm::{MemoryKind, VmmBackend};

/// What an allocation can be exported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum HandleType {
    /// Only this process reaches the memory.
    None = 0,
    /// A file descriptor for another process of this host.
    PosixFile = 1,
    /// For another host of the same NVLink fabric, too.
    Fabric = 8,
}

/// Something that the backend tells once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `cuda:0` and so on.
    pub device: String,
    /// What allocations are exported as from now on, because FABRIC handles cannot be had.
    pub handle_type: HandleType,
    pub reason: String,
}

/// Memory of one device. Its calls work from any thread, whatever context is current there, and
/// leave that as it was.
pub struct CudaBackend {
    device: CudaDevice,
    granularity: usize,
    handle_type: OnceLock<HandleType>,
    /// Held by the one thread that finds out whether FABRIC handles can be had.
    probing: Mutex<()>,
    tell: Box<dyn Fn(Notice) + Send + Sync>,
}

impl CudaBackend {
    /// Asks what the device's allocations must be multiples of. `tell` is called at most once, on
    /// whatever thread allocates first. ERR_CUDA_CALL.
    pub fn new(device: CudaDevice, tell: impl Fn(Notice) + Send + Sync + 'static) -> Result<Self> {
        let mut backend =
            CudaBackend { device, granularity: 0, handle_type: OnceLock::new(), probing: Mutex::new(()), tell: Box::new(tell) };
        let plain = backend.plain_handle_type();
        backend.granularity = backend.granularity_for(plain).map_err(|failure| backend.no_granularity(&failure))?;
        if !backend.device.abilities().fabric_handles {
            backend.settle(plain, "the device or its driver does not offer them".to_owned());
            return Ok(backend);
        }
        // Which of the two it will be the first allocation tells: sizes have to fit either.
        match backend.granularity_for(HandleType::Fabric) {
            Ok(granularity) => backend.granularity = backend.granularity.max(granularity),
            Err(failure) if refuses_fabric(&failure) => backend.settle(plain, failure.to_string()),
            Err(failure) => return Err(backend.no_granularity(&failure)),
        }
        Ok(backend)
    }

    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// What allocations are exported as; None before the first one has told.
    pub fn handle_type(&self) -> Option<HandleType> {
        self.handle_type.get().copied()
    }

    fn api(&self) -> &'static CudaApi {
        self.device.api()
    }

    fn plain_handle_type(&self) -> HandleType {
        if self.device.abilities().posix_handles { HandleType::PosixFile } else { HandleType::None }
    }

    fn settle(&self, handle_type: HandleType, reason: String) {
        if self.handle_type.set(handle_type).is_ok() {
            (self.tell)(Notice { device: self.device.name(), handle_type, reason });
        }
    }

    /// Network cards and storage reach the memory where the device allows it: without the flag they
    /// cannot register it, or copy it.
    fn properties(&self, handle_type: HandleType) -> AllocationProperties {
        AllocationProperties {
            kind: ALLOCATION_TYPE_PINNED,
            requested_handle_types: handle_type as c_int,
            location: self.location(),
            win32_handle_metadata: ptr::null_mut(),
            compression_type: 0,
            gpu_direct_rdma_capable: u8::from(self.device.abilities().gpu_direct_rdma),
            usage: 0,
            reserved: [0; 4],
        }
    }

    fn location(&self) -> Location {
        Location { kind: LOCATION_TYPE_DEVICE, device: self.device.ordinal() }
    }

    fn granularity_for(&self, handle_type: HandleType) -> std::result::Result<usize, Failure> {
        let mut granularity = 0;
        let properties = self.properties(handle_type);
        // SAFETY: both are ours.
        let status = unsafe { (self.api().functions.memory_granularity)(&mut granularity, &properties, GRANULARITY_MINIMUM) };
        self.api().check("cuMemGetAllocationGranularity", status).map(|()| granularity)
    }

    fn no_granularity(&self, failure: &Failure) -> Error {
        let message = format!("{} does not say what sizes it allocates", self.device.name());
        failure.error("ERR_CUDA_CALL", message).with("device", self.device.name())
    }

    /// Physical memory. FABRIC is asked for once: a refusal of it says that this host has none, any
    /// other failure says nothing about it.
    fn create(&self, bytes: usize) -> std::result::Result<MemoryHandle, Failure> {
        if let Some(handle_type) = self.handle_type.get() {
            return self.create_as(*handle_type, bytes);
        }
        let probing = self.probing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(handle_type) = self.handle_type.get() {
            return self.create_as(*handle_type, bytes);
        }
        match self.create_as(HandleType::Fabric, bytes) {
            Ok(handle) => {
                let _ = self.handle_type.set(HandleType::Fabric);
                Ok(handle)
            }
            Err(failure) if refuses_fabric(&failure) => {
                let plain = self.plain_handle_type();
                self.settle(plain, failure.to_string());
                drop(probing);
                self.create_as(plain, bytes)
            }
            Err(failure) => Err(failure),
        }
    }

    fn create_as(&self, handle_type: HandleType, bytes: usize) -> std::result::Result<MemoryHandle, Failure> {
        let mut handle = 0;
        let properties = self.properties(handle_type);
        // SAFETY: both are ours.
        let status = unsafe { (self.api().functions.memory_create)(&mut handle, bytes, &properties, 0) };
        self.api().check("cuMemCreate", status).map(|()| handle)
    }

    /// Maps the whole of `handle`, and makes it accessible. Undoes the one when the other fails.
    fn map(&self, address: usize, bytes: usize, handle: MemoryHandle) -> std::result::Result<(), Vec<Failure>> {
        let (api, functions) = (self.api(), &self.api().functions);
        // SAFETY: the contract of `allocate` gives us this part of our own reserve.
        let mapped = api.check("cuMemMap", unsafe { (functions.memory_map)(address as u64, bytes, 0, handle, 0) });
        mapped.map_err(|failure| vec![failure])?;
        let access = AccessDescriptor { location: self.location(), flags: ACCESS_READ_WRITE };
        // SAFETY: just mapped; one descriptor, ours.
        let accessible = api.check("cuMemSetAccess", unsafe { (functions.memory_set_access)(address as u64, bytes, &access, 1) });
        accessible.map_err(|failure| std::iter::once(failure).chain(self.unmap(address, bytes).err()).collect())
    }

    /// What is given back would be lost for good: a second try, and then the calls are made all the
    /// same, since each names what it means.
    fn enter_to_release(&self) -> Option<Current<'_>> {
        self.device.enter().or_else(|_| self.device.enter()).ok()
    }

    fn unmap(&self, address: usize, bytes: usize) -> std::result::Result<(), Failure> {
        // SAFETY: only called for what this backend mapped whole, and nobody uses any more.
        self.api().check("cuMemUnmap", unsafe { (self.api().functions.memory_unmap)(address as u64, bytes) })
    }

    fn release(&self, handle: MemoryHandle) -> std::result::Result<(), Failure> {
        // SAFETY: a handle that this backend created and its caller gives up.
        self.api().check("cuMemRelease", unsafe { (self.api().functions.memory_release)(handle) })
    }

    fn describe(&self, error: Error, address: usize, bytes: usize) -> Error {
        error.with("device", self.device.name()).with("address", format!("{address:#x}")).with("length", bytes)
    }

    /// The error of the first of `failures`; the others failed while it was undone.
    fn not_allocated(&self, address: usize, bytes: usize, failures: &[Failure]) -> Error {
        let (first, undoing) = (&failures[0], &failures[1..]);
        let (code, advice) = match first.status {
            ERROR_OUT_OF_MEMORY => ("ERR_CUDA_OUT_OF_MEMORY", "; load less, or free memory of the device (nvidia-smi shows who has it)"),
            _ => ("ERR_CUDA_ALLOCATE", ""),
        };
        let message = format!("{bytes} bytes of {} cannot be had at {address:#x}{advice}", self.device.name());
        let mut error = first.error(code, message);
        if !undoing.is_empty() {
            let text = joined(undoing);
            error.message = format!("{}; undoing it, {text}", error.message);
            error = error.with("undoing", text);
        }
        self.describe(error, address, bytes)
    }

    fn not_released(&self, address: usize, bytes: usize, what: &str, failures: &[Failure]) -> Error {
        let message = format!("{bytes} bytes of {what} of {} at {address:#x} cannot be given back", self.device.name());
        let mut error = failures[0].error("ERR_CUDA_RELEASE", message);
        if failures.len() > 1 {
            let text = joined(&failures[1..]);
            error.message = format!("{}; {text}", error.message);
            error = error.with("also", text);
        }
        self.describe(error, address, bytes)
    }
}

impl VmmBackend for CudaBackend {
    fn reserve(&self, total_bytes: usize) -> Result<usize> {
        let _current = self.device.enter()?;
        let mut base = 0;
        // SAFETY: the result is ours; the driver picks the place.
        let status = unsafe { (self.api().functions.address_reserve)(&mut base, total_bytes, self.granularity, 0, 0) };
        match self.api().check("cuMemAddressReserve", status) {
            Ok(()) => Ok(base as usize),
            Err(failure) => {
                let message = format!(
                    "{total_bytes} bytes of address space of {} cannot be reserved; ask for less with totalBytes (WSL2, virtual GPUs and `ulimit -v` allow little)",
                    self.device.name()
                );
                let error = failure.error("ERR_CUDA_RESERVE_REFUSED", message);
                Err(error.with("device", self.device.name()).with("length", total_bytes))
            }
        }
    }

    fn allocate(&self, address: usize, bytes: usize) -> Result<u64> {
        let _current = self.device.enter()?;
        let handle = self.create(bytes).map_err(|failure| self.not_allocated(address, bytes, &[failure]))?;
        match self.map(address, bytes, handle) {
            Ok(()) => Ok(handle),
            Err(mut failures) => {
                failures.extend(self.release(handle).err());
                Err(self.not_allocated(address, bytes, &failures))
            }
        }
    }

    fn deallocate(&self, address: usize, bytes: usize, handle: u64) -> Result<()> {
        let _current = self.enter_to_release();
        // Released also when it is still mapped: the driver then frees it once it is not.
        let failures: Vec<Failure> = [self.unmap(address, bytes), self.release(handle)].into_iter().filter_map(|done| done.err()).collect();
        if failures.is_empty() { Ok(()) } else { Err(self.not_released(address, bytes, "memory", &failures)) }
    }

    fn release_reserve(&self, base: usize, total_bytes: usize) -> Result<()> {
        let _current = self.enter_to_release();
        // SAFETY: the whole of what `reserve` gave.
        let status = unsafe { (self.api().functions.address_free)(base as u64, total_bytes) };
        let freed = self.api().check("cuMemAddressFree", status);
        freed.map_err(|failure| self.not_released(base, total_bytes, "address space", &[failure]))
    }

    fn allocation_granularity(&self) -> usize {
        self.granularity
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn prove_one_region(&self, address: usize, bytes: usize) -> Result<()> {
        let _current = self.device.enter()?;
        let mut file: c_int = -1;
        let result = (&raw mut file).cast();
        // SAFETY: for this type of handle the result is a file descriptor, ours.
        let status = unsafe { (self.api().functions.range_handle)(result, address as u64, bytes, RANGE_HANDLE_TYPE_DMA_BUF, 0) };
        self.api().check("cuMemGetHandleForAddressRange", status).map_err(|failure| {
            let message = format!("{bytes} bytes of {} at {address:#x} cannot be one region of a network card", self.device.name());
            self.describe(failure.error("ERR_CUDA_REGION", message), address, bytes)
        })?;
        // Who registers the range exports it again.
        // SAFETY: just opened for us.
        unsafe { libc::close(file) };
        Ok(())
    }

    fn cuda_device(&self) -> Option<&CudaDevice> {
        Some(&self.device)
    }

    fn copy_to_host(&self, address: usize, into: &mut [u8]) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the caller holds the device memory; `into` is as long.
        let status = unsafe { (self.api().functions.copy_to_host)(into.as_mut_ptr().cast(), address as u64, into.len()) };
        self.api().check("cuMemcpyDtoH", status).map_err(|failure| {
            let message = format!("{} bytes of {} at {address:#x} cannot be copied to the host", into.len(), self.device.name());
            self.describe(failure.error("ERR_CUDA_CALL", message), address, into.len())
        })
    }
}

fn refuses_fabric(failure: &Failure) -> bool {
    matches!(failure.status, ERROR_NOT_SUPPORTED | ERROR_NOT_PERMITTED)
}

fn joined(failures: &[Failure]) -> String {
    failures.iter().map(Failure::to_string).collect::<Vec<_>>().join(", ")
}
