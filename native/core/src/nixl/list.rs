//! Descriptor lists: what is registered, and what is moved.

use std::sync::Arc;

use super::api::{Handle, NixlApi};
use super::status::check;
use crate::error::Result;

/// What descriptors stand for: NIXL's `nixl_mem_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Dram = 0,
    Vram = 1,
    File = 4,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Dram => "DRAM",
            Kind::Vram => "VRAM",
            Kind::File => "FILE",
        }
    }
}

/// One piece: memory at `address` of a device, or `length` bytes at file offset `address` of
/// descriptor `device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub address: u64,
    pub length: u64,
    pub device: u64,
}

/// A list of NIXL's, destroyed when dropped.
pub struct List {
    api: Arc<NixlApi>,
    pub handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> i32,
}

impl List {
    /// For `register_mem`.
    pub fn registration(api: &Arc<NixlApi>, kind: Kind, descriptors: &[Descriptor]) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a place for the result.
        let status = unsafe { (api.create_reg_dlist)(kind as i32, &mut handle, false) };
        check(status, "ERR_NIXL_REGISTER", || describe(kind, descriptors), "nixl_capi_create_reg_dlist")?;
        let list = List { api: Arc::clone(api), handle, destroy: api.destroy_reg_dlist };
        for Descriptor { address, length, device } in descriptors {
            // SAFETY: the list is alive; there is no metadata.
            let status =
                unsafe { (list.api.reg_dlist_add_desc)(handle, *address as usize, *length as usize, *device, std::ptr::null(), 0) };
            check(status, "ERR_NIXL_REGISTER", || describe(kind, descriptors), "nixl_capi_reg_dlist_add_desc")?;
        }
        Ok(list)
    }

    /// For `create_xfer_req`.
    pub fn transfer(api: &Arc<NixlApi>, kind: Kind, descriptors: &[Descriptor]) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a place for the result.
        let status = unsafe { (api.create_xfer_dlist)(kind as i32, &mut handle, false) };
        check(status, "ERR_NIXL_TRANSFER", || describe(kind, descriptors), "nixl_capi_create_xfer_dlist")?;
        let list = List { api: Arc::clone(api), handle, destroy: api.destroy_xfer_dlist };
        for Descriptor { address, length, device } in descriptors {
            // SAFETY: the list is alive.
            let status = unsafe { (list.api.xfer_dlist_add_desc)(handle, *address as usize, *length as usize, *device) };
            check(status, "ERR_NIXL_TRANSFER", || describe(kind, descriptors), "nixl_capi_xfer_dlist_add_desc")?;
        }
        Ok(list)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// What a list holds, for messages.
pub fn describe(kind: Kind, descriptors: &[Descriptor]) -> String {
    let bytes: u64 = descriptors.iter().map(|descriptor| descriptor.length).sum();
    match descriptors {
        [only] => format!("{} bytes of {} at {:#x} (device {})", only.length, kind.name(), only.address, only.device),
        _ => format!("{} descriptors of {} ({bytes} bytes)", descriptors.len(), kind.name()),
    }
}
