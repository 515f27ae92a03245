//! Clocks. Monotonic: a fixed up-time plus virtual time. Wall: the world's epoch plus virtual time plus the skew of the
//! host that runs. CPU-time clocks stay the kernel's.
use crate::kernel::call;
use crate::state::{self, NS};
use libc::{c_int, c_long, c_void, clockid_t, timespec};

/// What a clock id reads in a world; `None`: not ours.
fn kind(id: clockid_t) -> Option<Kind> {
    use libc::*;
    match id {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_TAI => Some(Kind::Wall),
        CLOCK_MONOTONIC | CLOCK_MONOTONIC_COARSE | CLOCK_MONOTONIC_RAW | CLOCK_BOOTTIME => Some(Kind::Monotonic),
        _ => None,
    }
}
#[derive(Clone, Copy)]
enum Kind {
    Wall,
    Monotonic,
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn clock_gettime(id: clockid_t, tp: *mut timespec) -> c_int {
    let (Some((world, role)), Some(kind)) = (state::live(), kind(id)) else {
        // SAFETY: C's contract of clock_gettime holds for the caller, and it is the kernel's.
        return unsafe { call(libc::SYS_clock_gettime, [id as c_long, tp as c_long, 0, 0, 0, 0]) as c_int };
    };
    if role == state::Role::World {
        state::count_read(world);
    }
    let ns = match kind {
        Kind::Wall => world.wall_ns(),
        Kind::Monotonic => world.monotonic_ns(),
    };
    // SAFETY: the caller passes a valid pointer, as C's contract wants.
    unsafe { *tp = timespec { tv_sec: (ns / NS) as i64, tv_nsec: (ns % NS) as i64 } };
    0
}

/// SQLite's clock.
#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(tv: *mut libc::timeval, _: *mut c_void) -> c_int {
    let t = wall();
    // SAFETY: the caller passes a valid pointer, as C's contract wants.
    unsafe { *tv = libc::timeval { tv_sec: t.tv_sec, tv_usec: t.tv_nsec / 1000 } };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn time(out: *mut libc::time_t) -> libc::time_t {
    let t = wall();
    // SAFETY: null, or a valid pointer, as C's contract wants.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = t.tv_sec
    }
    t.tv_sec
}

fn wall() -> timespec {
    let mut t = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut t) };
    t
}
