//! What requests cost in memory, without a network: `cargo bench -p photofinish-apiserver`.
//!
//! Times are those that the thread ran, the least of several rounds: what else the machine does does not count.
//! `PHOTOFINISH_BENCH_STRICT=1` makes a missed target an error. At the end the same verbs run beside kube-fake-client,
//! in a package of its own, since that needs another version of `kube`; `PHOTOFINISH_BENCH_BESIDE=0` leaves it out.

use std::process::{Command, ExitCode};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::{ApiServer, Body};
use serde_json::json;
use tower::Service;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ROUNDS: usize = 5;

fn request(method: &str, uri: &str, media: &str, body: String) -> http::Response<Body> {
    let request = Request::builder().method(method).uri(uri).header("content-type", media);
    let request = request.body(Full::new(Bytes::from(body))).expect("a request");
    // A request in memory is answered at once: there is nobody to wait for.
    SERVER.with_borrow_mut(|server| server.call(request).now_or_never()).expect("no waiting").expect("never fails")
}

thread_local! {
    /// The server that requests go to. A clone of it is as good as itself.
    static SERVER: std::cell::RefCell<ApiServer> = ApiServer::builder().build().into();
}

fn fresh() {
    SERVER.set(ApiServer::builder().build());
}

fn send(method: &str, uri: &str, body: String) -> http::Response<Body> {
    request(method, uri, "application/json", body)
}

fn read(response: http::Response<Body>) -> Bytes {
    response.into_body().collect().now_or_never().expect("no waiting").expect("never fails").to_bytes()
}

fn config_map(name: &str, shard: u32) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"shard": shard.to_string()}},
        "data": {"text": "x".repeat(800)},
    })
    .to_string()
}

fn create(count: u32) {
    for n in 0..count {
        assert_eq!(send("POST", MAPS, config_map(&format!("m{n:06}"), n % 10)).status(), 201);
    }
}

/// Processor time of this thread so far.
fn cpu() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure that it is given, and this clock exists on every Linux.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) }, 0);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).expect("below a second"))
}

/// What one of `count` costs, in the fastest of several rounds.
fn fastest(count: u32, mut round: impl FnMut()) -> Duration {
    let once = |_| {
        let began = cpu();
        round();
        cpu() - began
    };
    (0..ROUNDS).map(once).min().expect("several rounds") / count
}

/// Memory of the process that is in use, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of that name");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// The report: what was measured, and whether that is as good as it should be.
#[derive(Default)]
struct Report {
    missed: usize,
}

impl Report {
    fn row(&mut self, what: &str, measured: &str, target: &str, met: bool) {
        self.missed += usize::from(!met);
        println!("{what:<58} {measured:>14} {target:>14}{}", if met { "" } else { "  MISSED" });
    }

    fn time(&mut self, what: &str, measured: Duration, target: Option<Duration>) {
        let shown = target.map_or_else(String::new, |target| format!("<= {target:?}"));
        self.row(what, &format!("{measured:.2?}"), &shown, target.is_none_or(|target| measured <= target));
    }

    fn rate(&mut self, what: &str, each: Duration, target_per_s: Option<f64>) {
        let per_s = 1.0 / each.as_secs_f64();
        let shown = target_per_s.map_or_else(String::new, |target| format!(">= {:.1} M/s", target / 1e6));
        self.row(what, &format!("{:.2} M/s", per_s / 1e6), &shown, target_per_s.is_none_or(|target| per_s >= target));
    }
}

fn single_objects(report: &mut Report) {
    fresh();
    create(1);
    let get =
        || (0..20_000).for_each(|_| assert!(read(send("GET", &format!("{MAPS}/m000000"), String::new())).len() > 800));
    report.time("GET of a 1 KB object", fastest(20_000, get), Some(Duration::from_micros(3)));

    let mut n = 0;
    let mut patched = |uri: String, media: &str, body: &dyn Fn(u32) -> serde_json::Value| {
        fastest(2_000, || {
            for _ in 0..2_000 {
                n += 1;
                assert_eq!(request("PATCH", &uri, media, body(n).to_string()).status(), 200);
            }
        })
    };
    let merge = patched(
        format!("{MAPS}/m000000"),
        "application/merge-patch+json",
        &|n| json!({"metadata": {"annotations": {"n": n.to_string()}}}),
    );
    report.time("merge patch of a 1 KB object", merge, None);

    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "img:1", "env": [{"name": "A", "value": "1"}]}]},
    });
    assert_eq!(send("POST", PODS, pod.to_string()).status(), 201);
    let status = patched(format!("{PODS}/p/status"), "application/strategic-merge-patch+json", &|n| {
        json!({"status": {"phase": "Running", "message": n.to_string(), "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"},
        ]}})
    });
    report.time("status patch of a pod", status, None);
}

