//! libc symbols, answered from the world inside one, passed to the kernel outside. Linux, x86-64 and aarch64.
//!
//! They work from an rlib: rustc keeps `no_mangle` symbols of linked crates, and they come before libc's (tried with
//! rust-lld, lld off, bfd; dev, release, thin and fat LTO). `crt-static` is the exception: getrandom 0.3 and 0.4 look
//! the symbol up with dlsym there and fall back to /dev/urandom.
mod clock;
mod epoll;
mod hidden;
mod random;
mod sleep;
mod syscall;
mod thread;
mod waker;

/// Keeps the symbols' object code from being dropped: a program that only links this crate still gets them.
pub(crate) fn link() {
    std::hint::black_box(clock::clock_gettime as *const ());
}
