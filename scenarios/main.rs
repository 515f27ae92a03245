//! Every scenario of this folder, both sides, under `cargo test`.

#[global_allocator]
static HEAP: photofinish::WorldHeap = photofinish::WorldHeap;

fn main() {
    photofinish::testing::main(&photofinish_openshell::system::OpenShell)
}