fn watched_creates(report: &mut Report) {
    fresh();
    let open = |_| send("GET", &format!("{MAPS}?watch=1"), String::new()).into_body();
    let mut watches: Vec<Body> = (0..100).map(open).collect();
    for watch in &mut watches {
        assert!(watch.frame().now_or_never().is_none(), "nothing to show yet");
    }
    let mut n = 0;
    let each = fastest(500, || {
        for _ in 0..500 {
            n += 1;
            assert_eq!(send("POST", MAPS, config_map(&format!("m{n}"), n)).status(), 201);
            for watch in &mut watches {
                watch.frame().now_or_never().expect("an event").expect("no end").expect("never fails");
            }
        }
    });
    report.time("create, and its event read by 100 watches", each, Some(Duration::from_micros(60)));
}

fn large_lists(report: &mut Report) {
    fresh();
    create(10_000);
    let list = |query: &str, least: usize| {
        let uri = format!("{MAPS}{query}");
        fastest(5, || (0..5).for_each(|_| assert!(read(send("GET", &uri, String::new())).len() > least)))
    };
    let selected = list("?labelSelector=shard%3D3", 800_000);
    report.time("list of 10 000 by a label that 1 in 10 has", selected, Some(Duration::from_millis(15)));
    report.time(
        "list of 10 000 by a label, all have it",
        list("?labelSelector=shard", 8_000_000),
        Some(Duration::from_millis(15)),
    );
    report.time("list of 10 000, no selector", list("", 8_000_000), None);
}

fn many_objects(report: &mut Report) {
    const COUNT: u32 = 100_000;
    fresh();
    let before = resident();
    create(COUNT);
    let megabytes = (resident() - before) as f64 / 1e6;
    report.row("memory for 100 000 objects of 1 KB", &format!("{megabytes:.0} MB"), "<= 300 MB", megabytes <= 300.0);

    let replay = || {
        let mut watch = send("GET", &format!("{MAPS}?watch=1&resourceVersion=1"), String::new()).into_body();
        let began = cpu();
        for _ in 0..COUNT {
            watch.frame().now_or_never().expect("an event").expect("no end").expect("never fails");
        }
        (cpu() - began) / COUNT
    };
    report.rate("watch replay of 100 000 events, the first watch", replay(), Some(1e6));
    let again = (1..ROUNDS).map(|_| replay()).min().expect("several rounds");
    report.rate("watch replay of 100 000 events, each further one", again, Some(1e6));
}

/// The same verbs here and in kube-fake-client.
fn beside() {
    if std::env::var_os("PHOTOFINISH_BENCH_BESIDE").is_some_and(|wanted| wanted == "0") {
        return;
    }
    println!();
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/beside");
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/beside");
    let mut run = Command::new(env!("CARGO"));
    run.args(["run", "--quiet", "--release", "--locked", "--target-dir", target]).current_dir(package);
    match run.status() {
        Ok(status) if status.success() => {}
        ended => println!("nothing beside: {package} could not be built or run ({ended:?})"),
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    println!("{:<58} {:>14} {:>14}", "in memory, one thread", "measured", "target");
    let mut report = Report::default();
    // First, while nothing else has used memory.
    many_objects(&mut report);
    single_objects(&mut report);
    watched_creates(&mut report);
    large_lists(&mut report);
    beside();
    let strict = std::env::var_os("PHOTOFINISH_BENCH_STRICT").is_some_and(|wanted| wanted == "1");
    if strict && report.missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
