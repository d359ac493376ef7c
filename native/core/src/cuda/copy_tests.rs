use super::copy::{CopyStream, Piece};
use super::stand_in::{api, driver};
use super::types::*;
use super::*;

const SLOT: usize = 1 << 20;

/// Pins two slots, copies from both, and gives back. The calls, and what was reported.
fn life(failing: &[(&'static str, usize)]) -> (Vec<String>, Vec<&'static str>, bool) {
    let device = CudaDevice::open(api(), 0).unwrap();
    let _current = device.enter().unwrap();
    let before = driver(|driver| {
        driver.failing = failing.iter().map(|(name, nth)| (*name, *nth, ERROR_OUT_OF_MEMORY)).collect();
        driver.calls.len()
    });
    let mut codes = Vec::new();
    let mut registered = false;
    match CopyStream::create(&device, 2) {
        Err(error) => codes.push(error.code),
        Ok(mut stream) => {
            for slot in 0..2 {
                codes.extend(stream.pin((slot + 1) * SLOT, SLOT).err().map(|error| error.code));
            }
            let pieces = [Piece { from: SLOT, to: 1 << 40, length: 10 }, Piece { from: SLOT + 10, to: 1 << 41, length: 20 }];
            codes.extend(stream.queue(0, &pieces).err().map(|error| error.code));
            codes.extend(stream.wait(0).err().map(|error| error.code));
            assert!(stream.drain());
            let (errors, still) = stream.release();
            codes.extend(errors.iter().map(|error| error.code));
            registered = still;
        }
    }
    (driver(|driver| driver.calls[before..].to_vec()), codes, registered)
}

#[test]
fn copies_are_queued_behind_one_another_and_undone_in_reverse() {
    let (calls, codes, registered) = life(&[]);
    assert_eq!(
        calls,
        [
            "stream 1",
            "event 3",
            "event 3",
            "pin 1048576",
            "pin 1048576",
            "to device 10",
            "to device 20",
            "record",
            "wait",
            "drain",
            "destroy event",
            "destroy event",
            "destroy stream",
            "unpin",
            "unpin"
        ]
    );
    assert_eq!((codes, registered), (vec![], false));
}

#[test]
fn a_stream_without_its_events_is_taken_back() {
    let (calls, codes, _) = life(&[("cuEventCreate", 2)]);
    assert_eq!(calls, ["stream 1", "event 3", "event 3", "destroy event", "destroy stream"]);
    assert_eq!(codes, ["ERR_CUDA_CALL"]);
    assert_eq!(life(&[("cuStreamCreate", 1)]).0, ["stream 1"]);
}

#[test]
fn a_slot_that_cannot_be_pinned_is_not_unpinned() {
    let (calls, codes, registered) = life(&[("cuMemHostRegister", 2)]);
    assert_eq!((codes, registered), (vec!["ERR_CUDA_PIN"], false));
    assert_eq!(calls.iter().filter(|call| *call == "unpin").count(), 1);
}

#[test]
fn releases_go_on_after_failures_and_tell_what_is_still_registered() {
    let (calls, codes, registered) = life(&[("cuEventDestroy", 1), ("cuStreamDestroy", 1)]);
    assert_eq!(calls[10..], ["destroy event", "destroy event", "destroy stream", "unpin", "unpin"]);
    assert_eq!((codes, registered), (vec!["ERR_CUDA_RELEASE", "ERR_CUDA_RELEASE"], false));
    let (calls, codes, registered) = life(&[("cuMemHostUnregister", 1)]);
    assert_eq!(calls[13..], ["unpin", "unpin"]);
    assert_eq!((codes, registered), (vec!["ERR_CUDA_RELEASE"], true));
}

#[test]
fn a_copy_that_fails_is_the_last_one_queued_and_a_drain_is_tried_twice() {
    let (calls, codes, _) = life(&[("cuMemcpyHtoDAsync", 1), ("cuStreamSynchronize", 1)]);
    assert_eq!(codes, ["ERR_CUDA_COPY"]);
    assert_eq!(calls[5..9], ["to device 10", "wait", "drain", "drain"]);
}
