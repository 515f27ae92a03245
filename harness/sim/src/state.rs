//! What the calling thread's world answers. The libc symbols (`symbols`) and the loop (`world`) meet here.
//!
//! A thread is outside (nothing changes for it), in a world (the one thread that runs all hosts), or foreign: started by
//! code under test in a world that allows it, and bound to that world's clock. Everything hangs on one thread-local
//! pointer without a destructor, so a symbol may be called at any time, in a thread's teardown too.
use crate::threads::Threads;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

/// Monotonic clock at virtual zero, seconds: an up-time that no real machine shares, so that a leak of the real clock is
/// seen at once.
pub(crate) const ORIGIN_S: u64 = 1_000_000;
pub(crate) const NS: u64 = 1_000_000_000;
/// Clock reads in one step before each further read costs 1 us, so that `while now() < deadline {}` ends.
const FREE_READS: u64 = 10_000;

/// One world's clock and facts, read by the symbols in every thread of that world.
///
/// Never freed: a detached foreign thread may outlive its world and still ask for the time.
pub(crate) struct Shared {
    now_ns: AtomicU64,
    skew_ns: AtomicI64,
    epoch_ns: u64,
    seed: AtomicU64,
    /// Foreign threads may be started.
    pub(crate) foreign: bool,
    pub(crate) threads: Threads,
    /// The world is gone: what is left of its threads gets the real thing.
    pub(crate) over: AtomicBool,
}

impl Shared {
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }
    /// The clock never goes back.
    pub(crate) fn advance_to(&self, at_ns: u64) {
        self.now_ns.fetch_max(at_ns, Relaxed);
    }
    pub(crate) fn wall_ns(&self) -> u64 {
        (self.epoch_ns + self.now_ns()).saturating_add_signed(self.skew_ns())
    }
    fn skew_ns(&self) -> i64 {
        #[cfg(feature = "turmoil")]
        if let Some((_, skew_ns)) = by_runtime::current() {
            return skew_ns;
        }
        self.skew_ns.load(Relaxed)
    }
    pub(crate) fn monotonic_ns(&self) -> u64 {
        ORIGIN_S * NS + self.now_ns()
    }
    /// Virtual time of an absolute instant on the wall clock or the monotonic one.
    pub(crate) fn since_start(&self, at_ns: u64, wall: bool) -> u64 {
        let skewed = at_ns.saturating_add_signed(-self.skew_ns());
        if wall { skewed.saturating_sub(self.epoch_ns) } else { at_ns.saturating_sub(ORIGIN_S * NS) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    World,
    Foreign,
}

thread_local! {
    static HERE: Cell<Option<(&'static Shared, Role)>> = const { Cell::new(None) };
    /// State of this thread's random stream; `None`: the kernel's randomness.
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
    static READS: Cell<u64> = const { Cell::new(0) };
    static HOST: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    static TROUBLE: RefCell<Option<(Arc<str>, Trouble)>> = const { RefCell::new(None) };
}

/// Is the calling thread part of a world (its own thread, or one that its hosts started)?
pub fn in_world() -> bool {
    here().is_some()
}

/// Virtual time since the world began; zero outside a world.
pub fn now() -> Duration {
    Duration::from_nanos(here().map_or(0, |(s, _)| s.now_ns()))
}

/// The host whose code runs now; `None` between steps, outside a world and in foreign threads.
pub fn current_host() -> Option<Arc<str>> {
    let host = HOST.try_with(|h| h.borrow().clone()).unwrap_or(None);
    #[cfg(feature = "turmoil")]
    let host = host.or_else(|| by_runtime::current().map(|(name, _)| name));
    host
}

/// Gives the calling thread a random stream of its own, the same in every process, before any world exists.
///
/// std draws the keys of its hash maps once a thread, at the first map. A runner makes maps (request, choices) before it
/// builds the world; without this call their keys would come from the kernel, and the order of every later `HashMap` of
/// that thread would differ from run to run. [`World`](crate::world::World) then winds the keys on by its seed.
pub fn prepare_thread() {
    RANDOM.set(Some(0x7068_6F74_6F66_696E));
}

pub(crate) fn here() -> Option<(&'static Shared, Role)> {
    HERE.get()
}
/// Outside a world, and for threads whose world is over, the kernel answers.
pub(crate) fn live() -> Option<(&'static Shared, Role)> {
    HERE.get().filter(|(s, role)| *role == Role::World || !s.over.load(Relaxed))
}
pub(crate) fn host_name() -> Arc<str> {
    current_host().unwrap_or_else(|| Arc::from("world"))
}

/// Puts the calling thread into a new world.
pub(crate) fn enter(seed: u64, epoch_s: u64, foreign: bool) -> &'static Shared {
    assert!(here().is_none(), "this thread already is in a world; drop that one first");
    let shared: &'static Shared = Box::leak(Box::new(Shared {
        now_ns: AtomicU64::new(0),
        skew_ns: AtomicI64::new(0),
        epoch_ns: epoch_s.saturating_mul(NS),
        seed: AtomicU64::new(seed),
        foreign,
        threads: Threads::default(),
        over: AtomicBool::new(false),
    }));
    READS.set(0);
    HERE.set(Some((shared, Role::World)));
    reseed(shared, seed);
    shared
}

