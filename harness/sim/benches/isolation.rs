//! What isolation costs: a process a run, an entry of its trace, a question to its choices.

use photofinish_sim::choices::{Choices, Pins, Source};
use photofinish_sim::gate::ITEM_DELAY;
use photofinish_sim::trace::Trace;
use photofinish_sim::tracing_layer::{Filter, install};
use photofinish_sim::zygote::{self, Exit, Zygote};
use std::hint::black_box;
use std::time::{Duration, Instant};

const RUNS: usize = 1000;
const TIMES: u32 = 100_000;

/// Does what the request names, and reports the nanoseconds of one time.
fn body(request: &[u8], trace: Trace) -> Vec<u8> {
    let choices = Choices::new(Source::Seed(1), Pins::default(), trace.clone());
    let own = Trace::new();
    let ns = match request {
        b"empty" => 0,
        b"entries" => {
            (0..500).for_each(|n| entry(&trace, n));
            0
        }
        b"one process" => each(|n| entry(&own, n)),
        b"shared memory" => each(|n| entry(&trace, n)),
        b"tracing event" => {
            let _installed = install(&trace, Filter::default());
            each(|n| tracing::info!(old_phase = %"Stopped", new_phase = %"Provisioning", n, "Sandbox phase changed"))
        }
        b"tracing event, not wanted" => {
            let _installed = install(&trace, Filter::default());
            each(|n| tracing::info!(target: "h2::codec", n, "no"))
        }
        b"choice" => each(|n| {
            black_box(choices.delay(&format!("watch/driver/sandboxes/demo#{n}"), &ITEM_DELAY));
        }),
        _ => unreachable!("a row of the table"),
    };
    ns.to_string().into_bytes()
}

fn entry(trace: &Trace, n: u32) {
    let draft = trace.entry("http", "get").text("GET /api/v1/namespaces/default/pods/demo 200");
    draft
        .field("client", "driver")
        .field("path", "/api/v1/namespaces/default/pods/demo")
        .field("connection", n)
        .record();
}

/// Processor time of one call: a busy machine does not count.
fn each(mut f: impl FnMut(u32)) -> u128 {
    let start = cpu_time();
    (0..TIMES).for_each(&mut f);
    (cpu_time() - start).as_nanos() / u128::from(TIMES)
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> std::io::Result<()> {
    if zygote::inside() {
        zygote::serve(body)
    }
    let start = Instant::now();
    let mut zygote = Zygote::start(&[])?;
    let started = start.elapsed();
    println!("{:<44} {:>12}", "zygote: start", format!("{:.1} ms", started.as_secs_f64() * 1e3));
    println!("{:<44} {:>12}", "zygote: resident", format!("{:.1} MiB", zygote.resident()? as f64 / f64::from(1 << 20)));
    for request in ["empty", "entries"] {
        let mut walls = Vec::new();
        for _ in 0..RUNS {
            let finished = zygote.run(request.as_bytes(), Duration::from_secs(60))?;
            assert_eq!(finished.exit, Exit::Done);
            walls.push(finished.wall);
        }
        walls.sort_unstable();
        let what = if request == "empty" { "a run, empty body (median)" } else { "a run, 500 entries (median)" };
        println!("{what:<44} {:>12}", format!("{} us", walls[walls.len() / 2].as_micros()));
    }
    for request in ["one process", "shared memory", "tracing event", "tracing event, not wanted", "choice"] {
        let finished = zygote.run(request.as_bytes(), Duration::from_secs(600))?;
        assert_eq!(finished.exit, Exit::Done, "{}", String::from_utf8_lossy(&finished.stderr));
        let what = match request {
            "one process" => "an entry, memory of its own".to_owned(),
            "shared memory" => "an entry, shared memory".to_owned(),
            other => format!("a {other}"),
        };
        println!("{what:<44} {:>12}", format!("{} ns", String::from_utf8_lossy(&finished.report)));
    }
    Ok(())
}
