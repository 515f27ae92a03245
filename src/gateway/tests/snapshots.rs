//! What a snapshot does to a row: each numbered row of the table with the phases and snapshots that it is about, and what
//! must follow for the row's fields.
use super::super::configuration;
use super::super::record::{PROVISIONING_WINDOW_MS, new_attempt};
use super::super::snapshot::{Context, Verdict, apply, verdict};
use super::*;
use crate::pb::compute::{DriverCondition, DriverSandbox, DriverSandboxStatus};
use crate::pb::openshell::ConfigurationAdmission;
use SandboxPhase::*;
use Verdict::{NotApplied, Phase, Untouched};

const ALL: [SandboxPhase; 10] =
    [Unspecified, Provisioning, Ready, Error, Deleting, Unknown, Stopping, Stopped, Starting, Completed];

/// A snapshot with these conditions, each written `Type=Status/Reason`, separated by blanks; `-` has no status at all,
/// and `deleting` stands for itself.
fn snapshot(words: &str) -> DriverSandbox {
    let mut status = DriverSandboxStatus::default();
    for word in words.split_whitespace().filter(|word| *word != "-") {
        if word == "deleting" {
            status.deleting = true;
            continue;
        }
        let (kind, rest) = word.split_once('=').expect("Type=Status/Reason");
        let (value, reason) = rest.split_once('/').expect("Type=Status/Reason");
        let (r#type, value, reason) = (kind.into(), value.into(), reason.into());
        status.conditions.push(DriverCondition { r#type, status: value, reason, ..Default::default() });
    }
    let status = (words != "-").then_some(status);
    DriverSandbox { name: "demo".into(), status, ..Default::default() }
}

const NONE: &str = "-";
const DELETING: &str = "deleting";
const READY: &str = "Ready=True/DependenciesReady";
const NOT_YET: &str = "Ready=False/DependenciesNotReady";
const FAILED: &str = "Ready=False/PodFailed";
const STOPPED: &str = "Suspended=True/PodTerminated Ready=False/SandboxSuspended";
const EXITED: &str = "Ready=False/ContainerExited";
const CONTAINER_STOPPED: &str = "Other=False/ContainerStopped Ready=False/DependenciesNotReady";
const ENDING: &str = "Suspended=False/PodTerminating Ready=False/DependenciesNotReady";
const ENDING_FAILED: &str = "Suspended=False/PodNotTerminated Ready=False/PodFailed";
const RUNTIME_RESTART: &str = "Ready=False/ContainerRuntimeRestart";
const MARKED: &str = "Bootstrapping=True/SandboxRuntimeGenerationStarting Ready=False/DependenciesNotReady";
const MARKED_FAILED: &str = "Bootstrapping=True/SandboxRuntimeGenerationStarting Ready=False/PodFailed";
const MARKED_SUSPENDED: &str =
    "Bootstrapping=True/Starting Suspended=True/PodTerminated Ready=False/DependenciesNotReady";
const EVERY: [&str; 13] = [
    NONE,
    DELETING,
    READY,
    NOT_YET,
    FAILED,
    STOPPED,
    EXITED,
    CONTAINER_STOPPED,
    ENDING,
    ENDING_FAILED,
    RUNTIME_RESTART,
    MARKED,
    MARKED_SUSPENDED,
];

fn starting(admission: Option<&str>) -> Sandbox {
    let mut row = row(Starting);
    row.status_mut().configuration_admission =
        admission.map(|state| ConfigurationAdmission { state: state.into(), ..Default::default() });
    row
}

/// Row of the table, old row, snapshot, what comes of it without and with a session.
type Line = (&'static str, Sandbox, &'static str, Verdict, Verdict);

fn check(lines: Vec<Line>) {
    for (name, old, words, alone, connected) in lines {
        for (session_connected, expected) in [(false, alone), (true, connected)] {
            let cx = Context { session_connected, ..Default::default() };
            let got = verdict(&old, &snapshot(words), &cx);
            assert_eq!(got, expected, "{name}: {:?} meets {words}, session {session_connected}", old.phase());
        }
    }
}
/// The same with and without a session.
fn same(name: &'static str, old: Sandbox, words: &'static str, expected: Verdict) -> Line {
    (name, old, words, expected, expected)
}

#[test]
fn a6_1_error_and_completed_are_left_untouched_by_every_snapshot() {
    let old = || [row(Error), main_process_failed(), timed_out(false), row(Completed)];
    check(EVERY.iter().flat_map(|words| old().map(|old| same("a6_1", old, words, Untouched))).collect());
}

#[test]
fn a6_2_to_4_restarts_of_the_runtime_and_of_the_main_process_are_seen_through() {
    let mut lines = vec![
        same("a6_2", row(Stopped), RUNTIME_RESTART, Untouched),
        same("a6_4", row(Stopping), RUNTIME_RESTART, Phase(Stopping)),
    ];
    lines.extend(EVERY.iter().map(|words| same("a6_3", restarting(), words, Phase(Starting))));
    check(lines);
}

#[test]
fn a6_5_to_8_a_stop_ends_with_stopped_or_an_error_and_is_not_left_for_anything_else() {
    check(vec![
        same("a6_5_suspended", row(Stopping), STOPPED, Phase(Stopped)),
        same("a6_5_exited", row(Stopping), EXITED, Phase(Stopped)),
        same("a6_5_container_stopped", row(Stopping), CONTAINER_STOPPED, Phase(Stopped)),
        same("a6_6_pod_ends", row(Stopping), ENDING, Phase(Stopping)),
        same("a6_6_pod_ends_and_failed", row(Stopping), ENDING_FAILED, Phase(Stopping)),
        same("a6_7_no_status", row(Stopping), NONE, Phase(Stopping)),
        same("a6_7_ready", row(Stopping), READY, Phase(Stopping)),
        same("a6_7_not_yet", row(Stopping), NOT_YET, Phase(Stopping)),
        same("a6_7_marked", row(Stopping), MARKED, Phase(Stopping)),
        same("a6_7_deleting", row(Stopping), DELETING, Phase(Stopping)),
        same("a6_8_failed", row(Stopping), FAILED, Phase(Error)),
        same("a6_8_marked_and_failed", row(Stopping), MARKED_FAILED, Phase(Error)),
    ]);
}

#[test]
fn a6_9_and_10_as_reported_a_stopped_row_is_moved_by_a_starting_claim_and_by_nothing_else() {
    let mut lines = vec![
        ("a6_9", row(Stopped), MARKED, Phase(Provisioning), Phase(Ready)),
        same("a6_9_failed", row(Stopped), MARKED_FAILED, Phase(Error)),
    ];
    let others = EVERY.into_iter().filter(|words| ![MARKED, RUNTIME_RESTART].contains(words));
    lines.extend(others.map(|words| same("a6_10", row(Stopped), words, Phase(Stopped))));
    check(lines);
}

#[test]
fn a6_11_to_13_a_start_ends_with_ready_or_an_error_and_not_before_its_configuration_is_accepted() {
    let mut lines = vec![];
    for open in ["Pending", "Rejected"] {
        for words in [READY, NOT_YET, MARKED, STOPPED, DELETING, NONE] {
            lines.push(same("a6_11", starting(Some(open)), words, Phase(Starting)));
        }
        lines.push(same("a6_13_error_while_open", starting(Some(open)), FAILED, Phase(Error)));
    }
    for settled in [None, Some("Accepted")] {
        for words in [STOPPED, DELETING, NONE] {
            lines.push(same("a6_12", starting(settled), words, Phase(Starting)));
        }
        for words in [READY, NOT_YET, MARKED] {
            lines.push(("a6_12_13", starting(settled), words, Phase(Starting), Phase(Ready)));
        }
        for words in [FAILED, EXITED] {
            lines.push(same("a6_13_error", starting(settled), words, Phase(Error)));
        }
    }
    check(lines);
}

#[test]
fn a6_14_a_deleting_row_is_not_even_written() {
    check(EVERY.iter().map(|words| same("a6_14", row(Deleting), words, NotApplied)).collect());
}

#[test]
fn a6_15_a_row_that_is_up_or_coming_up_shows_what_the_snapshot_shows() {
    let mut lines = vec![];
    for old in [Provisioning, Ready, Unknown, Unspecified] {
        for words in [READY, NOT_YET, MARKED, ENDING] {
            lines.push(("a6_15", row(old), words, Phase(Provisioning), Phase(Ready)));
        }
        for words in [FAILED, EXITED, ENDING_FAILED, RUNTIME_RESTART] {
            lines.push(same("a6_15_error", row(old), words, Phase(Error)));
        }
        lines.push(same("a6_15_stopped", row(old), STOPPED, Phase(Stopped)));
        lines.push(same("a6_15_deleting", row(old), DELETING, Phase(Deleting)));
        // Without a status a session still makes Ready what waits for one.
        let connected = if matches!(old, Provisioning | Unknown) { Ready } else { old };
        lines.push(("a6_15_no_status", row(old), NONE, Phase(old), Phase(connected)));
    }
    check(lines);
}

#[test]
fn a6_every_phase_stands_in_some_row_of_the_table() {
    // A phase that a row leaves out would fall to whichever rule comes last.
    for old in ALL {
        for words in EVERY {
            let got = verdict(&row(old), &snapshot(words), &Context::default());
            match old {
                Error | Completed => assert_eq!(got, Untouched, "{words}"),
                Deleting => assert_eq!(got, NotApplied, "{words}"),
                Stopping => assert!(matches!(got, Phase(Stopping | Stopped | Error)), "{words}: {got:?}"),
                Starting => assert!(matches!(got, Phase(Starting | Ready | Error)), "{words}: {got:?}"),
                Stopped => assert!(matches!(got, Untouched | Phase(Stopped | Provisioning)), "{words}: {got:?}"),
                _ => assert!(matches!(got, Phase(_)), "{words}: {got:?}"),
            }
        }
    }
}

#[test]
fn a6_after_the_table_the_gateway_keeps_its_own_fields_and_takes_the_conditions() {
    let mut old = row(Provisioning);
    let attempt = new_attempt(0);
    let status = old.status_mut();
    status.main_process_instance_id = "instance".into();
    (status.exit_code, status.restart_count, status.next_restart_time_ms) = (Some(4), 2, 77);
    status.current_policy_version = 7;
    status.provisioning = Some(attempt.clone());
    let mut applied = old.clone();
    apply(&mut applied, &snapshot(STOPPED), &Context::default());
    let mut expected = old.status.clone().expect("a status");
    let got = applied.status.clone().expect("a status");
    let told: Vec<_> = got.conditions.iter().map(|c| (c.r#type.as_str(), c.reason.as_str())).collect();
    assert_eq!(told, [("Suspended", "PodTerminated"), ("Ready", "SandboxSuspended")]);
    expected.conditions.clone_from(&got.conditions);
    expected.set_phase(Stopped);
    assert_eq!(got, expected, "nothing else has changed");
    let name = applied.metadata.expect("metadata").name;
    assert_eq!(name, "demo");
}

#[test]
fn a6_an_untouched_row_takes_over_the_name_alone() {
    let before = main_process_failed();
    let mut after = before.clone();
    assert_eq!(apply(&mut after, &snapshot(READY), &Context::default()), Untouched);
    assert_eq!(after.status, before.status);
    assert_eq!(after.metadata.expect("metadata").name, "demo");
}

#[test]
fn a6_then_an_open_configuration_and_a_deadline_that_has_passed_take_ready_back() {
    let cx = |now_ms| Context { session_connected: true, now_ms, ..Default::default() };
    let mut waits = row(Provisioning);
    waits.status_mut().configuration_admission = Some(configuration::pending());
    apply(&mut waits, &snapshot(READY), &cx(0));
    assert_eq!((waits.phase(), waits.ready_reason()), (Provisioning, "ConfigurationPending"));
    for (now_ms, phase, reason, deadline_ms) in [
        (PROVISIONING_WINDOW_MS - 1, Ready, "DependenciesReady", 0),
        (PROVISIONING_WINDOW_MS, Provisioning, "ProvisioningDeadlineElapsed", PROVISIONING_WINDOW_MS),
    ] {
        let mut armed = row(Provisioning);
        armed.status_mut().provisioning = Some(new_attempt(0));
        apply(&mut armed, &snapshot(READY), &cx(now_ms));
        assert_eq!((armed.phase(), armed.ready_reason()), (phase, reason), "{now_ms}");
        let attempt = armed.status.expect("a status").provisioning.expect("an attempt");
        assert_eq!(attempt.deadline_ms, deadline_ms, "{now_ms}");
    }
}
