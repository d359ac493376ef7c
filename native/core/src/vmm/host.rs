//! Host memory: anonymous, in huge pages where the kernel has them.

use std::io;
use std::ptr;

use super::{MemoryKind, VmmBackend};
use crate::error::{Error, Result};
use crate::sys::page_bytes;

/// Size of a huge page on x86-64 and, with 4 KiB pages, on arm64. Only a wish elsewhere: the kernel
/// takes or leaves it.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory of this process. Allocations start on huge pages; none is touched until somebody writes
/// to it.
///
/// The reserve is mapped without access and without MAP_NORESERVE: inaccessible private memory is
/// not accounted whatever the overcommit mode, and making a part accessible then is, so that an
/// allocation beyond what the kernel grants fails instead of inviting the OOM killer. `mprotect`
/// does that rather than a second `mmap`, because a failed MAP_FIXED may leave a hole that other
/// mappings fall into.
///
/// The whole reserve is kept out of child processes (MADV_DONTFORK). A fork would copy its page
/// tables with the process stopped, break its huge pages, and could leave a device writing to pages
/// that belong to the child from then on.
pub struct HostBackend {
    granularity: usize,
}

impl HostBackend {
    pub fn new() -> Self {
        HostBackend { granularity: page_bytes().max(HUGE_PAGE_BYTES) }
    }
}

impl Default for HostBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl VmmBackend for HostBackend {
    fn reserve(&self, total_bytes: usize) -> Result<usize> {
        // One granule more than asked, so that an aligned base lies within; the rest is cut off.
        let Some(mapped_bytes) = total_bytes.checked_add(self.granularity) else {
            return Err(reserve_refused(total_bytes, &io::Error::from_raw_os_error(libc::ENOMEM)));
        };
        let start = match map_inaccessible(ptr::null_mut(), mapped_bytes, 0) {
            Ok(start) => start,
            Err(cause) => return Err(reserve_refused(total_bytes, &cause)),
        };
        let base = start.next_multiple_of(self.granularity);
        let end = base + total_bytes;
        for (from, to) in [(start, base), (end, start + mapped_bytes)] {
            if from < to
                && let Err(cause) = unmap(from, to - from)
            {
                let _ = unmap(start, mapped_bytes);
                return Err(reserve_refused(total_bytes, &cause));
            }
        }
        keep_from_forks(base, total_bytes);
        Ok(base)
    }

    fn allocate(&self, address: usize, bytes: usize) -> Result<u64> {
        // SAFETY: the contract gives us a part of our own reserve that nobody uses.
        let outcome = unsafe { libc::mprotect(address as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE) };
        if outcome != 0 {
            let cause = io::Error::last_os_error();
            let message = format!(
                "{bytes} bytes of host memory cannot be mapped at {address:#x}: load less, free memory, or raise the limit (ulimit -v, cgroup, vm.overcommit_memory)"
            );
            return Err(Error::new("ERR_ARENA_OUT_OF_MEMORY", message)
                .with("length", bytes)
                .with("address", format!("{address:#x}"))
                .caused_by("mprotect", &cause));
        }
        advise(address, bytes, libc::MADV_HUGEPAGE);
        Ok(0)
    }

    /// A huge page is faulted whole: where only a part of the last one is wanted, small pages take
    /// no more memory than that.
    fn allocate_for(&self, address: usize, bytes: usize, wanted_bytes: usize) -> Result<u64> {
        let handle = self.allocate(address, bytes)?;
        let whole_bytes = wanted_bytes - wanted_bytes % HUGE_PAGE_BYTES;
        advise(address + whole_bytes, bytes - whole_bytes, libc::MADV_NOHUGEPAGE);
        Ok(handle)
    }

    fn deallocate(&self, address: usize, bytes: usize, _handle: u64) -> Result<()> {
        let Err(cause) = map_inaccessible(address as *mut _, bytes, libc::MAP_FIXED) else {
            // As its neighbours in the reserve, which it merges with.
            keep_from_forks(address, bytes);
            return Ok(());
        };
        // Out of mappings or of address space: the memory can still be given back in place.
        // SAFETY: the range is an allocation of ours that its owner gave up.
        let given_back = unsafe {
            libc::madvise(address as *mut _, bytes, libc::MADV_DONTNEED) == 0
                && libc::mprotect(address as *mut _, bytes, libc::PROT_NONE) == 0
        };
        if given_back {
            return Ok(());
        }
        let message = format!("{bytes} bytes of host memory at {address:#x} cannot be given back");
        Err(Error::new("ERR_ARENA_RELEASE_FAILED", message)
            .with("length", bytes)
            .with("address", format!("{address:#x}"))
            .caused_by("mmap", &cause))
    }

    fn release_reserve(&self, base: usize, total_bytes: usize) -> Result<()> {
        unmap(base, total_bytes).map_err(|cause| {
            let message = format!("the {total_bytes} bytes of address space reserved at {base:#x} cannot be given back");
            Error::new("ERR_ARENA_RELEASE_FAILED", message)
                .with("length", total_bytes)
                .with("address", format!("{base:#x}"))
                .caused_by("munmap", &cause)
        })
    }

