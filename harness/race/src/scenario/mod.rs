//! Scenarios: what a YAML file says, checked against the system it is for.
pub mod yaml;
