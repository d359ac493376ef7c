//! The device that other code of this process has chosen.

use std::ffi::c_int;
use std::ptr;

use libloading::os::unix::{Library, RTLD_LAZY};

use super::library::NAMES;
use super::types::*;

/// Ordinal of the device whose context is current on this thread; none where the driver library
/// (that of `path`, else by its own names) is not even loaded. Loads and initialises nothing.
pub fn current_device(path: Option<&str>) -> Option<i32> {
    let names = path.map_or(NAMES.to_vec(), |path| vec![path]);
    names.into_iter().find_map(|name| {
        // SAFETY: no initialiser runs, for nothing is loaded; the count of holders goes down again
        // at the end.
        let library = unsafe { Library::open(Some(name), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()?;
        device_of_context(&library)
    })
}

fn device_of_context(library: &Library) -> Option<i32> {
    let (mut context, mut device, mut count): (Context, DeviceNumber, c_int) = (ptr::null_mut(), 0, 0);
    // SAFETY: the types are those of cuda.h, the results ours; a driver that is not initialised
    // answers with an error.
    unsafe {
        let current = library.get::<unsafe extern "C" fn(*mut Context) -> Status>(b"cuCtxGetCurrent").ok()?;
        let device_of = library.get::<unsafe extern "C" fn(*mut DeviceNumber) -> Status>(b"cuCtxGetDevice").ok()?;
        let count_of = library.get::<unsafe extern "C" fn(*mut c_int) -> Status>(b"cuDeviceGetCount").ok()?;
        let get = library.get::<unsafe extern "C" fn(*mut DeviceNumber, c_int) -> Status>(b"cuDeviceGet").ok()?;
        if current(&mut context) != SUCCESS || context.is_null() || device_of(&mut device) != SUCCESS || count_of(&mut count) != SUCCESS {
            return None;
        }
        (0..count).find(|&ordinal| {
            let mut number = 0;
            get(&mut number, ordinal) == SUCCESS && number == device
        })
    }
}
