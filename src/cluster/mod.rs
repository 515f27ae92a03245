//! The neighbours of this system in a cluster: the agent-sandbox controller, the supervisors in their Pods, the node that
//! boots, and the replay of recorded Sandbox watch streams.
pub mod controller;
pub mod informer;
pub mod node;
pub mod replay;
pub mod supervisor;
