//! Converter and snapshot table together: what a marked resource makes of a row.
//!
//! Every operation x phase of the bootstrap marker x state of the resource x row x start in flight x session, under
//! every set of the proposed remedies. What is expected is written as rules of the specification, which know nothing of
//! how driver and gateway come to it; what NVIDIA/OpenShell#5195 asks for stands beneath as tests of its own.

use photofinish_openshell::driver::convert::{Availability, Dependencies, Presence, convert};
use photofinish_openshell::driver::names;
use photofinish_openshell::driver::resource::Sandbox as Resource;
use photofinish_openshell::gateway::Profile;
use photofinish_openshell::gateway::record::Row as _;
use photofinish_openshell::gateway::snapshot::{Context, Verdict, verdict};
use photofinish_openshell::gateway::watch_loop::{Doubt, doubt};
use photofinish_openshell::pb::compute::DriverSandbox;
use photofinish_openshell::pb::openshell::{Sandbox, SandboxPhase};
use photofinish_openshell::remedy::{Remedies, Remedy};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    Restart,
    Stop,
    Missing,
    Unknown,
}
use Operation::*;

const OPERATIONS: [Operation; 5] = [Create, Restart, Stop, Missing, Unknown];
const PHASES: [&str; 4] = ["preparing", "released", "releasing", "suspending"];
const ROWS: [SandboxPhase; 5] = [
    SandboxPhase::Provisioning,
    SandboxPhase::Ready,
    SandboxPhase::Stopping,
    SandboxPhase::Stopped,
    SandboxPhase::Starting,
];

/// What the controller has written when the marked resource is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    /// Ready=True: it has not seen the suspension.
    Running,
    /// All its conditions are of the generation before.
    Behind,
    /// Ready=False/SandboxSuspended, Suspended=False/PodTerminating.
    Terminating,
    /// Ready=False/SandboxSuspended, Suspended=True/PodTerminated.
    Suspended,
}

const CONTROLLER: [Controller; 4] =
    [Controller::Running, Controller::Behind, Controller::Terminating, Controller::Suspended];

/// One cell of the table.
#[derive(Clone, Copy, Debug)]
struct Cell {
    operation: Operation,
    phase: &'static str,
    controller: Controller,
    row: SandboxPhase,
    in_flight: bool,
    session: bool,
}

fn cells() -> impl Iterator<Item = Cell> {
    let flags = [(false, false), (false, true), (true, false), (true, true)];
    OPERATIONS.into_iter().flat_map(move |operation| {
        PHASES.into_iter().flat_map(move |phase| {
            CONTROLLER.into_iter().flat_map(move |controller| {
                ROWS.into_iter().flat_map(move |row| {
                    flags.into_iter().map(move |(in_flight, session)| Cell {
                        operation,
                        phase,
                        controller,
                        row,
                        in_flight,
                        session,
                    })
                })
            })
        })
    })
}

/// Every set of the proposed remedies, from none to all four.
fn remedy_sets() -> impl Iterator<Item = Remedies> {
    let proposed = [
        Remedy::StopMarkerIsNotStart,
        Remedy::SuspendedSurvivesStopMarker,
        Remedy::StartingNeedsAStart,
        Remedy::StoppedIsRevalidated,
    ];
    (0..16u32).map(move |bits| {
        let on = proposed.into_iter().enumerate().filter(move |(n, _)| bits & 1 << n != 0).map(|(_, r)| r);
        on.fold(Remedies::as_reported(), Remedies::with)
    })
}

