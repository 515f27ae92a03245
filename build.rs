fn main() {
    let protos = ["proto/compute_driver.proto", "proto/openshell.proto"];
    for p in protos {
        println!("cargo::rerun-if-changed={p}");
    }
    let files = protox::compile(protos, ["proto"]).expect("the protocol files compile");
    tonic_prost_build::configure().compile_fds(files).expect("tonic code is generated");
}
