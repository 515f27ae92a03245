//! What must hold: named statements over a run's trace, and the verdicts they give.
use std::fmt;

use photofinish_sim::trace::{Entry, EntryId};
use serde::{Deserialize, Serialize};

use crate::temporal::{self, Statement};

/// Name of the property that no task of the code under test panics; always checked.
pub const NO_PANIC: &str = "no-panic";
/// Name of the property that every `await` and `expect` of the script is met; always checked.
pub const SCRIPT: &str = "script";

/// A named statement over the trace.
pub struct Property {
    /// Kebab-case name, as scenarios use it.
    pub name: &'static str,
    /// What must hold, in one sentence.
    pub sentence: &'static str,
    /// Which runs it is checked in.
    pub checked: Checked,
    rule: Statement,
}

/// Which runs a property is checked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Those whose scenario names it in `check`. Then it must have something to judge.
    WhenNamed,
    /// Every run, unless the scenario opts out by name, with a reason (`except`).
    Always,
    /// Every run: no scenario may opt out.
    WithoutException,
}

impl Property {
    /// A property from a statement of [`crate::temporal`].
    pub fn new(name: &'static str, sentence: &'static str, rule: Statement) -> Property {
        Property { name, sentence, checked: Checked::WhenNamed, rule }
    }
    /// The same, checked in every run; a scenario may opt out.
    pub fn always(self) -> Property {
        Property { checked: Checked::Always, ..self }
    }
    /// The same, checked in every run; no scenario may opt out.
    pub fn without_exception(self) -> Property {
        Property { checked: Checked::WithoutException, ..self }
    }
    /// Judges a whole trace, or the part that a killed run left.
    pub fn judge(&self, entries: &[Entry]) -> Verdict {
        self.rule.judge(entries)
    }
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Property").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The properties that every run must have, whatever its scenario checks.
pub fn always_checked() -> [Property; 2] {
    let panics =
        temporal::never(|e| (e.kind == "panic").then(|| format!("{} {}", e.field("host").unwrap_or("world"), e.text)));
    let missed = temporal::never(|e| (e.kind == "step" && e.name == "missed").then(|| e.text.clone()));
    [
        Property::new(NO_PANIC, "No task of the code under test panics.", panics),
        Property::new(SCRIPT, "The system does what the script's steps wait for and expect, in time.", missed),
    ]
}

/// What a property says about one trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds, and its trigger came this many times.
    Holds {
        /// How often there was something to judge.
        times: usize,
    },
    /// Its trigger never came: nothing was judged, so nothing was shown. Fails the run as well.
    Vacuous,
    /// It does not hold.
    Violated(Violation),
}

/// The first place where a property does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The entry that broke it.
    pub entry: EntryId,
    /// In words: what must not be, or what did not come.
    pub why: String,
    /// Entries that the property itself names as leading there (its trigger, for one), oldest first.
    pub led: Vec<EntryId>,
}

/// Collects a verdict by hand, for properties that the combinators of [`crate::temporal`] do not express:
///
/// ```
/// use photofinish::property::{Tally, Verdict};
/// use photofinish::temporal::Statement;
///
/// let rule = Statement::new(|entries| {
///     let mut tally = Tally::default();
///     for e in entries.iter().filter(|e| e.kind == "reply") {
///         tally.judged();
///         if e.field("code") != Some("0") {
///             tally.violated(e.id, "refused", [e.cause.unwrap_or(e.id)]);
///         }
///     }
///     tally.verdict()
/// });
/// assert_eq!(rule.judge(&[]), Verdict::Vacuous);
/// ```
#[derive(Debug, Default)]
pub struct Tally {
    times: usize,
    first: Option<Violation>,
}

impl Tally {
    /// The trigger came once more.
    pub fn judged(&mut self) {
        self.times += 1;
    }
    /// It does not hold at `entry`. The earliest entry is kept.
    pub fn violated(&mut self, entry: EntryId, why: impl Into<String>, led: impl IntoIterator<Item = EntryId>) {
        if self.first.as_ref().is_none_or(|v| entry < v.entry) {
            let mut led: Vec<EntryId> = led.into_iter().filter(|id| *id != entry).collect();
            led.sort_unstable();
            led.dedup();
            self.first = Some(Violation { entry, why: why.into(), led });
        }
    }
    /// The verdict: violated before vacuous before holds.
    pub fn verdict(self) -> Verdict {
        match self {
            Tally { first: Some(violation), .. } => Verdict::Violated(violation),
            Tally { times: 0, .. } => Verdict::Vacuous,
            Tally { times, .. } => Verdict::Holds { times },
        }
    }
}
