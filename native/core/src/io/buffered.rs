//! The buffered lane: threads that cut files into blocks and copy blocks out of the page cache.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::fault::FaultKind;
use super::file::{FileState, OpenFile};
use super::file_systems;
use super::layout::{Block, worth_direct};
use super::residency::{self, Residency};
use super::shared::{Hint, Shared, Work};
use super::sys;
use super::transfer::Driver;
use crate::error::{Error, Fact, Result, errno_name};

/// A file system that answers EAGAIN is asked again for a second, without spinning.
#[derive(Default)]
pub struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// False once the first answer is a second old, however many reads take turns.
    pub fn try_again(&mut self) -> bool {
        let Some(since) = self.since else {
            self.since = Some(Instant::now());
            return true;
        };
        std::thread::sleep(Duration::from_millis(1));
        since.elapsed() < Duration::from_secs(1)
    }
}

/// Body of a buffered thread.
pub fn run(shared: &Arc<Shared>) {
    let mut vectors = Vec::new();
    loop {
        let outcome = match shared.next_buffered() {
            Work::Exit => return,
            Work::Scout(file) => match scout(shared, file) {
                Err(error) if lacks_descriptors(&error) && shared.put_back(file) => Ok(()),
                outcome => outcome,
            },
            Work::Buffered(block, Hint::Probe) => probe(shared, &block, &mut vectors),
            Work::Buffered(block, hint) => read_block(shared, &block, hint, &mut vectors),
        };
        if let Err(error) = outcome {
            shared.report(Err(error));
        }
    }
}

fn lacks_descriptors(error: &Error) -> bool {
    let none_left = [Fact::from("EMFILE"), Fact::from("ENFILE")];
    error.facts.iter().any(|(name, value)| *name == "errno" && none_left.contains(value))
}

/// Opens a file and cuts its runs into blocks for the two lanes.
fn scout(shared: &Arc<Shared>, file: usize) -> Result<()> {
    let state = &shared.files[file];
    let open = state.open()?;
    let runs = shared.layout.runs[shared.runs_of_file[file].clone()].to_vec();
    let settings = &shared.settings;
    let (mut buffered, mut direct) = (Vec::new(), Vec::new());

    let parts = parts_of(shared, file, open.buffered());
    // Where all is read through the cache nobody needs a second descriptor.
    let buffered_only = parts.iter().all(|(_, residency)| matches!(residency, Residency::Cached | Residency::Partly));
    let direct_usable = !buffered_only && direct_usable(shared, state, &open)?;
    let mut at = 0;
    for run in &runs {
        let extent = shared.layout.extent(run);
        while parts[at].0.end <= extent.start {
            at += 1;
        }
        for (part, residency) in parts[at..].iter().take_while(|(part, _)| part.start < extent.end) {
            let range = part.start.max(extent.start)..part.end.min(extent.end);
            let worth = worth_direct(&range);
            let hint = match (residency, settings.driver) {
                (Residency::Cached, Driver::Pread | Driver::Auto) => Hint::Cached,
                (Residency::Unknown, Driver::Auto) if direct_usable && worth => Hint::Probe,
                (Residency::Unknown, Driver::Pread | Driver::Auto) => Hint::Unasked,
                (Residency::Partly, Driver::Pread | Driver::Auto) | (Residency::Cold, Driver::Pread) => Hint::Uncached,
                (Residency::Cold, Driver::Auto) if !(direct_usable && worth) => Hint::Uncached,
                _ => {
                    let mut rest = Vec::new();
                    shared.layout.cut_direct(run, range, settings.direct_block_bytes, state.spec.align, &mut direct, &mut rest);
                    buffered.extend(rest.into_iter().map(|block| (block, Hint::Uncached)));
                    continue;
                }
            };
            let mut blocks = Vec::new();
            shared.layout.cut_buffered(run, range, settings.buffered_block_bytes, &mut blocks);
            buffered.extend(blocks.into_iter().map(|block| (block, hint)));
        }
    }
    shared.publish(file, buffered, direct, |queues| queues.scouting -= 1);
    Ok(())
}

