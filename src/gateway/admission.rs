//! Which request a sandbox's phase admits, and the exact words of the refusals.

use tonic::{Code, Status};

use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::{Remedies, Remedy};

use super::Profile;
use super::phases;
use super::record::{ErrorKind, Row};

/// A refused request: gRPC code and the text that the client reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// gRPC code.
    pub code: Code,
    /// Text for the client.
    pub message: String,
}

impl Refusal {
    fn precondition(message: String) -> Self {
        Refusal { code: Code::FailedPrecondition, message }
    }
}

impl From<Refusal> for Status {
    fn from(r: Refusal) -> Self {
        Status::new(r.code, r.message)
    }
}

/// What an admitted StopSandbox does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Becomes Stopping, the driver stops the compute, then Stopped.
    Begin,
    /// Is Stopping already: the driver is driven once more.
    Redrive,
    /// Is at rest already: sessions are cleaned up once more, the phase stays.
    AtRest,
}

/// What an admitted StartSandbox does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Becomes Starting under the next identity.
    Begin,
    /// Is Provisioning: becomes Starting under the identity that it has, but only if the driver shows now that the compute
    /// is off and empty (remedy `start-from-empty-provisioning`).
    IfEmpty,
    /// Is Starting already: the driver is driven once more with the same identity.
    Redrive,
    /// Is Ready already.
    Running,
}

/// What an admitted DeleteSandbox does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// Becomes Deleting and the driver deletes the compute.
    Begin,
    /// Is Deleting already: accepted once more, without a second call of the driver.
    UnderWay,
}

/// What the supervisor's hello does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// The sandbox becomes ready for use.
    Connect,
    /// The session is served, the row stays as it is: its main process has ended.
    Ignore,
}

/// May this row be stopped?
///
/// # Errors
/// The refusal of the profile, always `FAILED_PRECONDITION`.
pub fn stop(profile: Profile, remedies: Remedies, row: &Sandbox) -> Result<Stop, Refusal> {
    use SandboxPhase::*;
    let from_error = || profile == Profile::Cc0642fa8 || remedies.has(Remedy::StopFromError);
    match (profile, row.phase()) {
        (_, Ready) => Ok(Stop::Begin),
        (_, Stopping) => Ok(Stop::Redrive),
        (_, Stopped) => Ok(Stop::AtRest),
        (Profile::Cc0642fa8, Completed) => Ok(Stop::AtRest),
        (Profile::Cc0642fa8, Starting) if row.is_automatic_restart() => Ok(Stop::Begin),
        (_, Provisioning) if remedies.has(Remedy::StopFromProvisioning) => Ok(Stop::Begin),
        (_, Error) if from_error() => match row.error_kind() {
            Some(ErrorKind::MainProcessFailed) => Ok(Stop::AtRest),
            Some(ErrorKind::TimedOut { .. }) => Err(Refusal::precondition(format!(
                "sandbox provisioning timed out and its cleanup owns the stop: start the sandbox instead (current phase: {})",
                phases::phase_name(Error)
            ))),
            Some(ErrorKind::Other) | None => Ok(Stop::Begin),
        },
        (Profile::Cc0642fa8, phase) => Err(Refusal::precondition(format!(
            "sandbox must be Ready, Completed, Suspended, Error, or in an automatic restart to stop (current phase: {})",
            phases::phase_name(phase)
        ))),
        (Profile::V012, phase) => Err(Refusal::precondition(format!(
            "sandbox must be Ready to stop (current phase: {})",
            phases::phase_name(phase)
        ))),
    }
}

