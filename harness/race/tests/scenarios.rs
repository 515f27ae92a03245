//! The toy's scenarios through the test target that systems use.
mod toy;

fn main() {
    photofinish::testing::main(&toy::TOY)
}