/// Whether the file can be read directly; where the driver io_uring was asked for by name, a refusal is an error.
fn direct_usable(shared: &Shared, state: &FileState, open: &OpenFile) -> Result<bool> {
    if shared.settings.driver == Driver::Pread {
        return Ok(false);
    }
    let system = file_systems::type_of(open.buffered());
    if !file_systems::sound_with_io_uring(system) {
        let name = file_systems::name(system);
        if shared.settings.driver == Driver::IoUring {
            let path = state.spec.path.to_string_lossy().into_owned();
            let message = format!(
                "the driver io_uring is not known to read {path} rightly: on {name} the kernel may report a whole read over wrong bytes; use auto or pread"
            );
            return Err(Error::new("ERR_TRANSFER_IO_URING_UNSOUND", message).with("file", path).with("fileSystem", name));
        }
        let _ = state.unsound.set(name);
    }
    let errno = match open.direct(&state.spec) {
        Err(errno @ (libc::EMFILE | libc::ENFILE)) => {
            let path = state.spec.path.to_string_lossy().into_owned();
            let cause = std::io::Error::from_raw_os_error(errno);
            return Err(Error::new("ERR_TRANSFER_OPEN", format!("cannot open {path}")).with("file", path).caused_by("open", &cause));
        }
        Ok(_) => return Ok(true),
        Err(errno) => errno,
    };
    let path = state.spec.path.to_string_lossy().into_owned();
    let named = shared.settings.driver == Driver::IoUring;
    match errno {
        libc::ESTALE => {
            let message = format!("{path} was replaced while it was opened; load again once nobody writes it");
            Err(Error::new("ERR_TRANSFER_FILE_CHANGED", message).with("file", path))
        }
        libc::EINVAL | libc::EOPNOTSUPP if named => {
            let errno = errno_name(errno);
            let message =
                format!("the driver io_uring reads with O_DIRECT, which the file system of {path} refuses ({errno}); use auto or pread");
            Err(Error::new("ERR_TRANSFER_DIRECT_REFUSED", message).with("file", path).with("errno", errno))
        }
        _ if named => {
            let cause = std::io::Error::from_raw_os_error(errno);
            Err(Error::new("ERR_TRANSFER_OPEN", format!("cannot open {path} for direct reads"))
                .with("file", path)
                .caused_by("open", &cause))
        }
        _ => {
            state.note_fallback(format!("O_DIRECT refused ({})", errno_name(errno)));
            Ok(false)
        }
    }
}

/// Residency over all runs of a file; one part where it does not matter.
fn parts_of(shared: &Shared, file: usize, fd: BorrowedFd<'_>) -> Vec<(std::ops::Range<u64>, Residency)> {
    let runs = &shared.layout.runs[shared.runs_of_file[file].clone()];
    let range = shared.layout.extent(&runs[0]).start..shared.layout.extent(&runs[runs.len() - 1]).end;
    match shared.settings.driver {
        Driver::IoUring => vec![(range, Residency::Cold)],
        Driver::Pread | Driver::Auto => residency::classify(fd, range),
    }
}

/// Reads one block with ordinary reads.
fn read_block(shared: &Arc<Shared>, block: &Block, hint: Hint, vectors: &mut Vec<libc::iovec>) -> Result<()> {
    let state = &shared.files[block.file as usize];
    if !read_range(shared, block, block.offset, vectors)? {
        return Ok(());
    }
    match hint {
        Hint::Cached => {
            state.cached_bytes.fetch_add(block.length, Ordering::Relaxed);
        }
        Hint::Uncached => {}
        Hint::Unasked | Hint::Probe => state.cached_known.store(false, Ordering::Relaxed),
    }
    shared.block_done(block, false)
}

