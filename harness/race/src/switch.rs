//! Named switches of a system under test: remedies (fixes) and mutants (deliberately wrong fixes).

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
