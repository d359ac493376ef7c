//! What is known of file systems by the type that fstatfs(2) gives.

use std::os::fd::BorrowedFd;

use super::{overlay, sys};

/// File systems whose direct reads by io_uring are known to be sound.
///
/// The kernel's io_uring takes up a short read of a regular file by itself, at the position that the file system has left in the request. One that
/// completes a short direct read without moving that position is read again from the old one: io_uring reports the full count over wrong bytes, and an
/// error behind the first part is lost. FUSE does so on mounts with direct I/O. So only those count that move it, as their sources show:
const SOUND_WITH_IO_URING: [(u32, &str); 5] = [
    // generic_file_read_iter before Linux 5.5, which adds the count to the position; iomap_dio_complete since, which does too.
    (0xef53, "ext4"),
    // iomap_dio_complete.
    (0x5846_5342, "xfs"),
    // generic_file_read_iter before Linux 5.9, iomap_dio_complete since.
    (0x9123_683e, "btrfs"),
    // generic_file_read_iter before Linux 5.17, iomap_dio_complete since.
    (0xf2f5_2010, "f2fs"),
    // Serves "direct" reads from its pages (shmem_file_read_iter), and never short before the end.
    (0x0102_1994, "tmpfs"),
];

const OVERLAY: u32 = 0x794c_7630;

/// Names for messages, of those that are not known to be sound: their own or a server's code completes direct reads.
const OTHERS: [(u32, &str); 10] = [
    (0x6573_5546, "fuse"),
    (OVERLAY, "overlayfs"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x00c3_6400, "ceph"),
    (0x0102_1997, "9p"),
    (0x0bd0_0bd0, "lustre"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
];

/// File systems of which device, inode number and time of modification are exact and stay. Not among them: FUSE and 9p, whose servers decide; SMB, which
/// may number files by itself; FAT, which numbers them anew once they left memory; overlays, whose layers decide.
const KEEPING_IDENTITY: [u32; 9] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x6969, 0x00c3_6400, 0x2fc1_2fc1, 0xca45_1a4e];

pub fn keeps_identity(kind: u32) -> bool {
    KEEPING_IDENTITY.contains(&kind)
}

/// Type of the file system that an open file is on, of an overlay that of the layer where it can be told; 0 where it does not say.
pub fn type_of(fd: BorrowedFd<'_>) -> u32 {
    match sys::file_system_type(fd) {
        Ok(OVERLAY) => overlay::layer_type(fd).unwrap_or(OVERLAY),
        kind => kind.unwrap_or(0),
    }
}

pub fn sound_with_io_uring(kind: u32) -> bool {
    SOUND_WITH_IO_URING.iter().any(|(known, _)| *known == kind)
}

/// Name of a file system, or its number.
pub fn name(kind: u32) -> String {
    let known = SOUND_WITH_IO_URING.iter().chain(&OTHERS).find(|(known, _)| *known == kind);
    known.map_or_else(|| format!("a file system of type {kind:#x}"), |(_, name)| (*name).to_owned())
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
