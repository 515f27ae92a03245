//! The gateway's rules against the tables of the lifecycle's specification, row by row. A row's name says which: `a3` is
//! the admission of requests by phase, `a6` what a snapshot does to a row, `a12` what is documented of newer releases.
mod admission;
mod contract;
mod snapshots;

use crate::pb::openshell::{Provisioning as Attempt, Sandbox, SandboxPhase};

use super::record::{MAIN_PROCESS_FAILED, Row};

/// A row in this phase, with nothing else to tell.
fn row(phase: SandboxPhase) -> Sandbox {
    let mut row = Sandbox::default();
    row.set_phase(phase, "False", "Before", "", 0);
    row
}
/// An Error since the main process ended with code 1.
fn main_process_failed() -> Sandbox {
    let mut row = row(SandboxPhase::Error);
    row.set_phase(SandboxPhase::Error, "False", MAIN_PROCESS_FAILED, "", 0);
    row.status_mut().exit_code = Some(1);
    row
}
/// An Error since the provisioning deadline passed; is its compute known to be stopped?
fn timed_out(cleaned_up: bool) -> Sandbox {
    let mut row = row(SandboxPhase::Error);
    let cleanup_completed_time_ms = i64::from(cleaned_up);
    row.status_mut().provisioning =
        Some(Attempt { timeout_time_ms: 1, cleanup_completed_time_ms, ..Default::default() });
    row
}
/// Starting by itself, after its main process `old` ended with code 1.
fn restarting() -> Sandbox {
    let mut row = row(SandboxPhase::Starting);
    let status = row.status_mut();
    (status.restart_count, status.exit_code) = (1, Some(1));
    status.main_process_instance_id = "old".into();
    row
}
