//! What is documented of releases newer than the profiles: the clauses that hold here, and why the others have nothing to
//! hold of.
//!
//! A newer release runs each driver call in a task of its own, which it claims in the row (a pending flag and an id) and
//! settles there. Here a call is made by a worker that holds the sandbox's gate until it is answered, so within a process
//! no request ever meets a pending call; the attempt id of a start that is not settled is what is kept over a crash.
//! Preparation ceilings and admission holds belong to that release's configuration service, which is not modelled.
use super::super::recover::{Recovery, recovery};
use super::super::snapshot::{Context, Verdict, verdict};
use super::super::watch_loop::doubt;
use super::super::{Profile, admission};
use super::*;
use crate::pb::compute::{DriverCondition, DriverSandbox, DriverSandboxStatus};
use crate::remedy::{Remedies, Remedy};
use SandboxPhase::*;

fn snapshot(conditions: &[(&str, &str, &str)]) -> DriverSandbox {
    let condition = |(kind, status, reason): &(&str, &str, &str)| DriverCondition {
        r#type: (*kind).into(),
        status: (*status).into(),
        reason: (*reason).into(),
        ..Default::default()
    };
    let conditions = conditions.iter().map(condition).collect();
    DriverSandbox { status: Some(DriverSandboxStatus { conditions, ..Default::default() }), ..Default::default() }
}
fn marked() -> DriverSandbox {
    snapshot(&[("Bootstrapping", "True", ""), ("Ready", "False", "DependenciesNotReady")])
}

#[test]
fn a12_stale_snapshots_and_sessions_do_not_promote_a_stopped_row_once_the_remedies_are_on() {
    for session_connected in [false, true] {
        let cx = |remedies| Context { session_connected, remedies, ..Default::default() };
        for claim in [marked(), snapshot(&[("Ready", "True", "DependenciesReady")])] {
            let got = verdict(&row(Stopped), &claim, &cx(Remedies::recommended()));
            assert!(matches!(got, Verdict::Untouched | Verdict::Phase(Stopped)), "{got:?}");
        }
        let reported = verdict(&row(Stopped), &marked(), &cx(Remedies::as_reported()));
        let promoted = if session_connected { Ready } else { Provisioning };
        assert_eq!(reported, Verdict::Phase(promoted), "as reported the clause is broken");
    }
    assert!(admission::session(&row(Stopped), "any").is_err(), "a session is not even let in");
}

#[test]
fn a12_a_stop_completes_only_when_the_backend_is_no_longer_stopping() {
    let ending = snapshot(&[("Suspended", "False", "PodTerminating"), ("Ready", "False", "SandboxSuspended")]);
    let ended = snapshot(&[("Suspended", "True", "PodTerminated"), ("Ready", "False", "SandboxSuspended")]);
    for remedies in [Remedies::as_reported(), Remedies::recommended()] {
        let cx = Context { remedies, ..Default::default() };
        assert_eq!(verdict(&row(Stopping), &ending, &cx), Verdict::Phase(Stopping));
        assert_eq!(verdict(&row(Stopping), &ended, &cx), Verdict::Phase(Stopped));
        assert_eq!(recovery(Some(&ending), true, remedies), Recovery::Leave, "nor after a stop that failed");
        assert_eq!(recovery(Some(&ended), true, remedies), Recovery::Apply);
    }
}

#[test]
fn a12_watch_events_take_no_gate_and_rely_on_row_versions_but_for_starting_and_ready() {
    for profile in [Profile::Cc0642fa8, Profile::V012] {
        for phase in [Unspecified, Provisioning, Deleting, Unknown, Stopping, Stopped, Completed, Error] {
            let doubted = doubt(&row(phase), &marked(), profile, &Context::default());
            assert_eq!(doubted, None, "{profile}, {phase:?}");
        }
        assert!(doubt(&row(Starting), &marked(), profile, &Context::default()).is_some());
    }
}

#[test]
fn a12_a_start_that_is_not_settled_is_known_by_its_attempt() {
    let needs = Remedies::as_reported().with(Remedy::StartingNeedsAStart);
    let cx = Context { remedies: needs, ..Default::default() };
    let mut fell_back = row(Stopped);
    assert_eq!(verdict(&fell_back, &marked(), &cx), Verdict::Untouched);
    fell_back.start_attempt = "attempt".into();
    assert_eq!(verdict(&fell_back, &marked(), &cx), Verdict::Phase(Provisioning));
}
