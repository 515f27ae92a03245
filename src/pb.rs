//! Generated gRPC messages and services; `proto/` holds their sources.
#![allow(missing_docs, clippy::all, unreachable_pub)]

/// The driver's contract with the gateway, `openshell.compute.v1`.
pub mod compute {
    tonic::include_proto!("openshell.compute.v1");
}
/// The gateway's public API, `openshell.v1`.
pub mod openshell {
    tonic::include_proto!("openshell.v1");
}
