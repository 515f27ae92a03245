//! epoll: where an idle runtime tells how long it would sleep, and where a real socket would slip into a world.
use super::waker;
use crate::kernel::{call, fail};
use crate::state::{self, Role, Trouble};
use libc::{c_int, c_long, epoll_event};

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(fd: c_int, events: *mut epoll_event, n: c_int, timeout_ms: c_int) -> c_int {
    if let Some((world, Role::World)) = state::here() {
        state::idle(world, timeout_ms);
        return 0;
    }
    let a = [fd as c_long, events as c_long, n as c_long, timeout_ms as c_long, 0, 8];
    // SAFETY: C's contract of epoll_wait holds for the caller; epoll_pwait without a signal mask is the same call (and
    // the only one that aarch64 has).
    unsafe { call(libc::SYS_epoll_pwait, a) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // Hosts only: a runtime that is being built registers its own waker (and, with `signal`, a socket pair).
    if op == libc::EPOLL_CTL_ADD
        && let Some((_, Role::World)) = state::here()
        && let Some(host) = state::current_host()
        && let Some(family) = socket_family(fd)
    {
        let what = format!(
            "{host} registers a real {family} socket (descriptor {fd}); nothing would ever arrive on it. \
             Connect and listen through the world's wire"
        );
        state::report(Trouble::RealSocket { what });
        return fail(libc::EPERM) as c_int;
    }
    if op == libc::EPOLL_CTL_ADD && matches!(state::here(), Some((_, Role::World))) {
        waker::polled(fd);
    }
    // SAFETY: C's contract of epoll_ctl holds for the caller, and it is the kernel's.
    unsafe { call(libc::SYS_epoll_ctl, [epfd as c_long, op as c_long, fd as c_long, event as c_long, 0, 0]) as c_int }
}

/// The address family of a socket; `None` if `fd` is none.
fn socket_family(fd: c_int) -> Option<&'static str> {
    let (mut domain, mut len) = (0 as c_int, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: both pointers are valid, and `len` is the size of what the first points to.
    let r = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut len) };
    let name = match domain {
        libc::AF_INET => "IPv4",
        libc::AF_INET6 => "IPv6",
        libc::AF_UNIX => "Unix",
        _ => "other",
    };
    (r == 0).then_some(name)
}