impl Cell {
    /// The custom resource, with the annotations of the marker.
    fn resource(self) -> Resource {
        let mut annotations = json!({
            names::BOOTSTRAPPING: "true",
            names::BOOTSTRAP_STARTED_AT_MS: "1790000000000",
            names::BOOTSTRAP_PHASE: self.phase,
            names::READINESS: "unavailable",
        });
        match self.operation {
            Create => annotations[names::BOOTSTRAP_OPERATION] = json!("create"),
            Restart => annotations[names::BOOTSTRAP_OPERATION] = json!("restart"),
            Stop => annotations[names::BOOTSTRAP_OPERATION] = json!("stop"),
            Unknown => annotations[names::BOOTSTRAP_OPERATION] = json!("resize"),
            Missing => {}
        }
        let condition = |kind: &str, status: &str, reason: &str, generation: i64| {
            json!({"type": kind, "status": status, "reason": reason, "message": "", "observedGeneration": generation,
                   "lastTransitionTime": "2026-09-21T14:13:20Z"})
        };
        let conditions: Vec<Value> = match self.controller {
            Controller::Running => vec![condition("Ready", "True", "DependenciesReady", 2)],
            Controller::Behind => vec![condition("Ready", "True", "DependenciesReady", 1)],
            Controller::Terminating => vec![
                condition("Ready", "False", "SandboxSuspended", 2),
                condition("Suspended", "False", "PodTerminating", 2),
            ],
            Controller::Suspended => vec![
                condition("Ready", "False", "SandboxSuspended", 2),
                condition("Suspended", "True", "PodTerminated", 2),
            ],
        };
        serde_json::from_value(json!({
            "metadata": {
                "name": "demo",
                "namespace": "default",
                "generation": 2,
                "labels": {
                    names::MANAGED_BY: names::MANAGED_BY_OPENSHELL,
                    names::SANDBOX_ID: "1",
                    names::SANDBOX_NAME: "demo",
                    names::SANDBOX_WORKSPACE: "default",
                },
                "annotations": annotations,
            },
            "spec": {"operatingMode": "Suspended"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }
    fn snapshot(self, remedies: Remedies) -> DriverSandbox {
        let up = Dependencies {
            availability: Availability::Available,
            identity: Availability::Available,
            workload: Presence::Present,
        };
        convert(&self.resource(), up, remedies).unwrap()
    }
    fn stored(self) -> Sandbox {
        let mut row = Sandbox::default();
        row.meta_mut().name = "demo".into();
        row.set_phase(self.row, "False", "Before", "", 0);
        if self.in_flight {
            row.start_attempt = "attempt".into();
        }
        row
    }
    fn context(self, remedies: Remedies) -> Context {
        Context { session_connected: self.session, remedies, ..Default::default() }
    }
    fn verdict(self, remedies: Remedies) -> Verdict {
        verdict(&self.stored(), &self.snapshot(remedies), &self.context(remedies))
    }
    fn doubt(self, remedies: Remedies) -> Option<Doubt> {
        let snapshot = self.snapshot(remedies);
        doubt(&self.stored(), &snapshot, Profile::Cc0642fa8, &self.context(remedies))
    }
    /// Where the row is once the snapshot is applied.
    fn after(self, remedies: Remedies) -> SandboxPhase {
        match self.verdict(remedies) {
            Verdict::Phase(phase) => phase,
            Verdict::NotApplied | Verdict::Untouched => self.row,
        }
    }

    // The rules, from here to the next test.

    /// A stop's marker, and one of an operation that nobody knows, is a start unless the remedy denies it.
    fn is_published_as_start(self, remedies: Remedies) -> bool {
        matches!(self.operation, Create | Restart) || !remedies.has(Remedy::StopMarkerIsNotStart)
    }
    /// The resource's Suspended=True reaches the gateway: because the marker is no start, or because it survives.
    fn shows_suspended(self, remedies: Remedies) -> bool {
        let survives = self.operation == Stop && remedies.has(Remedy::SuspendedSurvivesStopMarker);
        self.controller == Controller::Suspended && (!self.is_published_as_start(remedies) || survives)
    }
    fn claims_to_start(self, remedies: Remedies) -> bool {
        self.is_published_as_start(remedies) && !self.shows_suspended(remedies)
    }
    /// The phase that the snapshot shows: a marker always withdraws Ready for a transient reason.
    fn shown(self, remedies: Remedies) -> SandboxPhase {
        match (self.shows_suspended(remedies), self.session) {
            (true, _) => SandboxPhase::Stopped,
            (false, true) => SandboxPhase::Ready,
            (false, false) => SandboxPhase::Provisioning,
        }
    }
    fn expected(self, remedies: Remedies) -> Verdict {
        let shown = self.shown(remedies);
        match self.row {
            SandboxPhase::Stopped if self.claims_to_start(remedies) => {
                let believed = self.in_flight || !remedies.has(Remedy::StartingNeedsAStart);
                if believed { Verdict::Phase(shown) } else { Verdict::Untouched }
            }
            SandboxPhase::Stopped => Verdict::Phase(SandboxPhase::Stopped),
            SandboxPhase::Stopping if shown == SandboxPhase::Stopped => Verdict::Phase(SandboxPhase::Stopped),
            SandboxPhase::Stopping => Verdict::Phase(SandboxPhase::Stopping),
            SandboxPhase::Starting if shown == SandboxPhase::Ready => Verdict::Phase(SandboxPhase::Ready),
            SandboxPhase::Starting => Verdict::Phase(SandboxPhase::Starting),
            _ => Verdict::Phase(shown),
        }
    }
    fn expected_doubt(self, remedies: Remedies) -> Option<Doubt> {
        match self.row {
            SandboxPhase::Starting => Some(Doubt::Starting),
            SandboxPhase::Ready => (self.shown(remedies) != SandboxPhase::Ready).then_some(Doubt::LeavesReady),
            SandboxPhase::Stopped => (remedies.has(Remedy::StoppedIsRevalidated) && self.claims_to_start(remedies))
                .then_some(Doubt::StartsStopped),
            _ => None,
        }
    }
}

#[test]
fn every_marked_resource_does_to_every_row_what_the_rules_say_under_every_set_of_remedies() {
    let mut met = 0;
    for remedies in remedy_sets() {
        for cell in cells() {
            assert_eq!(cell.verdict(remedies), cell.expected(remedies), "{cell:?} under {remedies:?}");
            assert_eq!(cell.doubt(remedies), cell.expected_doubt(remedies), "{cell:?} under {remedies:?}");
            met += 1;
        }
    }
    assert_eq!(met, 16 * 5 * 4 * 4 * 5 * 4);
}

/// The report's own row: Stopped, no start accepted, and a resource with the annotations that begin a stop.
fn reported() -> impl Iterator<Item = Cell> {
    cells().filter(|c| c.row == SandboxPhase::Stopped && !c.in_flight && c.operation == Stop)
}

#[test]
fn as_reported_a_stop_snapshot_takes_a_stopped_row_to_provisioning() {
    let begin = reported().filter(|c| c.phase == "releasing" && !c.session);
    for cell in begin {
        assert_eq!(cell.after(Remedies::as_reported()), SandboxPhase::Provisioning, "{cell:?}");
        assert_eq!(cell.doubt(Remedies::as_reported()), None, "it is applied as it comes: {cell:?}");
    }
    // The same in every phase of the marker, since nobody looks at it.
    assert!(reported().all(|cell| cell.after(Remedies::as_reported()) != SandboxPhase::Stopped));
}

#[test]
fn each_recommended_remedy_alone_keeps_a_stopped_row_stopped() {
    for remedy in [Remedy::StopMarkerIsNotStart, Remedy::StartingNeedsAStart] {
        let remedies = Remedies::as_reported().with(remedy);
        for cell in reported() {
            assert_eq!(cell.after(remedies), SandboxPhase::Stopped, "{cell:?} with {}", remedy.name());
        }
    }
}

#[test]
fn revalidation_lets_no_stop_snapshot_through_unconfirmed() {
    let remedies = Remedies::as_reported().with(Remedy::StoppedIsRevalidated);
    for cell in reported() {
        assert_eq!(cell.doubt(remedies), Some(Doubt::StartsStopped), "{cell:?}");
    }
}

#[test]
fn keeping_suspended_alone_helps_only_once_the_controller_has_written_it() {
    let remedies = Remedies::as_reported().with(Remedy::SuspendedSurvivesStopMarker);
    for cell in reported() {
        let stays = cell.after(remedies) == SandboxPhase::Stopped;
        assert_eq!(stays, cell.controller == Controller::Suspended, "{cell:?}");
    }
}

#[test]
fn a_start_in_flight_leaves_a_stale_stopped_row_under_every_set_of_remedies() {
    let lost = |c: &Cell| {
        let start = matches!(c.operation, Create | Restart);
        c.row == SandboxPhase::Stopped && c.in_flight && start
    };
    for cell in cells().filter(lost) {
        for remedies in remedy_sets() {
            assert_ne!(cell.after(remedies), SandboxPhase::Stopped, "{cell:?} under {remedies:?}");
        }
        let mutant = Remedies::as_reported().with(Remedy::StoppedIgnoresEverything);
        assert_eq!(cell.after(mutant), SandboxPhase::Stopped, "the mutant never sees it: {cell:?}");
    }
}

#[test]
fn an_operation_that_nobody_knows_is_no_start_with_the_drivers_remedy() {
    let remedies = Remedies::as_reported().with(Remedy::StopMarkerIsNotStart);
    let unknown = |c: &Cell| c.row == SandboxPhase::Stopped && matches!(c.operation, Missing | Unknown);
    for cell in cells().filter(unknown) {
        assert_eq!(cell.after(remedies), SandboxPhase::Stopped, "{cell:?}");
    }
}
