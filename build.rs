//! Generates messages and services from `proto/`, without a system protoc.

fn main() {
    let protos = ["proto/compute_driver.proto", "proto/openshell.proto"];
    for p in protos {
        println!("cargo::rerun-if-changed={p}");
    }
    let files = protox::compile(protos, ["proto"]).expect("the protocol files compile");
    // Maps with a stable order: what is stored or traced must not depend on a hasher.
    tonic_prost_build::configure().btree_map(".").compile_fds(files).expect("tonic code is generated");
}
