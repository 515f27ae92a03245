//! The named remedies: each fix on the table, with both behaviours in the code at one place.
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
    DriftSparesTheSuspended = "drift-spares-the-suspended", MERGED,
        "The driver compares the fence with the one noted only while the sandbox should run or has a marker.",
        "NVIDIA/OpenShell#3525";

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
    /// Is this one on?
    pub fn has(self, r: Remedy) -> bool {
        self.0 & 1 << r as u8 != 0
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
    fn the_default_has_both_that_each_close_5195_and_no_mutant() {
        let default = Remedies::recommended();
        assert!(default.has(Remedy::StopMarkerIsNotStart) && default.has(Remedy::StartingNeedsAStart));
        assert!(!default.has(Remedy::SuspendedSurvivesStopMarker) && !default.has(Remedy::StoppedIgnoresEverything));
        assert_eq!(Remedies::as_reported().0 & !default.0, 0, "what is merged is part of every default");
    }
}
