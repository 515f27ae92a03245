//! Conditions as tables.
use std::sync::Arc;

use super::*;

pub(super) const T0: &str = "2026-11-29T16:27:37Z";
const T1: &str = "2026-11-29T16:27:41Z";

pub(super) fn time(text: &str) -> Timestamp {
    text.parse().expect("it is a time")
}

fn sandbox(mode: &str, service: bool, generation: i64, status: Option<SandboxStatus>) -> Sandbox {
    let mut sandbox: Sandbox = serde_json::from_value(json!({
        "metadata": {"name": "s1", "namespace": "ns", "uid": "u1", "generation": generation},
        "spec": {"operatingMode": mode, "service": service},
    }))
    .expect("it is a sandbox");
    sandbox.status = status;
    sandbox
}

pub(super) fn pod(phase: &str, ready: bool, ip: bool) -> PodState {
    let ready = if ready { "True" } else { "False" };
    let ips = if ip { json!([{"ip": "10.1.0.11"}]) } else { json!(null) };
    let pod = json!({
        "metadata": {"name": "s1"},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": phase, "podIPs": ips, "conditions": [
            {"type": "Ready", "status": ready}, {"type": "PodScheduled", "status": "True"},
        ]},
    });
    PodState::Present(Arc::new(serde_json::from_value(pod).expect("it is a pod")))
}

pub(super) fn just_created() -> PodState {
    let pod = json!({"metadata": {"name": "s1"}, "spec": {"containers": []}, "status": {"phase": "Pending"}});
    PodState::Present(Arc::new(serde_json::from_value(pod).expect("it is a pod")))
}

pub(super) fn found(pod: PodState) -> Outcome {
    Outcome { pod, service: true, error: None }
}

/// `Type=Status/Reason@generation` of every condition, in order.
pub(super) fn told(status: &SandboxStatus) -> Vec<String> {
    let one = |c: &Condition| {
        format!("{}={}/{}@{}", c.type_, c.status, c.reason, c.observed_generation.expect("it is always set"))
    };
    status.conditions.iter().map(one).collect()
}

#[test]
fn ready_by_mode_and_pod() {
    let error = Outcome { pod: PodState::Unknown, service: false, error: Some("no".into()) };
    let no_service = Outcome { service: false, ..found(pod("Running", true, true)) };
    for (mode, outcome, expected) in [
        ("Running", found(pod("Running", true, true)), "True/DependenciesReady: Pod is Ready; Service Exists"),
        (
            "Running",
            found(pod("Running", false, true)),
            "False/DependenciesNotReady: Pod is Running but not Ready; Service Exists",
        ),
        (
            "Running",
            found(pod("Running", true, false)),
            "False/DependenciesNotReady: Pod is Ready but has no IP; Service Exists",
        ),
        (
            "Running",
            found(pod("Pending", false, false)),
            "False/DependenciesNotReady: Pod exists with phase: Pending; Service Exists",
        ),
        ("Running", no_service, "False/DependenciesNotReady: Pod is Ready; Service does not exist"),
        ("Running", found(PodState::Absent), "False/DependenciesNotReady: Pod does not exist; Service Exists"),
        ("Running", found(pod("Failed", false, true)), "False/PodFailed: Pod failed"),
        ("Running", found(pod("Succeeded", false, true)), "False/PodSucceeded: Pod succeeded"),
        ("Running", found(PodState::Multiple(2)), "False/MultiplePods: 2 pods belong to this sandbox, expected one"),
        ("Running", error.clone(), "False/ReconcilerError: Error seen: no"),
        ("Suspended", found(pod("Running", true, true)), "False/SandboxSuspended: Sandbox is suspending"),
        ("Suspended", found(PodState::Absent), "False/SandboxSuspended: Sandbox is suspended"),
        ("Suspended", found(PodState::Foreign), "False/SandboxSuspended: Sandbox is suspending"),
        ("Suspended", error, "False/ReconcilerError: Error seen: no"),
    ] {
        let status = status(Profile::V056, &sandbox(mode, true, 1, None), &outcome, time(T0));
        let ready = status.conditions.iter().find(|c| c.type_ == READY).expect("it is always there");
        assert_eq!(format!("{}/{}: {}", ready.status, ready.reason, ready.message), expected, "{mode} {outcome:?}");
    }
}

