//! What simulated time costs, against the same work on turmoil in fixed ticks.
//!
//! `PHOTOFINISH_BENCH_STRICT=1` makes a missed target an error. Times are those that the thread ran: what else the machine
//! does meanwhile is of no interest.
#[path = "../tests/support/stub.rs"]
mod stub;

use k8s_openapi::api::core::v1::ConfigMap;
use photofinish_sim::choices::Choices;
use photofinish_sim::host::{BoxError, HostCtx, HostSpec};
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{Builder, Counts, World, WorldConfig, on_own_thread};
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
fn measure(hosts: fn(&mut Builder), run: fn(&mut World)) -> (Duration, Duration, Counts) {
    let once = || {
        on_own_thread(|| {
            let start = cpu();
            let mut builder = World::builder(WorldConfig::default(), Trace::new(), Choices::benign());
            hosts(&mut builder);
            let mut world = builder.build();
            run(&mut world);
            let (virtual_time, counts) = (world.now(), world.counts());
            drop(world);
            (cpu() - start, virtual_time, counts)
        })
    };
    (0..ROUNDS).map(|_| once()).min_by_key(|m| m.0).expect("several rounds")
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

fn main() -> ExitCode {
    let (ours, virtual_time, counts) = measure(four_hosts, |w| {
        w.start_all();
        let done = w.run_until(Duration::from_secs(3_600), |w| !w.is_up("driver").expect("a host"));
        assert_eq!(done, Ok(true), "the client gets all its answers");
    });
    let (hour, ..) = measure(five_idle_hosts, |w| {
        w.start_all();
        w.run_for(Duration::from_secs(3_600)).expect("nothing happens");
    });
    let theirs = on_turmoil::gets();

    let per_get = ours / GETS;
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    println!("{GETS} GETs {PAUSE:?} apart, two of four hosts: {virtual_time:?} virtual, {counts:?}");
    println!("{:<44} {:>12} {:>12}", "", "measured", "target");
    let mut missed = 0;
    let mut row = |what: &str, measured: String, target: &str, met: bool| {
        missed += u8::from(!met);
        println!("{what:<44} {measured:>12} {target:>12}{}", if met { "" } else { "  missed" });
    };
    row("a kube GET", format!("{per_get:.1?}"), "<= 25 us", per_get <= Duration::from_micros(25));
    row("the same on turmoil, 1 ms ticks", format!("{:.1?}", theirs / GETS), "", true);
    row("turmoil is slower by", format!("{ratio:.0}x"), ">= 100x", ratio >= 100.0);
    row(
        "an idle hour of five hosts, a timer a second",
        format!("{hour:.1?}"),
        "<= 50 ms",
        hour <= Duration::from_millis(50),
    );
    let strict = std::env::var_os("PHOTOFINISH_BENCH_STRICT").is_some_and(|v| v == "1");
    if strict && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
