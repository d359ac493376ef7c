//! How much of a range the kernel backs with huge pages.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;

/// `struct pm_scan_arg` of linux/fs.h (Linux 6.7).
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_HUGE: u64 = 1 << 6;
const REGIONS: usize = 512;

/// Bytes of `[address, address + length)` that lie in huge pages now; None where the kernel does
/// not say. Looks at page tables, not at memory: about a millisecond for 2 GiB.
pub fn huge_page_bytes(address: usize, length: usize) -> Option<usize> {
    scan_page_map(address, length).or_else(|| sum_of_mappings(address, length))
}

fn scan_page_map(address: usize, length: usize) -> Option<usize> {
    let page_map = File::open("/proc/self/pagemap").ok()?;
    let page_bytes = crate::sys::page_bytes();
    let begin = address - address % page_bytes;
    let end = address.checked_add(length)?.checked_next_multiple_of(page_bytes)?;
    let mut regions = [PageRegion::default(); REGIONS];
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        start: begin as u64,
        end: end as u64,
        vec: regions.as_mut_ptr() as u64,
        vec_len: REGIONS as u64,
        category_mask: PAGE_IS_HUGE,
        return_mask: PAGE_IS_HUGE,
        ..ScanArgument::default()
    };
    let mut huge_bytes = 0;
    while argument.start < argument.end {
        // SAFETY: the argument is laid out as the kernel has it, and names `regions` with its true
        // length.
        let found = unsafe { libc::ioctl(page_map.as_raw_fd(), PAGEMAP_SCAN as _, &mut argument) };
        let found = usize::try_from(found).ok()?;
        for region in regions.iter().take(found) {
            let (from, to) = (region.start.max(address as u64), region.end.min((address + length) as u64));
            huge_bytes += to.saturating_sub(from) as usize;
        }
        if argument.walk_end <= argument.start {
            return None;
        }
        argument.start = argument.walk_end;
    }
    Some(huge_bytes)
}

/// The older way: counts of whole mappings. A mapping that reaches beyond the range tells only when
/// it has no huge pages at all.
fn sum_of_mappings(address: usize, length: usize) -> Option<usize> {
    let end = address.checked_add(length)?;
    let mut huge_bytes = 0;
    let (mut from, mut to) = (0, 0);
    for line in BufReader::new(File::open("/proc/self/smaps").ok()?).lines() {
        let line = line.ok()?;
        if let Some(kib) = line.strip_prefix("AnonHugePages:") {
            let bytes = kib.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok()? * 1024;
            let overlaps = from < end && to > address;
            if overlaps && bytes > 0 {
                if from < address || to > end {
                    return None;
                }
                huge_bytes += bytes;
            }
        } else if let Some((bounds, _)) = line.split_once(' ')
            && let Some((first, last)) = bounds.split_once('-')
            && let (Ok(first), Ok(last)) = (usize::from_str_radix(first, 16), usize::from_str_radix(last, 16))
        {
            (from, to) = (first, last);
        }
    }
    Some(huge_bytes)
}

#[cfg(test)]
mod tests {
    use super::{scan_page_map, sum_of_mappings};
    use crate::vmm::{HostBackend, VmmBackend};

    #[test]
    fn both_ways_agree_on_an_allocation_of_its_own() {
        let backend = HostBackend::new();
        let granule = backend.allocation_granularity();
        let base = backend.reserve(4 * granule).unwrap();
        let address = base + granule;
        backend.allocate(address, 2 * granule).unwrap();
        assert_eq!(sum_of_mappings(address, 2 * granule), Some(0));
        // SAFETY: just mapped for us.
        unsafe { std::ptr::write_bytes(address as *mut u8, 1, granule + 1) };
        let counted = sum_of_mappings(address, 2 * granule);
        assert!(counted.is_some_and(|bytes| bytes <= 2 * granule));
        if let Some(scanned) = scan_page_map(address, 2 * granule) {
            assert_eq!(Some(scanned), counted);
        }
        backend.release_reserve(base, 4 * granule).unwrap();
    }
}
