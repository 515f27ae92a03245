//! Photofinish races a gateway, a driver or a controller of Kubernetes against its neighbours, on a simulated clock,
//! network and cluster, and checks what must hold whatever the order of events. A failure is one string that replays it.
//!
//! The other modules of this folder are listed here as soon as the sim crate's world is there.
pub mod mistake;
pub mod property;
pub mod switch;
pub mod temporal;

pub use switch::{Switch, SwitchKind};
