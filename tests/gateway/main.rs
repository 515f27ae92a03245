//! The whole gateway, raced alone: real gRPC over in-memory streams, a scripted driver, paused time.

mod delete;
mod failures;
mod late_stop;
mod loops;
mod remedies;
mod replicas;
mod restarts;
mod rig;
mod sessions;
mod start;
