//! The example `controller` as a test target: each side of its scenario is a test of its own.
#[path = "../examples/controller.rs"]
#[expect(dead_code, reason = "its main is that of the example")]
mod controller;

fn main() {
    photofinish::testing::main(&controller::SECRETS)
}
