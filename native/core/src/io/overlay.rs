//! The layer of an overlay that a file lies in.
//!
//! An overlay passes reads on to a file of one of its layers, so what is known of that layer's file
//! system holds. The mount table names the layers; in a container their folders usually cannot be
//! seen, and then nothing is known.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::sys;

/// Type of the file system of the layer that an open file of an overlay lies in; None where the
/// layers cannot be told.
pub fn layer_type(fd: BorrowedFd<'_>) -> Option<u32> {
    let number = fd.as_raw_fd();
    let mount = Mount::with_id(&mount_id(&fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?)?)?;
    let path = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let inside = mount.root.join(path.strip_prefix(&mount.point).ok()?);
    let found = sys::stat(fd).ok()?;
    // The first that has the file is the one that is read. The same inode number, size and time
    // show that the folder is the layer's indeed.
    let layer = mount.layers.iter().find_map(|layer| sys::open_read(&layer.join(inside.strip_prefix("/").unwrap_or(&inside)), 0).ok())?;
    let below = sys::stat(layer.as_fd()).ok()?;
    let same = (below.ino, below.size, below.mtime_ns) == (found.ino, found.size, found.mtime_ns);
    same.then(|| sys::file_system_type(layer.as_fd()).ok()).flatten()
}

fn mount_id(fdinfo: &str) -> Option<String> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(|id| id.trim().to_owned())
}

#[derive(Debug, PartialEq)]
struct Mount {
    /// Part of the overlay that is mounted.
    root: PathBuf,
    point: PathBuf,
    /// Uppermost first.
    layers: Vec<PathBuf>,
}

impl Mount {
    fn with_id(id: &str) -> Option<Self> {
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        if table.as_ref().is_none_or(MountTable::has_changed) {
            *table = MountTable::read().ok();
        }
        table.as_ref()?.text.split(|byte| *byte == b'\n').find_map(|line| Mount::parse(line, id))
    }

    /// A line of proc_pid_mountinfo(5):
    /// `id parent device root point options ... - type source super-options`.
    fn parse(line: &[u8], id: &str) -> Option<Self> {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = words.iter().position(|word| *word == b"-")?;
        if words.first() != Some(&id.as_bytes()) || words.get(dash + 1) != Some(&b"overlay".as_slice()) {
            return None;
        }
        let mut layers = Vec::new();
        let mut upper = None;
        for option in split_unescaped(words.get(dash + 3)?, b',') {
            if let Some(folder) = option.strip_prefix(b"upperdir=") {
                upper = Some(path_of(folder));
            } else if let Some(folder) = option.strip_prefix(b"lowerdir+=") {
                layers.push(path_of(folder));
            } else if let Some(folders) = option.strip_prefix(b"lowerdir=") {
                // An empty part stands before layers that hold data alone.
                layers.extend(split_unescaped(folders, b':').into_iter().filter(|folder| !folder.is_empty()).map(path_of));
            }
        }
        layers.splice(0..0, upper);
        Some(Mount { root: path_of(words.get(3)?), point: path_of(words.get(4)?), layers })
    }
}

/// The mount table may have hundreds of lines: it is read again only once the kernel tells that it
/// has changed.
struct MountTable {
    /// Tells changes since it was opened.
    file: fs::File,
    text: Vec<u8>,
}

static TABLE: Mutex<Option<MountTable>> = Mutex::new(None);

impl MountTable {
    fn read() -> io::Result<Self> {
        let mut file = fs::File::open("/proc/self/mountinfo")?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(MountTable { file, text })
    }

    fn has_changed(&self) -> bool {
        let mut asked = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one entry, which is ours, and no waiting.
        unsafe { libc::poll(&mut asked, 1, 0) != 0 }
    }
}

fn split_unescaped(text: &[u8], at: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut begin, mut escaped) = (0, false);
    for (position, byte) in text.iter().enumerate() {
        if *byte == at && !escaped {
            parts.push(&text[begin..position]);
            begin = position + 1;
        }
        escaped = *byte == b'\\' && !escaped;
    }
    parts.push(&text[begin..]);
    parts
}

/// A backslash stands before three octal digits in the mount table, and before a comma or colon in
/// the options of an overlay.
fn path_of(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        if let Some(digits) = octal {
            bytes.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
            rest = &after[3..];
        } else if let (b'\\', Some((second, after))) = (first, after.split_first()) {
            bytes.push(*second);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Path::new(&OsString::from_vec(bytes)).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "61 29 0:52 /part /merged\\040here rw,relatime shared:1 - overlay overlay rw,lowerdir=/l\\:1:/l2::/data,upperdir=/up\\134x,workdir=/w";

    #[test]
    fn the_mount_table_names_the_layers() {
        let expected = Mount {
            root: "/part".into(),
            point: "/merged here".into(),
            layers: ["/up\\x", "/l:1", "/l2", "/data"].map(PathBuf::from).to_vec(),
        };
        assert_eq!(Mount::parse(LINE.as_bytes(), "61"), Some(expected));
        assert_eq!(Mount::parse(LINE.as_bytes(), "6"), None);
        assert_eq!(Mount::parse(LINE.replace("overlay overlay", "ext4 overlay").as_bytes(), "61"), None);
        let newer = "7 1 0:52 / /m rw - overlay none rw,lowerdir+=/a,lowerdir+=/b:c";
        assert_eq!(Mount::parse(newer.as_bytes(), "7").map(|mount| mount.layers), Some(vec!["/a".into(), "/b:c".into()]));
        assert_eq!(Mount::parse(b"7 1", "7"), None);
        assert_eq!(Mount::parse(b"", "7"), None);
    }

    #[test]
    fn fdinfo_names_the_mount() {
        assert_eq!(mount_id("pos:\t0\nflags:\t02\nmnt_id:\t61\n"), Some("61".to_owned()));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }

    #[test]
    fn a_file_of_no_overlay_has_no_layer() {
        let file = fs::File::open("/proc/self/exe").expect("open");
        assert_eq!(layer_type(file.as_fd()), None);
    }
}
