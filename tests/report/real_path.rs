//! Nothing between the parts is mocked: one run's trace shows the real ones on the path.
use crate::runs::{in_order, is, pool, run, run_text};
use photofinish::options::Options;
use photofinish::outcome::Outcome;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn requests_of_driver_controller_and_kubelet_come_over_connections_of_their_own() {
    let run = run(&pool(), "restart-stopped-sandbox", Options::new());
    let mut connections: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for e in run.entries.iter().filter(|e| e.kind == "http") {
        let (client, connection) = (e.field("client").expect("a client"), e.field("connection").expect("a connection"));
        connections.entry(client).or_default().insert(connection);
    }
    for client in ["driver", "controller", "kubelet", "scheduler", "supervisor", "gc"] {
        assert!(connections.contains_key(client), "no request of {client}: {connections:?}");
    }
    let all: usize = connections.values().map(BTreeSet::len).sum();
    let distinct: BTreeSet<_> = connections.values().flatten().collect();
    assert_eq!(all, distinct.len(), "two clients share a connection: {connections:?}");
    // Over these connections went writes of each of the three.
    for (client, verb) in [("driver", "create"), ("controller", "create"), ("kubelet", "patch")] {
        let wrote = run.entries.iter().any(|e| {
            e.kind == "http" && e.name == verb && e.field("client") == Some(client) && e.field("rv").is_some()
        });
        assert!(wrote, "no {verb} of {client}");
    }
}

#[test]
fn grpc_goes_from_client_to_gateway_and_from_gateway_to_driver_and_rows_are_committed_to_sqlite() {
    let run = run(&pool(), "late-stop-snapshot-after-stopped", Options::new());
    let connected = |from: &str, to: &str| {
        let found = run.entries.iter().any(|e| {
            e.kind == "net" && e.name == "connect" && e.host == from && e.field("to").is_some_and(|t| t.starts_with(to))
        });
        assert!(found, "{from} never connected to {to}");
    };
    connected("client", "gateway");
    connected("gateway", "driver");
    connected("supervisor", "gateway");
    in_order(
        &run.entries,
        &[
            ("op", "client", "client: stop demo"),
            ("log", "gateway", "store commit op=stop"),
            ("span", "driver", "kubernetes.stop_sandbox"),
            ("log", "gateway", "store commit op=stopped"),
            ("reply", "client", "client: stop demo -> OK (Stopped)"),
        ],
    );
}

#[test]
fn a_stop_whose_driver_call_breaks_restores_the_row_and_a_later_stop_succeeds() {
    // Spec A.4.1: the live answer is neither stopped nor stopping, so the row goes back to what it was. Who reads the
    // marker knows better.
    let text = "
scenario: stop-breaks
summary: The link between gateway and driver breaks in the middle of a stop.
steps:
  - create: {demo: {command: [sleep, infinity]}}
  - await: {demo: Ready}
  - await: {demo: {marker: none}}
  - run: 100ms
  - hold: {watch: driver/sandboxes, as: watch}    # a snapshot in between would move the row's version
  - stop: {sandbox: demo, wait: false}
  - await: {demo: {marker: stop/suspending}}
  - reset: [gateway, driver]
  - await: {demo: Ready}
  - release: watch
  - await: {demo: Stopped}
  - stop: demo
  - await: {demo: Stopped}
check: [stopped-is-stable]
";
    let run = run_text(&pool(), text, Options::new().without(["snapshot-carries-epoch"]));
    let seen = in_order(
        &run.entries,
        &[
            ("log", "gateway", "Sandbox phase changed old_phase=Ready new_phase=Stopping"),
            ("span", "driver", "kubernetes.stop_sandbox"),
            ("net", "world", "connections between gateway and driver are reset"),
            ("log", "gateway", "Sandbox phase changed old_phase=Stopping new_phase=Ready"),
            ("reply", "client", "client: stop demo -> "),
        ],
    );
    assert_eq!(seen[3].field("by"), Some("recovery"));
    assert_ne!(seen[4].field("code"), Some("0"), "{}", seen[4].text);
    assert!(seen[4].field("message").is_some_and(|m| m.starts_with("stop sandbox failed: ")), "{}", seen[4].text);
    let live_read =
        run.entries.iter().skip_while(|e| e.id < seen[2].id).any(|e| is(e, ("http", "api", "driver: list")));
    assert!(live_read, "the gateway asks the driver for the live sandbox before it decides");
    assert!(matches!(run.report.outcome, Outcome::Holds), "{:?}", run.report);
}