    fn drop_pages(&self, address: usize, bytes: usize) {
        drop_pages(address, bytes);
    }

    fn allocation_granularity(&self) -> usize {
        self.granularity
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Host
    }
}

/// Advice on the pages of a range that is ours. A kernel without transparent huge pages refuses it,
/// and ordinary pages do.
fn advise(address: usize, bytes: usize, advice: i32) {
    if bytes > 0 {
        // SAFETY: changes no contents; the range is an allocation of ours.
        unsafe { libc::madvise(address as *mut _, bytes, advice) };
    }
}

/// Memory that is read into, or that a device reads, is not for child processes, which start with
/// nothing at these addresses. Ends with the mapping.
pub fn keep_from_forks(address: usize, bytes: usize) {
    advise(address, bytes, libc::MADV_DONTFORK);
}

/// Gives the physical memory of a range back; its mapping stays and reads as zeros, or as the file
/// where one is mapped. Advice: a failure means that the memory goes with the mapping.
pub fn drop_pages(address: usize, bytes: usize) {
    // SAFETY: the caller owns the range, whose contents nobody wants any more.
    unsafe { libc::madvise(address as *mut _, bytes, libc::MADV_DONTNEED) };
}

fn reserve_refused(total_bytes: usize, cause: &io::Error) -> Error {
    let message = format!(
        "{total_bytes} bytes of address space cannot be reserved: ask for less with totalBytes, or raise the limit (ulimit -v, a container's)"
    );
    Error::new("ERR_ARENA_RESERVE_REFUSED", message).with("length", total_bytes).caused_by("mmap", cause)
}

pub(super) fn map_inaccessible(address: *mut libc::c_void, bytes: usize, flags: i32) -> io::Result<usize> {
    map_anonymous(address, bytes, libc::PROT_NONE, flags)
}

fn map_anonymous(address: *mut libc::c_void, bytes: usize, access: i32, flags: i32) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: with MAP_FIXED the caller names memory of ours that nobody uses; without, the kernel
    // picks a free place.
    let mapped = unsafe { libc::mmap(address, bytes, access, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped as usize) }
}

pub(super) fn unmap(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: only called for address space that is ours, and that nobody uses.
    if unsafe { libc::munmap(address as *mut _, bytes) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[from, to)` of `/proc/self/maps` with its access, for the mapping that holds `address`.
    fn mapping_of(address: usize) -> Option<(usize, usize, String)> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (bounds, rest) = line.split_once(' ')?;
            let (from, to) = bounds.split_once('-')?;
            let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
            (from <= address && address < to).then(|| (from, to, rest[..4].to_owned()))
        })
    }

    #[test]
    fn a_part_is_accessible_while_it_is_allocated() {
        let backend = HostBackend::new();
        let granule = backend.allocation_granularity();
        let total = 16 * granule;
        let base = backend.reserve(total).unwrap();
        assert_eq!(base % granule, 0);
        assert_eq!(mapping_of(base).unwrap().2, "---p");
        let handle = backend.allocate(base + granule, granule).unwrap();
        assert_eq!(mapping_of(base + granule).unwrap(), (base + granule, base + 2 * granule, "rw-p".to_owned()));
        assert_eq!(mapping_of(base).unwrap().2, "---p");
        backend.deallocate(base + granule, granule, handle).unwrap();
        let (from, to, access) = mapping_of(base + granule).unwrap();
        assert!(from <= base && to >= base + total && access == "---p");
        backend.release_reserve(base, total).unwrap();
    }

    /// VmFlags of the mapping that holds `address`.
    fn flags_of(address: usize) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut within = false;
        for line in smaps.lines() {
            let bounds = line.split(' ').next().and_then(|word| word.split_once('-'));
            if let Some((Ok(from), Ok(to))) = bounds.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))) {
                within = from <= address && address < to;
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| within) {
                return flags.to_owned();
            }
        }
        panic!("nothing is mapped at {address:#x}");
    }

    #[test]
    fn no_part_of_a_reserve_goes_to_child_processes() {
        let backend = HostBackend::new();
        let granule = backend.allocation_granularity();
        let base = backend.reserve(8 * granule).unwrap();
        let kept = |address: usize| flags_of(address).split_whitespace().any(|flag| flag == "dc");
        let handle = backend.allocate(base + granule, granule).unwrap();
        assert!([base, base + granule, base + 7 * granule].into_iter().all(kept));
        backend.deallocate(base + granule, granule, handle).unwrap();
        assert!(kept(base + granule));
        backend.release_reserve(base, 8 * granule).unwrap();
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        let backend = HostBackend::new();
        for bytes in [1 << 60, usize::MAX - (1 << 20)] {
            let error = backend.reserve(bytes).unwrap_err();
            assert_eq!(error.code, "ERR_ARENA_RESERVE_REFUSED");
            assert!(error.message.contains("totalBytes") && error.message.contains("ENOMEM"), "{}", error.message);
        }
    }

    #[test]
    fn a_part_that_cannot_be_mapped_is_an_error() {
        let error = HostBackend::new().allocate(1, 4096).unwrap_err();
        assert_eq!(error.code, "ERR_ARENA_OUT_OF_MEMORY");
    }
}
