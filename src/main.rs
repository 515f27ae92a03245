//! The `photofinish` binary.
fn main() {}
