//! The one arena of the process that callers from C allocate in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

use super::Arena;
use crate::error::{Error, Result};

/// Hears of the operation and its error where a caller from C only gets null.
type Report = dyn Fn(&'static str, &Error) + Send + Sync;

/// An arena as callers from C see it.
pub struct Activation {
    arena: Arc<Arena>,
    /// The device whose memory it has; -1 for the host.
    device: i32,
    report: Box<Report>,
    /// Codes of refused mallocs that were reported.
    reported: Mutex<Vec<&'static str>>,
}

impl Activation {
    /// `report` gets the operation and the error where a caller from C only gets null: each code of
    /// a refused malloc once, and every free that failed. It is called on the caller's thread.
    pub fn new(arena: Arc<Arena>, device: i32, report: impl Fn(&'static str, &Error) + Send + Sync + 'static) -> Self {
        Activation { arena, device, report: Box::new(report), reported: Mutex::default() }
    }

    fn malloc(&self, bytes: isize, device: i32) -> Result<usize> {
        let bytes = usize::try_from(bytes)
            .map_err(|_| Error::new("ERR_ARENA_SIZE", format!("an arena allocates at least one byte, {bytes} were asked for")))?;
        if device != self.device {
            let message = format!("memory of device {device} was asked for, and the active arena has memory of device {}", self.device);
            return Err(Error::new("ERR_ARENA_DEVICE", message).with("device", device.to_string()));
        }
        self.arena.malloc(bytes)
    }

    #[cold]
    fn refused(&self, error: &Error) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.contains(&error.code) {
            return;
        }
        reported.push(error.code);
        drop(reported);
        (self.report)("mx_malloc", error);
    }
}

/// Safe from any thread. No call panics or unwinds. Setting another arena waits for no call: one
/// that runs meanwhile ends in the arena it began with.
pub struct ActiveArena {
    active: ArcSwapOption<Activation>,
    /// Held from the question whether an arena may be set until it is.
    setting: Mutex<()>,
}

impl ActiveArena {
    pub const fn new() -> Self {
        ActiveArena { active: ArcSwapOption::const_empty(), setting: Mutex::new(()) }
    }

    /// From now on callers allocate in `next`, or get null. Refused while another arena is active
    /// that is open: its callers would be left with memory that nobody frees.
    pub fn set(&self, next: Option<Activation>) -> Result<()> {
        let setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = &next {
            self.require_none_but(Some(&next.arena))?;
        }
        let before = self.active.swap(next.map(Arc::new));
        drop(setting);
        // The last share of an arena that nobody else has closes it: with no lock held.
        drop(before);
        Ok(())
    }

    /// Refuses where another arena than `allowed` is active and open.
    pub fn require_none_but(&self, allowed: Option<&Arc<Arena>>) -> Result<()> {
        let active = self.active.load();
        let Some(Activation { arena, .. }) = active.as_deref() else { return Ok(()) };
        if arena.stats().closed || allowed.is_some_and(|allowed| Arc::ptr_eq(allowed, arena)) {
            return Ok(());
        }
        let message = format!("another arena is active, at {:#x}: end that by setting null first", arena.base());
        Err(Error::new("ERR_ARENA_ACTIVE", message))
    }

    /// `bytes` of memory of `device`; None without an active arena, for another device than its
    /// own, and where the arena refuses.
    #[inline]
    pub fn malloc(&self, bytes: isize, device: i32) -> Option<usize> {
        contained(|| {
            let active = self.active.load();
            let active = active.as_deref()?;
            active.malloc(bytes, device).map_err(|error| active.refused(&error)).ok()
        })
    }

    /// Gives back what `malloc` gave, at once or with the last that holds it. Any other address,
    /// and any of an arena that is no longer active, does nothing.
    #[inline]
    pub fn free(&self, address: usize) {
        contained(|| {
            let active = self.active.load();
            let active = active.as_deref()?;
            active.arena.free_when_unheld(address).map_err(|error| (active.report)("mx_free", &error)).ok()
        });
    }
}

impl Default for ActiveArena {
    fn default() -> Self {
        Self::new()
    }
}

/// Unwinding ends here: the callers are C.
#[inline]
fn contained<T>(call: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(None)
}
