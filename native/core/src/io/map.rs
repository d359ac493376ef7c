//! The mapping driver: files mapped privately over memory of a host arena, without copying a byte.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::file::{FileSpec, FileState};
use super::identity::Unkept;
use super::layout::Piece;
use crate::error::{Error, Result};
use crate::sys;
use crate::vmm::keep_from_forks;

/// Maps every piece copy-on-write over its place. Addresses must be congruent to file offsets
/// modulo the page size, and the pages of a piece must belong to no other; the caller has pinned
/// them until this returns. Tells for each file what of its identity was not kept. Freeing the
/// allocation unmaps the file. A file cut afterwards kills the process that touches the lost pages
/// (SIGBUS).
///
/// # Errors
/// ERR_TRANSFER_OPEN, ERR_TRANSFER_FILE_CHANGED, ERR_TRANSFER_MAP; pages mapped before a failure
/// stay mapped until freed.
pub fn map_files(files: Vec<FileSpec>, pieces: &[Piece]) -> Result<Vec<Unkept>> {
    let page = sys::page_bytes();
    for piece in pieces.iter().filter(|piece| piece.length > 0) {
        if !(piece.address as u64).wrapping_sub(piece.offset).is_multiple_of(page as u64) {
            return Err(Error::new("ERR_INTERNAL", "a mapped piece is not congruent to its file offset").with("offset", piece.offset));
        }
    }
    let states: Vec<FileState> = files.into_iter().map(FileState::new).collect();
    let mut open_file = None;
    for piece in pieces.iter().filter(|piece| piece.length > 0) {
        let state = &states[piece.file as usize];
        let open = match &open_file {
            Some((file, open)) if *file == piece.file => Arc::clone(open),
            _ => state.open()?,
        };
        open_file = Some((piece.file, open.clone()));
        let head = piece.address % page;
        // SAFETY: the pages lie in pinned, live memory of the arena that belongs to this piece
        // alone.
        let mapped = unsafe {
            libc::mmap(
                (piece.address - head) as *mut libc::c_void,
                piece.length as usize + head,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE,
                open.buffered().as_raw_fd(),
                (piece.offset - head as u64) as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED {
            let cause = std::io::Error::last_os_error();
            fill_hole(piece.address - head, piece.length as usize + head);
            let path = state.spec.path.to_string_lossy().into_owned();
            return Err(Error::new("ERR_TRANSFER_MAP", format!("cannot map {path}; use a copying driver"))
                .with("file", path)
                .with("offset", piece.offset)
                .with("length", piece.length)
                .caused_by("mmap", &cause));
        }
        keep_from_forks(piece.address - head, piece.length as usize + head);
        state.close();
    }
    Ok(states.iter().map(FileState::unkept).collect())
}

/// A MAP_FIXED that failed may have left a hole, into which others could map: anonymous memory goes
/// there again.
fn fill_hole(address: usize, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the pages are those that the failed mapping was meant for.
    unsafe { libc::mmap(address as *mut libc::c_void, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    keep_from_forks(address, bytes);
}
