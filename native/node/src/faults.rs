//! Planned faults of reads, in the addon that tests load and in no other.

use std::cell::RefCell;
use std::time::Duration;

use mx_core::error::Error;
use mx_core::io::engine::Wrap;
use mx_core::io::engine::faulty::{self, Fault, FaultKind};
use napi::bindgen_prelude::Float64Array;
use napi_derive::napi;

use crate::failure::thrown;

thread_local! {
    static PLANNED: RefCell<Vec<Fault>> = const { RefCell::new(Vec::new()) };
}

/// Every transfer that this thread starts from now on has these faults, `[kind, nth, value, ...]`:
/// 0 the nth read fails with errno value, 1 it brings at most value bytes, 2 it stalls for value
/// ms, 3 as 0 for direct reads only, 4 io_uring_enter fails with errno value from its nth call on.
/// `nth` 0 is every read.
#[napi]
pub fn plan_faults(column: Float64Array) -> napi::Result<()> {
    let mut planned = Vec::new();
    for fault in column.chunks_exact(3) {
        let kind = match fault[0] as u32 {
            0 => FaultKind::Fail(fault[2] as i32),
            1 => FaultKind::Short(fault[2] as u64),
            2 => FaultKind::Stall(Duration::from_millis(fault[2] as u64)),
            3 => FaultKind::FailDirect(fault[2] as i32),
            4 => FaultKind::FailEnter(fault[2] as i32),
            kind => return Err(thrown(Error::new("ERR_INTERNAL", format!("there is no fault of kind {kind}")))),
        };
        planned.push(Fault { nth: fault[1] as u64, kind });
    }
    PLANNED.set(planned);
    Ok(())
}

pub fn engines() -> Wrap {
    faulty::wrap(PLANNED.with_borrow(Clone::clone))
}
