//! Ctrl-C, or SIGTERM as `timeout` and CI send it: the first asks for an early end with all that there is, the second
//! ends the program as usual.
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

extern "C" fn note(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
    for signal in SIGNALS {
        // SAFETY: signal() may be called in a handler; the default action needs no code of this program.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// From now on a first signal only makes [`asked`] true. Zygotes are in groups of their own and see nothing of it.
pub(super) fn listen() {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in SIGNALS {
        // SAFETY: the handler stores to an atomic and calls signal(), which is all that a handler may do.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Whether an early end was asked for.
pub(super) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
