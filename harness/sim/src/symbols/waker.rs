//! A runtime's waker: an eventfd in its epoll. In a world nobody sleeps in epoll, so what is written there wakes nobody;
//! and it is written at every step of a host, each time a call to the kernel. These writes end here.
use crate::kernel::call;
use libc::{c_int, c_long, c_void, size_t, ssize_t};
use std::sync::atomic::{AtomicU64, Ordering};

/// Wakers of runtimes that live in a world, by descriptor; higher descriptors are written as ever.
static WAKERS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((WAKERS.get(fd / 64)?, 1 << (fd % 64)))
}

/// A runtime in a world polls this descriptor from now on.
pub(super) fn polled(fd: c_int) {
    if let Some((wakers, bit)) = bit(fd)
        && is_eventfd(fd)
    {
        wakers.fetch_or(bit, Ordering::Relaxed);
    }
}

fn is_waker(fd: c_int) -> bool {
    bit(fd).is_some_and(|(wakers, bit)| wakers.load(Ordering::Relaxed) & bit != 0)
}

fn is_eventfd(fd: c_int) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventfd]")
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, n: size_t) -> ssize_t {
    if n == size_of::<u64>() && is_waker(fd) {
        return n as ssize_t;
    }
    // SAFETY: C's contract of write holds for the caller, and it is the kernel's.
    unsafe { call(libc::SYS_write, [fd as c_long, bytes as c_long, n as c_long, 0, 0, 0]) as ssize_t }
}

// The number may be a file's next.
#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if let Some((wakers, bit)) = bit(fd) {
        wakers.fetch_and(!bit, Ordering::Relaxed);
    }
    // SAFETY: C's contract of close holds for the caller, and it is the kernel's.
    unsafe { call(libc::SYS_close, [fd as c_long, 0, 0, 0, 0, 0]) as c_int }
}
