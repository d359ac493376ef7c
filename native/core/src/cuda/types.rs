//! Types and numbers of `cuda.h` (CUDA 12), as far as they are used here.

use std::ffi::{c_int, c_uint, c_void};

/// `CUresult`.
pub type Status = c_int;
pub type DeviceNumber = c_int;
pub type Context = *mut c_void;
pub type DevicePointer = u64;
/// `CUmemGenericAllocationHandle`.
pub type MemoryHandle = u64;
/// `CUstream`.
pub type Stream = *mut c_void;
/// `CUevent`.
pub type Event = *mut c_void;

pub const SUCCESS: Status = 0;
pub const ERROR_INVALID_VALUE: Status = 1;
pub const ERROR_OUT_OF_MEMORY: Status = 2;
pub const ERROR_NOT_PERMITTED: Status = 800;
pub const ERROR_NOT_SUPPORTED: Status = 801;

/// `CUdevice_attribute`.
pub mod attribute {
    use std::ffi::c_int;
    pub const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    pub const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    pub const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_int = 102;
    pub const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: c_int = 103;
    pub const GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: c_int = 110;
    pub const DMA_BUF_SUPPORTED: c_int = 124;
    pub const HANDLE_TYPE_FABRIC_SUPPORTED: c_int = 128;
}

pub const ALLOCATION_TYPE_PINNED: c_int = 1;
pub const LOCATION_TYPE_DEVICE: c_int = 1;
pub const ACCESS_READ_WRITE: c_int = 3;
pub const GRANULARITY_MINIMUM: c_int = 0;
pub const RANGE_HANDLE_TYPE_DMA_BUF: c_int = 1;
/// Not ordered with the default stream that frameworks use.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// Whoever waits sleeps, and nobody asks when it was.
pub const EVENT_BLOCKING_SYNC_WITHOUT_TIMING: c_uint = 1 | 2;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub kind: c_int,
    pub device: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocationProperties {
    pub kind: c_int,
    pub requested_handle_types: c_int,
    pub location: Location,
    pub win32_handle_metadata: *mut c_void,
    pub compression_type: u8,
    pub gpu_direct_rdma_capable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AccessDescriptor {
    pub location: Location,
    pub flags: c_int,
}

const _: () = assert!(size_of::<AllocationProperties>() == 32 && size_of::<AccessDescriptor>() == 12);
