//! How a world is set up.
use super::{Host, Main, World};
use crate::choices::Choices;
use crate::disk::Disks;
use crate::host::{BoxError, Control, HostCtx, HostSpec};
use crate::net::Network;
use crate::trace::Trace;
#[cfg(feature = "turmoil")]
use crate::turmoil_engine::Ticks;
use crate::{state, symbols, wire};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What is fixed for a whole world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldConfig {
    /// Determines what the world answers for randomness (hash maps, uuids, `rand`), and the latencies' jitter.
    pub seed: u64,
    /// Wall clock at the start, seconds since 1970. Default: September 2026.
    pub epoch_s: u64,
    /// May code under test start threads (a database driver's worker, `spawn_blocking`)? Each hand-off costs about 0.1 ms
    /// of real time. Default: no, the world ends with the creator's name.
    pub foreign_threads: bool,
    /// One-way latency between hosts, to which up to a sixth is added by seed, link and packet number. Default: 300 us.
    pub latency: Duration,
    /// Where the hosts' folders are, and stay. Default: a temporary folder that goes with the world.
    pub disk: Option<PathBuf>,
    /// What moves the world. Default: this crate's own engine.
    pub engine: Engine,
    /// Rounds of steps at one instant before a world counts as a livelock: hosts that keep each other busy without any
    /// time passing. Default: 100 000.
    pub rounds: u32,
    /// Steps of hosts within a minute of virtual time before a world counts as busy for ever. Default: 150 000; one
    /// client that asks again as soon as it is answered makes more. A run of many busy clients may need a higher limit.
    pub steps_a_minute: u32,
}

impl Default for WorldConfig {
    fn default() -> Self {
        WorldConfig {
            seed: 0,
            epoch_s: 1_790_000_000,
            foreign_threads: false,
            latency: Duration::from_micros(300),
            disk: None,
            engine: Engine::default(),
            rounds: 100_000,
            steps_a_minute: 150_000,
        }
    }
}

/// What moves a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// From event to event, over sockets of its own: this crate's.
    #[default]
    Jump,
    /// turmoil, in fixed ticks of 1 ms: an independent check. It starts hosts and lets time pass; all else is
    /// [not on this engine](Refused::NotOnThisEngine).
    #[cfg(feature = "turmoil")]
    Turmoil,
}

/// A world cannot do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A host by this name is not part of the world.
    #[error("no host named `{name}`; there are {}", known.join(", "))]
    UnknownHost {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The world's engine cannot do it.
    #[error("{what}: not on this engine (turmoil)")]
    NotOnThisEngine {
        /// What was asked for.
        what: &'static str,
    },
}

/// A world in the making. See [`World::builder`].
pub struct Builder {
    config: WorldConfig,
    trace: Trace,
    choices: Choices,
    hosts: Vec<Host>,
    at_entry: Vec<Box<dyn Fn(u64)>>,
}

impl Builder {
    pub(super) fn new(config: WorldConfig, trace: Trace, choices: Choices) -> Self {
        Builder { config, trace, choices, hosts: Vec::new(), at_entry: Vec::new() }
    }
    /// Adds a host. `main` is its process: called at the start and at each restart, inside the host's runtime.
    ///
    /// # Panics
    /// If there is a host of this name.
    pub fn host<F, Fut>(&mut self, name: &str, spec: HostSpec, main: F) -> &mut Self
    where
        F: Fn(HostCtx) -> Fut + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        assert!(!self.hosts.iter().any(|h| *h.name == *name), "there is a host named `{name}` already");
        let main: Main = Rc::new(move |ctx| Box::pin(main(ctx)));
        self.hosts.push(Host { name: name.into(), spec, main, process: None, paused: false, restart_at: None });
        self
    }
    /// Calls `seed` with the world's seed when the thread has entered it, and when the world gets another one: for generators that ask neither the C library
    /// nor the kernel (SQLite's reads `/dev/urandom`).
    pub fn at_entry(&mut self, seed: impl Fn(u64) + 'static) -> &mut Self {
        self.at_entry.push(Box::new(seed));
        self
    }
    /// Enters the world on the calling thread. No host runs yet.
    ///
    /// # Panics
    /// If the thread is in a world already.
    pub fn build(self) -> World {
        let Builder { config, trace, choices, hosts, at_entry } = self;
        symbols::link();
        let shared = state::enter(config.seed, config.epoch_s, config.foreign_threads);
        for seeder in &at_entry {
            seeder(config.seed);
        }
        let names: Vec<Arc<str>> = hosts.iter().map(|h| h.name.clone()).collect();
        let net = Network::new(names.len(), config.seed, config.latency);
        #[cfg(feature = "turmoil")]
        let ticks = (config.engine == Engine::Turmoil).then(|| Ticks::new(&names, &config));
        let wires = wire::Shared::new(names.into(), trace.clone(), config.engine);
        let disks = Disks::new(config.disk.clone());
        World {
            config,
            shared,
            hosts,
            net,
            #[cfg(feature = "turmoil")]
            ticks,
            wires,
            trace,
            choices,
            control: Control::new(),
            disks,
            hooks: Vec::new(),
            seeders: at_entry,
            steps: 0,
            busy: Default::default(),
            over: false,
            _thread: PhantomData,
        }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|h| &h.name).collect();
        f.debug_struct("Builder").field("config", &self.config).field("hosts", &hosts).finish_non_exhaustive()
    }
}
