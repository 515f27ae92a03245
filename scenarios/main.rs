//! Every scenario of this folder, both sides, under `cargo test`.

fn main() {
    photofinish::testing::main(&photofinish_openshell::system::OpenShell)
}
