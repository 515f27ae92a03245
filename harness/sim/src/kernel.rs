//! System calls in assembly. `libc::syscall` and the wrappers around it are among the symbols that this crate answers
//! itself, so passing a call on to the kernel must not go through them.
use libc::{c_int, c_long};
use std::sync::atomic::AtomicU32;

/// A system call as the kernel answers it: the result, or `-errno`.
///
/// # Safety
/// The arguments must be what call `n` expects; pointers must be valid for what it reads and writes.
pub(crate) unsafe fn raw(n: c_long, a: [c_long; 6]) -> c_long {
    let r: c_long;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention on x86-64: number in rax, arguments as listed, rcx and r11 destroyed; the
    // caller vouches for the arguments.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") n => r, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention on aarch64: number in x8, arguments in x0-x5, result in x0; the caller
    // vouches for the arguments.
    unsafe {
        core::arch::asm!("svc 0", in("x8") n, inlateout("x0") a[0] => r, in("x1") a[1], in("x2") a[2],
            in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack))
    }
    r
}

/// Sets `errno`; the -1 that goes with it.
pub(crate) fn fail(errno: c_int) -> c_long {
    // SAFETY: libc's errno location is valid for the calling thread for as long as it lives.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// A system call as C code sees it: the result, or -1 and `errno`.
///
/// # Safety
/// As for [`raw`].
pub(crate) unsafe fn call(n: c_long, a: [c_long; 6]) -> c_long {
    // SAFETY: the caller vouches for the arguments.
    let r = unsafe { raw(n, a) };
    if (-4095..0).contains(&r) { fail(-r as c_int) } else { r }
}

/// Lets another thread run, really.
pub(crate) fn yield_now() {
    // SAFETY: sched_yield takes no arguments.
    unsafe { raw(libc::SYS_sched_yield, [0; 6]) };
}

/// Real nap of the calling thread, for waits on other threads that usually end at once.
pub(crate) fn nap_us(us: i64) {
    let t = libc::timespec { tv_sec: 0, tv_nsec: us * 1_000 };
    // SAFETY: `t` outlives the call; a null second argument is allowed.
    unsafe { raw(libc::SYS_nanosleep, [&raw const t as c_long, 0, 0, 0, 0, 0]) };
}

/// Thread id of the calling thread.
pub(crate) fn gettid() -> i32 {
    // SAFETY: gettid takes no arguments.
    unsafe { raw(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Sleeps for real while `word` holds `value`, until woken. `flags` is `FUTEX_PRIVATE_FLAG` or 0.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, flags: c_int) {
    let op = (libc::FUTEX_WAIT | flags) as c_long;
    // SAFETY: `word` outlives the call; a null time-out waits for ever.
    unsafe { raw(libc::SYS_futex, [word.as_ptr() as c_long, op, value as c_long, 0, 0, 0]) };
}

/// Wakes everybody who sleeps on the word at `address`.
pub(crate) fn futex_wake_all(address: usize, flags: c_int) {
    let op = (libc::FUTEX_WAKE | flags) as c_long;
    // SAFETY: FUTEX_WAKE only uses the address as a key; a private key is not even read, a shared one that is no longer
    // mapped makes the call fail with EFAULT.
    unsafe { raw(libc::SYS_futex, [address as c_long, op, i32::MAX as c_long, 0, 0, 0]) };
}
