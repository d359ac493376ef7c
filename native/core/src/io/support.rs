//! What the kernel and a file system offer to this module; asked by the probe.

use std::alloc::Layout;
use std::os::fd::AsFd;
use std::path::Path;

use crate::error::errno_name;
use crate::sys;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoSupport {
    /// Errno name, None where io_uring works.
    pub io_uring: Option<String>,
    /// Errno name, empty where a file at the path can be read with O_DIRECT.
    pub direct_io: Option<String>,
    /// As [`sys::DirectIo::align`].
    pub dio_offset_align: u32,
    pub dio_mem_align: u32,
}

/// Tries io_uring, and one direct read of the file at `path` (a folder answers for what opens in
/// it: EISDIR).
pub fn io_support(path: &Path) -> IoSupport {
    let name = |error: &std::io::Error| errno_name(error.raw_os_error().unwrap_or(libc::EIO));
    let io_uring = super::engine::Uring::new(1).err().map(|refusal| errno_name(refusal.errno));
    let direct_io = try_direct(path).err().map(|error| name(&error));
    let (dio_offset_align, dio_mem_align) = sys::open_read(path, 0).map_or((0, 0), |fd| sys::direct_io(fd.as_fd()).align());
    IoSupport { io_uring, direct_io, dio_offset_align, dio_mem_align }
}

fn try_direct(path: &Path) -> std::io::Result<()> {
    let fd = sys::open_read(path, libc::O_DIRECT)?;
    let layout = Layout::new::<[u8; 4096]>().align_to(4096).map_err(|_| std::io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the layout has a size above zero.
    let page = unsafe { std::alloc::alloc_zeroed(layout) };
    if page.is_null() {
        return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
    }
    // SAFETY: the page is ours and aligned.
    let result = unsafe { sys::pread(fd.as_fd(), page as usize, 4096, 0) };
    // SAFETY: allocated above with this layout.
    unsafe { std::alloc::dealloc(page, layout) };
    result.map(|_| ())
}
