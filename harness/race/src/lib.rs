//! Under construction.
pub mod switch;
pub use switch::{Switch, SwitchKind};
