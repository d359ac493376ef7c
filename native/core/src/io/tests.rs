//! Transfers over real files: every driver, every planned fault, abort, change, many files.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use super::align::DirectAlign;
use super::engine::Uring;
use super::engine::faulty::{self, Fault, FaultKind};
use super::file::FileSpec;
use super::identity::{Identity, Sight};
use super::layout::Piece;
use super::settings::{Driver, Settings};
use super::transfer::{Summary, Transfer};
use crate::arena::Arena;
use crate::error::{Error, Result};
use crate::sys;
use crate::vmm::HostBackend;

const MIB: usize = 1 << 20;

/// A folder on a disk-backed file system, emptied at the next run; the system's temporary folder
/// may be a tmpfs, which has no direct I/O before Linux 6.6.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("mx-io-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("temporary folder");
    folder
});

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

struct Given {
    files: Vec<(PathBuf, Vec<u8>)>,
    arena: Arc<Arena>,
    base: usize,
}

impl Given {
    fn new(name: &str, sizes: &[usize]) -> Self {
        let files = sizes
            .iter()
            .enumerate()
            .map(|(index, bytes)| {
                let path = FOLDER.join(format!("{name}-{index}"));
                let bytes = content(index as u64 * 77 + 5, *bytes);
                std::fs::write(&path, &bytes).expect("write");
                (path, bytes)
            })
            .collect();
        let arena = Arc::new(Arena::with_backend(Box::new(HostBackend::new()), 256 * MIB).expect("arena"));
        let base = arena.malloc(128 * MIB).expect("malloc");
        Given { files, arena, base }
    }

    fn specs(&self) -> Vec<FileSpec> {
        self.files.iter().map(|(path, _)| spec(path)).collect()
    }

    fn run(&self, driver: Driver, pieces: &[Piece], faults: Vec<Fault>) -> Running {
        self.start(driver, pieces, faults, self.specs()).expect("start")
    }

    fn start(&self, driver: Driver, pieces: &[Piece], faults: Vec<Fault>, specs: Vec<FileSpec>) -> Result<Running> {
        let (done, on_done) = channel();
        let (settled, on_settled) = channel();
        let pins = vec![self.arena.pin(self.base, 128 * MIB).expect("pin")];
        let settings =
            Settings { driver, threads: 2, buffered_block_bytes: MIB as u64, direct_block_bytes: MIB as u64 / 2, queue_depth: 4 };
        let transfer = Transfer::start(
            settings,
            specs,
            pieces.to_vec(),
            faulty::wrap(faults),
            pins,
            move |outcome| done.send(outcome).expect("send"),
            move || settled.send(()).expect("send"),
        )?;
        Ok(Running { transfer, done: on_done, settled: on_settled })
    }

    fn memory(&self, address: usize, length: usize) -> &[u8] {
        // SAFETY: the allocation is mapped, and the transfer over it has settled.
        unsafe { std::slice::from_raw_parts(address as *const u8, length) }
    }

    fn assert_in_place(&self, pieces: &[Piece]) {
        for piece in pieces {
            let (begin, end) = (piece.offset as usize, (piece.offset + piece.length) as usize);
            let expected = &self.files[piece.file as usize].1[begin..end];
            assert!(self.memory(piece.address, piece.length as usize) == expected, "bytes of {piece:?} differ");
        }
    }

    /// Everything of every file past a header of 1000 bytes; file n starts at
    /// `base + n * 16 MiB + shift`.
    fn whole(&self, shift: usize) -> Vec<Piece> {
        (0..self.files.len())
            .map(|file| Piece {
                file: file as u32,
                offset: 1000,
                length: self.files[file].1.len() as u64 - 1000,
                address: self.base + file * 16 * MIB + shift,
            })
            .collect()
    }
}

struct Running {
    transfer: Transfer,
    done: Receiver<Result<Summary>>,
    settled: Receiver<()>,
}

impl Running {
    fn outcome(&self) -> Result<Summary> {
        let outcome = self.done.recv_timeout(Duration::from_secs(20)).expect("an outcome");
        self.settled.recv_timeout(Duration::from_secs(20)).expect("settled");
        outcome
    }

    fn error(&self) -> Error {
        self.outcome().expect_err("an error")
    }
}

fn spec(path: &Path) -> FileSpec {
    let (fd, sight) = Sight::open(path).expect("open");
    let (offset, memory) = sys::direct_io(fd.as_fd()).align();
    FileSpec { path: path.to_owned(), identity: Identity { sight, header: None }, align: DirectAlign::new(offset, memory) }
}

