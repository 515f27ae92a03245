//! Under construction.
pub mod choices;
pub mod exit;
pub mod gate;
pub mod host;
pub mod legality;
pub(crate) mod memory;
pub mod net;
pub mod pins;
pub mod state;
mod symbols;
pub mod trace;
pub mod tracing_layer;
pub mod wire;
pub mod world;
pub mod zygote;
