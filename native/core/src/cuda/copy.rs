//! Copies from pinned memory to a device, in order, on a stream of their own.

use std::ffi::c_void;
use std::ptr;

use super::device::CudaDevice;
use super::failure::Failure;
use super::types::*;
use crate::error::{Error, Result};

/// Bytes of this process and the place on the device that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub from: usize,
    pub to: usize,
    pub length: usize,
}

/// A stream of the device, and slots of host memory that copies are made from. All calls need the
/// device's context current on the calling thread. Nothing is given back on drop: copies may be in
/// flight.
pub(super) struct CopyStream<'device> {
    device: &'device CudaDevice,
    stream: Stream,
    /// By slot: tells when the copies made from it are over.
    events: Vec<Event>,
    /// Addresses of the slots that are pinned, which come first.
    pinned: Vec<usize>,
}

impl<'device> CopyStream<'device> {
    /// A failure leaves nothing behind. ERR_CUDA_CALL.
    pub fn create(device: &'device CudaDevice, slots: usize) -> Result<Self> {
        let functions = &device.api().functions;
        let mut stream = ptr::null_mut();
        // SAFETY: the result is ours.
        let status = unsafe { (functions.stream_create)(&mut stream, STREAM_NON_BLOCKING) };
        let created = device.api().check("cuStreamCreate", status);
        created.map_err(|failure| error(device, "ERR_CUDA_CALL", "has no stream to copy on", &failure))?;
        let mut made = CopyStream { device, stream, events: Vec::with_capacity(slots), pinned: Vec::with_capacity(slots) };
        for _ in 0..slots {
            let mut event = ptr::null_mut();
            // SAFETY: the result is ours.
            let status = unsafe { (functions.event_create)(&mut event, EVENT_BLOCKING_SYNC_WITHOUT_TIMING) };
            if let Err(failure) = device.api().check("cuEventCreate", status) {
                let mut error = error(device, "ERR_CUDA_CALL", "has no event to wait for copies with", &failure);
                for undoing in made.release().0 {
                    error.message = format!("{}; undoing it, {}", error.message, undoing.message);
                }
                return Err(error);
            }
            made.events.push(event);
        }
        Ok(made)
    }

    pub fn pinned_slots(&self) -> usize {
        self.pinned.len()
    }

    /// Pins the next slot, memory that the caller holds until the release. ERR_CUDA_PIN.
    pub fn pin(&mut self, address: usize, bytes: usize) -> Result<()> {
        // SAFETY: the memory is mapped, and stays so until it is unregistered.
        let status = unsafe { (self.device.api().functions.host_register)(address as *mut c_void, bytes, 0) };
        self.device.api().check("cuMemHostRegister", status).map_err(|failure| {
            let what = format!("cannot be given {bytes} bytes of host memory at {address:#x} to copy from; free memory of the host");
            error(self.device, "ERR_CUDA_PIN", &what, &failure).with("length", bytes)
        })?;
        self.pinned.push(address);
        Ok(())
    }

    /// Queues copies from a pinned slot, and its event behind them. After a failure some may be in
    /// flight. ERR_CUDA_COPY.
    pub fn queue(&self, slot: usize, pieces: &[Piece]) -> Result<()> {
        let (api, functions) = (self.device.api(), &self.device.api().functions);
        for piece in pieces {
            // SAFETY: both ends are held by the caller until the stream is idle, and checked to be
            // as long.
            let status = unsafe { (functions.copy_to_device)(piece.to as u64, piece.from as *const c_void, piece.length, self.stream) };
            api.check("cuMemcpyHtoDAsync", status).map_err(|failure| {
                let what = format!("did not take {} bytes to {:#x}", piece.length, piece.to);
                let error = error(self.device, "ERR_CUDA_COPY", &what, &failure);
                error.with("address", format!("{:#x}", piece.to)).with("length", piece.length)
            })?;
        }
        // SAFETY: both are ours and alive.
        let status = unsafe { (functions.event_record)(self.events[slot], self.stream) };
        api.check("cuEventRecord", status).map_err(|failure| self.not_copied(&failure))
    }

    /// Blocks until what was queued from this slot is over. After a failure it may be in flight.
    /// ERR_CUDA_COPY.
    pub fn wait(&self, slot: usize) -> Result<()> {
        // SAFETY: ours and alive.
        let status = unsafe { (self.device.api().functions.event_synchronize)(self.events[slot]) };
        self.device.api().check("cuEventSynchronize", status).map_err(|failure| self.not_copied(&failure))
    }

    /// Blocks until nothing is in flight. False where the driver does not say so, asked twice.
    pub fn drain(&self) -> bool {
        // SAFETY: ours and alive.
        let idle = || unsafe { (self.device.api().functions.stream_synchronize)(self.stream) } == SUCCESS;
        idle() || idle()
    }

    /// Gives events, stream and slots back, the last first. Nothing may be in flight. Goes on after
    /// failures, which are ERR_CUDA_RELEASE; true where memory is still registered, so that it must
    /// stay mapped.
    pub fn release(self) -> (Vec<Error>, bool) {
        let (api, functions) = (self.device.api(), &self.device.api().functions);
        let mut errors = Vec::new();
        let mut registered = false;
        let mut tell = |what: &str, failure: Failure| errors.push(error(self.device, "ERR_CUDA_RELEASE", what, &failure));
        for event in self.events.iter().rev() {
            // SAFETY: ours, and not used any more.
            if let Err(failure) = api.check("cuEventDestroy", unsafe { (functions.event_destroy)(*event) }) {
                tell("did not take an event back", failure);
            }
        }
        // SAFETY: ours, and not used any more.
        if let Err(failure) = api.check("cuStreamDestroy", unsafe { (functions.stream_destroy)(self.stream) }) {
            tell("did not take a stream back", failure);
        }
        for address in self.pinned.iter().rev() {
            // SAFETY: registered by `pin`, and no copy from it is in flight.
            let status = unsafe { (functions.host_unregister)(*address as *mut c_void) };
            if let Err(failure) = api.check("cuMemHostUnregister", status) {
                registered = true;
                tell(&format!("did not let go of the host memory at {address:#x}, which stays allocated"), failure);
            }
        }
        (errors, registered)
    }

    fn not_copied(&self, failure: &Failure) -> Error {
        error(self.device, "ERR_CUDA_COPY", "did not finish copies from host memory", failure)
    }
}

fn error(device: &CudaDevice, code: &'static str, what: &str, failure: &Failure) -> Error {
    failure.error(code, format!("{} {what}", device.name())).with("device", device.name())
}
