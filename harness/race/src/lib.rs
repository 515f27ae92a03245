//! Under construction. `system.rs`, `scene.rs`, `property.rs` and `temporal.rs` are the plug-in traits; they are listed
//! here as soon as the sim crate's types are there.
pub mod mistake;
pub mod scenario;
pub mod switch;
pub use switch::{Switch, SwitchKind};