/// Reads `[from, block.end())` of a block to its place. False when the transfer was stopped meanwhile.
pub fn read_range(shared: &Shared, block: &Block, from: u64, vectors: &mut Vec<libc::iovec>) -> Result<bool> {
    let state = &shared.files[block.file as usize];
    let Some(open) = state.opened() else { return Ok(false) };
    let mut position = from;
    let mut patience = Patience::default();
    while position < block.end() {
        if shared.stopped() {
            return Ok(false);
        }
        shared.layout.vectors(block, position, vectors);
        let result = match shared.faults.next(false) {
            Some(FaultKind::Fail(errno) | FaultKind::FailDirect(errno) | FaultKind::FailEnter(errno)) => {
                Err(std::io::Error::from_raw_os_error(errno))
            }
            Some(FaultKind::Short(bytes)) => {
                vectors.truncate(1);
                vectors[0].iov_len = vectors[0].iov_len.min(bytes.max(1) as usize);
                read_vectors(&open, vectors, position)
            }
            Some(FaultKind::Stall(time)) => {
                std::thread::sleep(time);
                read_vectors(&open, vectors, position)
            }
            None => read_vectors(&open, vectors, position),
        };
        match result {
            Ok(0) => return Err(state.unexpected_end(position)),
            Ok(count) => position += count as u64,
            Err(error) => match error.raw_os_error().unwrap_or(libc::EIO) {
                libc::EINTR => {}
                libc::EAGAIN if patience.try_again() => {}
                errno => return Err(state.read_error(position, block.end() - position, "pread", errno)),
            },
        }
    }
    Ok(true)
}

fn read_vectors(open: &OpenFile, vectors: &[libc::iovec], position: u64) -> std::io::Result<usize> {
    match vectors {
        // SAFETY: the vectors point into memory that the transfer has pinned; blocks do not overlap.
        [one] => unsafe { sys::pread(open.buffered(), one.iov_base as usize, one.iov_len, position) },
        // SAFETY: as above.
        _ => unsafe { sys::preadv(open.buffered(), vectors, position) },
    }
}

/// Reads what the page cache holds of a block, and sends the rest to the direct lane.
fn probe(shared: &Arc<Shared>, block: &Block, vectors: &mut Vec<libc::iovec>) -> Result<()> {
    let state = &shared.files[block.file as usize];
    let Some(open) = state.opened() else { return Ok(()) };
    let fd = open.buffered();
    // A read that refuses to wait starts readahead where it finds nothing, as much as was asked for: so the question is asked of single bytes first.
    let ends = (residency::is_cached(fd, block.offset), residency::is_cached(fd, block.end() - 1));
    if ends.0.is_none() {
        state.note_fallback("the file system does not tell what is cached");
        shared.publish(block.file as usize, Vec::new(), Vec::new(), |queues| queues.probing -= 1);
        return read_block(shared, block, Hint::Unasked, vectors);
    }
    let mut position = block.offset;
    if ends == (Some(true), Some(true)) {
        while position < block.end() && !shared.stopped() {
            shared.layout.vectors(block, position, vectors);
            if shared.faults.next(false).is_some() {
                break; // As if the page cache had lost the rest.
            }
            // SAFETY: the vectors point into memory that the transfer has pinned; blocks do not overlap.
            match unsafe { sys::preadv_cached(fd, vectors, position) } {
                Ok(0) => return Err(state.unexpected_end(position)),
                Ok(count) => position += count as u64,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => break,
            }
        }
    }
    let (mut direct, mut buffered) = (Vec::new(), Vec::new());
    if position < block.end() {
        let run = shared.run_of(block);
        shared.layout.cut_direct(
            &run,
            position..block.end(),
            shared.settings.direct_block_bytes,
            state.spec.align,
            &mut direct,
            &mut buffered,
        );
    }
    let buffered = buffered.into_iter().map(|block| (block, Hint::Uncached)).collect();
    shared.publish(block.file as usize, buffered, direct, |queues| queues.probing -= 1);
    state.cached_bytes.fetch_add(position - block.offset, Ordering::Relaxed);
    let cached = Block { length: position - block.offset, ..block.clone() };
    shared.block_done(&cached, false)
}
