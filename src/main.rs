//! The `photofinish` binary: the harness with the gateway's and driver's system plugged in.

#[global_allocator]
static HEAP: photofinish::WorldHeap = photofinish::WorldHeap;

fn main() -> std::process::ExitCode {
    photofinish::cli::main(&photofinish_openshell::system::OpenShell)
}
