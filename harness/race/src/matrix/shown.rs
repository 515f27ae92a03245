//! What a run shows of others: one that never looked at a switch is the same run with it and without it.
use std::collections::BTreeSet;

use indexmap::IndexSet;

/// The switches that a run looked at, by what it saw. Code that decides by nothing else of the switches does the same under
/// every set that looks the same there: up to the first look at one that differs, which never comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    on: BTreeSet<String>,
    off: BTreeSet<String>,
}

impl Shown {
    /// Of a run with these switches on, which looked at those.
    pub(super) fn new(on: &IndexSet<String>, asked: impl IntoIterator<Item = String>) -> Shown {
        let (on, off) = asked.into_iter().partition(|name| on.contains(name));
        Shown { on, off }
    }
    /// Is a run with these switches on the same run?
    pub(super) fn speaks_for(&self, on: &IndexSet<String>) -> bool {
        self.on.iter().all(|name| on.contains(name)) && !self.off.iter().any(|name| on.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> IndexSet<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_run_speaks_for_the_sets_that_differ_only_in_what_it_never_looked_at() {
        for (on, asked, other, speaks) in [
            ("", "", "", true),
            ("", "", "a b", true),
            ("a", "a", "a", true),
            ("a", "a", "a b", true),
            ("a", "a", "", false),
            ("a", "a", "b", false),
            ("a", "b", "", true),
            ("a", "b", "c", true),
            ("a", "b", "a b", false),
            ("a b", "a b c", "a b d", true),
            ("a b", "a b c", "a b c", false),
            ("a b", "a c", "a", true),
            ("a b", "b c", "b d e", true),
        ] {
            let shown = Shown::new(&names(on), names(asked));
            assert_eq!(shown.speaks_for(&names(other)), speaks, "[{on}] looked at [{asked}]: [{other}]");
        }
    }
}
