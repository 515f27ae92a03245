//! Admission by phase: for every row of the table and each of the four requests, what is done or which code and words
//! refuse it, in both profiles.
use tonic::Code;

use super::super::admission::{self, Delete, Refusal, Start, Stop};
use super::super::store::{Store, StoreError};
use super::super::{Profile, record};
use super::*;
use crate::remedy::{Remedies, Remedy};
use SandboxPhase::*;

/// What a request meets: what it does, or the words of a FAILED_PRECONDITION.
#[derive(Debug, PartialEq)]
enum Meets<T> {
    Does(T),
    Refused(String),
}
use Meets::{Does, Refused};

fn met<T>(answer: Result<T, Refusal>) -> Meets<T> {
    match answer {
        Ok(does) => Does(does),
        Err(Refusal { code, message }) => {
            assert_eq!(code, Code::FailedPrecondition, "{message}");
            Refused(message)
        }
    }
}

/// The stop refusal of the reported code.
fn no_stop<T>(phase: &str) -> Meets<T> {
    let phases = "Ready, Completed, Suspended, Error, or in an automatic restart";
    Refused(format!("sandbox must be {phases} to stop (current phase: {phase})"))
}
/// The stop refusal of release 0.1.2.
fn no_stop_in_012<T>(phase: &str) -> Meets<T> {
    Refused(format!("sandbox must be Ready to stop (current phase: {phase})"))
}
fn no_start<T>(phase: &str) -> Meets<T> {
    let phases = "Stopped, Completed, or a failed main-process Error";
    Refused(format!("sandbox must be {phases} to start (current phase: {phase})"))
}
fn its_cleanup_stops<T>() -> Meets<T> {
    let why = "sandbox provisioning timed out and its cleanup owns the stop";
    Refused(format!("{why}: start the sandbox instead (current phase: Error)"))
}
fn its_cleanup_is_pending<T>() -> Meets<T> {
    Refused("sandbox provisioning timed out and its cleanup is still pending (current phase: Error)".into())
}

/// Row, stop, stop in release 0.1.2, start, delete.
type Line = (&'static str, Sandbox, Meets<Stop>, Meets<Stop>, Meets<Start>, Delete);

/// The table. Not in it is "Error with a driver operation pending": only a release that detaches its driver calls has such
/// rows. Here each call is made under the sandbox's gate, which the next request waits for.
fn table() -> Vec<Line> {
    use Delete::{Begin as Gone, UnderWay};
    let refused = |name: &'static str, row: Sandbox, phase: &str| {
        (name, row, no_stop(phase), no_stop_in_012(phase), no_start(phase), Gone)
    };
    let begin = || Does(Stop::Begin);
    let at_rest = || Does(Stop::AtRest);
    vec![
        refused("a3_provisioning", row(Provisioning), "Provisioning"),
        ("a3_ready", row(Ready), begin(), begin(), Does(Start::Running), Gone),
        (
            "a3_error_main_process_failed",
            main_process_failed(),
            at_rest(),
            no_stop_in_012("Error"),
            Does(Start::Begin),
            Gone,
        ),
        (
            "a3_error_timed_out_cleanup_pending",
            timed_out(false),
            its_cleanup_stops(),
            no_stop_in_012("Error"),
            its_cleanup_is_pending(),
            Gone,
        ),
        (
            "a3_error_timed_out_cleanup_done",
            timed_out(true),
            its_cleanup_stops(),
            no_stop_in_012("Error"),
            Does(Start::Begin),
            Gone,
        ),
        // A stop first, then a start: both profiles refuse the start in the same words.
        ("a3_error_other", row(Error), begin(), no_stop_in_012("Error"), no_start("Error"), Gone),
        ("a3_deleting", row(Deleting), no_stop("Deleting"), no_stop_in_012("Deleting"), no_start("Deleting"), UnderWay),
        refused("a3_unknown", row(Unknown), "Unknown"),
        refused("a3_unspecified", row(Unspecified), "Unspecified"),
        ("a3_stopping", row(Stopping), Does(Stop::Redrive), Does(Stop::Redrive), no_start("Stopping"), Gone),
        ("a3_stopped", row(Stopped), at_rest(), at_rest(), Does(Start::Begin), Gone),
        (
            "a3_starting_by_a_user",
            row(Starting),
            no_stop("Starting"),
            no_stop_in_012("Starting"),
            Does(Start::Redrive),
            Gone,
        ),
        ("a3_starting_by_itself", restarting(), begin(), no_stop_in_012("Starting"), Does(Start::Redrive), Gone),
        ("a3_completed", row(Completed), at_rest(), no_stop_in_012("Completed"), Does(Start::Begin), Gone),
    ]
}