/// Makes the world's randomness a function of `seed` from now on.
pub(crate) fn reseed(shared: &Shared, seed: u64) {
    static MAPS: AtomicU64 = AtomicU64::new(0);
    shared.seed.store(seed, Relaxed);
    RANDOM.set(Some(seed));
    // Neither follows `getrandom`: fastrand hashes the thread id, ahash mixes in addresses. ahash takes its source once a
    // process; that a second world in one process keeps the first one's is among the limits of sharing a process.
    fastrand::seed(seed);
    MAPS.store(seed, Relaxed);
    let _ = ahash::random_state::set_random_source(Counter(&MAPS));
    // The keys of std's maps may be drawn already (`prepare_thread`). Each `RandomState` adds one to the first of them:
    // winding it on makes their order a function of the seed again.
    for _ in 0..mix(seed) % 1024 {
        std::hint::black_box(std::hash::RandomState::new());
    }
}

/// Takes the calling thread out of its world, for good.
pub(crate) fn leave() {
    if let Some((shared, Role::World)) = HERE.take() {
        shared.over.store(true, Relaxed);
        shared.threads.let_go();
    }
    RANDOM.set(None);
    #[cfg(feature = "turmoil")]
    by_runtime::clear();
    clear_host();
    TROUBLE.set(None);
}

/// Binds a thread that the code under test started to its world.
pub(crate) fn adopt(shared: &'static Shared, ordinal: u64) {
    HERE.set(Some((shared, Role::Foreign)));
    // A stream of its own: the order in which threads draw must not matter.
    // (fastrand's must not be seeded here, before std knows its own thread; it hashes the world's clock and the thread's
    // number, which is the same in each run.)
    RANDOM.set(Some(mix(shared.seed.load(Relaxed) ^ mix(ordinal))));
}

/// Runs `f` with the kernel's own answers: for what the engine itself does with files and locks inside a world.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> R {
    struct Back(Option<(&'static Shared, Role)>, Option<u64>);
    impl Drop for Back {
        fn drop(&mut self) {
            HERE.set(self.0);
            RANDOM.set(self.1);
        }
    }
    let _back = Back(HERE.take(), RANDOM.take());
    f()
}

pub(crate) fn set_host(name: &Arc<str>, skew_ns: i64) {
    HOST.with(|h| *h.borrow_mut() = Some(name.clone()));
    if let Some((s, _)) = here() {
        s.skew_ns.store(skew_ns, Relaxed)
    }
}
pub(crate) fn clear_host() {
    let _ = HOST.try_with(|h| h.borrow_mut().take());
    if let Some((s, _)) = here() {
        s.skew_ns.store(0, Relaxed)
    }
}

pub(crate) fn count_read(shared: &Shared) {
    READS.set(READS.get() + 1);
    if READS.get() > FREE_READS {
        shared.advance_to(shared.now_ns() + 1_000);
    }
}
pub(crate) fn forget_reads() {
    READS.set(0);
}

/// Something that the symbols noticed inside a step and the loop must act on.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A thread was about to start in a world without foreign threads.
    ForeignThread { backtrace: String },
    /// A real socket was about to be registered with the runtime.
    RealSocket { what: String },
}
/// Keeps the first trouble, with the host that runs: later ones are usually its consequence.
pub(crate) fn report(trouble: Trouble) {
    let host = host_name();
    TROUBLE.with(|t| {
        t.borrow_mut().get_or_insert((host, trouble));
    });
}
pub(crate) fn take_trouble() -> Option<(Arc<str>, Trouble)> {
    TROUBLE.take()
}

pub(crate) fn random_stream() -> bool {
    RANDOM.get().is_some()
}
/// Fills `buf` from the thread's stream (SplitMix64, 8 bytes a draw).
pub(crate) fn fill(buf: &mut [u8]) {
    let mut x = RANDOM.get().unwrap_or_default();
    for chunk in buf.chunks_mut(8) {
        x = x.wrapping_add(GOLDEN);
        chunk.copy_from_slice(&mix(x).to_le_bytes()[..chunk.len()]);
    }
    RANDOM.set(Some(x));
}

pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// SplitMix64's output function: a bijection that spreads every input bit.
pub(crate) fn mix(x: u64) -> u64 {
    let z = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

struct Counter(&'static AtomicU64);
impl ahash::random_state::RandomSource for Counter {
    fn gen_hasher_seed(&self) -> usize {
        mix(self.0.fetch_add(GOLDEN, Relaxed)) as usize
    }
}

pub(crate) use step::{Idle, dying, idle, interrupt, interrupted, run};

#[cfg(feature = "turmoil")]
pub(crate) use by_runtime::set as set_host_of_runtime;

/// On turmoil, which does not tell whose turn it is: hosts by their tokio runtime.
#[cfg(feature = "turmoil")]
mod by_runtime {
    use std::cell::RefCell;
    use std::sync::Arc;
    use tokio::runtime::{Handle, Id};

    thread_local!(static HOSTS: RefCell<Vec<(Id, Arc<str>, i64)>> = const { RefCell::new(Vec::new()) });

    pub(crate) fn set(runtime: Id, name: &Arc<str>, skew_ns: i64) {
        HOSTS.with_borrow_mut(|hosts| {
            hosts.retain(|(_, n, _)| n != name);
            hosts.push((runtime, name.clone(), skew_ns));
        });
    }
    pub(super) fn clear() {
        HOSTS.take();
    }
    /// Name and skew of the host that runs; `None` on the other engine.
    pub(super) fn current() -> Option<(Arc<str>, i64)> {
        HOSTS
            .try_with(|hosts| {
                let hosts = hosts.borrow();
                if hosts.is_empty() {
                    return None;
                }
                let id = Handle::try_current().ok()?.id();
                hosts.iter().find(|(i, ..)| *i == id).map(|(_, name, skew_ns)| (name.clone(), *skew_ns))
            })
            .unwrap_or(None)
    }
}

mod step {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::runtime::Runtime;

    /// Polls of the I/O driver in one step before the step counts as a livelock (`loop { yield_now().await }`).
    const YIELDS: u64 = 1_000_000;

    thread_local! {
        static IDLE: Cell<Option<Idle>> = const { Cell::new(None) };
        static STOP: Cell<bool> = const { Cell::new(false) };
        static YIELDED: Cell<u64> = const { Cell::new(0) };
        static ROOT: RefCell<Option<Waker>> = const { RefCell::new(None) };
    }

    /// How a step ended.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub(crate) enum Idle {
        /// Nothing left to do at this instant. The runtime, asked at `at_ns`, would sleep `ms` (-1: until woken).
        Sleep { ms: i32, at_ns: u64 },
        /// The step never got idle.
        Livelock,
        /// Ended early: a crash was asked for, or trouble reported.
        Interrupted,
    }

    /// One step: runs the runtime until it is idle.
    pub(crate) fn run(runtime: &Runtime) -> Idle {
        IDLE.set(None);
        STOP.set(false);
        YIELDED.set(0);
        forget_reads();
        let end = runtime.block_on(Quiesce);
        ROOT.set(None);
        end
    }

    /// Called by `epoll_wait`. 0 is tokio polling its driver between tasks, anything else is idleness.
    pub(crate) fn idle(shared: &Shared, timeout_ms: i32) {
        if timeout_ms == 0 {
            YIELDED.set(YIELDED.get() + 1);
            if YIELDED.get() < YIELDS {
                return;
            }
        }
        let livelock = timeout_ms == 0;
        IDLE.set(Some(if livelock { Idle::Livelock } else { Idle::Sleep { ms: timeout_ms, at_ns: shared.now_ns() } }));
        wake_root();
    }

    /// Ends the running step as soon as the task that runs now yields.
    pub(crate) fn interrupt() {
        STOP.set(true);
        wake_root();
    }
    /// Is the running step to end? Then nothing of the host may reach the wire any more.
    pub(crate) fn interrupted() -> bool {
        STOP.get()
    }

    /// Runs the destructors of a host that is gone: nothing of it may reach the wire any more.
    pub(crate) fn dying(destructors: impl FnOnce()) {
        STOP.set(true);
        destructors();
        STOP.set(false);
        // What dead code tried is of no interest.
        take_trouble();
    }

    fn wake_root() {
        ROOT.with_borrow(|w| w.iter().for_each(Waker::wake_by_ref));
    }

    /// Root future of a step.
    struct Quiesce;
    impl Future for Quiesce {
        type Output = Idle;
        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Idle> {
            if STOP.get() {
                return Poll::Ready(Idle::Interrupted);
            }
            if let Some(end) = IDLE.take() {
                return Poll::Ready(end);
            }
            ROOT.set(Some(cx.waker().clone()));
            Poll::Pending
        }
    }
}
