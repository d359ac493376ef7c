//! How much of the page cache reads of a file take at one time, for the plan to count.
//!
//! Pages that are read ahead cannot be dropped while their read is in flight, so they need room
//! beside the tensors. How far is read ahead is a matter of the device that holds the file, and is
//! asked of it once for all files of a checkpoint.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{file, residency};
use crate::sys::DirectIo;

/// Where no device says how far is read ahead, as below an overlay or btrfs: what hosts with fast
/// disks set.
const UNKNOWN_BYTES: u64 = 8 << 20;

/// What reads of one file take of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// The kernel reads so far ahead of one thread at most, in bytes.
    pub read_ahead_bytes: u64,
    /// The driver `auto` reads the file through the page cache too, or may.
    pub under_auto: bool,
}

/// What devices said, by their numbers. Loads in a row ask once.
static KNOWN: Mutex<Vec<(u64, CacheUse, Instant)>> = Mutex::new(Vec::new());
const KEPT: Duration = Duration::from_secs(1);

/// Of an open file on `device`. Nothing is asked about a short one: no more is read ahead than it
/// has.
pub fn cache_use(fd: BorrowedFd<'_>, path: &Path, device: u64, size: u64, direct: DirectIo) -> CacheUse {
    if size <= residency::STEP_BYTES {
        return CacheUse { read_ahead_bytes: size, under_auto: true };
    }
    let of_device = of_device(fd, path, device);
    let under_auto = of_device.under_auto || direct == DirectIo::Refused;
    CacheUse { read_ahead_bytes: of_device.read_ahead_bytes.min(size), under_auto }
}

fn of_device(fd: BorrowedFd<'_>, path: &Path, device: u64) -> CacheUse {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = |(_, _, told): &(u64, CacheUse, Instant)| told.elapsed() < KEPT;
    if let Some((_, found, _)) = known().iter().find(|one| one.0 == device && fresh(one)) {
        return *found;
    }
    // Not under the lock: a file system may hang in the answer.
    let under_auto = file::open_direct(fd, path).is_err() || !residency::can_be_asked(fd);
    let found = CacheUse { read_ahead_bytes: read_ahead_bytes(device).unwrap_or(UNKNOWN_BYTES), under_auto };
    let mut all = known();
    all.retain(|one| one.0 != device && fresh(one));
    all.push((device, found, Instant::now()));
    found
}

/// The device's `read_ahead_kb`, and the longest request that it takes: a longer read is read ahead
/// up to that.
fn read_ahead_bytes(device: u64) -> Option<u64> {
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let kib = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    // A partition has its queue in the folder above. Mounts without a device, such as NFS and FUSE,
    // are known to the second folder only.
    let block = format!("/sys/dev/block/{number}");
    let found = [format!("{block}/queue"), format!("{block}/../queue")].into_iter().find_map(|queue| {
        let longest_request = kib(&format!("{queue}/max_sectors_kb")).unwrap_or(0);
        Some(kib(&format!("{queue}/read_ahead_kb"))?.max(longest_request))
    });
    found.or_else(|| kib(&format!("/sys/class/bdi/{number}/read_ahead_kb"))).map(|kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::io::identity::Sight;

    #[test]
    fn every_device_of_this_machine_is_told_by_its_own_number() {
        for entry in fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
            let Ok(number) = fs::read_to_string(entry.path().join("dev")) else { continue };
            let (major, minor) = number.trim().split_once(':').expect("major:minor");
            let device = libc::makedev(major.parse().expect("a number"), minor.parse().expect("a number"));
            let found = read_ahead_bytes(device).expect("a block device tells it");
            if let Ok(kib) = fs::read_to_string(entry.path().join("queue/read_ahead_kb")) {
                assert!(found >= 1024 * kib.trim().parse::<u64>().expect("a number"), "{number}");
            }
        }
        assert_eq!(read_ahead_bytes(libc::makedev(0, 0)), None);
    }

    #[test]
    fn no_more_is_read_ahead_than_there_is_and_a_short_file_asks_nobody() {
        let path = std::env::current_exe().expect("a program");
        let (fd, _) = Sight::open(&path).expect("open");
        let device = libc::makedev(0xfff, 0xfffff);
        let asked = || KNOWN.lock().unwrap().iter().filter(|one| one.0 == device).count();
        let used = |size, direct| cache_use(fd.as_fd(), &path, device, size, direct);
        assert_eq!(used(66, DirectIo::Unknown), CacheUse { read_ahead_bytes: 66, under_auto: true });
        assert_eq!(asked(), 0);
        assert_eq!(used(3 << 20, DirectIo::Unknown).read_ahead_bytes, 3 << 20);
        assert_eq!(used(9 << 20, DirectIo::Unknown).read_ahead_bytes, 8 << 20);
        assert!(used(3 << 20, DirectIo::Refused).under_auto);
        assert_eq!(asked(), 1);
    }
}
