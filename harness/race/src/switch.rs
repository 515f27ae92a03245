//! Named switches of a system under test: remedies (fixes) and mutants (deliberately wrong fixes).
use std::cell::Cell;

/// One named fix, or one deliberately wrong one, with both behaviours in the system's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Kebab-case name, as command lines, run ids and scenarios use it.
    pub name: &'static str,
    /// What it is, and so when it is on.
    pub kind: SwitchKind,
    /// One sentence: what the code does when it is on.
    pub sentence: &'static str,
    /// The report or the change it comes from.
    pub from: &'static str,
}

/// When a [`Switch`] is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// A fix on the table. On by default if it is recommended; `--as-reported` turns all proposed ones off.
    Proposed {
        /// Part of the recommended set.
        recommended: bool,
    },
    /// A historical fix that the reported code already had. On, unless `--bare` or a scenario's `reported-without`.
    Merged,
    /// A deliberately wrong fix, for guards. Never on by default.
    Mutant,
}

/// Whether the code is as it was reported: no proposed switch is on. It remembers if anybody wanted to know.
pub(crate) struct Reported {
    /// The proposed switches, and whether they are on.
    proposed: Vec<(&'static str, bool)>,
    asked: Cell<bool>,
}

impl Reported {
    pub(crate) fn of(proposed: impl IntoIterator<Item = (&'static str, bool)>) -> Reported {
        Reported { proposed: proposed.into_iter().collect(), asked: Cell::new(false) }
    }
    pub(crate) fn get(&self) -> bool {
        self.asked.set(true);
        self.on().is_none()
    }
    fn on(&self) -> Option<&'static str> {
        self.proposed.iter().find(|(_, on)| *on).map(|(name, _)| *name)
    }
    /// The switches that the answer rests on, if anybody asked: one that is on, or all, as none is.
    pub(crate) fn looked_at(&self) -> Vec<String> {
        match (self.asked.get(), self.on()) {
            (false, _) => vec![],
            (true, Some(on)) => vec![on.to_owned()],
            (true, None) => self.proposed.iter().map(|(name, _)| (*name).to_owned()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_the_code_is_as_reported_rests_on_all_proposed_switches_and_that_it_is_not_on_one() {
        for (proposed, reported, looked_at) in
            [([("a", false), ("b", false)], true, &["a", "b"][..]), ([("a", false), ("b", true)], false, &["b"])]
        {
            let asked = Reported::of(proposed);
            assert!(asked.looked_at().is_empty(), "nobody wanted to know");
            assert_eq!(asked.get(), reported);
            assert_eq!(asked.looked_at(), looked_at);
        }
    }
}
