//! Randomness: a stream that the world's seed determines. std's hash maps, rand, uuid and getrandom draw from it.
use crate::kernel::{call, fail};
use crate::state;
use libc::{c_int, c_long};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrandom(buf: *mut u8, len: usize, flags: u32) -> isize {
    if state::random_stream() {
        if len > 0 {
            // SAFETY: the caller passes a buffer of `len` bytes, as C's contract wants; it may be uninitialised, and
            // every byte is written before it is read.
            state::fill(unsafe { std::slice::from_raw_parts_mut(buf, len) });
        }
        return len as isize;
    }
    // SAFETY: C's contract of getrandom holds for the caller, and it is the kernel's.
    unsafe { call(libc::SYS_getrandom, [buf as c_long, len as c_long, flags as c_long, 0, 0, 0]) as isize }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getentropy(buf: *mut u8, len: usize) -> c_int {
    // the C library allows 256 bytes a call, for which the kernel never answers short
    if len > 256 {
        return fail(libc::EIO) as c_int;
    }
    // SAFETY: the caller passes a buffer of `len` bytes, as C's contract wants.
    if unsafe { getrandom(buf, len, 0) } == len as isize { 0 } else { -1 }
}
