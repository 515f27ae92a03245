//! The neighbours of this system in a cluster: the agent-sandbox controller, the supervisors in their Pods, and the
//! replay of recorded Sandbox watch streams.
pub mod controller;
pub mod informer;
pub mod replay;
pub mod supervisor;
