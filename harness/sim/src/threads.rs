//! Foreign threads: threads that code under test starts (a database driver's worker, `spawn_blocking`), in a world that
//! allows them.
//!
//! They run one at a time, each to its next sleep: whoever starts or wakes one waits until it sleeps again. Waiting only
//! before the clock jumps is not enough, since two of them would meet the queues of the code under test in any order.
//! Their own sleeps and timed waits end when the world's clock gets there.
use crate::{kernel, state};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The foreign threads of one world.
#[derive(Default)]
pub(crate) struct Threads {
    started: AtomicU32,
    table: Mutex<Vec<Thread>>,
    /// Foreign threads that start or wake others and wait for them, outermost first. Each waits for those behind it.
    turns: Mutex<Vec<i32>>,
    /// Timed waits by virtual deadline and thread ordinal: address of the futex word, and its private flag.
    sleepers: Mutex<BTreeMap<(u64, u32), (usize, libc::c_int)>>,
}

struct Thread {
    tid: i32,
    /// `/proc/self/task/<tid>/stat`, kept open: half the cost of a look.
    stat: File,
}

/// Locks without the futex: contention must not lead back into the symbols that lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => kernel::yield_now(),
        }
    }
}

impl Threads {
    /// Number of the next thread, from 1; the creator asks, so the order is the program's.
    pub(crate) fn next_ordinal(&self) -> u32 {
        self.started.fetch_add(1, Relaxed) + 1
    }
    /// Did this world ever start a thread?
    pub(crate) fn any(&self) -> bool {
        self.started.load(Relaxed) > 0
    }
    /// Called by the new thread itself.
    pub(crate) fn register(&self) {
        let tid = kernel::gettid();
        let stat = File::open(format!("/proc/self/task/{tid}/stat")).expect("procfs is mounted");
        lock(&self.table).push(Thread { tid, stat });
    }
    /// Creator: waits until the thread it started has registered itself. `before` is [`Self::registered`] from earlier.
    pub(crate) fn await_registration(&self, before: usize) {
        while self.registered() <= before {
            kernel::yield_now();
        }
    }
    pub(crate) fn registered(&self) -> usize {
        lock(&self.table).len()
    }

    /// Begins a call that may set other threads going. The call first, then [`Turn::settle`]: were the turn taken after
    /// the call, a thread that it set going could have taken its own before.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let me = kernel::gettid();
        let mut turns = lock(&self.turns);
        // The world's thread waits for all; it is not in the table.
        let foreign = state::here().is_some_and(|(_, role)| role == state::Role::Foreign);
        let outer = if foreign { turns.clone() } else { Vec::new() };
        if foreign {
            turns.push(me);
        }
        Turn { threads: self, me, outer }
    }
    /// World: waits until every foreign thread sleeps.
    pub(crate) fn settle(&self) {
        self.turn().settle()
    }

    /// Registers a wait that ends at `deadline_ns`; the sleeper itself waits on `address`, without a time-out.
    pub(crate) fn sleep(&self, deadline_ns: u64, ordinal: u32, address: usize, flags: libc::c_int) {
        lock(&self.sleepers).insert((deadline_ns, ordinal), (address, flags));
    }
    pub(crate) fn wake_up(&self, deadline_ns: u64, ordinal: u32) {
        lock(&self.sleepers).remove(&(deadline_ns, ordinal));
    }
    /// When the next timed wait ends.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if !self.any() {
            return None;
        }
        lock(&self.sleepers).keys().next().map(|k| k.0)
    }
    /// Wakes the threads whose wait is over, one after the other. True if there was one.
    pub(crate) fn wake_due(&self, now_ns: u64) -> bool {
        let mut woke = false;
        loop {
            let due = {
                let mut sleepers = lock(&self.sleepers);
                match sleepers.first_entry() {
                    Some(e) if e.key().0 <= now_ns => e.remove(),
                    _ => return woke,
                }
            };
            kernel::futex_wake_all(due.0, due.1);
            self.settle();
            woke = true;
        }
    }
    /// The world is over: wakes all sleepers; their further waits are real.
    pub(crate) fn let_go(&self) {
        for (address, flags) in std::mem::take(&mut *lock(&self.sleepers)).into_values() {
            kernel::futex_wake_all(address, flags);
        }
    }
}

/// Somebody's turn to set other threads going.
pub(crate) struct Turn<'a> {
    threads: &'a Threads,
    me: i32,
    /// Those that wait for us: they run, but only to look whether we still do.
    outer: Vec<i32>,
}
impl Turn<'_> {
    /// Waits until all others sleep, except those that wait for us.
    pub(crate) fn settle(self) {
        let busy = |t: &Thread| t.tid != self.me && !self.outer.contains(&t.tid) && runs(&t.stat);
        while lock(&self.threads.table).iter().any(busy) {
            kernel::yield_now();
        }
    }
}
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.threads.turns).retain(|tid| *tid != self.me);
    }
}

/// Does the thread behind this `stat` file run (or wait for a disk)? Of a thread that is gone nothing can be read.
fn runs(stat: &File) -> bool {
    let mut buf = [0u8; 64]; // tid, name of at most 15 bytes in brackets, state
    // SAFETY: the buffer is valid for its length; the descriptor is open as long as `stat`.
    let n = unsafe {
        kernel::raw(libc::SYS_pread64, [stat.as_raw_fd() as _, buf.as_mut_ptr() as _, buf.len() as _, 0, 0, 0])
    };
    state_letter(&buf[..n.max(0) as usize]).is_some_and(|c| matches!(c, b'R' | b'D'))
}

/// The state in a line of `/proc/<pid>/stat`: the letter behind the last `) `, as the name may hold brackets.
fn state_letter(line: &[u8]) -> Option<u8> {
    let end = line.windows(2).rposition(|w| w == b") ")?;
    line.get(end + 2).copied()
}

/// Do all other threads of this process sleep, those of no world included? Then nobody will wake the caller.
pub(crate) fn all_others_sleep() -> bool {
    let me = kernel::gettid().to_string();
    state::outside(|| {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
        tasks.flatten().filter(|t| t.file_name().to_str() != Some(&me)).all(|t| {
            let line = std::fs::read(t.path().join("stat")).unwrap_or_default();
            !state_letter(&line).is_some_and(|c| matches!(c, b'R' | b'D'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::state_letter;

    #[test]
    fn the_state_stands_behind_the_last_bracket_of_the_name() {
        for (line, state) in [
            ("12 (world) S 1 2", Some(b'S')),
            ("12 (a) R b) R 1", Some(b'R')),
            ("12 (tokio-runtime-w) D", Some(b'D')),
            ("", None),
        ] {
            assert_eq!(state_letter(line.as_bytes()), state, "{line}");
        }
    }
}