fn evict(path: &Path) {
    let fd = std::fs::File::open(path).expect("open");
    fd.sync_all().expect("fsync");
    // SAFETY: plain call with an open descriptor.
    unsafe { libc::posix_fadvise(std::os::fd::AsRawFd::as_raw_fd(&fd), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn fault(nth: u64, kind: FaultKind) -> Vec<Fault> {
    vec![Fault { nth, kind }]
}

/// Drivers that this machine can run; io_uring is refused in some containers.
fn drivers() -> Vec<Driver> {
    let mut drivers = vec![Driver::Pread, Driver::Auto];
    if Uring::new(1).is_ok() {
        drivers.push(Driver::IoUring);
    } else {
        eprintln!("io_uring is refused here: its driver is not tried");
    }
    drivers
}

const SIZES: [usize; 4] = [9 * MIB + 377, 1001, 4096 + 1000, 3 * MIB];

#[test]
fn every_driver_brings_the_same_bytes_cached_and_not() {
    let given = Given::new("same", &SIZES);
    for driver in drivers() {
        // Congruent to the file offset, one byte off, and 512 bytes off.
        for shift in [1000, 1001, 1512] {
            for cold in [false, true] {
                if cold {
                    given.files.iter().for_each(|(path, _)| evict(path));
                }
                let pieces = given.whole(shift);
                let summary = given.run(driver, &pieces, vec![]).outcome().expect("a load");
                given.assert_in_place(&pieces);
                let bytes: u64 = summary.files.iter().map(|file| file.buffered_bytes + file.direct_bytes).sum();
                assert_eq!(bytes, SIZES.iter().map(|size| *size as u64 - 1000).sum::<u64>());
            }
        }
    }
}

#[test]
fn scattered_pieces_go_each_to_its_place() {
    let given = Given::new("scattered", &[8 * MIB]);
    let mut pieces = Vec::new();
    let (mut offset, mut address) = (8u64, given.base + 64);
    for index in 0..3000u64 {
        let length = (index * 37) % 4000;
        pieces.push(Piece { file: 0, offset, length, address });
        offset += length + if index % 11 == 0 { 9 } else { 0 };
        address += length as usize + (index % 3) as usize;
    }
    assert!(offset < 8 * MIB as u64);
    for driver in drivers() {
        for cold in [false, true] {
            if cold {
                evict(&given.files[0].0);
            }
            given.run(driver, &pieces, vec![]).outcome().expect("a load");
            given.assert_in_place(&pieces);
        }
    }
}

#[test]
fn auto_reads_cached_parts_buffered_and_the_rest_direct() {
    let given = Given::new("mixed", &[12 * MIB]);
    let path = &given.files[0].0;
    evict(path);
    let fd = sys::open_read(path, 0).expect("open");
    let mut half = vec![0u8; 6 * MIB];
    // SAFETY: the buffer is ours.
    assert_eq!(unsafe { sys::pread(fd.as_fd(), half.as_mut_ptr() as usize, half.len(), 0) }.expect("read"), half.len());
    let pieces = [Piece { file: 0, offset: 0, length: 12 * MIB as u64, address: given.base }];
    let summary = given.run(Driver::Auto, &pieces, vec![]).outcome().expect("a load");
    given.assert_in_place(&pieces);
    let file = &summary.files[0];
    assert_eq!(file.buffered_bytes + file.direct_bytes, 12 * MIB as u64);
    if file.fallback.is_empty() && file.direct_bytes > 0 {
        assert!(file.buffered_bytes >= 4 * MIB as u64, "the cached half was read again from disk: {file:?}");
    }
}

#[test]
fn short_reads_and_interruptions_are_taken_up_again() {
    let given = Given::new("short", &[5 * MIB + 13]);
    for driver in drivers() {
        for kind in [FaultKind::Short(777), FaultKind::Short(512 * 3), FaultKind::Fail(libc::EINTR), FaultKind::Fail(libc::EAGAIN)] {
            for nth in [1, 2, 5] {
                evict(&given.files[0].0);
                let pieces = given.whole(1000);
                given.run(driver, &pieces, fault(nth, kind)).outcome().expect("a load");
                given.assert_in_place(&pieces);
            }
        }
    }
}

#[test]
fn a_failed_read_names_file_offset_and_errno() {
    let given = Given::new("eio", &[5 * MIB]);
    for driver in drivers() {
        let error = given.run(driver, &given.whole(1000), fault(2, FaultKind::Fail(libc::EIO))).error();
        assert_eq!(error.code, "ERR_TRANSFER_READ");
        assert!(error.message.contains("eio-0") && error.message.contains("EIO"), "{}", error.message);
        assert!(error.facts.iter().any(|(name, _)| *name == "offset"));
    }
}

#[test]
fn auto_leaves_refused_direct_reads_to_buffered_ones() {
    let given = Given::new("einval", &[5 * MIB]);
    evict(&given.files[0].0);
    // Aligned at both ends, so that the first read is a direct one.
    let pieces = [Piece { file: 0, offset: 4096, length: 4 * MIB as u64, address: given.base }];
    let summary = given.run(Driver::Auto, &pieces, fault(1, FaultKind::Fail(libc::EINVAL))).outcome().expect("a load");
    given.assert_in_place(&pieces);
    assert!(summary.files[0].fallback.contains("EINVAL") || summary.files[0].direct_bytes == 0, "{:?}", summary.files[0]);
}

#[test]
fn abort_reports_at_once_and_settles_when_the_stalled_read_returns() {
    let given = Given::new("stall", &[2 * MIB]);
    for driver in drivers() {
        let running = given.run(driver, &given.whole(1000), fault(1, FaultKind::Stall(Duration::from_millis(700))));
        std::thread::sleep(Duration::from_millis(50));
        let asked = Instant::now();
        running.transfer.abort();
        let outcome = running.done.recv_timeout(Duration::from_secs(5)).expect("an outcome");
        assert_eq!(outcome.expect_err("aborted").code, "ERR_TRANSFER_ABORTED");
        assert!(asked.elapsed() < Duration::from_millis(250));
        assert_eq!(given.arena.free(given.base).expect_err("pinned").code, "ERR_ARENA_BUSY");
        running.settled.recv_timeout(Duration::from_secs(5)).expect("settled");
        given.arena.pin(given.base, 1).expect("not freed");
    }
}

#[test]
fn another_state_of_the_file_is_refused() {
    let given = Given::new("changed", &[2 * MIB]);
    let (path, bytes) = &given.files[0];
    for driver in drivers() {
        let specs = given.specs();
        std::fs::write(path, &bytes[..MIB]).expect("write");
        let error = given.start(driver, &given.whole(1000), vec![], specs).expect("start").error();
        assert_eq!(error.code, "ERR_TRANSFER_FILE_CHANGED", "{}", error.message);
        std::fs::write(path, bytes).expect("write");
    }
}

#[test]
fn a_file_cut_or_replaced_while_it_is_read_is_an_error() {
    for driver in drivers() {
        for replaced in [false, true] {
            let given = Given::new("cut", &[4 * MIB]);
            let (path, bytes) = &given.files[0];
            let running = given.run(driver, &given.whole(1000), fault(0, FaultKind::Stall(Duration::from_millis(60))));
            std::thread::sleep(Duration::from_millis(20));
            if replaced {
                let other = FOLDER.join("cut-other");
                std::fs::write(&other, bytes).expect("write");
                std::fs::rename(&other, path).expect("rename");
            } else {
                std::fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(MIB as u64)).expect("cut");
            }
            let error = running.error();
            assert!(["ERR_TRANSFER_FILE_CHANGED", "ERR_TRANSFER_UNEXPECTED_END"].contains(&error.code), "{error}");
        }
    }
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let given = Given::new("gone", &[MIB, MIB]);
    let specs = given.specs();
    std::fs::remove_file(&given.files[1].0).expect("remove");
    let error = given.start(Driver::Auto, &given.whole(1000), vec![], specs).expect("start").error();
    assert_eq!(error.code, "ERR_TRANSFER_OPEN");
    assert!(error.message.contains("gone-1") && error.message.contains("ENOENT"), "{}", error.message);
}

#[test]
fn hundreds_of_files_need_few_descriptors() {
    let given = Given::new("many", &[1500; 300]);
    let pieces: Vec<Piece> =
        (0..300u32).map(|file| Piece { file, offset: 1000, length: 500, address: given.base + file as usize * 4096 }).collect();
    for driver in drivers() {
        given.run(driver, &pieces, vec![]).outcome().expect("a load");
        given.assert_in_place(&pieces);
    }
}

#[test]
fn nothing_to_read_is_done_at_once() {
    let given = Given::new("nothing", &[2000]);
    let pieces = [Piece { file: 0, offset: 1000, length: 0, address: given.base }];
    let summary = given.run(Driver::Auto, &pieces, vec![]).outcome().expect("a load");
    assert_eq!((summary.files[0].buffered_bytes, summary.reads), (0, 0));
}

#[test]
fn a_mapped_file_shows_its_bytes_and_is_never_written() {
    let given = Given::new("mapped", &[MIB + 100]);
    let pieces = [Piece { file: 0, offset: 1000, length: (MIB - 900) as u64, address: given.base + 1000 }];
    super::map::map_files(given.specs(), &pieces).expect("mapped");
    given.assert_in_place(&pieces);
    // SAFETY: the page is mapped privately and writable.
    unsafe { *((given.base + 5000) as *mut u8) ^= 0xff };
    assert_eq!(std::fs::read(&given.files[0].0).expect("read"), given.files[0].1);
    assert!(given.arena.free(given.base).expect("free"));
}

#[test]
fn files_without_anything_to_read_keep_no_thread_waiting() {
    let given = Given::new("trailing", &[300_000, 300_000, 2000, 2000, 2000, 2000]);
    for driver in drivers() {
        for round in 0..60 {
            evict(&given.files[0].0);
            let pieces = [Piece { file: round % 2, offset: 1000, length: 200_000, address: given.base + 1000 }];
            given.run(driver, &pieces, vec![]).outcome().expect("a load");
            given.assert_in_place(&pieces);
        }
    }
}

#[test]
fn a_named_pipe_in_the_place_of_a_file_is_refused_and_never_waited_for() {
    for driver in drivers() {
        let given = Given::new("pipe", &[MIB]);
        let path = &given.files[0].0;
        let specs = given.specs();
        std::fs::remove_file(path).expect("remove");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("path");
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let error = given.start(driver, &given.whole(1000), vec![], specs).expect("start").error();
        assert_eq!(error.code, "ERR_TRANSFER_FILE_CHANGED", "{error}");
        std::fs::remove_file(path).expect("remove");
    }
}

#[test]
fn a_file_system_that_never_stops_to_answer_eagain_is_an_error() {
    let given = Given::new("eagain", &[MIB]);
    for driver in drivers() {
        let error = given.run(driver, &given.whole(1000), fault(0, FaultKind::Fail(libc::EAGAIN))).error();
        assert_eq!(error.code, "ERR_TRANSFER_READ");
        assert!(error.message.contains("EAGAIN"), "{}", error.message);
    }
}

/// 60,000 pieces of 12 bytes, each at a place of its own: one block of them has more pieces than
/// one read may have.
#[test]
fn a_short_direct_read_of_thousands_of_pieces_is_completed() {
    let given = Given::new("tiny", &[MIB]);
    let pieces: Vec<Piece> = (0..60_000u64)
        .map(|index| Piece { file: 0, offset: 1000 + index * 12, length: 12, address: given.base + index as usize * 256 })
        .collect();
    for driver in drivers() {
        for nth in [1, 2, 3, 4] {
            evict(&given.files[0].0);
            given.run(driver, &pieces, fault(nth, FaultKind::Short(4100))).outcome().expect("a load");
            given.assert_in_place(&pieces);
        }
    }
}

#[test]
fn direct_reads_that_a_kernel_never_makes_are_buffered_under_auto() {
    for (errno, name) in [(libc::EAGAIN, "EAGAIN"), (libc::ENOMEM, "ENOMEM")] {
        let given = Given::new("never", &[5 * MIB]);
        evict(&given.files[0].0);
        let pieces = given.whole(1000);
        let summary = given.run(Driver::Auto, &pieces, fault(0, FaultKind::FailDirect(errno))).outcome().expect("a load");
        given.assert_in_place(&pieces);
        assert_eq!(summary.files[0].fallback, format!("direct read refused ({name})"));
        assert_eq!((summary.files[0].direct_bytes, summary.files[0].buffered_bytes), (0, 5 * MIB as u64 - 1000));
        if drivers().contains(&Driver::IoUring) {
            let error = given.run(Driver::IoUring, &pieces, fault(0, FaultKind::FailDirect(errno))).error();
            assert_eq!(error.code, "ERR_TRANSFER_READ");
            assert!(error.message.contains(name), "{}", error.message);
        }
    }
}

#[test]
fn a_ring_refused_while_reads_are_in_flight_loses_none() {
    if !drivers().contains(&Driver::IoUring) {
        return;
    }
    for (errno, name) in [(libc::EPERM, "EPERM"), (libc::EAGAIN, "EAGAIN")] {
        for nth in [1, 2, 5] {
            let given = Given::new("gone-ring", &[9 * MIB + 377]);
            evict(&given.files[0].0);
            // One byte off, so that some reads go through buffers which must outlive them.
            for shift in [1000, 1001] {
                evict(&given.files[0].0);
                let pieces = given.whole(shift);
                let summary = given.run(Driver::Auto, &pieces, fault(nth, FaultKind::FailEnter(errno))).outcome().expect("a load");
                given.assert_in_place(&pieces);
                let file = &summary.files[0];
                assert!(file.direct_by_threads);
                assert_eq!(file.fallback, format!("io_uring refused (io_uring_enter: {name}): direct reads by threads"));
            }
            let error = given.run(Driver::IoUring, &given.whole(1000), fault(nth, FaultKind::FailEnter(errno))).error();
            assert_eq!(error.code, "ERR_TRANSFER_IO_URING_REFUSED");
            assert!(error.facts.contains(&("operation", "io_uring_enter".into())), "{error:?}");
            assert!(given.arena.free(given.base).expect("nothing holds it"));
        }
    }
}
