//! Processor time: what other work on the machine leaves as it is.

use std::time::Duration;

/// Processor time of all processes that this one has waited for: its zygotes, and the runs that they forked. See
/// getrusage(2), `RUSAGE_CHILDREN`.
pub fn processor_time() -> Duration {
    // SAFETY: an all-zero rusage is a valid value, and the call only fills it in.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    used(&usage)
}

/// In user code and in the kernel.
pub(super) fn used(usage: &libc::rusage) -> Duration {
    let time = |t: libc::timeval| Duration::new(t.tv_sec.max(0) as u64, t.tv_usec.max(0) as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