/// May this row be started?
///
/// # Errors
/// Always `FAILED_PRECONDITION`.
pub fn start(remedies: Remedies, row: &Sandbox) -> Result<Start, Refusal> {
    use SandboxPhase::*;
    match (row.phase(), row.error_kind()) {
        (Provisioning, _) if remedies.has(Remedy::StartFromEmptyProvisioning) => Ok(Start::IfEmpty),
        (Ready, _) => Ok(Start::Running),
        (Starting, _) => Ok(Start::Redrive),
        (Stopped | Completed, _)
        | (Error, Some(ErrorKind::MainProcessFailed | ErrorKind::TimedOut { cleanup_done: true })) => Ok(Start::Begin),
        (Error, Some(ErrorKind::TimedOut { cleanup_done: false })) => Err(Refusal::precondition(format!(
            "sandbox provisioning timed out and its cleanup is still pending (current phase: {})",
            phases::phase_name(Error)
        ))),
        (phase, _) => Err(cannot_start(phase)),
    }
}

/// The refusal of a start in this phase.
pub fn cannot_start(phase: SandboxPhase) -> Refusal {
    Refusal::precondition(format!(
        "sandbox must be Stopped, Completed, or a failed main-process Error to start (current phase: {})",
        phases::phase_name(phase)
    ))
}

/// Which of stop and start this row admits, joined by a comma: the ways out of it, beside a delete.
pub fn admitted(profile: Profile, remedies: Remedies, row: &Sandbox) -> String {
    let ways = [("start", start(remedies, row).is_ok()), ("stop", stop(profile, remedies, row).is_ok())];
    ways.into_iter().filter_map(|(name, open)| open.then_some(name)).collect::<Vec<_>>().join(",")
}

/// What deleting this row means. Every phase may be deleted.
pub fn delete(row: &Sandbox) -> Delete {
    match row.phase() {
        SandboxPhase::Deleting => Delete::UnderWay,
        _ => Delete::Begin,
    }
}

/// May a client's session be relayed to this sandbox?
///
/// # Errors
/// `FAILED_PRECONDITION` outside Ready.
pub fn relay(row: &Sandbox) -> Result<(), Refusal> {
    match row.phase() {
        SandboxPhase::Ready => Ok(()),
        phase => Err(Refusal::precondition(format!(
            "sandbox must be Ready to open a session (current phase: {})",
            phases::phase_name(phase)
        ))),
    }
}

/// May a supervisor with this main-process instance connect?
///
/// # Errors
/// `FAILED_PRECONDITION` for a sandbox that was told to stop, and for the old instance of an automatic restart.
pub fn session(row: &Sandbox, instance_id: &str) -> Result<Session, Refusal> {
    use SandboxPhase::*;
    let refused = |why: &str| {
        Refusal::precondition(format!(
            "supervisor session refused: {why} (current phase: {})",
            phases::phase_name(row.phase())
        ))
    };
    match (row.phase(), row.error_kind()) {
        (Error, Some(ErrorKind::TimedOut { .. })) => Err(refused("provisioning timed out")),
        (Deleting | Stopping | Stopped, _) => Err(refused("the sandbox was told to stop")),
        (Error | Completed, _) => Ok(Session::Ignore),
        _ if row.is_automatic_restart()
            && row.status.as_ref().is_some_and(|s| s.main_process_instance_id == instance_id) =>
        {
            Err(refused("this main process has already ended"))
        }
        _ => Ok(Session::Connect),
    }
}

/// The refusal of a name that is taken.
pub fn already_exists(name: &str) -> Refusal {
    Refusal { code: Code::AlreadyExists, message: format!("sandbox {name} already exists") }
}

/// The refusal of a name, or an id, that no row has.
pub fn not_found(name: &str) -> Refusal {
    Refusal { code: Code::NotFound, message: format!("sandbox {name} not found") }
}

#[cfg(test)]
mod tests {
    use SandboxPhase::*;

    use crate::pb::openshell::Provisioning as Attempt;

    use super::super::record::MAIN_PROCESS_FAILED;
    use super::*;

    /// Admission asks for proposed remedies alone.
    const REPORTED: Remedies = Remedies::NONE;

