//! The promise: the same request gives the same trace, byte by byte, in any zygote, environment and folder.

mod support;

use photofinish_sim::choices::{Choices, Pins, Source};
use photofinish_sim::host::{BoxError, HostCtx, HostSpec};
use photofinish_sim::trace::Trace;
use photofinish_sim::tracing_layer::{Filter, install};
use photofinish_sim::world::{World, WorldConfig};
use photofinish_sim::zygote::{self, Exit, Zygote};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use support::{echo_server, secs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: Duration = Duration::from_secs(120);
/// Makes this executable play a parent of its own: print the hashes of its runs, and no more.
const PARENT: &str = "PHOTOFINISH_TEST_PARENT";
const SEEDS: u64 = 20;

/// One world: a server, and a client that records all that could differ between two runs.
fn body(request: &[u8], trace: Trace) -> Vec<u8> {
    let seed: u64 = String::from_utf8_lossy(request).parse().unwrap();
    // Also before the world begins: runners read requests and make maps.
    let early: HashMap<u32, ()> = (0..8).map(|n| (n, ())).collect();
    trace.entry("log", "info").text(format!("{:?}", early.keys().collect::<Vec<_>>())).record();
    let _installed = install(&trace, Filter::default());
    let choices = Choices::new(Source::Seed(seed), Pins::default(), trace.clone());
    let mut builder = World::builder(WorldConfig { seed, ..WorldConfig::default() }, trace.clone(), choices);
    echo_server(&mut builder);
    builder.host("client", HostSpec::new(), client);
    let mut world = builder.build();
    world.start_all();
    world.run_for(secs(60)).unwrap();
    drop(world);
    trace.hash().into_bytes()
}

async fn client(ctx: HostCtx) -> Result<(), BoxError> {
    let start = Instant::now();
    for round in 0..5 {
        let mut io = ctx.wire.connect("server", 80).await?;
        io.write_all(b"x").await?;
        io.read_exact(&mut [0]).await?;
        tracing::info!(round, elapsed = ?start.elapsed(), "answered");
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..5000))).await;
    }
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let std: HashMap<u32, ()> = (0..16).map(|n| (n, ())).collect();
    let ahash: ahash::AHashMap<u32, ()> = (0..16).map(|n| (n, ())).collect();
    let foldhash: hashbrown::HashMap<u32, ()> = (0..16).map(|n| (n, ())).collect();
    tracing::info!(?wall, std = ?keys(&std), ahash = ?ahash.keys().collect::<Vec<_>>(), "clocks and maps");
    tracing::info!(foldhash = ?foldhash.keys().collect::<Vec<_>>(), "maps whose order hangs on addresses");
    tracing::info!(uuid = %uuid::Uuid::new_v4(), fast = fastrand::u64(..), "random");
    // Which of two ready branches comes first: tokio's own generator, one per process.
    let order: String = futures_order().await;
    tracing::info!(order, task = ?tokio::task::id(), thread = ?std::thread::current().id(), "tokio");
    Ok(())
}

async fn futures_order() -> String {
    let mut order = String::new();
    for _ in 0..32 {
        tokio::select! {
            () = std::future::ready(()) => order.push('a'),
            () = std::future::ready(()) => order.push('b'),
        }
    }
    order
}

fn keys<K: Hash + Eq + Copy, S: BuildHasher>(map: &HashMap<K, (), S>) -> Vec<K> {
    map.keys().copied().collect()
}

#[test]
fn the_same_seed_gives_the_same_bytes_in_two_zygotes_another_environment_and_another_folder() {
    if zygote::inside() {
        zygote::serve(body)
    }
    let mut one = Zygote::start(&zygote::this_test()).unwrap();
    let runs = |zygote: &mut Zygote| -> Vec<_> {
        (0..SEEDS).map(|seed| zygote.run(seed.to_string().as_bytes(), LIMIT).unwrap()).collect()
    };
    let first = runs(&mut one);
    let hashes: Vec<_> = first.iter().map(|finished| finished.trace_hash()).collect();
    if std::env::var_os(PARENT).is_some() {
        println!("\nhashes {}", hashes.join(" "));
        return;
    }
    for finished in &first {
        assert_eq!(finished.exit, Exit::Done, "{}", String::from_utf8_lossy(&finished.stderr));
        assert_eq!(
            finished.report,
            finished.trace_hash().as_bytes(),
            "the parent reads the trace that the world wrote"
        );
        let said = finished.trace().iter().filter(|e| e.kind == "log").count();
        assert_eq!(said, 1 + 5 + 4, "the client got through");
    }
    let different: std::collections::BTreeSet<_> = hashes.iter().collect();
    assert_eq!(different.len(), SEEDS as usize, "each seed is a world of its own");

    for (again, first) in runs(&mut one).iter().zip(&first) {
        assert_same(first.trace_lines(), again.trace_lines());
    }
    if !one.addresses_are_fixed() {
        return;
    }
    let mut two = Zygote::start(&zygote::this_test()).unwrap();
    two.run(b"12345", LIMIT).unwrap();
    for (other, first) in runs(&mut two).iter().zip(&first) {
        assert_same(first.trace_lines(), other.trace_lines());
    }
    for (folder, filler) in [("/", String::new()), ("/tmp", "x".repeat(10_000))] {
        let mut parent = Command::new(std::env::current_exe().unwrap());
        parent
            .args(zygote::this_test())
            .env(PARENT, "1")
            .env("FILLER", filler)
            .env("TZ", "Asia/Tokyo")
            .current_dir(folder);
        let output = parent.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("hashes ")).expect("the parent prints its hashes");
        assert_eq!(line.split(' ').collect::<Vec<_>>(), hashes, "in {folder}");
    }
}

/// Names the first entry in which two traces part.
fn assert_same(one: &[u8], two: &[u8]) {
    let parts = one.split(|b| *b == b'\n').zip(two.split(|b| *b == b'\n')).find(|(a, b)| a != b);
    if let Some((a, b)) = parts {
        panic!("two runs of one seed part:\n{}\n{}", String::from_utf8_lossy(a), String::from_utf8_lossy(b));
    }
    assert_eq!(one.len(), two.len());
}
