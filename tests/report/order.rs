//! As reported, the trace tells the story of the report in its order.
use crate::runs::{in_order, is, pool, run};
use photofinish::options::Options;
use photofinish::outcome::Outcome;

const REFUSAL: &str = "sandbox must be Ready, Completed, Suspended, Error, or in an automatic restart to stop (current phase: Provisioning)";

#[test]
fn as_reported_the_trace_tells_the_report_in_its_order() {
    let run = run(&pool(), "late-stop-snapshot-after-stopped", Options::as_reported());
    assert_eq!(run.report.outcome, Outcome::Violated);
    let seen = in_order(
        &run.entries,
        &[
            ("log", "gateway", "supervisor session: accepted"),
            ("span", "driver", "kubernetes.stop_sandbox"),
            ("log", "driver", "Prepared Kubernetes sandbox stop sandbox_api_version=v1beta1"),
            ("log", "gateway", "supervisor session: closed"),
            ("log", "gateway", "Sandbox phase changed old_phase=Stopping new_phase=Stopped"),
            ("log", "gateway", "Sandbox phase changed old_phase=Stopped new_phase=Provisioning"),
            ("log", "gateway", "request refused op=stop"),
            ("reply", "client", "client: stop demo -> FAILED_PRECONDITION"),
            ("reply", "client", "client: relay demo -> FAILED_PRECONDITION"),
        ],
    );
    let [_, _, prepared, _, _, regressed, refused, reply, relay] = seen[..] else { unreachable!("nine marks") };
    assert_eq!(prepared.spans, ["kubernetes.stop_sandbox"]);
    assert_eq!(regressed.spans, ["driver_watch.sandbox_updated"]);
    assert_eq!((refused.field("code"), refused.field("detail")), (Some("9"), Some(REFUSAL)));
    assert_eq!((reply.field("code"), reply.field("message")), (Some("9"), Some(REFUSAL)));
    assert!(relay.field("message").is_some_and(|m| m.contains("current phase")), "{}", relay.text);
    let stops = run.entries.iter().filter(|e| is(e, ("span", "driver", "kubernetes.stop_sandbox")));
    assert_eq!(stops.count(), 1, "the refused stop never reaches the driver");
}

#[test]
fn a_session_relayed_to_a_stopped_sandbox_is_refused() {
    let run = run(&pool(), "late-stop-snapshot-after-stopped", Options::new());
    assert_eq!(run.report.outcome, Outcome::Holds);
    let relay = in_order(&run.entries, &[("reply", "client", "client: relay demo -> FAILED_PRECONDITION")]);
    assert!(relay[0].field("message").is_some_and(|m| m.contains("(current phase: Stopped)")), "{}", relay[0].text);
}
