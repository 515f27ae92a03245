use super::*;
use crate::choices::Choices;
use crate::host::HostSpec;
use crate::world::{World, WorldConfig, on_own_thread};
use std::cell::Cell;
use std::time::Duration;
use tracing::{Instrument, debug, debug_span, error, info, info_span, instrument, trace, warn};

/// What is recorded while `f` runs, as `kind/name [spans] text`.
fn recorded(filter: Filter, f: impl FnOnce()) -> Vec<String> {
    let trace = Trace::new();
    let installed = install(&trace, filter);
    f();
    drop(installed);
    lines(&trace)
}

fn lines(trace: &Trace) -> Vec<String> {
    trace.with(|entries| {
        let line = |e: &crate::trace::Entry| format!("{}/{} [{}] {}", e.kind, e.name, e.spans.join(" "), e.text);
        entries.iter().map(line).collect()
    })
}

#[test]
fn an_events_text_is_what_fmt_would_print() {
    #[derive(Debug)]
    #[allow(dead_code, reason = "printed by Debug")]
    enum Phase {
        Stopped,
        Failed { code: i32 },
    }
    let lines = recorded(Filter::default(), || {
        info!("plain");
        info!(old_phase = %"Stopped", new_phase = ?Phase::Stopped, "Sandbox phase changed");
        warn!(n = 1, on = true, x = 1.5, text = "a \"b\"", failed = ?Phase::Failed { code: 9 }, "values");
        error!(only = "fields");
        let name = "demo";
        info!(name, "formatted {} {name}", 1);
        info!(r#type = "t", dotted.name = 1, "names");
        info!(empty = tracing::field::Empty, "empty fields are left out");
    });
    assert_eq!(
        lines,
        [
            "log/info [] plain",
            "log/info [] Sandbox phase changed old_phase=Stopped new_phase=Stopped",
            r#"log/warn [] values n=1 on=true x=1.5 text="a \"b\"" failed=Failed { code: 9 }"#,
            r#"log/error [] only="fields""#,
            r#"log/info [] formatted 1 demo name="demo""#,
            r#"log/info [] names type="t" dotted.name=1"#,
            "log/info [] empty fields are left out",
        ]
    );
}

#[test]
fn fields_are_kept_one_by_one_and_strings_there_have_no_quotes() {
    let trace = Trace::new();
    let installed = install(&trace, Filter::default());
    info!(sandbox_id = "s-1", code = 9, shown = %"x y", "m");
    drop(installed);
    trace.with(|entries| {
        let fields: Vec<_> = entries[0].fields.iter().map(|(k, v)| (k.as_ref(), v.as_str())).collect();
        assert_eq!(fields, [("sandbox_id", "s-1"), ("code", "9"), ("shown", "x y")]);
    });
}

#[test]
fn an_error_is_shown_with_its_sources() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);
    let error = Outer(std::io::Error::other("inner"));
    let lines = recorded(Filter::default(), || {
        info!(error = &error as &dyn std::error::Error, "failed");
        let alone = std::io::Error::other("alone");
        info!(error = &alone as &dyn std::error::Error, "failed");
    });
    assert_eq!(lines, ["log/info [] failed error=outer error.sources=[inner]", "log/info [] failed error=alone"]);
}

#[test]
fn spans_open_and_close_with_their_fields_and_events_name_those_around_them() {
    let lines = recorded(Filter::default(), || {
        let outer = info_span!("outer", id = "s-1", late = tracing::field::Empty);
        outer.in_scope(|| {
            info!("in outer");
            let _inner = info_span!("inner").entered();
            info!("in both");
        });
        info!("outside");
        outer.record("late", 2);
        info!(parent: &outer, "by explicit parent");
        drop(outer);
        info!("after");
    });
    assert_eq!(
        lines,
        [
            r#"span/outer [] outer{id="s-1"}"#,
            "log/info [outer] in outer",
            "span/inner [outer] inner",
            "log/info [outer inner] in both",
            "span-end/inner [outer] inner",
            "log/info [] outside",
            "log/info [outer] by explicit parent",
            r#"span-end/outer [] outer{id="s-1" late=2}"#,
            "log/info [] after",
        ]
    );
}

#[test]
fn levels_and_the_longest_prefix_of_the_target_decide() {
    let filter = Filter::default().target("a::store", LevelFilter::DEBUG).target("a::store::noise", LevelFilter::OFF);
    let lines = recorded(filter, || {
        debug!("no: the default is info");
        debug!(target: "a::store", "yes: debug is on here");
        trace!(target: "a::store", "no: trace is not");
        error!(target: "a::store::noise::deep", "no: off here");
        info!(target: "kube_client::client", "no: a library");
        warn!(target: "hyper_util::client", "yes: a library's warning");
        debug_span!("no").in_scope(|| info!("yes: in a span that is not recorded"));
    });
    assert_eq!(
        lines,
        [
            "log/debug [] yes: debug is on here",
            "log/warn [] yes: a library's warning",
            "log/info [] yes: in a span that is not recorded",
        ]
    );
}

