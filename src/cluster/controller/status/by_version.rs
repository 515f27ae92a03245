//! Every condition by the controller's version: the rows of the published comparison, one after the other, for v0.4.6,
//! v0.5.0 to v0.5.3, and v0.5.4 and later.
use super::tests::{T0, found, just_created, of, pod, time, told};
use super::*;
use Profile::{V046, V050, V056};

const ALL: [Profile; 3] = [V046, V050, V056];

/// One condition of a status: `True/DependenciesReady@1`; `-` if it is not there.
fn said(status: &SandboxStatus, kind: &str) -> String {
    let prefix = format!("{kind}=");
    told(status).into_iter().find_map(|c| c.strip_prefix(&prefix).map(str::to_owned)).unwrap_or_else(|| "-".into())
}

/// Row, the condition that it is about, on or off, what was found, and what each version says.
type Row = (&'static str, &'static str, bool, Outcome, [&'static str; 3]);

fn check(rows: Vec<Row>) {
    for (row, kind, on, outcome, expected) in rows {
        for (profile, expected) in ALL.into_iter().zip(expected) {
            let status = status(profile, &of(profile, on, 1, None), &outcome, time(T0));
            assert_eq!(said(&status, kind), expected, "{row}, {profile:?}");
        }
    }
}
fn failed(pod: PodState) -> Outcome {
    Outcome { pod, service: false, error: Some("no".into()) }
}

const NOT_READY: [&str; 3] = ["False/DependenciesNotReady@1"; 3];

#[test]
fn c2_ready_when_running() {
    let up = || pod("Running", true, true);
    check(vec![
        ("c2_running_ready_with_ip", READY, true, found(up()), ["True/DependenciesReady@1"; 3]),
        ("c2_running_not_ready", READY, true, found(pod("Running", false, true)), NOT_READY),
        ("c2_running_without_ip", READY, true, found(pod("Running", true, false)), NOT_READY),
        ("c2_pending", READY, true, found(pod("Pending", false, false)), NOT_READY),
        ("c2_no_pod", READY, true, found(PodState::Absent), NOT_READY),
        ("c2_error", READY, true, failed(PodState::Unknown), ["False/ReconcilerError@1"; 3]),
        (
            "c2_pod_succeeded",
            READY,
            true,
            found(pod("Succeeded", false, true)),
            ["False/DependenciesNotReady@1", "False/DependenciesNotReady@1", "False/PodSucceeded@1"],
        ),
        (
            "c2_pod_failed",
            READY,
            true,
            found(pod("Failed", false, true)),
            ["False/DependenciesNotReady@1", "False/DependenciesNotReady@1", "False/PodFailed@1"],
        ),
    ]);
    // Only the newest version looks at several Pods at all: the older ones take the one of their name (see `pod`).
    let several = status(V056, &of(V056, true, 1, None), &found(PodState::Multiple(2)), time(T0));
    assert_eq!(said(&several, READY), "False/MultiplePods@1", "c2_multiple_pods");
}

#[test]
fn c2_ready_when_running_needs_the_service_if_one_is_wanted() {
    for profile in ALL {
        let mut wanting = of(profile, true, 1, None);
        wanting.spec.service = Some(true);
        for (there, expected) in [(true, "True/DependenciesReady@1"), (false, "False/DependenciesNotReady@1")] {
            let outcome = Outcome { service: there, ..found(pod("Running", true, true)) };
            assert_eq!(said(&status(profile, &wanting, &outcome, time(T0)), READY), expected, "{profile:?} {there}");
        }
    }
}

#[test]
fn c2_ready_when_off() {
    check(vec![
        (
            "c2_off_no_pod",
            READY,
            false,
            found(PodState::Absent),
            ["True/DependenciesReady@1", "False/SandboxSuspended@1", "False/SandboxSuspended@1"],
        ),
        ("c2_off_error", READY, false, failed(PodState::Unknown), ["False/ReconcilerError@1"; 3]),
    ]);
    // At once: the Pod that was deleted is not looked at any more by the versions that forget it.
    let ending = status(V056, &of(V056, false, 1, None), &found(pod("Running", true, true)), time(T0));
    assert_eq!(said(&ending, READY), "False/SandboxSuspended@1", "c2_off_pod_ends");
}

#[test]
fn c2_suspended_when_off() {
    check(vec![
        (
            "c2_suspended_pod_gone",
            SUSPENDED,
            false,
            found(PodState::Absent),
            ["-", "True/PodTerminated@1", "True/PodTerminated@1"],
        ),
        (
            "c2_suspended_pod_ends",
            SUSPENDED,
            false,
            found(pod("Running", true, true)),
            ["-", "True/PodTerminated@1", "False/PodTerminating@1"],
        ),
        (
            "c2_suspended_foreign_pod",
            SUSPENDED,
            false,
            found(PodState::Foreign),
            ["-", "True/PodTerminated@1", "False/PodNotOwned@1"],
        ),
        (
            "c2_suspended_pod_error",
            SUSPENDED,
            false,
            failed(PodState::Unknown),
            ["-", "True/PodTerminated@1", "Unknown/PodStateUnknown@1"],
        ),
    ]);
}

#[test]
fn c2_suspended_after_a_resume() {
    let resumed = ALL.map(|profile| {
        let off = status(profile, &of(profile, false, 2, None), &found(PodState::Absent), time(T0));
        let on = status(profile, &of(profile, true, 3, Some(off)), &found(just_created()), time(T0));
        said(&on, SUSPENDED)
    });
    assert_eq!(resumed, ["-", "True/PodTerminated@2", "False/NotSuspended@3"]);
    let fresh = ALL.map(|profile| {
        said(&status(profile, &of(profile, true, 1, None), &found(just_created()), time(T0)), SUSPENDED)
    });
    assert_eq!(fresh, ["-", "-", "False/NotSuspended@1"], "of one that never was suspended");
}

#[test]
fn c2_finished_is_true_of_a_pod_that_ended_and_removed_otherwise() {
    check(vec![
        ("c2_finished_succeeded", FINISHED, true, found(pod("Succeeded", false, true)), ["True/PodSucceeded@1"; 3]),
        ("c2_finished_failed", FINISHED, true, found(pod("Failed", false, true)), ["True/PodFailed@1"; 3]),
        ("c2_finished_running", FINISHED, true, found(pod("Running", true, true)), ["-"; 3]),
        ("c2_finished_no_pod", FINISHED, true, found(PodState::Absent), ["-"; 3]),
    ]);
    for profile in ALL {
        let ended = status(profile, &of(profile, true, 1, None), &found(pod("Failed", false, true)), time(T0));
        let replaced = status(profile, &of(profile, true, 1, Some(ended)), &found(just_created()), time(T0));
        assert_eq!(said(&replaced, FINISHED), "-", "{profile:?}: removed");
    }
}

#[test]
fn c2_pod_scheduled_is_mirrored_by_the_newest_alone_and_removed_without_a_pod() {
    check(vec![
        ("c2_scheduled", POD_SCHEDULED, true, found(pod("Running", true, true)), ["-", "-", "True/PodScheduled@1"]),
        (
            "c2_scheduled_not_said",
            POD_SCHEDULED,
            true,
            found(just_created()),
            ["-", "-", "Unknown/PodSchedulingUnknown@1"],
        ),
        ("c2_scheduled_no_pod", POD_SCHEDULED, true, found(PodState::Absent), ["-"; 3]),
    ]);
    let up = status(V056, &of(V056, true, 1, None), &found(pod("Running", true, true)), time(T0));
    let gone = status(V056, &of(V056, false, 2, Some(up)), &found(PodState::Absent), time(T0));
    assert_eq!(said(&gone, POD_SCHEDULED), "-", "removed");
}

#[test]
fn c2_the_status_is_written_under_a_lock_by_the_older_and_without_one_by_the_newest() {
    assert_eq!(ALL.map(Profile::locks_status), [true, true, false]);
    let unready = status(V056, &of(V056, true, 1, None), &found(pod("Pending", false, false)), time(T0));
    let elsewhere = SandboxStatus { node_name: Some("n2".into()), ..unready.clone() };
    assert_eq!(patch(&unready, &elsewhere), None, "the node's name alone waits until it is Ready");
    let ready = status(V056, &of(V056, true, 1, None), &found(pod("Running", true, true)), time(T0));
    let written = patch(&unready, &ready).expect("a change");
    assert!(written.pointer("/metadata").is_none(), "no resourceVersion: {written}");
}

#[test]
fn c2_every_condition_carries_the_generation_that_was_read() {
    for profile in ALL {
        for (on, found) in [(true, found(pod("Running", true, true))), (false, found(PodState::Absent))] {
            let status = status(profile, &of(profile, on, 7, None), &found, time(T0));
            assert!(told(&status).iter().all(|c| c.ends_with("@7")), "{profile:?}: {:?}", told(&status));
        }
    }
}