#[test]
fn a3_every_row_admits_or_refuses_each_request_in_the_words_of_its_profile() {
    let reported = Remedies::as_reported();
    for (name, row, stop, stop_in_012, start, delete) in table() {
        assert_eq!(met(admission::stop(Profile::Cc0642fa8, reported, &row)), stop, "{name}: stop");
        assert_eq!(met(admission::stop(Profile::V012, reported, &row)), stop_in_012, "{name}: stop, 0.1.2");
        assert_eq!(met(admission::start(reported, &row)), start, "{name}: start");
        assert_eq!(admission::delete(&row), delete, "{name}: delete");
    }
}

#[test]
fn a3_no_phase_and_no_kind_of_error_is_missing_from_the_table() {
    let lines = table();
    let phases: Vec<SandboxPhase> = lines.iter().map(|(_, row, ..)| row.phase()).collect();
    for phase in (0..10).map(|n| SandboxPhase::try_from(n).expect("ten phases")) {
        assert!(phases.contains(&phase), "{phase:?}");
    }
    let kinds: Vec<_> = lines.iter().filter_map(|(_, row, ..)| row.error_kind()).collect();
    use record::ErrorKind::*;
    assert_eq!(kinds, [MainProcessFailed, TimedOut { cleanup_done: false }, TimedOut { cleanup_done: true }, Other]);
}

#[test]
fn a3_a_name_that_a_row_of_any_phase_has_is_taken() {
    for (name, mut there, ..) in table() {
        let store = Store::open(":memory:").expect("a database");
        let named = |row: &mut Sandbox, id: &str| {
            let meta = row.meta_mut();
            (meta.id, meta.name, meta.workspace) = (id.into(), "demo".into(), "team".into());
        };
        named(&mut there, "1");
        store.create("create", there, 0).expect("a new name");
        let mut another = row(Provisioning);
        named(&mut another, "2");
        let taken = store.create("create", another, 0).expect_err("the name is taken");
        assert!(matches!(taken, StoreError::AlreadyExists { .. }), "{name}: {taken}");
    }
    let refusal = admission::already_exists("demo");
    assert_eq!((refusal.code, refusal.message.as_str()), (Code::AlreadyExists, "sandbox demo already exists"));
}

#[test]
fn a3_none_without_a_row_there_is_nothing_to_stop_start_or_delete() {
    let refusal = admission::not_found("demo");
    assert_eq!((refusal.code, refusal.message.as_str()), (Code::NotFound, "sandbox demo not found"));
}

#[test]
fn a3_with_the_remedies_every_row_but_a_deleting_one_admits_a_stop_or_a_start() {
    for profile in [Profile::Cc0642fa8, Profile::V012] {
        for (name, row, ..) in table() {
            let admitted = admission::admitted(profile, Remedies::recommended(), &row);
            // Nothing stores the first two; the third lasts as long as its cleanup.
            let closed = ["a3_unknown", "a3_unspecified", "a3_error_timed_out_cleanup_pending", "a3_deleting"];
            assert_eq!(admitted.is_empty(), closed.contains(&name), "{name}: {admitted:?}");
        }
    }
    let stop_from_error = Remedies::as_reported().with(Remedy::StopFromError);
    assert_eq!(met(admission::stop(Profile::V012, stop_from_error, &timed_out(false))), its_cleanup_stops());
}
