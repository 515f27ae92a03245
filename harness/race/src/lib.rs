//! Photofinish races a gateway, a driver or a controller of Kubernetes against its neighbours, on a simulated clock,
//! network and cluster, and checks what must hold whatever the order of events. A failure is one string that replays it.
//!
//! # What a project writes
//!
//! A [`system::System`]: the hosts (real programs, each a future), what a scenario may say (verbs, options of the
//! cluster), what must hold ([`property::Property`], from the statements of [`temporal`]), and the fixes on the table
//! ([`Switch`]). Then three lines make the program, and three more the test target:
//!
//! ```no_run
//! # use photofinish::system::*;
//! # use photofinish::property::Property;
//! # struct MySystem;
//! # impl System for MySystem {
//! #     fn name(&self) -> &'static str { "mine" }
//! #     fn hosts(&self, _: &Cluster) -> Vec<String> { vec![] }
//! #     fn properties(&self) -> Vec<Property> { vec![] }
//! #     fn assemble(&self, _: &Setup, _: &mut Stage<'_>) -> Result<Box<dyn Live>, BoxError> { Err("none".into()) }
//! # }
//! static SYSTEM: MySystem = MySystem;
//! #[global_allocator] // a run spends a good part of its time with small blocks of memory
//! static HEAP: photofinish::WorldHeap = photofinish::WorldHeap;
//!
//! fn main() -> std::process::ExitCode {
//!     photofinish::cli::main(&SYSTEM) // in src/main.rs
//! }
//! # fn test_target() {
//! photofinish::testing::main(&SYSTEM) // in the test target's main, with `harness = false`
//! # }
//! ```
//!
//! # What a scenario says
//!
//! A [`scenario`] is a YAML file: a cluster, steps, what to check, and how it can fail. A scenario that cannot fail
//! shows nothing, so each names its red side: remedies without which it fails, a wrong fix that it must catch, or seeds
//! that fail as reported. The generic steps stand in [`scenario::verbs`], the others come from the system.
//!
//! # What happens in a run
//!
//! Each run has a process of its own, forked from a zygote that never ran a world ([`pool`], [`execute`]): so statics
//! start afresh, and code that aborts, overflows or hangs ends its own run and no other. Every [`outcome::Outcome`]
//! comes with the trace up to the end. A failing run is done once more in another process before it is reported: one
//! that does not replay is nondeterminism, never a race.
//!
//! The [`run_id::RunId`] says everything about a run: scenario, switches, seed, pinned choices.
pub mod catalogue;
pub mod cli;
pub mod coverage;
pub mod crash_points;
pub mod execute;
pub mod explore;
pub mod html;
pub mod matrix;
pub mod mistake;
pub mod options;
pub mod outcome;
pub mod perfetto;
pub mod pool;
pub mod property;
pub mod reading;
pub mod report;
pub mod run_id;
pub mod scenario;
pub mod scene;
pub mod switch;
pub mod system;
pub mod temporal;
pub mod testing;

pub use photofinish_sim::heap::WorldHeap;
pub use switch::{Switch, SwitchKind};
