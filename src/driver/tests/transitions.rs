//! The marker's state machine, transition by transition: what is written, and which of them move `metadata.generation`.
use super::cluster::{Cluster, managed};
use crate::driver::markers::{self, Annotations, Marker, Operation, Phase};
use crate::driver::names::*;
use crate::driver::resource::Sandbox;
use serde_json::{Value, json};

const NOW: i64 = 1_790_000_000_123;
const STARTED: &str = "1790000000123";

/// A transition's name, what it writes, the keys with values, and the keys that it takes away.
type Row = (&'static str, Annotations, Value, &'static [&'static str]);

const OF_THE_BOOTSTRAP: &[&str] =
    &[BOOTSTRAPPING, BOOTSTRAP_STARTED_AT_MS, BOOTSTRAP_OPERATION, BOOTSTRAP_PHASE, BOOTSTRAP_SESSION];
const OF_THE_GENERATION: &[&str] = &[
    BOOTSTRAPPING,
    BOOTSTRAP_STARTED_AT_MS,
    BOOTSTRAP_OPERATION,
    BOOTSTRAP_PHASE,
    BOOTSTRAP_SESSION,
    GENERATION,
    WORKLOAD_UID,
    SUPERVISOR_UID,
    NETWORK_POLICY_UID,
    NETWORK_POLICY_GENERATION,
];
/// Only there with the remedy `suspension-says-why`: the next operation takes the reason away.
const THE_REASON: &[&str] = &[SUSPENDED_BECAUSE];

fn marks(operation: &str, phase: &str) -> Value {
    json!({
        BOOTSTRAPPING: "true", BOOTSTRAP_STARTED_AT_MS: STARTED, BOOTSTRAP_OPERATION: operation, BOOTSTRAP_PHASE: phase,
    })
}
fn and(mut marks: Value, more: Value) -> Value {
    marks.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    marks
}

#[test]
fn b3_every_transition_writes_what_the_state_machine_says_and_nothing_else() {
    let stop = |phase| and(marks("stop", phase), json!({READINESS: "unavailable"}));
    let rows: Vec<Row> = vec![
        (
            "b3_create_preparing",
            markers::create_preparing(NOW, "g", "{}", "info"),
            and(marks("create", "preparing"), json!({GENERATION: "g", MAIN_PROCESS_SPEC: "{}", LOG_LEVEL: "info"})),
            &[],
        ),
        (
            "b3_restart_preparing",
            markers::restart_preparing(NOW, "session", "g2", "s2"),
            and(
                marks("restart", "preparing"),
                json!({BOOTSTRAP_SESSION: "session", GENERATION: "g2", SUPERVISOR_UID: "s2"}),
            ),
            THE_REASON,
        ),
        (
            "b3_installed",
            markers::installed("w", "s", "f", "1"),
            json!({
                WORKLOAD_UID: "w", SUPERVISOR_UID: "s", NETWORK_POLICY_UID: "f", NETWORK_POLICY_GENERATION: "1",
            }),
            &[],
        ),
        ("b3_released", markers::released(), json!({BOOTSTRAP_PHASE: "released"}), &[]),
        ("b3_running", markers::bootstrap_completed(), json!({READINESS: "ready"}), OF_THE_BOOTSTRAP),
        ("b3_stop_releasing", markers::stop_begun(NOW), stop("releasing"), THE_REASON),
        ("b3_stop_suspending", markers::suspending(NOW), stop("suspending"), &[]),
        ("b3_lost_dependency_suspending", markers::suspending_because(NOW, None), stop("suspending"), &[]),
        (
            "b3_lost_dependency_says_why",
            markers::suspending_because(NOW, Some("why")),
            and(stop("suspending"), json!({SUSPENDED_BECAUSE: "why"})),
            &[],
        ),
        ("b3_stopped", markers::stop_completed(), json!({READINESS: "unavailable"}), OF_THE_GENERATION),
    ];
    for (name, written, mut expected, taken) in rows {
        taken.iter().for_each(|key| expected[*key] = Value::Null);
        assert_eq!(written.into_json(), expected, "{name}");
    }
}

fn after(steps: &[Annotations]) -> Sandbox {
    let mut annotations = json!({});
    for step in steps {
        annotations = and(annotations, step.clone().into_json());
    }
    annotations.as_object_mut().expect("a map").retain(|_, value| !value.is_null());
    serde_json::from_value(json!({"metadata": {"annotations": annotations}})).expect("a Sandbox")
}

#[test]
fn b3_every_edge_leads_from_its_states_to_its_state() {
    use Operation::*;
    use Phase::*;
    let (create, restart) =
        (markers::create_preparing(NOW, "g", "{}", "info"), || markers::restart_preparing(NOW, "session", "g2", "s2"));
    let (released, running, stopped) = (markers::released, markers::bootstrap_completed, markers::stop_completed);
    let (releasing, suspending) = (|| markers::stop_begun(NOW), || markers::suspending(NOW));
    let states: [(&str, Vec<Annotations>); 9] = [
        ("create/preparing", vec![create.clone()]),
        ("create/released", vec![create.clone(), released()]),
        ("running", vec![create.clone(), released(), running()]),
        ("stop/releasing", vec![create.clone(), released(), running(), releasing()]),
        ("stop/suspending", vec![create.clone(), released(), running(), releasing(), suspending()]),
        ("stopped", vec![create.clone(), releasing(), suspending(), stopped()]),
        ("restart/preparing", vec![create.clone(), stopped(), restart()]),
        ("restart/released", vec![create.clone(), stopped(), restart(), released()]),
        ("running again", vec![create, stopped(), restart(), released(), running()]),
    ];
    /// Name, from where, what is written, and what that reads as.
    type Edge = (&'static str, &'static [&'static str], Annotations, Option<(Operation, Phase)>);
    let edges: Vec<Edge> = vec![
        ("b3_release_create", &["create/preparing"], released(), Some((Create, Released))),
        ("b3_release_restart", &["restart/preparing"], released(), Some((Restart, Released))),
        ("b3_complete_bootstrap", &["create/released", "restart/released"], running(), None),
        (
            "b3_stop",
            &["create/preparing", "create/released", "running", "restart/preparing", "restart/released", "stopped"],
            releasing(),
            Some((Stop, Releasing)),
        ),
        ("b3_supervisor_gone", &["stop/releasing"], suspending(), Some((Stop, Suspending))),
        (
            "b3_lost_dependency",
            &[
                "create/preparing",
                "create/released",
                "running",
                "stop/releasing",
                "stop/suspending",
                "stopped",
                "restart/preparing",
                "restart/released",
                "running again",
            ],
            suspending(),
            Some((Stop, Suspending)),
        ),
        ("b3_pod_gone", &["stop/suspending"], stopped(), None),
        ("b3_start", &["stopped"], restart(), Some((Restart, Preparing))),
    ];
    for (name, from, step, expected) in edges {
        for state in from {
            let (_, before) = states.iter().find(|(name, _)| name == state).expect("a state");
            let marker = Marker::of(&after(&[before.as_slice(), std::slice::from_ref(&step)].concat()));
            assert_eq!(marker.map(|m| (m.operation, m.phase)), expected, "{name} from {state}");
        }
    }
    for (state, steps) in &states {
        let marker = Marker::of(&after(steps)).map(|m| format!("{:?}/{:?}", m.operation, m.phase).to_lowercase());
        let unmarked = ["running", "stopped", "running again"].contains(state);
        assert_eq!(marker.as_deref(), (!unmarked).then_some(*state));
    }
}

#[tokio::test(start_paused = true)]
async fn b3_only_the_run_switch_moves_the_generation() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let generation = |c: &Cluster| c.sandbox()["metadata"]["generation"].as_i64().expect("a generation");
    let identity = cluster.create_and_settle().await;
    let created = generation(&cluster);
    assert_eq!(created, 2, "made suspended, then switched on; its marker came and went");
    // The stop's first half is annotations alone: its marker is seen at the generation of before.
    cluster.patch_sandbox(json!({"metadata": {"annotations": markers::stop_begun(NOW).into_json()}})).await;
    assert_eq!((cluster.marker().as_deref(), generation(&cluster)), (Some("stop/releasing"), created));
    cluster.stop().await.expect("stopped");
    assert_eq!((cluster.marker(), generation(&cluster)), (None, created + 1), "switched off once");
    cluster.stop().await.expect("stopped again");
    assert_eq!(generation(&cluster), created + 1, "it was off already");
    cluster.start(&identity, "launch-2").await.expect("started");
    assert_eq!(generation(&cluster), created + 2, "switched on once, in the patch that marks the restart");
}
