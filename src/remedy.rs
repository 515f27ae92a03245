//! The named remedies: each fix on the table, with both behaviours in the code at one place.
use photofinish::{Switch, SwitchKind};

/// The proposed remedies that the code under test knows.
///
/// A remedy is asked for by name where it acts: `remedies.has(Remedy::StartingNeedsAStart)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Remedy {
    /// The converter treats the bootstrap marker as a start only for operation create or restart.
    StopMarkerIsNotStart,
    /// The converter still marks a stop as bootstrapping, but keeps the real Suspended condition.
    SuspendedSurvivesStopMarker,
    /// The gateway honours a "starting" snapshot on a Stopped row only while a start or create is in flight.
    StartingNeedsAStart,
    /// The gateway re-reads the live sandbox before it lets a "starting" snapshot move a Stopped row.
    StoppedIsRevalidated,
    /// A deliberately wrong fix: a Stopped row believes no snapshot at all, not even during a start.
    StoppedIgnoresEverything,
}

/// Every remedy and mutant, in the order in which `photofinish remedies` prints them.
pub const SWITCHES: &[Switch] = &[
    Switch {
        name: "stop-marker-is-not-start",
        kind: SwitchKind::Proposed { recommended: true },
        sentence: "The driver's converter reads the bootstrap marker as a start only for operation create or restart.",
        from: "NVIDIA/OpenShell#5195, driver direction",
    },
    Switch {
        name: "suspended-survives-stop-marker",
        kind: SwitchKind::Proposed { recommended: false },
        sentence: "The driver's converter still marks a stop, but keeps the Suspended condition of the resource.",
        from: "NVIDIA/OpenShell#5195, driver direction, the other half",
    },
    Switch {
        name: "starting-needs-a-start",
        kind: SwitchKind::Proposed { recommended: true },
        sentence: "The gateway lets a starting snapshot move a Stopped row only while an accepted start or create is unsettled.",
        from: "NVIDIA/OpenShell#5195, gateway direction",
    },
    Switch {
        name: "stopped-is-revalidated",
        kind: SwitchKind::Proposed { recommended: false },
        sentence: "The gateway reads the live sandbox again before a starting snapshot may move a Stopped row.",
        from: "NVIDIA/OpenShell#5195, gateway direction, the other half",
    },
    Switch {
        name: "stopped-ignores-everything",
        kind: SwitchKind::Mutant,
        sentence: "A wrong fix: a Stopped row ignores every snapshot, so a lost start is never seen.",
        from: "guards of NVIDIA/OpenShell#5195, criterion 3",
    },
];

impl Remedy {
    /// All of them, in the order of [`SWITCHES`].
    pub const ALL: [Remedy; 5] = [
        Remedy::StopMarkerIsNotStart,
        Remedy::SuspendedSurvivesStopMarker,
        Remedy::StartingNeedsAStart,
        Remedy::StoppedIsRevalidated,
        Remedy::StoppedIgnoresEverything,
    ];

    /// The name that command lines and scenarios use.
    pub fn name(self) -> &'static str {
        SWITCHES[self as usize].name
    }
}

/// A set of remedies that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remedies(u32);

impl Remedies {
    /// None: the code as it was reported.
    pub const NONE: Remedies = Remedies(0);

    /// The recommended set of the proposed remedies.
    pub fn recommended() -> Self {
        Self::from_names(
            SWITCHES.iter().filter(|s| matches!(s.kind, SwitchKind::Proposed { recommended: true })).map(|s| s.name),
        )
    }
    /// Those with these names; unknown names are ignored, since [`SWITCHES`] is what command lines are checked against.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let on = |name| Remedy::ALL.into_iter().find(|r| r.name() == name);
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
        for r in Remedy::ALL {
            assert_eq!(SWITCHES.iter().filter(|s| s.name == r.name()).count(), 1, "{}", r.name());
            let only = Remedies::from_names([r.name()]);
            assert_eq!(Remedy::ALL.into_iter().filter(|x| only.has(*x)).collect::<Vec<_>>(), [r]);
            assert_eq!(only.without(r), Remedies::NONE);
        }
    }
    #[test]
    fn the_recommended_set_is_the_two_that_each_close_5195() {
        let r = Remedies::recommended();
        let on: Vec<_> = Remedy::ALL.into_iter().filter(|x| r.has(*x)).collect();
        assert_eq!(on, [Remedy::StopMarkerIsNotStart, Remedy::StartingNeedsAStart]);
    }
}
