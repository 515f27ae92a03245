//! The example `shop` as a test target: each side of its scenario is a test of its own.
#[path = "../examples/shop.rs"]
#[expect(dead_code, reason = "its main is that of the example")]
mod shop;

fn main() {
    photofinish::testing::main(&shop::SHOP)
}
