//! Ctrl-C: the first asks for an early end with all that there is, the second ends the program as usual.
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
    // SAFETY: signal() may be called in a handler; the default action needs no code of this program.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// From now on a first Ctrl-C only makes [`asked`] true. Zygotes are in groups of their own and see nothing of it.
pub(super) fn listen() {
    let handler: extern "C" fn(libc::c_int) = note;
    // SAFETY: the handler stores to an atomic and calls signal(), which is all that a handler may do.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
}

/// Whether an early end was asked for.
pub(super) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