#[test]
fn suspended_by_mode_and_pod() {
    for (mode, state, expected) in [
        ("Running", PodState::Absent, "Suspended=False/NotSuspended@1"),
        ("Running", PodState::Unknown, "Suspended=False/NotSuspended@1"),
        ("Suspended", pod("Running", true, true), "Suspended=False/PodTerminating@1"),
        ("Suspended", PodState::Absent, "Suspended=True/PodTerminated@1"),
        ("Suspended", PodState::Foreign, "Suspended=False/PodNotOwned@1"),
        ("Suspended", PodState::Unknown, "Suspended=Unknown/PodStateUnknown@1"),
        ("Suspended", PodState::Multiple(2), "Suspended=Unknown/PodStateUnknown@1"),
    ] {
        let status = status(Profile::V056, &sandbox(mode, false, 1, None), &found(state.clone()), time(T0));
        assert_eq!(told(&status)[0], expected, "{mode} {state:?}");
    }
}

#[test]
fn a_life_shows_the_recorded_conditions_in_the_recorded_order() {
    let step = |mode, generation, before: Option<&SandboxStatus>, state| {
        status(Profile::V056, &sandbox(mode, true, generation, before.cloned()), &found(state), time(T0))
    };
    let created = step("Running", 1, None, just_created());
    let up = step("Running", 1, Some(&created), pod("Running", true, true));
    let suspending = step("Suspended", 2, Some(&up), pod("Running", true, true));
    let suspended = step("Suspended", 2, Some(&suspending), PodState::Absent);
    let resumed = step("Running", 3, Some(&suspended), just_created());
    let failed = step("Running", 3, Some(&resumed), pod("Failed", false, true));
    let replaced = step("Running", 3, Some(&failed), just_created());
    let told: Vec<_> = [&created, &up, &suspending, &suspended, &resumed, &failed, &replaced].map(told).into();
    assert_eq!(
        told,
        [
            &[
                "Suspended=False/NotSuspended@1",
                "PodScheduled=Unknown/PodSchedulingUnknown@1",
                "Ready=False/DependenciesNotReady@1"
            ][..],
            &["Suspended=False/NotSuspended@1", "PodScheduled=True/PodScheduled@1", "Ready=True/DependenciesReady@1"],
            &["Suspended=False/PodTerminating@2", "PodScheduled=True/PodScheduled@2", "Ready=False/SandboxSuspended@2"],
            &["Suspended=True/PodTerminated@2", "Ready=False/SandboxSuspended@2"],
            &[
                "Suspended=False/NotSuspended@3",
                "Ready=False/DependenciesNotReady@3",
                "PodScheduled=Unknown/PodSchedulingUnknown@3"
            ],
            &[
                "Suspended=False/NotSuspended@3",
                "Ready=False/PodFailed@3",
                "PodScheduled=True/PodScheduled@3",
                "Finished=True/PodFailed@3"
            ],
            &[
                "Suspended=False/NotSuspended@3",
                "Ready=False/DependenciesNotReady@3",
                "PodScheduled=Unknown/PodSchedulingUnknown@3"
            ],
        ]
    );
    assert_eq!((up.node_name.as_deref(), up.pod_ips.as_slice()), (Some("n1"), &["10.1.0.11".to_owned()][..]));
    assert_eq!((suspended.node_name.as_deref(), suspended.pod_ips.len()), (None, 0));
    assert_eq!(suspended.service_fqdn.as_deref(), Some("s1.ns.svc.cluster.local"), "the Service outlives the Pod");
}

#[test]
fn the_transition_time_moves_with_the_status_and_not_with_reason_message_or_generation() {
    let before =
        status(Profile::V056, &sandbox("Running", false, 1, None), &found(pod("Pending", false, false)), time(T0));
    let after = status(
        Profile::V056,
        &sandbox("Suspended", false, 2, Some(before)),
        &found(PodState::Absent),
        time("2026-11-29T16:27:41.9Z"),
    );
    let at = |kind: &str| after.conditions.iter().find(|c| c.type_ == kind).map(|c| c.last_transition_time.0);
    assert_eq!(at(READY), Some(time(T0)), "False stayed False");
    assert_eq!(at(SUSPENDED), Some(time(T1)), "False became True; to the second, as it is stored");
}

#[test]
fn a_pass_that_failed_early_keeps_what_it_did_not_get_to() {
    let up = status(Profile::V056, &sandbox("Running", true, 1, None), &found(pod("Running", true, true)), time(T0));
    let failed = Outcome { pod: PodState::Unknown, service: false, error: Some("boom".into()) };
    let after = status(Profile::V056, &sandbox("Running", true, 1, Some(up.clone())), &failed, time(T1));
    assert_eq!((&after.selector, &after.node_name, &after.pod_ips), (&up.selector, &up.node_name, &up.pod_ips));
    let first = status(Profile::V056, &sandbox("Running", true, 1, None), &failed, time(T1));
    assert_eq!((first.selector, first.service), (None, None), "as recorded when the name is taken");
}

