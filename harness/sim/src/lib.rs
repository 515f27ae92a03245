//! A deterministic world for tokio programs: virtual clock, simulated network, hosts that crash, one process a run.
//!
//! The code under test is real and unchanged: it uses `tokio::time`, `std::time::Instant`, `HashMap`, `uuid`, `kube`,
//! `tonic`, `hyper`. While a thread is inside a world, this crate answers the C library's calls that lead out of it
//! (clocks, randomness, epoll, sleeps, futex, thread creation), so all of these follow the world. Nothing changes for
//! other threads and outside. What exactly is controlled, and what is not, stands in the repository's DETERMINISM.md.
//!
//! # A first world
//!
//! A *host* is a simulated process: a factory that is called at its start and at each restart. It gets a [`HostCtx`]:
//! name, wire, environment, folder, trace. Hosts reach each other by name.
//!
//! ```
//! use futures::StreamExt;
//! use photofinish_sim::choices::Choices;
//! use photofinish_sim::host::HostSpec;
//! use photofinish_sim::trace::Trace;
//! use photofinish_sim::world::{World, WorldConfig, on_own_thread};
//! use std::time::{Duration, Instant};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! on_own_thread(|| {
//!     let mut builder = World::builder(WorldConfig::default(), Trace::new(), Choices::benign());
//!     builder.host("server", HostSpec::new(), |ctx| async move {
//!         let mut incoming = ctx.wire.listen(80).await?;
//!         while let Some(connection) = incoming.next().await {
//!             connection?.write_all(b"hello").await?;
//!         }
//!         Ok(())
//!     });
//!     builder.host("client", HostSpec::new(), |ctx| async move {
//!         tokio::time::sleep(Duration::from_secs(3600)).await; // takes no time
//!         let asked = Instant::now();
//!         let mut connection = ctx.wire.connect("server", 80).await?;
//!         let mut text = String::new();
//!         connection.read_to_string(&mut text).await?;
//!         ctx.trace.entry("log", "info").text(format!("{text} after {:?}", asked.elapsed())).record();
//!         Ok(())
//!     });
//!
//!     let mut world = builder.build(); // this thread is inside from here on
//!     world.start_all();
//!     let done = world.run_until(Duration::from_secs(7200), |w| !w.is_up("client").unwrap());
//!     assert_eq!(done, Ok(true));
//!     assert!(world.now() > Duration::from_secs(3600));
//!     world.trace().with(|entries| assert!(entries.iter().any(|e| e.text.starts_with("hello after"))));
//! });
//! ```
//!
//! # Clients and servers
//!
//! One [`Connector`] serves everybody: it is a tower service from URIs to streams. With the feature `kube`,
//! [`Wire::kube`](wire::Wire::kube) gives a client for an API server in the world; `tonic` takes the connector in
//! `Endpoint::connect_with_connector_lazy` and [`Incoming`] in `Server::serve_with_incoming`; hyper-util's client is built
//! with it. Build clients inside the host: many of them spawn tasks.
//!
//! # Breaking things
//!
//! Between two calls of [`World::run_for`] or [`World::run_until`], and inside `run_until`'s condition, hosts
//! [`crash`](world::World::crash), lose [power](world::World::power_off), [pause](world::World::pause) and [restart](world::World::restart); links
//! get [slow](world::World::delay), are [cut](world::World::cut), [reset](world::World::reset), swallow what they carry
//! ([`blackhole`](world::World::blackhole)), or [hold](world::World::hold) one direction. From inside a step,
//! [`Control`](host::Control) crashes a host at the very await behind a write.
//!
//! ```
//! # use photofinish_sim::{choices::Choices, host::{HostSpec, RestartPolicy}, trace::Trace, world::*};
//! # use std::time::Duration;
//! # on_own_thread(|| {
//! let mut builder = World::builder(WorldConfig::default(), Trace::new(), Choices::benign());
//! let restart = RestartPolicy::Always { after: Duration::from_secs(2) };
//! builder.host("driver", HostSpec::new().restart(restart), |_| std::future::pending());
//! builder.host("gateway", HostSpec::new(), |_| std::future::pending());
//! let mut world = builder.build();
//! world.start_all();
//! world.cut("gateway", "driver")?;
//! world.crash("driver")?;
//! world.run_for(Duration::from_secs(5)).unwrap();
//! assert!(world.is_up("driver")?, "its policy started it again");
//! assert!(world.crash("diver").is_err_and(|e| e.to_string().contains("there are driver, gateway")));
//! # Ok::<(), Refused>(()) }).unwrap();
//! ```
//!
//! # What happened, and why
//!
//! The [`trace`] is the ordered record of a run. Hosts' own `tracing` events and spans are entries of it
//! ([`tracing_layer`]); so are connections, crashes, [choices] that differ from the default. Each packet carries the
//! last entry that its sender had recorded, and what the receiver does next names it as its cause: entries form chains
//! across hosts.
//!
//! # Races
//!
//! Decisions that a real cluster could take another way are asked of [`Choices`](choices::Choices) under stable names,
//! and answered by default, by a seed or by pins; each is as [legal](legality) as the API contract it rests on.
//! [Gates](gate) hold a watch stream and release it event by event.
//!
//! # One process a run
//!
//! Statics outlive a world: tokio's `select!`, thread ids, caches. The [`zygote`] forks a process for every run, which
//! also survives aborts, overflows and hangs of the code under test. [`on_own_thread`](world::on_own_thread) is enough
//! for unit tests that do not mind.
//!
//! # Another engine
//!
//! With the feature `turmoil`, the same hosts run on turmoil in fixed ticks ([`Engine::Turmoil`](world::Engine)): slowly,
//! without crashes and broken links, but by other people's code: an independent check of what does not need them.
//!
//! # A world that cannot go on
//!
//! is an outcome ([`Stuck`](world::Stuck)), not a hang: a step that never gets idle, hosts that keep each other busy
//! without any time passing, nothing left to happen, a thread where none is allowed. A wait that blocks the only thread
//! for ever ends the process, with its stack in the trace ([`exit::BLOCKED`]).
//!
//! [`HostCtx`]: host::HostCtx
//! [`Connector`]: wire::Connector
//! [`Incoming`]: wire::Incoming
//! [`World::run_for`]: world::World::run_for
//! [`World::run_until`]: world::World::run_until
//! [`World::crash`]: world::World::crash
mod backtrace;
pub mod choices;
pub mod delay_bounded;
mod disk;
pub mod exit;
pub mod gate;
pub mod heap;
pub mod host;
mod kernel;
mod kind;
pub mod legality;
pub(crate) mod memory;
mod net;
pub mod pct;
pub mod pins;
mod policy;
pub mod source;
pub mod state;
mod swarm;
mod symbols;
mod threads;
pub mod trace;
pub mod tracing_layer;
#[cfg(feature = "turmoil")]
mod turmoil_engine;
pub mod wire;
pub mod world;
pub mod zygote;
