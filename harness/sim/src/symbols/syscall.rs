//! `syscall(2)`: serves getrandom 0.2 and, for std, parking_lot and tokio, the futex.
use super::{clock, random, sleep::ns, thread};
use crate::kernel::{self, call, fail};
use crate::state::{self, Role, Shared};
use crate::world::Stuck;
use crate::{exit, threads};
use libc::{c_int, c_long, timespec};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Variadic in C; integers travel in the same registers, and the kernel ignores arguments that nobody passed.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(n: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
    match n {
        // SAFETY: the caller's arguments are those of the C function.
        libc::SYS_getrandom => unsafe { random::getrandom(a as *mut u8, b as usize, c as u32) as c_long },
        // SAFETY: the caller's arguments are those of the C function.
        libc::SYS_clock_gettime => unsafe { clock::clock_gettime(a as c_int, b as *mut timespec) as c_long },
        libc::SYS_futex => {
            // SAFETY: the caller's arguments are those of futex(2).
            unsafe { futex(a, b, c, d, e, f) }
        }
        // SAFETY: the caller vouches for its system call.
        _ => unsafe { call(n, [a, b, c, d, e, f]) },
    }
}

unsafe fn futex(a: c_long, op: c_long, value: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
    let kernel = || {
        // SAFETY: the caller's arguments are those of futex(2).
        unsafe { call(libc::SYS_futex, [a, op, value, d, e, f]) }
    };
    let Some((world, role)) = state::live() else { return kernel() };
    match op as c_int & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAKE if world.threads.any() => {
            let turn = world.threads.turn();
            let woken = kernel();
            if woken > 0 {
                turn.settle()
            }
            woken
        }
        cmd @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
            let wall = op as c_int & libc::FUTEX_CLOCK_REALTIME != 0;
            // SAFETY: null, or a valid timespec, as futex(2) wants.
            let deadline = unsafe { (d as *const timespec).as_ref() }.map(|t| match cmd {
                libc::FUTEX_WAIT => world.now_ns().saturating_add(ns(t)),
                _ => world.since_start(ns(t), wall),
            });
            // SAFETY: futex(2) wants a valid, aligned word; the caller keeps it alive for the call.
            let word = unsafe { AtomicU32::from_ptr(a as *mut u32) };
            match (role, deadline) {
                (Role::World, _) => wait_in_world(world, word, value as u32, deadline),
                (Role::Foreign, None) => kernel(),
                (Role::Foreign, Some(at)) => wait_in_thread(world, word, value as u32, op as c_int, at),
            }
        }
        _ => kernel(),
    }
}

/// A wait of the world's only thread. Whoever could wake it sleeps itself or does not exist, so the wait is decided here:
/// the word changed, the time is over, or nothing will ever happen.
fn wait_in_world(world: &'static Shared, word: &AtomicU32, value: u32, deadline: Option<u64>) -> c_long {
    loop {
        if world.threads.any() {
            world.threads.settle();
        }
        if word.load(SeqCst) != value {
            return fail(libc::EAGAIN);
        }
        match (world.threads.next_deadline(), deadline) {
            (other, Some(mine)) if other.is_none_or(|other| mine <= other) => {
                world.advance_to(mine);
                return fail(libc::ETIMEDOUT);
            }
            _ => let_threads_go_on(world),
        }
    }
}

/// The world's thread waits and can do nothing itself: time passes to the next end of a thread's sleep. If there is none,
/// the wait may be for a process-wide lock (stdout's, say) that a thread outside the world holds, as happens when tests
/// share a process; when everybody sleeps, it is for ever, and the process ends.
pub(super) fn let_threads_go_on(world: &'static Shared) {
    if let Some(at) = world.threads.next_deadline() {
        world.advance_to(at);
        world.threads.wake_due(world.now_ns());
        return;
    }
    const LOOKS: u32 = 20;
    for _ in 0..LOOKS {
        if !threads::all_others_sleep() {
            return kernel::nap_us(500);
        }
        kernel::nap_us(500);
    }
    blocked()
}

/// The wait sits below C frames, so nothing can be unwound: the trace says why, and the process ends.
fn blocked() -> ! {
    let stuck = Stuck::Blocked { host: state::host_name().to_string(), backtrace: crate::backtrace::creator() };
    exit::leave(exit::BLOCKED, "stuck", &stuck.to_string())
}

/// A timed wait of a foreign thread: waits without a time-out, and the loop wakes it when its time has come.
fn wait_in_thread(world: &'static Shared, word: &AtomicU32, value: u32, op: c_int, at_ns: u64) -> c_long {
    if word.load(SeqCst) != value {
        return fail(libc::EAGAIN);
    }
    if world.now_ns() >= at_ns {
        return fail(libc::ETIMEDOUT);
    }
    let (flags, ordinal) = (op & libc::FUTEX_PRIVATE_FLAG, thread::ordinal());
    world.threads.sleep(at_ns, ordinal, word.as_ptr() as usize, flags);
    kernel::futex_wait(word, value, flags);
    world.threads.wake_up(at_ns, ordinal);
    if world.now_ns() >= at_ns { fail(libc::ETIMEDOUT) } else { 0 }
}
