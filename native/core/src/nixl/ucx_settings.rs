//! Settings of UCX that keep it from harming its host process, put into the environment before NIXL
//! loads it.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

/// A variable that UCX reads when it is loaded.
pub struct UcxSetting {
    pub variable: CString,
    pub value: CString,
    /// Other variables of the user that settle the same.
    pub others: Vec<CString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UcxSettingState {
    /// Set here, for this process and its children.
    Set,
    /// The user's own setting stands.
    UserSet,
    /// UCX was loaded before, with its default: too late.
    LoadedBefore,
    /// The C library had no memory for it.
    Refused,
}

/// What became of each variable. A second look would take for the user's own what was set here.
static DONE: Mutex<Option<HashMap<CString, UcxSettingState>>> = Mutex::new(None);

/// Sets each variable that the user has not set, unless UCX is there already; each once per
/// process. Call it before NIXL is loaded, on a thread of JavaScript. Node and libuv change the
/// environment on such threads too; what other C threads read at that moment is as safe as it is
/// there.
pub fn apply(settings: &[UcxSetting]) -> Vec<UcxSettingState> {
    // Held throughout: two workers may load NIXL at once.
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let done = done.get_or_insert_default();
    settings.iter().map(|setting| *done.entry(setting.variable.clone()).or_insert_with(|| set(setting))).collect()
}

fn set(setting: &UcxSetting) -> UcxSettingState {
    if is_set(&setting.variable) || setting.others.iter().any(|other| is_set(other)) {
        return UcxSettingState::UserSet;
    }
    if is_loaded() {
        return UcxSettingState::LoadedBefore;
    }
    // SAFETY: both are C strings, which setenv copies. It takes the C library's lock against other
    // writers; against readers, see `apply`.
    match unsafe { libc::setenv(setting.variable.as_ptr(), setting.value.as_ptr(), 0) } {
        0 => UcxSettingState::Set,
        _ => UcxSettingState::Refused,
    }
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

    #[test]
    fn a_variable_is_set_once_and_what_was_set_here_is_not_taken_for_the_users() {
        let name = |text: &str| CString::new(text).unwrap();
        let setting = || UcxSetting { variable: name("UCX_TEST_SETTING"), value: name("1"), others: vec![] };
        assert_eq!(apply(&[setting()]), [UcxSettingState::Set]);
        assert_eq!(apply(&[setting()]), [UcxSettingState::Set]);
        assert_eq!(std::env::var("UCX_TEST_SETTING").as_deref(), Ok("1"));
        // Another variable of the user that settles the same.
        let other = UcxSetting { variable: name("UCX_TEST_OTHER"), value: name("1"), others: vec![name("PATH")] };
        assert_eq!(apply(&[other]), [UcxSettingState::UserSet]);
        assert!(std::env::var("UCX_TEST_OTHER").is_err());
    }
}
