//! System calls, through libc so that tools in front of it see them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What stat(2) tells of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime_ns: i64,
    /// What it is (S_IFMT): a regular file, a folder, ...
    pub kind: u32,
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Opens for reading; `extra` is or-ed into the flags (`O_DIRECT`). Never waits: O_NONBLOCK changes
/// nothing about regular files, and opens a named pipe without a writer, which is then found to be
/// no file of a checkpoint.
pub fn open_read(path: &Path, extra: i32) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    loop {
        // SAFETY: `path` is a NUL-terminated string that outlives the call.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | extra) };
        if fd >= 0 {
            // SAFETY: the descriptor was just opened and belongs to nobody else.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

fn stat_of(stat: &libc::stat) -> Stat {
    Stat {
        dev: stat.st_dev,
        ino: stat.st_ino,
        size: stat.st_size as u64,
        kind: stat.st_mode & libc::S_IFMT,
        mtime_ns: stat.st_mtime.wrapping_mul(1_000_000_000).wrapping_add(stat.st_mtime_nsec),
    }
}

/// Of an open file.
pub fn stat(fd: BorrowedFd<'_>) -> io::Result<Stat> {
    // SAFETY: an all-zero stat is a valid value of the plain C struct.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `stat` is writable.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat_of(&stat))
}

/// Of what a path names now.
pub fn stat_at(path: &Path) -> io::Result<Stat> {
    let path = c_path(path)?;
    // SAFETY: an all-zero stat is a valid value of the plain C struct.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is NUL-terminated and `stat` is writable.
    if unsafe { libc::stat(path.as_ptr(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat_of(&stat))
}

/// Type of the file system of an open file, as statfs(2) lists them.
pub fn file_system_type(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: an all-zero statfs is a valid value of the plain C struct.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `found` is writable.
    if unsafe { libc::fstatfs(fd.as_raw_fd(), &mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The types have 32 bits; their C type differs between C libraries, in width and in sign.
    Ok(found.f_type as u32)
}

/// One positioned read into raw memory.
///
/// # Safety
/// `[address, address + length)` must be writable memory that nobody else uses until the call
/// returns.
pub unsafe fn pread(fd: BorrowedFd<'_>, address: usize, length: usize, offset: u64) -> io::Result<usize> {
    // SAFETY: promised by the caller.
    count(unsafe { libc::pread(fd.as_raw_fd(), address as *mut libc::c_void, length, offset as libc::off_t) })
}

/// Fills `target` from `offset` on. The error tells how far it came and why; no reason is the end
/// of the file.
pub fn pread_full(fd: BorrowedFd<'_>, target: &mut [u8], offset: u64) -> std::result::Result<(), (usize, Option<io::Error>)> {
    let mut done = 0;
    while done < target.len() {
        let rest = &mut target[done..];
        // SAFETY: a part of the target, borrowed for the call.
        match unsafe { pread(fd, rest.as_mut_ptr() as usize, rest.len(), offset + done as u64) } {
            Ok(0) => return Err((done, None)),
            Ok(count) => done += count,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err((done, Some(error))),
        }
    }
    Ok(())
}

/// Most memory areas that one vectored read may have (IOV_MAX of Linux); of more, the first are
/// read, as if the read came short.
pub const MAX_VECTORS: usize = 1024;

/// One positioned vectored read.
///
/// # Safety
/// As for [`pread`], for every vector.
pub unsafe fn preadv(fd: BorrowedFd<'_>, vectors: &[libc::iovec], offset: u64) -> io::Result<usize> {
    let vectors = &vectors[..vectors.len().min(MAX_VECTORS)];
    // SAFETY: promised by the caller; the slice is valid for its length.
    count(unsafe { libc::preadv(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as i32, offset as libc::off_t) })
}

/// A read that takes only what the page cache holds; EAGAIN when the first byte is not there.
///
/// # Safety
/// As for [`pread`], for every vector.
pub unsafe fn preadv_cached(fd: BorrowedFd<'_>, vectors: &[libc::iovec], offset: u64) -> io::Result<usize> {
    let vectors = &vectors[..vectors.len().min(MAX_VECTORS)];
    // SAFETY: promised by the caller; the slice is valid for its length.
    let result = unsafe { libc::preadv2(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as i32, offset as libc::off_t, libc::RWF_NOWAIT) };
    count(result)
}

fn count(result: isize) -> io::Result<usize> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// Pages of `[offset, offset + length)` that the page cache holds (cachestat, Linux 6.5). EPERM for
/// files of other owners.
pub fn cached_pages(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, length];
    let mut result = [0u64; 5];
    // SAFETY: `range` is struct cachestat_range { off, len }, `result` has the five u64 of struct
    // cachestat.
    let status = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range.as_ptr(), result.as_mut_ptr(), 0u32) };
    if status != 0 { Err(io::Error::last_os_error()) } else { Ok(result[0]) }
}

/// What the kernel says of direct I/O on a file (statx STATX_DIOALIGN, Linux 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    Unknown,
    Refused,
    /// File offsets and memory addresses must be multiples of these, in bytes.
    Aligned(u32, u32),
}

impl DirectIo {
    /// What it asks of offsets and of addresses; zeros where the kernel does not say.
    pub fn align(self) -> (u32, u32) {
        if let DirectIo::Aligned(offset, memory) = self { (offset, memory) } else { (0, 0) }
    }
}

/// Asks about an open file.
pub fn direct_io(fd: BorrowedFd<'_>) -> DirectIo {
    // SAFETY: an all-zero statx is a valid value of the plain C struct.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the path is an empty C string, `stat` is writable.
    let status = unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut stat) };
    if status != 0 || stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        return DirectIo::Unknown;
    }
    match (stat.stx_dio_offset_align, stat.stx_dio_mem_align) {
        (0, _) => DirectIo::Refused,
        (offset, memory) => DirectIo::Aligned(offset, memory),
    }
}

/// Size of a page of memory in bytes.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
