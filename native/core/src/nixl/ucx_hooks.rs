//! Keeps UCX from harming the host process when it is loaded.
//!
//! At its start UCX tests its hooks on memory calls: it grows the heap by a page and shrinks it again, without looking whether the growing
//! succeeded. Where something is mapped right above the heap (in Node about once in a hundred starts: V8's code) the shrinking takes the last
//! page that malloc gave out. With `UCX_MEM_MMAP_HOOK_MODE=none` UCX installs no hooks and tests nothing.

use std::ffi::CStr;
use std::sync::OnceLock;

/// The variable of UCX, and its value without hooks.
const MODE: &CStr = c"UCX_MEM_MMAP_HOOK_MODE";
const NONE: &CStr = c"none";
/// Switches the hooks off too, with more.
const EVENTS: &CStr = c"UCX_MEM_EVENTS";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UcxHooks {
    /// Switched off here, for this process and its children.
    SwitchedOff,
    /// The user's own setting stands.
    UserSet,
    /// UCX was loaded before, with its hooks as they are by default: too late.
    LoadedBefore,
}

impl UcxHooks {
    pub fn name(self) -> &'static str {
        match self {
            UcxHooks::SwitchedOff => "switched-off",
            UcxHooks::UserSet => "user-set",
            UcxHooks::LoadedBefore => "loaded-before",
        }
    }
}

static DONE: OnceLock<UcxHooks> = OnceLock::new();

/// Switches the hooks off unless the user set them or UCX is there already; once per process. Call it before NIXL is loaded, on the thread of
/// JavaScript: it writes the environment of the process, which other threads of C may be reading.
pub fn switch_off() -> UcxHooks {
    *DONE.get_or_init(|| {
        if is_set(MODE) || is_set(EVENTS) {
            return UcxHooks::UserSet;
        }
        if is_loaded() {
            return UcxHooks::LoadedBefore;
        }
        // SAFETY: both are C strings. The caller's thread is the one that writes the environment in a Node process.
        unsafe { libc::setenv(MODE.as_ptr(), NONE.as_ptr(), 0) };
        UcxHooks::SwitchedOff
    })
}

/// In the environment that C sees: that of a worker's `process.env` is a copy.
fn is_set(name: &CStr) -> bool {
    // SAFETY: a C string; the result is only compared with null.
    !unsafe { libc::getenv(name.as_ptr()) }.is_null()
}

fn is_loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| names_ucx(&maps))
}

fn names_ucx(maps: &str) -> bool {
    maps.lines().filter_map(|line| line.rsplit_once('/')).any(|(_, file)| {
        ["libucs", "libucm"].iter().any(|library| file.strip_prefix(library).is_some_and(|rest| rest.starts_with(['.', '-'])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_is_told_by_the_files_that_are_mapped() {
        let line = |file: &str| format!("7f00-7f10 r-xp 00000000 fe:00 12 {file}\n");
        assert!(names_ucx(&line("/usr/lib/libucs.so.0.0.0")));
        assert!(names_ucx(&line("/site-packages/nixl_cu12.libs/libucm-5b1b8e1d.so.0.0.0")));
        assert!(!names_ucx(&line("/usr/lib/libucsomething.so")));
        assert!(!names_ucx(&line("/usr/lib/libc.so.6")));
    }
}
