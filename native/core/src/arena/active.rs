//! The one arena of the process that callers from C allocate in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::Arena;
use super::sync::{Padded, thread_number};
use crate::error::{Error, Result};

/// Places where threads look for the arena; more than most processes have threads that allocate at one time.
const STRIPES: usize = 32;

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
    /// `report` gets the operation and the error where a caller from C only gets null: each code of a refused malloc once, and every free
    /// that failed. It is called on the caller's thread.
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

/// What a thread holds for the time of a call. Each stripe has one of its own and counts its holders for itself: threads do not meet here,
/// and setting another arena waits for nobody. A call that runs meanwhile ends in the arena it began with.
struct Share(Arc<Activation>);

type Stripe = Padded<Mutex<Option<Arc<Share>>>>;

/// Safe from any thread. No call panics or unwinds.
pub struct ActiveArena {
    stripes: [Stripe; STRIPES],
    /// Held while the stripes change, so that two who set an arena do not leave a mixture.
    setting: Mutex<()>,
}

impl ActiveArena {
    pub const fn new() -> Self {
        ActiveArena { stripes: [const { Padded(Mutex::new(None)) }; STRIPES], setting: Mutex::new(()) }
    }

    /// From now on callers allocate in `next`, or get null. Refused while another arena is active that is open: its callers would be left with
    /// memory that nobody frees.
    pub fn set(&self, next: Option<Activation>) -> Result<()> {
        let next = next.map(Arc::new);
        let setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = &next {
            self.require_none_but(Some(&next.arena))?;
        }
        let mut before = Vec::new();
        for stripe in &self.stripes {
            let share = next.as_ref().map(|activation| Arc::new(Share(Arc::clone(activation))));
            before.push(std::mem::replace(&mut *stripe.0.lock().unwrap_or_else(PoisonError::into_inner), share));
        }
        drop(setting);
        // The last share of an arena that nobody else has closes it: with no lock held.
        drop(before);
        Ok(())
    }

    /// Refuses where another arena than `allowed` is active and open.
    pub fn require_none_but(&self, allowed: Option<&Arc<Arena>>) -> Result<()> {
        let stripe = self.stripes[0].0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(share) = &*stripe else { return Ok(()) };
        let arena = &share.0.arena;
        if arena.stats().closed || allowed.is_some_and(|allowed| Arc::ptr_eq(allowed, arena)) {
            return Ok(());
        }
        let message = format!("another arena is active, at {:#x}: end that by setting null first", arena.base());
        Err(Error::new("ERR_ARENA_ACTIVE", message))
    }

    /// `bytes` of memory of `device`; None without an active arena, for another device than its own, and where the arena refuses.
    #[inline]
    pub fn malloc(&self, bytes: isize, device: i32) -> Option<usize> {
        contained(|| {
            let share = self.share()?;
            let active = &share.0;
            active.malloc(bytes, device).map_err(|error| active.refused(&error)).ok()
        })
    }

    /// Gives back what `malloc` gave, at once or with the last that holds it. Any other address, and any of an arena that is no longer active, does
    /// nothing.
    #[inline]
    pub fn free(&self, address: usize) {
        contained(|| {
            let share = self.share()?;
            let active = &share.0;
            active.arena.free_when_unheld(address).map_err(|error| (active.report)("mx_free", &error)).ok()
        });
    }

    #[inline]
    fn share(&self) -> Option<Arc<Share>> {
        let stripe = &self.stripes[thread_number() % STRIPES];
        stripe.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
