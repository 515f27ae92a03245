//! The helpers of kube-rs, unmodified, against a server that shows every fault which a cluster may show.
//!
//! In memory, on tokio's paused clock; faults are drawn by seed.
#![cfg(feature = "sim")]

mod controller;
mod election;
mod finalizer;
mod watchers;
mod weather;
