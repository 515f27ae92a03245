//! The whole driver: gRPC in front, an API server in memory behind, the real controller and a small kubelet around.
mod cluster;
mod operations;
mod reconciling;
mod transitions;
mod watching;
