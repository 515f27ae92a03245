//! What simulated time costs, against the same work on turmoil in fixed ticks.
//!
//! `PHOTOFINISH_BENCH_STRICT=1` makes a missed target an error. Times are those that the thread ran: what else the machine
//! does meanwhile is of no interest.
//!
//! turmoil is measured twice. As a program of its own, it runs outside any world; but this crate is linked in, so each
//! of its clock reads is a system call. As this crate's second engine, clock reads are answered in user space, which
//! costs about as much as libc's own: the stricter comparison.
#[path = "../tests/support/stub.rs"]
mod stub;

use k8s_openapi::api::core::v1::ConfigMap;
use photofinish_sim::choices::Choices;
use photofinish_sim::host::{BoxError, HostCtx, HostSpec};
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{Builder, Counts, Engine, World, WorldConfig, on_own_thread};
use std::process::ExitCode;
use std::time::Duration;

#[path = "engine/on_turmoil.rs"]
mod on_turmoil;

const GETS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(250);
const ROUNDS: usize = 5;

/// 1 000 GETs of a `kube` client, 250 ms apart.
async fn gets(client: kube::Client) -> Result<(), BoxError> {
    let maps = kube::Api::<ConfigMap>::default_namespaced(client);
    for _ in 0..GETS {
        maps.get("a").await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn idle(_: HostCtx) -> Result<(), BoxError> {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
async fn asleep(_: HostCtx) -> Result<(), BoxError> {
    std::future::pending().await
}

/// How long the calling thread has run.
fn cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Time spent on a world, built and run to its end, its virtual time, and what it did. The best of several.
fn measure(
    rounds: usize,
    engine: Engine,
    hosts: fn(&mut Builder),
    run: fn(&mut World),
) -> (Duration, Duration, Counts) {
    let once = || {
        on_own_thread(|| {
            let start = cpu();
            let mut builder =
                World::builder(WorldConfig { engine, ..WorldConfig::default() }, Trace::new(), Choices::benign());
            hosts(&mut builder);
            let mut world = builder.build();
            run(&mut world);
            let (virtual_time, counts) = (world.now(), world.counts());
            drop(world);
            (cpu() - start, virtual_time, counts)
        })
    };
    (0..rounds).map(|_| once()).min_by_key(|m| m.0).expect("several rounds")
}

fn four_hosts(b: &mut Builder) {
    b.host("api", HostSpec::new(), stub::api);
    b.host("driver", HostSpec::new(), |ctx| gets(ctx.wire.kube("http://api:80", "d")));
    b.host("gateway", HostSpec::new(), asleep);
    b.host("kubelet", HostSpec::new(), asleep);
}
fn five_idle_hosts(b: &mut Builder) {
    for name in ["api", "driver", "gateway", "kubelet", "controller"] {
        b.host(name, HostSpec::new(), idle);
    }
}

fn all_gets(world: &mut World) {
    world.start_all();
    let done = world.run_until(Duration::from_secs(3_600), |w| !w.is_up("driver").expect("a host"));
    assert_eq!(done, Ok(true), "the client gets all its answers");
}
fn one_hour(world: &mut World) {
    world.start_all();
    world.run_for(Duration::from_secs(3_600)).expect("nothing happens");
}

fn main() -> ExitCode {
    let (ours, virtual_time, counts) = measure(ROUNDS, Engine::Jump, four_hosts, all_gets);
    let (hour, ..) = measure(ROUNDS, Engine::Jump, five_idle_hosts, one_hour);
    let alone = on_turmoil::gets();
    let (second_engine, ..) = measure(1, Engine::Turmoil, four_hosts, all_gets);

    let per_get = ours / GETS;
    let slower = |theirs: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
    println!("{GETS} GETs {PAUSE:?} apart, two of four hosts: {virtual_time:?} virtual, {counts:?}");
    println!("{:<46} {:>10} {:>10} {:>16}", "", "a GET", "slower by", "target");
    let mut missed = 0;
    let mut row = |what: &str, measured: Duration, slower: String, target: &str, met: bool| {
        missed += u8::from(!met);
        let missed = if met { "" } else { "  missed" };
        println!("{what:<46} {:>10} {slower:>10} {target:>16}{missed}", format!("{measured:.1?}"));
    };
    let times = |theirs| format!("{:.0}x", slower(theirs));
    row("here", per_get, String::new(), "<= 25 us", per_get <= Duration::from_micros(25));
    let (target, met) = (">= 100x slower", slower(alone) >= 100.0);
    row("turmoil, 1 ms ticks, a program of its own", alone / GETS, times(alone), target, met);
    row("turmoil, 1 ms ticks, as the second engine", second_engine / GETS, times(second_engine), "", true);
    let met = hour <= Duration::from_millis(50);
    row("an idle hour of five hosts, a timer a second", hour, String::new(), "<= 50 ms", met);
    let strict = std::env::var_os("PHOTOFINISH_BENCH_STRICT").is_some_and(|v| v == "1");
    if strict && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