#[test]
fn the_pods_own_words_about_scheduling_are_passed_on() {
    let pod = json!({
        "metadata": {"name": "s1"}, "spec": {"containers": []},
        "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "held back"},
        ]},
    });
    let state = PodState::Present(Arc::new(serde_json::from_value(pod).expect("it is a pod")));
    let said = pod_scheduled(&state).expect("there is a pod");
    assert_eq!(said, Said::new("False", "SchedulingGated", "held back"));
}

#[test]
fn a_write_holds_what_changed_and_no_resource_version() {
    let before = status(Profile::V056, &sandbox("Running", true, 1, None), &found(just_created()), time(T0));
    assert_eq!(patch(&before, &before), None, "nothing to say");
    let up = status(
        Profile::V056,
        &sandbox("Running", true, 1, Some(before.clone())),
        &found(pod("Running", true, true)),
        time(T0),
    );
    let written = patch(&before, &up).expect("it became ready");
    let fields: Vec<_> = written["status"].as_object().expect("it is one").keys().cloned().collect();
    assert_eq!(fields, ["conditions", "nodeName", "podIPs"]);
    assert_eq!(written.as_object().map(Map::len), Some(1), "status alone: no metadata, so no resourceVersion");
    let gone =
        status(Profile::V056, &sandbox("Suspended", true, 2, Some(up.clone())), &found(PodState::Absent), time(T0));
    let written = patch(&up, &gone).expect("it changed");
    assert_eq!((&written["status"]["podIPs"], &written["status"]["nodeName"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_change_of_the_nodes_name_alone_waits_until_ready() {
    let ready =
        status(Profile::V056, &sandbox("Running", false, 1, None), &found(pod("Running", true, true)), time(T0));
    let elsewhere = SandboxStatus { node_name: Some("n2".into()), ..ready.clone() };
    assert!(patch(&ready, &elsewhere).is_some());
    let pending =
        status(Profile::V056, &sandbox("Running", false, 1, None), &found(pod("Pending", false, false)), time(T0));
    let unplaced = SandboxStatus { node_name: None, ..pending.clone() };
    assert_eq!(patch(&unplaced, &pending), None);
}

#[test]
fn expiry_says_so_first_and_empties_the_status_once_cleaned_up() {
    let up = status(Profile::V056, &sandbox("Running", true, 1, None), &found(pod("Running", true, true)), time(T0));
    let marked = expired(&sandbox("Running", true, 1, Some(up)), time(T1));
    assert_eq!(told(&marked), ["Suspended=False/NotSuspended@1", "Ready=False/SandboxExpired@1"]);
    assert_eq!(marked.node_name.as_deref(), Some("n1"), "the pod is still there");
    let cleaned = expired_and_cleaned(&sandbox("Running", true, 1, Some(marked.clone())));
    assert_eq!(cleaned, SandboxStatus { conditions: marked.conditions, ..SandboxStatus::default() });
}

/// The same Sandbox in the version that the profile reads: run switch on or off, at a generation.
pub(super) fn of(profile: Profile, on: bool, generation: i64, status: Option<SandboxStatus>) -> Sandbox {
    let spec = match (profile, on) {
        (Profile::V046, on) => json!({"replicas": i32::from(on)}),
        (_, true) => json!({"operatingMode": "Running"}),
        (_, false) => json!({"operatingMode": "Suspended"}),
    };
    let mut sandbox: Sandbox = serde_json::from_value(json!({
        "metadata": {"name": "s1", "namespace": "ns", "uid": "u1", "generation": generation}, "spec": spec,
    }))
    .expect("it is a sandbox");
    sandbox.status = status;
    sandbox
}

#[test]
fn every_condition_by_controller_version() {
    use Profile::{V046, V050, V056};
    let failed = |pod| Outcome { pod, service: false, error: Some("no".into()) };
    let up = || pod("Running", true, true);
    // (case, on?, what was found, then per version the conditions)
    type Row = (&'static str, bool, Outcome, [&'static [&'static str]; 3]);
    const RUNNING: &str = "Suspended=False/NotSuspended@1";
    const SCHEDULED: &str = "PodScheduled=True/PodScheduled@1";
    let rows: Vec<Row> = vec![
        (
            "up",
            true,
            found(up()),
            [
                &["Ready=True/DependenciesReady@1"],
                &["Ready=True/DependenciesReady@1"],
                &[RUNNING, SCHEDULED, "Ready=True/DependenciesReady@1"],
            ],
        ),
        (
            "not up yet",
            true,
            found(pod("Running", false, true)),
            [
                &["Ready=False/DependenciesNotReady@1"],
                &["Ready=False/DependenciesNotReady@1"],
                &[RUNNING, SCHEDULED, "Ready=False/DependenciesNotReady@1"],
            ],
        ),
        (
            "no address yet",
            true,
            found(pod("Running", true, false)),
            [
                &["Ready=False/DependenciesNotReady@1"],
                &["Ready=False/DependenciesNotReady@1"],
                &[RUNNING, SCHEDULED, "Ready=False/DependenciesNotReady@1"],
            ],
        ),
        (
            "the pod failed",
            true,
            found(pod("Failed", false, true)),
            [
                &["Ready=False/DependenciesNotReady@1", "Finished=True/PodFailed@1"],
                &["Ready=False/DependenciesNotReady@1", "Finished=True/PodFailed@1"],
                &[RUNNING, SCHEDULED, "Ready=False/PodFailed@1", "Finished=True/PodFailed@1"],
            ],
        ),
        (
            "the pod succeeded",
            true,
            found(pod("Succeeded", false, true)),
            [
                &["Ready=False/DependenciesNotReady@1", "Finished=True/PodSucceeded@1"],
                &["Ready=False/DependenciesNotReady@1", "Finished=True/PodSucceeded@1"],
                &[RUNNING, SCHEDULED, "Ready=False/PodSucceeded@1", "Finished=True/PodSucceeded@1"],
            ],
        ),
        (
            "the pass failed while on",
            true,
            failed(PodState::Unknown),
            [
                &["Ready=False/ReconcilerError@1"],
                &["Ready=False/ReconcilerError@1"],
                &[RUNNING, "PodScheduled=Unknown/PodSchedulingUnknown@1", "Ready=False/ReconcilerError@1"],
            ],
        ),
        (
            "off, no pod",
            false,
            found(PodState::Absent),
            [
                &["Ready=True/DependenciesReady@1"],
                &["Suspended=True/PodTerminated@1", "Ready=False/SandboxSuspended@1"],
                &["Suspended=True/PodTerminated@1", "Ready=False/SandboxSuspended@1"],
            ],
        ),
        (
            "the pass failed while off",
            false,
            failed(PodState::Unknown),
            [
                &["Ready=False/ReconcilerError@1"],
                &["Suspended=True/PodTerminated@1", "Ready=False/ReconcilerError@1"],
                &[
                    "Suspended=Unknown/PodStateUnknown@1",
                    "PodScheduled=Unknown/PodSchedulingUnknown@1",
                    "Ready=False/ReconcilerError@1",
                ],
            ],
        ),
    ];
    for (case, on, outcome, expected) in rows {
        for (profile, expected) in [V046, V050, V056].into_iter().zip(expected) {
            let status = status(profile, &of(profile, on, 1, None), &outcome, time(T0));
            assert_eq!(told(&status), expected, "{case}, {profile:?}");
        }
    }
}

#[test]
fn only_the_newest_version_waits_for_the_pod_and_takes_suspended_back() {
    // What the older versions' rules make of a Pod that is being deleted: none.
    let suspending = |profile: Profile, before| {
        let seen = if profile == Profile::V056 { pod("Running", true, true) } else { PodState::Absent };
        status(profile, &of(profile, false, 2, before), &found(seen), time(T0))
    };
    let lives = [Profile::V046, Profile::V050, Profile::V056].map(|profile| {
        let up = status(profile, &of(profile, true, 1, None), &found(pod("Running", true, true)), time(T0));
        let suspending = suspending(profile, Some(up));
        let resumed =
            status(profile, &of(profile, true, 3, Some(suspending.clone())), &found(just_created()), time(T0));
        let suspended = |s: &SandboxStatus| told(s).into_iter().find(|c| c.starts_with("Suspended"));
        (suspended(&suspending), suspended(&resumed))
    });
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(lives[0], (None, None), "v0.4.6 never says so");
    assert_eq!(
        lives[1],
        (some("Suspended=True/PodTerminated@2"), some("Suspended=True/PodTerminated@2")),
        "v0.5.0 says so while the Pod ends, and leaves it with the old generation after a resume"
    );
    assert_eq!(lives[2], (some("Suspended=False/PodTerminating@2"), some("Suspended=False/NotSuspended@3")));
}

#[test]
fn the_old_status_counts_replicas_and_has_no_node() {
    let old = |on, pod, before| status(Profile::V046, &of(Profile::V046, on, 1, before), &found(pod), time(T0));
    let up = old(true, pod("Running", true, true), None);
    assert_eq!((up.replicas, up.node_name.as_deref()), (Some(1), None));
    assert_eq!(old(false, PodState::Absent, Some(up)).replicas, None, "0 is left out");
    let new = status(Profile::V056, &of(Profile::V056, true, 1, None), &found(pod("Running", true, true)), time(T0));
    assert_eq!((new.replicas, new.node_name.as_deref()), (None, Some("n1")));
}
