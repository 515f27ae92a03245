//! Worlds: hosts, the clock, the wire, and the loop that moves them from event to event.
mod busy;
mod config;
mod control;
pub(crate) mod run;
#[cfg(feature = "turmoil")]
mod ticks;

pub use config::{Builder, Engine, Refused, WorldConfig};
pub use run::Stuck;

use crate::disk::Disks;
use crate::host::{BoxError, Control, HostCtx, HostSpec};
use crate::net::Network;
use crate::state::{self, Shared};
use crate::trace::Trace;
#[cfg(feature = "turmoil")]
use crate::turmoil_engine::Ticks;
use crate::{choices::Choices, wire};
use futures::future::BoxFuture;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Runtime, RuntimeMetrics};
use tokio::task::JoinHandle;

pub(crate) type Main = Rc<dyn Fn(HostCtx) -> BoxFuture<'static, Result<(), BoxError>>>;

/// A simulation: its hosts, its clock, its wire. The calling thread is inside from [`Builder::build`] until it is
/// dropped.
pub struct World {
    config: WorldConfig,
    shared: &'static Shared,
    hosts: Vec<Host>,
    net: Network,
    /// The other engine, if it moves this world: `net` and the hosts' processes are not used then.
    #[cfg(feature = "turmoil")]
    ticks: Option<Ticks>,
    wires: Arc<wire::Shared>,
    trace: Trace,
    choices: Choices,
    control: Control,
    disks: Disks,
    hooks: Vec<Box<dyn FnMut()>>,
    seeders: Vec<Box<dyn Fn(u64)>>,
    steps: u64,
    busy: busy::Busy,
    /// It is being dropped.
    over: bool,
    /// The world of a thread: it must be driven and dropped where it was built.
    _thread: PhantomData<*const ()>,
}

struct Host {
    name: Arc<str>,
    spec: HostSpec,
    main: Main,
    process: Option<Process>,
    paused: bool,
    /// When its restart policy starts it again.
    restart_at: Option<u64>,
}

/// A running host.
struct Process {
    runtime: Runtime,
    metrics: RuntimeMetrics,
    main: JoinHandle<Result<(), BoxError>>,
    /// When the runtime was built: its timers count whole milliseconds from here.
    born_ns: u64,
    /// A lower bound of its next timer.
    due_ns: Option<u64>,
}

/// What a world did so far, for benches and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Steps of hosts.
    pub steps: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Connections opened.
    pub connections: u64,
}

impl World {
    /// Begins a world. Hosts are added to the builder.
    pub fn builder(config: WorldConfig, trace: Trace, choices: Choices) -> Builder {
        Builder::new(config, trace, choices)
    }
    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now_ns())
    }
    /// Names of the hosts, in the order in which they were added.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|h| &*h.name)
    }
    /// The world's trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }
    /// The world's choices.
    pub fn choices(&self) -> &Choices {
        &self.choices
    }
    /// Handle by which hooks and hosts may crash hosts.
    pub fn control(&self) -> Control {
        self.control.clone()
    }
    /// What happened so far, in numbers.
    pub fn counts(&self) -> Counts {
        Counts { steps: self.steps, packets: self.net.packets, connections: self.wires.connections() }
    }
    /// Calls `hook` after each step of a host, outside any host: for oracles that read what the system exposes.
    pub fn on_step(&mut self, hook: impl FnMut() + 'static) {
        self.hooks.push(Box::new(hook));
    }
    /// Makes the world's randomness a function of `seed` from now on: what it answers to whoever asks for some, and the
    /// jitter of its links. Generators that have drawn their seed already go on as they are.
    pub fn reseed(&mut self, seed: u64) {
        state::reseed(self.shared, seed);
        self.net.reseed(seed);
        self.seeders.iter().for_each(|seeder| seeder(seed));
    }
    /// Whether a process that is forked now has a world of its own in it: nothing of it is in files or on other threads.
    pub fn is_in_memory(&self) -> bool {
        self.memory_check()()
    }
    /// [`World::is_in_memory`] for whoever has to know while the world runs.
    pub fn memory_check(&self) -> impl Fn() -> bool + Send + use<> {
        let forks = matches!(self.config.engine, Engine::Jump) && !self.shared.foreign;
        let used = self.disks.used();
        move || forks && !used()
    }
    /// Records that the world's time is over: the trace's last entry.
    pub fn finish(&mut self) {
        let text = format!("ends after {:?}", self.now());
        self.trace.entry("end", "time").host("world").text(text).record();
    }

    fn index(&self, name: &str) -> Result<usize, Refused> {
        let found = self.hosts.iter().position(|h| *h.name == *name);
        found
            .ok_or_else(|| Refused::UnknownHost { name: name.into(), known: self.hosts().map(str::to_owned).collect() })
    }
}

impl World {
    /// Leaves the world without ending its hosts: for a process that ends now anyway, and need not pay for destructors.
    /// The hosts' folders are removed; sockets, tasks and memory are left to the kernel.
    pub fn abandon(mut self) {
        drop(std::mem::replace(&mut self.disks, Disks::new(None)));
        state::leave();
        std::mem::forget(self);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.over = true;
        // Before the network goes: dropping a socket needs it. Nothing more is recorded: the run is over.
        for i in 0..self.hosts.len() {
            self.hosts[i].restart_at = None;
            self.end_process(i);
        }
        #[cfg(feature = "turmoil")]
        drop(self.ticks.take());
        state::leave();
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now()).field("hosts", &self.hosts().collect::<Vec<_>>()).finish()
    }
}

/// Runs `f` in a thread of its own, with a fixed stack size and a random stream of its own, as a world wants it: hash
/// maps of std follow the world's seed then. A panic in `f` goes on in the caller.
///
/// For worlds in tests and small programs. Statics of the process are shared; where they matter (tokio's `select!` draws
/// from one) use the zygote, which gives each run a process.
pub fn on_own_thread<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    const STACK: usize = 8 << 20;
    std::thread::scope(|scope| {
        let run = || {
            state::prepare_thread();
            f()
        };
        let thread = std::thread::Builder::new().name("world".into()).stack_size(STACK).spawn_scoped(scope, run);
        match thread.expect("a thread can be started").join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
