//! What is known of file systems by the type that fstatfs(2) gives.

use std::os::fd::BorrowedFd;

use super::overlay;
use crate::sys;

/// What is known of a type of file system.
struct Known {
    kind: u32,
    name: &'static str,
    /// The kernel's io_uring takes up a short read of a regular file by itself, at the position
    /// that the file system has left in the request. One that completes a short direct read without
    /// moving that position is read again from the old one: io_uring reports the full count over
    /// wrong bytes, and an error behind the first part is lost. FUSE does so on mounts with direct
    /// I/O. So only those count as sound that move it, as their sources show.
    sound_with_io_uring: bool,
    /// Device, inode number and time of modification are exact and stay.
    keeps_identity: bool,
}

const fn known(kind: u32, name: &'static str, sound_with_io_uring: bool, keeps_identity: bool) -> Known {
    Known { kind, name, sound_with_io_uring, keeps_identity }
}

const OVERLAY: u32 = 0x794c_7630;

const KNOWN: [Known; 15] = [
    // generic_file_read_iter before Linux 5.5, which adds the count to the position;
    // iomap_dio_complete since, which does too.
    known(0xef53, "ext4", true, true),
    // iomap_dio_complete.
    known(0x5846_5342, "xfs", true, true),
    // generic_file_read_iter before Linux 5.9, iomap_dio_complete since.
    known(0x9123_683e, "btrfs", true, true),
    // generic_file_read_iter before Linux 5.17, iomap_dio_complete since.
    known(0xf2f5_2010, "f2fs", true, true),
    // Serves "direct" reads from its pages (shmem_file_read_iter), and never short before the end.
    known(0x0102_1994, "tmpfs", true, true),
    // From here on their own code or a server's completes direct reads. Servers of FUSE and 9p
    // decide what tells a file, too.
    known(0x6573_5546, "fuse", false, false),
    known(0x0102_1997, "9p", false, false),
    // The layers of an overlay decide.
    known(OVERLAY, "overlayfs", false, false),
    known(0x6969, "nfs", false, true),
    // SMB may number files by itself.
    known(0xff53_4d42, "cifs", false, false),
    known(0xfe53_4d42, "smb2", false, false),
    known(0x00c3_6400, "ceph", false, true),
    known(0x0bd0_0bd0, "lustre", false, false),
    known(0x2fc1_2fc1, "zfs", false, true),
    known(0xca45_1a4e, "bcachefs", false, true),
];

fn find(kind: u32) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.kind == kind)
}

/// Type of the file system that an open file is on, of an overlay that of the layer where it can be
/// told; 0 where it does not say.
pub fn type_of(fd: BorrowedFd<'_>) -> u32 {
    match sys::file_system_type(fd) {
        Ok(OVERLAY) => overlay::layer_type(fd).unwrap_or(OVERLAY),
        kind => kind.unwrap_or(0),
    }
}

pub fn sound_with_io_uring(kind: u32) -> bool {
    find(kind).is_some_and(|known| known.sound_with_io_uring)
}

/// Not of those that are not known, as FAT, which numbers files anew once they left memory.
pub fn keeps_identity(kind: u32) -> bool {
    find(kind).is_some_and(|known| known.keeps_identity)
}

/// Name of a file system, or its number.
pub fn name(kind: u32) -> String {
    find(kind).map_or_else(|| format!("a file system of type {kind:#x}"), |known| known.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_whose_servers_decide_do_not_keep_identity() {
        assert_eq!([0xef53, 0x0102_1994, 0x6969].map(keeps_identity), [true; 3]);
        assert_eq!([0x6573_5546, 0x794c_7630, 0xfe53_4d42, 0x0102_1997, 0x4d44, 0].map(keeps_identity), [false; 6]);
    }

    #[test]
    fn local_file_systems_are_sound_and_all_others_are_not() {
        assert_eq!([0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994].map(sound_with_io_uring), [true; 5]);
        assert_eq!([0x6573_5546, 0x794c_7630, 0x6969, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400, 0].map(sound_with_io_uring), [false; 7]);
        assert_eq!([name(0x6573_5546), name(0xef53), name(7)], ["fuse", "ext4", "a file system of type 0x7"]);
    }
}
