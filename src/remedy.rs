//! The named remedies: each fix on the table, with both behaviours in the code at one place.
use std::sync::atomic::{AtomicU64, Ordering};

use photofinish::{Switch, SwitchKind};

const RECOMMENDED: SwitchKind = SwitchKind::Proposed { recommended: true };
const PROPOSED: SwitchKind = SwitchKind::Proposed { recommended: false };
const MERGED: SwitchKind = SwitchKind::Merged;
const MUTANT: SwitchKind = SwitchKind::Mutant;

/// One entry a remedy: its name in the code, then name, kind, sentence and origin.
macro_rules! remedies {
    ($($(#[$doc:meta])* $remedy:ident = $name:literal, $kind:expr, $sentence:literal, $from:literal;)*) => {
        /// The remedies and mutants that the code under test knows.
        ///
        /// A remedy is asked for by name where it acts: `remedies.has(Remedy::StartingNeedsAStart)`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Remedy {
            $(#[doc = $sentence] $(#[$doc])* $remedy,)*
        }

        /// Every remedy and mutant, in the order in which `photofinish remedies` prints them.
        pub const SWITCHES: &[Switch] =
            &[$(Switch { name: $name, kind: $kind, sentence: $sentence, from: $from },)*];

        impl Remedy {
            /// All of them, in the order of [`SWITCHES`].
            pub const ALL: &[Remedy] = &[$(Remedy::$remedy,)*];
        }
    };
}

remedies! {
    StopMarkerIsNotStart = "stop-marker-is-not-start", RECOMMENDED,
        "The driver's converter reads the bootstrap marker as a start only for operation create or restart.",
        "NVIDIA/OpenShell#5195, driver direction";
    SuspendedSurvivesStopMarker = "suspended-survives-stop-marker", PROPOSED,
        "The driver's converter still marks a stop, but keeps the Suspended condition of the resource.",
        "NVIDIA/OpenShell#5195, driver direction, the other half";
    StartingNeedsAStart = "starting-needs-a-start", RECOMMENDED,
        "The gateway lets a starting snapshot move a Stopped row only while an accepted start or create is unsettled.",
        "NVIDIA/OpenShell#5195, gateway direction";
    StoppedIsRevalidated = "stopped-is-revalidated", PROPOSED,
        "The gateway reads the live sandbox again before a starting snapshot may move a Stopped row.",
        "NVIDIA/OpenShell#5195, gateway direction, the other half";
    OffAndEmptyIsSuspended = "off-and-empty-is-suspended", RECOMMENDED,
        "The driver's converter says Suspended=True of a resource that is switched off, unmarked and without a workload Pod.",
        "NVIDIA/OpenShell#4371, reconcile direction";
    SnapshotCarriesEpoch = "snapshot-carries-epoch", RECOMMENDED,
        "Each snapshot names the operation that its resource was under; the gateway drops those of an operation before.",
        "NVIDIA/OpenShell#5195 and #4371, structural";
    StartFromEmptyProvisioning = "start-from-empty-provisioning", PROPOSED,
        "StartSandbox takes a Provisioning row whose resource is off, unmarked and without a workload Pod, and keeps its identity.",
        "NVIDIA/OpenShell#4371, start direction";
    StopFromError = "stop-from-error", RECOMMENDED,
        "StopSandbox takes a row in Error, whatever the driver's reason; only release 0.1.2 lacks it.",
        "NVIDIA/OpenShell#4231";
    StopFromProvisioning = "stop-from-provisioning", RECOMMENDED,
        "StopSandbox takes a Provisioning row: it waits for a running create, then stops what is there.",
        "NVIDIA/OpenShell#4371";
    SweepSettlesEmptyProvisioning = "sweep-settles-empty-provisioning", PROPOSED,
        "The sweep makes a Provisioning row Stopped once two sweeps in a row found it off, unmarked and without a workload Pod.",
        "NVIDIA/OpenShell#4371, reconcile direction";
    DeadlineAfterReady = "deadline-after-ready", RECOMMENDED,
        "A row that falls from Ready to Provisioning gets a deadline again, so it ends in an Error that can be started.",
        "NVIDIA/OpenShell#4371";
    IdentityFromSnapshot = "identity-from-snapshot", RECOMMENDED,
        "A row whose create was never bound to its compute takes the identity from the driver's snapshot.",
        "crash between the driver's create and the binding of its result";
    StoppedNeedsNoPod = "stopped-needs-no-pod", RECOMMENDED,
        "A snapshot makes a row Stopped only if the workload Pod is gone, not if the resource says Suspended while it still ends.",
        "NVIDIA/OpenShell#2820, with agent-sandbox v0.5.0 to v0.5.3";
    UnchangedIsNotWritten = "unchanged-is-not-written", PROPOSED,
        "A snapshot that changes nothing of a row does not write it, so its version stays.",
        "version conflicts by repeated snapshots";
    DeleteOutlastsAConflict = "delete-outlasts-a-conflict", RECOMMENDED,
        "The driver's delete reads a resource again that has changed meanwhile; before, it answered that there was none.",
        "found by crash-after-every-write: a row is removed and its resource runs on";
    DeletingIsRedriven = "deleting-is-redriven", RECOMMENDED,
        "DeleteSandbox of a Deleting row asks the driver once more; before, a delete that its gateway did not survive was nobody's.",
        "found by crash-after-every-write";
    AmbiguousCreateKeepsRow = "ambiguous-create-keeps-row", RECOMMENDED,
        "A create whose driver did not answer keeps its row; before, the row went and what the driver had made was nobody's.",
        "found by crash-after-every-write";
    InstalledCreateIsKept = "installed-create-is-kept", RECOMMENDED,
        "The driver suspends a stale create whose Pods were installed; before, it deleted it with its volume, though it may be Ready.",
        "found by crash-after-every-write";
    SweepRedrives = "sweep-redrives", RECOMMENDED,
        "The sweep drives a stop, start or delete of which two sweeps in a row see nothing; before, at most a gateway's start did.",
        "found by sweep lifecycle: Stopping, Starting or Deleting until somebody asks again, after a call that met no driver";
    DeleteEndsWithItsResource = "delete-ends-with-its-resource", RECOMMENDED,
        "The gateway that asked for a delete removes the row once the resource is gone; before, that was left to the lease holder's watch.",
        "found by sweep restart-stopped-sandbox with two replicas: Deleting until the sweep's grace is over";
    EndedPodIsLost = "ended-pod-is-lost", RECOMMENDED,
        "The driver suspends a sandbox whose Pod has ended, during a bootstrap too; before, a session kept its row Ready over it.",
        "found by sweep lifecycle: Ready without a workload after an eviction";
    SessionWaitsForCreate = "session-waits-for-create", RECOMMENDED,
        "A supervisor's session is taken only once the create is over; before, a Ready sandbox could vanish with a create that fails late.",
        "found by sweep lifecycle: a volume deleted after Ready";
    LostCreateIsTakenBack = "lost-create-is-taken-back", RECOMMENDED,
        "The driver deletes a resource whose creation got no clear answer; before, its name was taken until it was given up after 300 s.",
        "found by exhaust restart-stopped-sandbox: a client that creates again is refused for five minutes";
    StopIsObserved = "stop-is-observed", RECOMMENDED,
        "The driver ends a stop once the controller has reported on the resource as it is now; before, a missing Pod did, on v1alpha1.",
        "found by matrix --profiles: with controller v0.4.6 a Pod is made after Stopped was reported";
    ReplicasNoteTheirWork = "replicas-note-their-work", RECOMMENDED,
        "A replica notes in the store whose create, start or stop it drives; another takes no session of that create, and drives nothing twice.",
        "the process-local gates behind session-waits-for-create, sweep-redrives and startup-redrives";
    DriverIsProbed = "driver-is-probed", RECOMMENDED,
        "The gateway pings a driver that says nothing for 30 s; before, one that lost power held up sweep and watch for minutes.",
        "found by exhaust relist-hides-delete: a row without its resource stays until its deadline";
    ExitNeedsASession = "exit-needs-a-session", RECOMMENDED,
        "While a start waits for its configuration, the exit of the run that has a session since counts; before, any but the last Ready run's.",
        "found by exhaust old-exit-report-hits-new-run: a run that ended before it was Ready ends the next one as well";
    CleanUpSparesANewRun = "clean-up-spares-a-new-run", RECOMMENDED,
        "The driver's reconciler deletes a supervisor Pod of another run than its resource's only if it finds it twice; before, at once.",
        "found by exhaust eviction-mid-start@2: a start at another replica loses its Pod and waits for its deadline";
    SuspensionSaysWhy = "suspension-says-why", PROPOSED,
        "The driver notes on the resource why a lost dependency suspended it, and publishes that as a condition.",
        "NVIDIA/OpenShell#4371";

    CompletionSparesAStop = "completion-spares-a-stop", MERGED,
        "The driver completes a bootstrap only if it is a released create or restart, so a late completion erases no stop.",
        "NVIDIA/OpenShell#3424";
    SupervisorGoesFirst = "supervisor-goes-first", MERGED,
        "The driver deletes the supervisor Pod before it switches the resource off, so its cleanup still has a workload.",
        "NVIDIA/OpenShell#3421, #3424";
    StopWaitsForThePod = "stop-waits-for-the-pod", MERGED,
        "The driver completes a stop only once the workload Pod is gone, whatever the resource says of Suspended.",
        "NVIDIA/OpenShell#2820, #2858";
    OldConditionsAreDropped = "old-conditions-are-dropped", MERGED,
        "The driver's converter leaves out conditions that were written for an older generation of the resource.",
        "NVIDIA/OpenShell#2932";
    DriftSparesTheSuspended = "drift-spares-the-suspended", MERGED,
        "The driver compares the fence with the one noted only while the sandbox should run or has a marker.",
        "NVIDIA/OpenShell#3525";

    ReadyBeatsSuspended = "ready-beats-suspended", MERGED,
        "A resource that is Ready counts as running even if a Suspended=True from before its resume still stands there.",
        "NVIDIA/OpenShell#2932, fixed by #2933";
    StartingIsRevalidated = "starting-is-revalidated", MERGED,
        "A snapshot of a Starting row waits for the running start and is read again before it is believed.",
        "NVIDIA/OpenShell#3132";
    ExitTombstone = "exit-tombstone", MERGED,
        "While a row is Starting, the exit report of the run before is told by its instance and ignored.",
        "NVIDIA/OpenShell#2857";
    DeletingIgnoresSnapshots = "deleting-ignores-snapshots", MERGED,
        "Snapshots of the watch and the sweep are not applied to a row that is being deleted.",
        "NVIDIA/OpenShell#2326";
    LockPerSandbox = "lock-per-sandbox", MERGED,
        "Rows are locked one by one, and not over a driver call; before, one lock served all and a delete held it.",
        "NVIDIA/OpenShell#2326";
    SweepPrunesMissing = "sweep-prunes-missing", MERGED,
        "The sweep settles rows whose resource is gone, for a deletion that no watch event told.",
        "NVIDIA/OpenShell#2532";
    SessionLossIsNotTerminal = "session-loss-is-not-terminal", MERGED,
        "A Ready sandbox whose supervisor's session ends becomes Provisioning; before, it became Error.",
        "NVIDIA/OpenShell#3308";
    OwnedWorkers = "owned-workers", MERGED,
        "An accepted start, stop or delete is carried out to its end even if the client that asked goes away.",
        "NVIDIA/OpenShell#2653";
    StartupRedrives = "startup-redrives", MERGED,
        "A gateway that starts drives the stops and starts that its process before has left unfinished.",
        "NVIDIA/OpenShell#2653, #2179";

    BelieveAnySnapshot = "believe-any-snapshot", MUTANT,
        "A wrong fix: every snapshot decides the phase, whatever the row was told to do.",
        "guards of the snapshot table";
    RowsFromSnapshots = "rows-from-snapshots", MUTANT,
        "A wrong fix: a snapshot of an unknown sandbox makes a row.",
        "guards of watch-beats-create-row and delete-is-one-way";
    SweepSleeps = "sweep-sleeps", MUTANT,
        "A wrong saving: the sweep never runs, so an event that was lost is never made up for.",
        "guards of last-event-lost-to-cas and relist-hides-delete";
    StartingIgnoresExits = "starting-ignores-exits", MUTANT,
        "A wrong fix: no exit report counts while a row is Starting, not even that of the new run.",
        "guards of NVIDIA/OpenShell#2857";
    GoneIsStopped = "gone-is-stopped", MUTANT,
        "A wrong saving: the driver completes a stop as soon as it sees no workload Pod, though one may yet be made.",
        "guard of eviction-mid-stop";
    UnreadIsGone = "unread-is-gone", MUTANT,
        "A wrong saving: the gateway takes a workload Pod that the driver could not read for one that is gone.",
        "guard of suspension-outruns-an-unread-pod";
    AsksOnce = "asks-once", MUTANT,
        "A wrong saving: gateway and driver ask only once what became of a delete or a create, and are content with no answer.",
        "guards of delete-unseen-and-unread and create-answer-lost-and-unread";
    StaleCreatesStay = "stale-creates-stay", MUTANT,
        "A wrong saving: the driver never gives up a create that does not get on, so what nobody waits for stays.",
        "guard of create-timeout-late-commit";
    StoppedIgnoresEverything = "stopped-ignores-everything", MUTANT,
        "A wrong fix: a Stopped row ignores every snapshot, so a lost start is never seen.",
        "guards of NVIDIA/OpenShell#5195, criterion 3";
}

impl Remedy {
    /// The name that command lines and scenarios use.
    pub fn name(self) -> &'static str {
        SWITCHES[self as usize].name
    }
}

/// The remedies that this process has asked for, by bit. A run has a process of its own.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// The remedies that the code of this process has asked for so far, whatever the answer was.
pub fn asked() -> Remedies {
    Remedies(ASKED.load(Ordering::Relaxed))
}

/// A set of remedies that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remedies(u64);

impl Remedies {
    /// None, not even a merged one.
    pub const NONE: Remedies = Remedies(0);

    /// The default: all merged ones, and the recommended set of the proposed ones.
    pub fn recommended() -> Self {
        Self::of(|kind| matches!(kind, SwitchKind::Merged | SwitchKind::Proposed { recommended: true }))
    }
    /// The code as it was reported: the merged ones alone.
    pub fn as_reported() -> Self {
        Self::of(|kind| kind == SwitchKind::Merged)
    }
    fn of(wanted: impl Fn(SwitchKind) -> bool) -> Self {
        Self::from_names(SWITCHES.iter().filter(|s| wanted(s.kind)).map(|s| s.name))
    }
    /// Those with these names; unknown names are ignored, since [`SWITCHES`] is what command lines are checked against.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let on = |name| Remedy::ALL.iter().copied().find(|r| r.name() == name);
        names.into_iter().filter_map(on).fold(Self::NONE, Self::with)
    }
    /// Is this one on? That it was asked is noted: a run that never asks for a remedy is the same run with it. So ask last,
    /// where the answer decides something.
    pub fn has(self, r: Remedy) -> bool {
        ASKED.fetch_or(1 << r as u8, Ordering::Relaxed);
        self.contains(r)
    }
    fn contains(self, r: Remedy) -> bool {
        self.0 & 1 << r as u8 != 0
    }
    /// Names of those in the set, in the order of [`SWITCHES`].
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Remedy::ALL.iter().copied().filter(move |r| self.contains(*r)).map(Remedy::name)
    }
    /// The same set and this one.
    pub fn with(self, r: Remedy) -> Self {
        Remedies(self.0 | 1 << r as u8)
    }
    /// The same set without this one.
    pub fn without(self, r: Remedy) -> Self {
        Remedies(self.0 & !(1 << r as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_remedy_has_its_own_name_and_bit() {
        for r in Remedy::ALL.iter().copied() {
            assert_eq!(SWITCHES.iter().filter(|s| s.name == r.name()).count(), 1, "{}", r.name());
            let only = Remedies::from_names([r.name()]);
            assert_eq!(Remedy::ALL.iter().copied().filter(|x| only.has(*x)).collect::<Vec<_>>(), [r]);
            assert_eq!(only.without(r), Remedies::NONE);
        }
    }
    #[test]
    fn what_was_asked_for_is_noted_whatever_the_answer() {
        // Tests that run beside this one ask for others.
        for (remedies, answer) in [(Remedies::NONE, false), (Remedies::NONE.with(Remedy::StaleCreatesStay), true)] {
            ASKED.fetch_and(!(1 << Remedy::StaleCreatesStay as u8), Ordering::Relaxed);
            assert_eq!(remedies.has(Remedy::StaleCreatesStay), answer);
            assert!(asked().contains(Remedy::StaleCreatesStay));
        }
        assert_eq!(Remedies::from_names(Remedies::recommended().names()), Remedies::recommended());
    }
    #[test]
    fn the_default_has_both_that_each_close_5195_and_no_mutant() {
        let default = Remedies::recommended();
        assert!(default.has(Remedy::StopMarkerIsNotStart) && default.has(Remedy::StartingNeedsAStart));
        assert!(!default.has(Remedy::SuspendedSurvivesStopMarker) && !default.has(Remedy::StoppedIgnoresEverything));
        assert_eq!(Remedies::as_reported().0 & !default.0, 0, "what is merged is part of every default");
    }
}
