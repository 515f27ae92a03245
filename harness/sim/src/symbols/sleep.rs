//! Blocking sleeps. On the world's thread they stop the whole world for that long, as they would stop the process; on a
//! foreign thread they last until the world's clock gets there.
use crate::kernel::{call, futex_wait, raw};
use crate::state::{self, NS, Role, Shared};
use crate::symbols::thread;
use libc::{c_int, c_long, timespec};
use std::sync::atomic::AtomicU32;

pub(super) fn ns(t: &timespec) -> u64 {
    (t.tv_sec.max(0) as u64).saturating_mul(NS).saturating_add(t.tv_nsec.max(0) as u64)
}

fn sleep_until(world: &'static Shared, role: Role, at_ns: u64) {
    if role == Role::World {
        world.advance_to(at_ns);
        // Threads whose own waits end meanwhile run now, in order.
        if world.threads.any() {
            world.threads.wake_due(world.now_ns());
        }
        return;
    }
    let (word, ordinal) = (AtomicU32::new(0), thread::ordinal());
    while world.now_ns() < at_ns && state::live().is_some() {
        world.threads.sleep(at_ns, ordinal, word.as_ptr() as usize, libc::FUTEX_PRIVATE_FLAG);
        futex_wait(&word, 0, libc::FUTEX_PRIVATE_FLAG);
        world.threads.wake_up(at_ns, ordinal);
    }
}
fn sleep_for(world: &'static Shared, role: Role, ns: u64) {
    sleep_until(world, role, world.now_ns().saturating_add(ns))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(req: *const timespec, rem: *mut timespec) -> c_int {
    if let Some((world, role)) = state::live() {
        // SAFETY: the caller passes a valid pointer, as C's contract wants.
        sleep_for(world, role, ns(unsafe { &*req }));
        return 0;
    }
    // SAFETY: C's contract of nanosleep holds for the caller, and it is the kernel's.
    unsafe { call(libc::SYS_nanosleep, [req as c_long, rem as c_long, 0, 0, 0, 0]) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(id: c_int, flags: c_int, req: *const timespec, rem: *mut timespec) -> c_int {
    if let Some((world, role)) = state::live() {
        // SAFETY: the caller passes a valid pointer, as C's contract wants.
        let t = ns(unsafe { &*req });
        if flags & libc::TIMER_ABSTIME == 0 {
            sleep_for(world, role, t)
        } else {
            sleep_until(world, role, world.since_start(t, id == libc::CLOCK_REALTIME))
        }
        return 0;
    }
    let a = [id as c_long, flags as c_long, req as c_long, rem as c_long, 0, 0];
    // SAFETY: C's contract of clock_nanosleep holds for the caller, and it is the kernel's.
    unsafe { -raw(libc::SYS_clock_nanosleep, a) as c_int }
}

/// SQLite's busy handler sleeps with it. Inside libc it would not lead to the symbols above.
#[unsafe(no_mangle)]
unsafe extern "C" fn usleep(us: libc::useconds_t) -> c_int {
    let t = timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000) as i64 * 1_000 };
    // SAFETY: `t` is a valid timespec; a null second argument is allowed.
    unsafe { nanosleep(&t, std::ptr::null_mut()) }
}

/// Seconds left when a signal ended the sleep, else 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn sleep(seconds: libc::c_uint) -> libc::c_uint {
    let t = timespec { tv_sec: seconds as i64, tv_nsec: 0 };
    let mut left = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both are valid timespecs.
    if unsafe { nanosleep(&t, &mut left) } == 0 { 0 } else { left.tv_sec as libc::c_uint }
}
