//! Memory that outlives the process which writes it.
//!
//! A run's trace is written, entry by entry, into a memfd that the parent, its zygote and the run's process share. The
//! length is published after each entry, so whoever reads it, whenever and however the writer died, sees whole entries.
//!
//! Layout: one page of header (committed length in bytes), then the entries as JSON lines.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Address space of a trace, bytes. Sparse: only what is written takes memory.
pub(crate) const TRACE_BYTES: usize = 256 << 20;
/// Kept free for the last entry of a trace that is full.
const RESERVE: usize = 4096;
const HEADER: usize = 4096;
/// Beyond this a reset gives the memory back instead of keeping it warm for the next run.
const KEEP_WARM: u64 = 8 << 20;

#[repr(C)]
struct Header {
    committed: AtomicU64,
}

/// A mapping of the shared memory. One process writes at a time; any number may read.
pub(crate) struct Region {
    fd: OwnedFd,
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping lives as long as the value. The header is atomic, and bytes below the committed length are never
// written again before a reset, which the owner orders before the next run.
unsafe impl Send for Region {}
// SAFETY: as above; `append` is only called through an `Appender`, which is not shared.
unsafe impl Sync for Region {}

impl Region {
    /// New, empty memory of `size` bytes, header included.
    pub(crate) fn create(size: usize) -> io::Result<Region> {
        let fd = memfd(c"photofinish-trace")?;
        // SAFETY: a plain system call on a descriptor that we own.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), size as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Region::map(fd)
    }

    /// Maps memory that another process created.
    pub(crate) fn map(fd: OwnedFd) -> io::Result<Region> {
        // SAFETY: all-zero bytes are a valid `stat`.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: `stat` is valid for writes.
        if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let size = stat.st_size as usize;
        if size < HEADER + RESERVE {
            return Err(io::Error::other(format!("a trace's memory of {size} bytes is too small")));
        }
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, flags, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("a mapping is never at address zero");
        Ok(Region { fd, base, size })
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping starts with a header, is page-aligned and lives as long as `self`; all fields are atomic.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The entries so far: whole JSON lines.
    pub(crate) fn lines(&self) -> &[u8] {
        let len = self.header().committed.load(Ordering::Acquire) as usize;
        assert!(len <= self.size - HEADER, "a trace's committed length lies inside its memory");
        // SAFETY: bytes below the committed length are initialised, inside the mapping, and stay as they are until a
        // reset, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(HEADER), len) }
    }

    /// Empties it for the next run. No writer may be left.
    pub(crate) fn reset(&mut self) {
        let header = self.header();
        let before = header.committed.swap(0, Ordering::AcqRel);
        if before > KEEP_WARM {
            let (mode, len) = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, self.size - HEADER);
            // SAFETY: gives back pages of our own file; that it may be refused costs memory only.
            unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, HEADER as libc::off_t, len as libc::off_t) };
        }
    }

    pub(crate) fn into_appender(self) -> Appender {
        let len = self.lines().len();
        Appender { region: self, len }
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no borrow of it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// The one writer of a region.
pub(crate) struct Appender {
    region: Region,
    len: usize,
}

impl Appender {
    /// Appends `line` and publishes it; `false` if it does not fit, then only [`Appender::last`] does.
    #[must_use]
    pub(crate) fn append(&mut self, line: &[u8]) -> bool {
        self.write(line, RESERVE)
    }

    /// Appends the last line of a region that is full. A line that is too long even for that is left out.
    pub(crate) fn last(&mut self, line: &[u8]) {
        let _ = self.write(line, 0);
    }

    /// The entries so far, for a process that goes on from here several times.
    pub(crate) fn lines(&self) -> Vec<u8> {
        self.region.lines().to_vec()
    }

    /// Writes the entries so far once more: the memory was reset.
    pub(crate) fn write_again(&mut self, lines: &[u8]) {
        self.len = 0;
        let fits = self.write(lines, 0);
        assert!(fits, "it did before");
    }

    /// Bytes for entries, the reserve for the last one left out.
    pub(crate) fn capacity(&self) -> usize {
        self.region.size - HEADER - RESERVE
    }

    fn write(&mut self, line: &[u8], reserve: usize) -> bool {
        let free = self.region.size - HEADER - self.len;
        if line.len() + reserve > free {
            return false;
        }
        // SAFETY: the destination lies inside the mapping (checked above) and above the committed length, where nobody
        // reads; source and destination do not overlap, since nobody borrows uncommitted bytes.
        unsafe {
            let end = self.region.base.as_ptr().add(HEADER + self.len);
            std::ptr::copy_nonoverlapping(line.as_ptr(), end, line.len());
        }
        self.len += line.len();
        self.region.header().committed.store(self.len as u64, Ordering::Release);
        true
    }
}

/// An anonymous file in memory, closed on exec.
pub(crate) fn memfd(name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: `name` ends with a zero byte.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mapping_of_the_same_memory_sees_whole_lines() {
        let ours = Region::create(1 << 20).unwrap();
        let theirs = Region::map(ours.fd.try_clone().unwrap()).unwrap();
        let mut writer = theirs.into_appender();
        assert!(writer.append(b"one\n"));
        assert_eq!(ours.lines(), b"one\n");
        assert!(writer.append(b"two\n"));
        assert_eq!(ours.lines(), b"one\ntwo\n");
    }

    #[test]
    fn memory_that_is_full_takes_a_last_line_and_no_more() {
        let ours = Region::create(HEADER + RESERVE + 10).unwrap();
        let mut writer = Region::map(ours.fd.try_clone().unwrap()).unwrap().into_appender();
        assert!(writer.append(b"12345678\n"));
        assert!(!writer.append(b"22\n"));
        assert_eq!(ours.lines(), b"12345678\n");
        writer.last(b"the end\n");
        assert_eq!(ours.lines(), b"12345678\nthe end\n");
        writer.last(&[b'x'; RESERVE]);
        assert_eq!(ours.lines(), b"12345678\nthe end\n");
    }

    #[test]
    fn a_reset_forgets_the_lines_and_gives_much_memory_back() {
        let mut ours = Region::create(64 << 20).unwrap();
        let mut writer = Region::map(ours.fd.try_clone().unwrap()).unwrap().into_appender();
        let long = vec![b'x'; 16 << 20];
        assert!(writer.append(&long));
        ours.reset();
        assert!(ours.lines().is_empty());
        // SAFETY: all-zero bytes are a valid `stat`.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: `stat` is valid for writes.
        assert_eq!(unsafe { libc::fstat(ours.fd.as_raw_fd(), &mut stat) }, 0);
        assert!(stat.st_blocks * 512 < 1 << 20, "{} bytes are still taken", stat.st_blocks * 512);
    }

    #[test]
    fn memory_too_small_for_a_last_line_is_refused() {
        assert!(Region::create(HEADER + RESERVE - 1).is_err());
    }
}