    fn row(phase: SandboxPhase) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(phase, "False", "SomeReason", "", 0);
        row
    }
    fn main_process_failed() -> Sandbox {
        let mut row = row(Error);
        row.set_phase(Error, "False", MAIN_PROCESS_FAILED, "", 0);
        row.status_mut().exit_code = Some(1);
        row
    }
    fn timed_out(done: bool) -> Sandbox {
        let mut row = row(Error);
        row.status_mut().provisioning =
            Some(Attempt { timeout_time_ms: 1, cleanup_completed_time_ms: i64::from(done), ..Default::default() });
        row
    }
    fn restarting() -> Sandbox {
        let mut row = row(Starting);
        let status = row.status_mut();
        (status.restart_count, status.exit_code) = (1, Some(1));
        status.main_process_instance_id = "old".into();
        row
    }
    /// Every row of the admission table, by name.
    fn rows() -> Vec<(&'static str, Sandbox)> {
        vec![
            ("Unspecified", row(Unspecified)),
            ("Provisioning", row(Provisioning)),
            ("Ready", row(Ready)),
            ("Error: main process failed", main_process_failed()),
            ("Error: timed out", timed_out(false)),
            ("Error: timed out, cleaned up", timed_out(true)),
            ("Error: other", row(Error)),
            ("Deleting", row(Deleting)),
            ("Unknown", row(Unknown)),
            ("Stopping", row(Stopping)),
            ("Stopped", row(Stopped)),
            ("Starting", row(Starting)),
            ("Starting: automatic restart", restarting()),
            ("Completed", row(Completed)),
        ]
    }

    #[test]
    fn stop_is_admitted_by_phase_and_profile() {
        for (name, row) in rows() {
            let new = stop(Profile::Cc0642fa8, REPORTED, &row).map_err(|r| r.code);
            let old = stop(Profile::V012, REPORTED, &row).map_err(|r| r.code);
            let refused = Err(Code::FailedPrecondition);
            let (expected_new, expected_old) = match name {
                "Ready" => (Ok(Stop::Begin), Ok(Stop::Begin)),
                "Stopping" => (Ok(Stop::Redrive), Ok(Stop::Redrive)),
                "Stopped" => (Ok(Stop::AtRest), Ok(Stop::AtRest)),
                "Error: main process failed" | "Completed" => (Ok(Stop::AtRest), refused),
                "Error: other" | "Starting: automatic restart" => (Ok(Stop::Begin), refused),
                _ => (refused, refused),
            };
            assert_eq!((new, old), (expected_new, expected_old), "{name}");
        }
    }

    #[test]
    fn each_remedy_opens_exactly_its_way_out() {
        let both = [Profile::Cc0642fa8, Profile::V012];
        let stops = |remedy: Remedy, name: &str| {
            let row = rows().into_iter().find(|(n, _)| *n == name).unwrap().1;
            both.map(|profile| stop(profile, REPORTED.with(remedy), &row).map_err(|r| r.code))
        };
        let refused = Err(Code::FailedPrecondition);
        for (name, row) in rows() {
            let reported = both.map(|profile| stop(profile, REPORTED, &row).map_err(|r| r.code));
            let expected = match name {
                "Error: other" => [Ok(Stop::Begin); 2],
                "Error: main process failed" => [Ok(Stop::AtRest); 2],
                _ => reported,
            };
            assert_eq!(stops(Remedy::StopFromError, name), expected, "stop-from-error, {name}");
            let expected = if name == "Provisioning" { [Ok(Stop::Begin); 2] } else { reported };
            assert_eq!(stops(Remedy::StopFromProvisioning, name), expected, "stop-from-provisioning, {name}");

            let remedied = start(REPORTED.with(Remedy::StartFromEmptyProvisioning), &row).map_err(|r| r.code);
            let expected = match name {
                "Provisioning" => Ok(Start::IfEmpty),
                _ => start(REPORTED, &row).map_err(|r| r.code),
            };
            assert_eq!(remedied, expected, "start-from-empty-provisioning, {name}");
        }
        let text = stop(Profile::V012, REPORTED.with(Remedy::StopFromError), &timed_out(false)).unwrap_err().message;
        assert!(text.contains("start the sandbox instead"), "{text}");
        assert_eq!(stops(Remedy::StopFromError, "Provisioning"), [refused; 2]);
    }

    #[test]
    fn the_ways_out_of_a_row_are_those_that_admission_opens() {
        for (name, row) in rows() {
            let expected = match name {
                "Provisioning" | "Unspecified" | "Unknown" | "Deleting" | "Error: timed out" => "",
                "Starting" | "Error: timed out, cleaned up" => "start",
                "Error: other" => "stop",
                "Stopping" => "stop",
                _ => "start,stop",
            };
            assert_eq!(admitted(Profile::Cc0642fa8, REPORTED, &row), expected, "{name}");
        }
        assert_eq!(admitted(Profile::V012, REPORTED, &row(Error)), "", "release 0.1.2 has no way out of an Error");
    }

    #[test]
    fn start_is_admitted_by_phase() {
        for (name, row) in rows() {
            let expected = match name {
                "Ready" => Ok(Start::Running),
                "Starting" | "Starting: automatic restart" => Ok(Start::Redrive),
                "Stopped" | "Completed" | "Error: main process failed" | "Error: timed out, cleaned up" => {
                    Ok(Start::Begin)
                }
                _ => Err(Code::FailedPrecondition),
            };
            assert_eq!(start(REPORTED, &row).map_err(|r| r.code), expected, "{name}");
        }
    }

    #[test]
    fn every_phase_may_be_deleted_and_a_delete_is_driven_once() {
        for (name, row) in rows() {
            let expected = if name == "Deleting" { Delete::UnderWay } else { Delete::Begin };
            assert_eq!(delete(&row), expected, "{name}");
        }
    }

    #[test]
    fn a_session_is_relayed_to_a_ready_sandbox_only() {
        for (name, row) in rows() {
            assert_eq!(relay(&row).is_ok(), name == "Ready", "{name}");
        }
        let refused = relay(&row(Stopped)).unwrap_err();
        assert_eq!(refused.code, Code::FailedPrecondition);
        assert_eq!(refused.message, "sandbox must be Ready to open a session (current phase: Stopped)");
    }

    #[test]
    fn a_supervisor_connects_unless_the_sandbox_was_told_to_stop() {
        for (name, row) in rows() {
            let expected = match name {
                "Deleting" | "Stopping" | "Stopped" | "Error: timed out" | "Error: timed out, cleaned up" => {
                    Err(Code::FailedPrecondition)
                }
                "Error: main process failed" | "Error: other" | "Completed" => Ok(Session::Ignore),
                _ => Ok(Session::Connect),
            };
            assert_eq!(session(&row, "new").map_err(|r| r.code), expected, "{name}");
        }
        assert!(session(&restarting(), "old").is_err());
    }

    #[test]
    fn refusals_speak_the_words_of_their_profile() {
        let text = |r: Result<Stop, Refusal>| r.unwrap_err().message;
        assert_eq!(
            text(stop(Profile::Cc0642fa8, REPORTED, &row(Provisioning))),
            "sandbox must be Ready, Completed, Suspended, Error, or in an automatic restart to stop (current phase: Provisioning)"
        );
        assert_eq!(
            text(stop(Profile::V012, REPORTED, &row(Provisioning))),
            "sandbox must be Ready to stop (current phase: Provisioning)"
        );
        assert_eq!(
            start(REPORTED, &row(Provisioning)).unwrap_err().message,
            "sandbox must be Stopped, Completed, or a failed main-process Error to start (current phase: Provisioning)"
        );
        assert!(text(stop(Profile::Cc0642fa8, REPORTED, &timed_out(false))).contains("start the sandbox instead"));
    }
}