#[test]
fn what_is_not_wanted_is_not_even_evaluated() {
    let asked = Cell::new(0);
    let ask = || {
        asked.set(asked.get() + 1);
        1
    };
    recorded(Filter::default(), || {
        debug!(value = ask(), "no");
        info!(target: "h2::codec", value = ask(), "no");
        info!(value = ask(), "yes");
    });
    assert_eq!(asked.get(), 1);
}

#[test]
fn the_most_detailed_level_is_told_so_that_the_rest_is_cut_off_at_once() {
    assert_eq!(Filter::default().most(), LevelFilter::INFO);
    assert_eq!(Filter::default().target("a", LevelFilter::TRACE).most(), LevelFilter::TRACE);
    assert_eq!(Filter::new(LevelFilter::OFF).most(), LevelFilter::OFF);
    assert_eq!(Filter::new(LevelFilter::ERROR).target("a", LevelFilter::OFF).most(), LevelFilter::ERROR);
}

#[instrument(name = "kubernetes.stop_sandbox", skip_all, fields(sandbox = name))]
async fn stop(name: &str) {
    tokio::task::yield_now().await;
    info!("Prepared");
    async { info!("waiting") }.instrument(info_span!("inner")).await;
    tokio::task::yield_now().await;
    info!("done {name}");
}

#[test]
fn spans_of_async_functions_are_right_though_runtimes_take_turns_on_one_thread() {
    let runtime = || tokio::runtime::Builder::new_current_thread().event_interval(1).build().unwrap();
    let lines = recorded(Filter::default(), || {
        let (a, b) = (runtime(), runtime());
        let tasks = [a.spawn(stop("a")), b.spawn(stop("b"))];
        while !tasks.iter().all(|task| task.is_finished()) {
            a.block_on(tokio::task::yield_now());
            b.block_on(tokio::task::yield_now());
        }
    });
    let span = "kubernetes.stop_sandbox";
    for host in ["a", "b"] {
        assert!(lines.contains(&format!(r#"span/{span} [] {span}{{sandbox="{host}"}}"#)), "{lines:#?}");
        assert!(lines.contains(&format!("log/info [{span}] done {host}")), "{lines:#?}");
        assert!(lines.contains(&format!(r#"span-end/{span} [] {span}{{sandbox="{host}"}}"#)), "{lines:#?}");
    }
    assert_eq!(lines.iter().filter(|line| **line == format!("log/info [{span} inner] waiting")).count(), 2);
    assert_eq!(lines.len(), 2 * 7);
}

#[test]
fn a_hosts_events_bear_its_name_and_time_and_no_span_that_another_host_left_entered() {
    let lines = on_own_thread(|| {
        let trace = Trace::new();
        let _installed = install(&trace, Filter::default());
        let mut builder = World::builder(WorldConfig::default(), trace.clone(), Choices::benign());
        builder.host("careless", HostSpec::new(), |_| async {
            std::mem::forget(info_span!("left-entered").entered());
            info!("inside");
            std::future::pending().await
        });
        builder.host("other", HostSpec::new(), |_| async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let span = info_span!("own");
            info!(parent: &span, "explicit");
            span.in_scope(|| info!("here"));
            std::future::pending().await
        });
        let mut world = builder.build();
        world.start_all();
        world.run_for(Duration::from_secs(2)).unwrap();
        drop(world);
        trace.with(|entries| {
            let logs = entries.iter().filter(|e| e.kind == "log");
            logs.map(|e| format!("{} {} [{}] {}", e.at_ns / 1_000_000, e.host, e.spans.join(" "), e.text))
                .collect::<Vec<_>>()
        })
    });
    assert_eq!(lines, ["0 careless [left-entered] inside", "1500 other [own] explicit", "1500 other [own] here"]);
}

#[test]
fn a_span_that_closes_after_its_host_is_gone_still_bears_its_name() {
    let ends = on_own_thread(|| {
        let trace = Trace::new();
        let _installed = install(&trace, Filter::default());
        let mut builder = World::builder(WorldConfig::default(), trace.clone(), Choices::benign());
        builder.host("gateway", HostSpec::new(), |_| async {
            async { std::future::pending().await }.instrument(info_span!("for-ever")).await
        });
        let mut world = builder.build();
        world.start_all();
        world.run_for(Duration::from_secs(1)).unwrap();
        world.crash("gateway").unwrap();
        drop(world);
        let ends = |es: &[crate::trace::Entry]| -> Vec<_> {
            es.iter().filter(|e| e.kind == "span-end").map(|e| format!("{} {}", e.host, e.name)).collect()
        };
        trace.with(ends)
    });
    assert_eq!(ends, ["gateway for-ever"]);
}
