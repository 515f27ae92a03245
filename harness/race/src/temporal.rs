//! Temporal statements over a trace: always, never, eventually within, leads to, stable until.
//!
//! Most statements start from a trigger. [`after`] names the entries that arm it and takes from each what the rest is
//! about (a sandbox's id, say); a window may end ([`After::until`], [`After::within`]); then comes what must or must
//! not be inside the window. A trigger that never came makes the verdict vacuous, never a silent "holds".
//!
//! ```
//! use photofinish::temporal::after;
//! # use photofinish_sim::trace::Entry;
//! # fn phase(e: &Entry, name: &str) -> Option<String> { (e.field(name) == Some("Stopped")).then(|| e.field("sandbox_id").unwrap_or("").to_owned()) }
//! // Stable until: once Stopped, a sandbox stays Stopped until a start or delete of it is accepted.
//! let stopped_is_stable = after(|e| phase(e, "new_phase"))
//!     .until(|id, e| e.text.starts_with("request accepted") && e.field("sandbox_id") == Some(id))
//!     .never(|id, e| (phase(e, "old_phase").as_ref() == Some(id)).then(|| "left Stopped".to_owned()));
//! // Leads to: every stop is answered within a minute.
//! let stop_is_answered = after(|e| (e.kind == "op" && e.name == "stop").then(|| e.id))
//!     .within(std::time::Duration::from_secs(60))
//!     .eventually("an answer to the stop", |op, e| e.kind == "reply" && e.field("op") == Some(&op.to_string()));
//! ```
use std::time::Duration;

use photofinish_sim::trace::Entry;

use crate::property::{Tally, Verdict};

/// A rule over a whole trace.
pub struct Statement(Rule);

type Rule = Box<dyn Fn(&[Entry]) -> Verdict + Send + Sync>;
type Trigger<K> = Box<dyn Fn(&Entry) -> Option<K> + Send + Sync>;
type Matches<K> = Box<dyn Fn(&K, &Entry) -> bool + Send + Sync>;

impl Statement {
    /// A rule written by hand; see [`Tally`].
    pub fn new(rule: impl Fn(&[Entry]) -> Verdict + Send + Sync + 'static) -> Statement {
        Statement(Box::new(rule))
    }
    /// The verdict over a trace.
    pub fn judge(&self, entries: &[Entry]) -> Verdict {
        (self.0)(entries)
    }
    /// Both must hold; vacuous if either is.
    pub fn and(self, other: Statement) -> Statement {
        Statement::new(move |entries| match (self.judge(entries), other.judge(entries)) {
            (Verdict::Violated(a), Verdict::Violated(b)) => Verdict::Violated(if b.entry < a.entry { b } else { a }),
            (v @ Verdict::Violated(_), _) | (_, v @ Verdict::Violated(_)) => v,
            (Verdict::Vacuous, _) | (_, Verdict::Vacuous) => Verdict::Vacuous,
            (Verdict::Holds { times: a }, Verdict::Holds { times: b }) => Verdict::Holds { times: a + b },
        })
    }
}

/// No entry is bad; `bad` says why one is. Has no trigger, so it is never vacuous: prefer [`after`] where something
/// must have happened for the statement to mean anything.
pub fn never(bad: impl Fn(&Entry) -> Option<String> + Send + Sync + 'static) -> Statement {
    Statement::new(move |entries| {
        let mut tally = Tally::default();
        tally.judged();
        if let Some((e, why)) = entries.iter().find_map(|e| Some((e, bad(e)?))) {
            tally.violated(e.id, why, e.cause);
        }
        tally.verdict()
    })
}

/// Every entry that `check` is about is good. `None`: not about this entry; `Some(Err(why))`: bad.
pub fn always(check: impl Fn(&Entry) -> Option<Result<(), String>> + Send + Sync + 'static) -> Statement {
    Statement::new(move |entries| {
        let mut tally = Tally::default();
        for (e, answer) in entries.iter().filter_map(|e| Some((e, check(e)?))) {
            tally.judged();
            if let Err(why) = answer {
                tally.violated(e.id, why, e.cause);
            }
        }
        tally.verdict()
    })
}

/// Starts a statement at every entry for which `trigger` gives a key.
pub fn after<K: 'static>(trigger: impl Fn(&Entry) -> Option<K> + Send + Sync + 'static) -> After<K> {
    After { trigger: Box::new(trigger), until: Vec::new(), within: None }
}

/// A window that opens behind each trigger. It ends at the first entry that [`until`](After::until) matches, at the
/// end of [`within`](After::within), or with the trace.
pub struct After<K> {
    trigger: Trigger<K>,
    until: Vec<Matches<K>>,
    within: Option<Duration>,
}

/// How a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    /// By its `until`.
    Until,
    /// By its time limit, or by the trace of a finished run when it has no limit: nothing more will come.
    Over,
    /// The trace ends before the limit: what would have come is not known.
    Open,
}

impl<K: 'static> After<K> {
    /// The window ends at the first entry that matches (that entry is outside). Several: whichever comes first.
    pub fn until(mut self, end: impl Fn(&K, &Entry) -> bool + Send + Sync + 'static) -> Self {
        self.until.push(Box::new(end));
        self
    }
    /// The window ends this much virtual time behind its trigger.
    pub fn within(self, limit: Duration) -> Self {
        Self { within: Some(limit), ..self }
    }
    /// Stable: no entry in the window is bad; `bad` says why one is.
    pub fn never(self, bad: impl Fn(&K, &Entry) -> Option<String> + Send + Sync + 'static) -> Statement {
        Statement::new(move |entries| {
            let mut tally = Tally::default();
            for (key, trigger, window, _) in self.windows(entries) {
                tally.judged();
                if let Some((e, why)) = window.iter().find_map(|e| Some((e, bad(&key, e)?))) {
                    tally.violated(e.id, why, [trigger.id].into_iter().chain(e.cause));
                }
            }
            tally.verdict()
        })
    }
    /// Every entry in a window that `check` is about is good. Counts those entries, so it is vacuous without any.
    pub fn each(self, check: impl Fn(&K, &Entry) -> Option<Result<(), String>> + Send + Sync + 'static) -> Statement {
        Statement::new(move |entries| {
            let mut tally = Tally::default();
            for (key, trigger, window, _) in self.windows(entries) {
                for (e, answer) in window.iter().filter_map(|e| Some((e, check(&key, e)?))) {
                    tally.judged();
                    if let Err(why) = answer {
                        tally.violated(e.id, why, [trigger.id].into_iter().chain(e.cause));
                    }
                }
            }
            tally.verdict()
        })
    }
    /// Leads to: some entry in the window is `good`; `what` names it in messages.
    ///
    /// A window that its `until` ends first asks for nothing. One that is still open when the trace ends is judged
    /// only if it has no time limit and the run came to its end.
    pub fn eventually(
        self,
        what: &'static str,
        good: impl Fn(&K, &Entry) -> bool + Send + Sync + 'static,
    ) -> Statement {
        Statement::new(move |entries| {
            let mut tally = Tally::default();
            for (key, trigger, window, closed) in self.windows(entries) {
                match (window.iter().any(|e| good(&key, e)), closed) {
                    (true, _) => tally.judged(),
                    (false, Closed::Until | Closed::Open) => {}
                    (false, Closed::Over) => {
                        tally.judged();
                        let last = window.last().unwrap_or(trigger);
                        let limit = self.within.map_or("until the end".to_owned(), |w| format!("within {w:?}"));
                        tally.violated(last.id, format!("{what} did not come {limit}"), [trigger.id]);
                    }
                }
            }
            tally.verdict()
        })
    }
    fn windows<'e>(
        &self,
        entries: &'e [Entry],
    ) -> impl Iterator<Item = (K, &'e Entry, &'e [Entry], Closed)> + use<'_, 'e, K> {
        let complete = entries.last().is_some_and(|e| e.kind == "end" && e.name == "time");
        entries.iter().enumerate().filter_map(move |(i, trigger)| {
            let key = (self.trigger)(trigger)?;
            let rest = &entries[i + 1..];
            let deadline = self.within.map(|w| trigger.at_ns.saturating_add(w.as_nanos() as u64));
            let late = |e: &Entry| deadline.is_some_and(|d| e.at_ns > d);
            let end = rest.iter().position(|e| late(e) || self.until.iter().any(|u| u(&key, e)));
            let closed = match end {
                Some(n) if late(&rest[n]) => Closed::Over,
                Some(_) => Closed::Until,
                None if deadline.is_none() && complete => Closed::Over,
                None => Closed::Open,
            };
            Some((key, trigger, &rest[..end.unwrap_or(rest.len())], closed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Violation;

    /// A trace in short: one word an entry, at 1 s, 2 s ...; `.` is only time passing; `end` ends the run.
    fn trace(words: &str) -> Vec<Entry> {
        words
            .split(' ')
            .enumerate()
            .map(|(i, word)| Entry {
                id: i as u64,
                at_ns: (i as u64 + 1) * 1_000_000_000,
                host: "h".into(),
                kind: if word == "end" { "end".into() } else { "log".into() },
                name: "time".into(),
                text: word.to_owned(),
                fields: vec![],
                spans: vec![],
                cause: None,
            })
            .collect()
    }
    fn is(word: &'static str) -> impl Fn(&Entry) -> bool + Clone {
        move |e| e.text == word
    }
    fn holds(times: usize) -> Verdict {
        Verdict::Holds { times }
    }
    fn violated(entry: u64, led: &[u64]) -> Verdict {
        Verdict::Violated(Violation { entry, why: String::new(), led: led.to_vec() })
    }
    /// Compares verdicts without their words.
    fn check(statement: &Statement, cases: &[(&str, Verdict)]) {
        for (words, expected) in cases {
            let mut verdict = statement.judge(&trace(words));
            if let Verdict::Violated(v) = &mut verdict {
                assert!(!v.why.is_empty(), "a violation says why: {words}");
                v.why.clear();
            }
            assert_eq!(&verdict, expected, "{words}");
        }
    }
    fn bad<K>(word: &'static str) -> impl Fn(&K, &Entry) -> Option<String> {
        move |_, e| (e.text == word).then(|| "bad".to_owned())
    }

    #[test]
    fn never_forbids_an_entry_and_is_not_vacuous() {
        let s = never(|e| (e.text == "bad").then(|| "why".to_owned()));
        check(&s, &[("a b", holds(1)), ("a bad bad", violated(1, &[]))]);
    }

    #[test]
    fn always_counts_what_it_judged() {
        let s = always(|e| e.text.starts_with('r').then(|| if e.text == "r0" { Ok(()) } else { Err("code".into()) }));
        check(&s, &[("a b", Verdict::Vacuous), ("r0 a r0", holds(2)), ("r0 r9", violated(1, &[]))]);
    }

    #[test]
    fn stable_until_forbids_only_inside_its_window() {
        let s = after(|e| is("stopped")(e).then_some(())).until(|(), e| e.text == "start").never(bad("leave"));
        check(
            &s,
            &[
                ("leave start", Verdict::Vacuous),
                ("stopped start leave end", holds(1)),
                ("stopped . leave end", violated(2, &[0])),
                ("stopped start leave stopped leave", violated(4, &[3])),
                ("stopped", holds(1)),
            ],
        );
    }

    #[test]
    fn leads_to_within_is_judged_only_when_the_time_is_over() {
        let s = after(|e| is("op")(e).then_some(()))
            .within(Duration::from_secs(2))
            .until(|(), e| e.text == "gone")
            .eventually("a reply", |(), e| e.text == "reply");
        check(
            &s,
            &[
                ("a end", Verdict::Vacuous),
                ("op . reply", holds(1)),
                ("op . . reply", violated(2, &[0])),
                ("op . .  end", violated(2, &[0])),
                ("op end", Verdict::Vacuous), // the time is not over: nobody knows
                ("op gone . . end", Verdict::Vacuous),
                ("op reply op . . .", violated(4, &[2])),
            ],
        );
    }

    #[test]
    fn eventually_without_a_limit_is_judged_at_the_end_of_a_finished_run() {
        let s = after(|e| is("op")(e).then_some(())).eventually("a reply", |(), e| e.text == "reply");
        check(
            &s,
            &[
                ("op . reply", holds(1)),
                ("op . end", violated(2, &[0])),
                ("op .", Verdict::Vacuous), // killed before its end
            ],
        );
    }

    #[test]
    fn each_judges_entries_inside_windows() {
        let s = after(|e| is("stopped")(e).then_some(()))
            .until(|(), e| e.text == "start")
            .each(|(), e| e.text.starts_with('r').then(|| if e.text == "r0" { Ok(()) } else { Err("code".into()) }));
        check(
            &s,
            &[
                ("stopped end", Verdict::Vacuous),
                ("r9 stopped r0 start r9", holds(1)),
                ("stopped r0 r9", violated(2, &[0])),
            ],
        );
    }

    #[test]
    fn keys_keep_windows_of_different_sandboxes_apart() {
        let key = |e: &Entry, verb: &str| e.text.strip_prefix(verb).map(str::to_owned);
        let s = after(move |e| key(e, "stopped-"))
            .until(move |k, e| key(e, "start-").as_ref() == Some(k))
            .never(move |k, e| (key(e, "leave-").as_ref() == Some(k)).then(|| "left".to_owned()));
        check(
            &s,
            &[
                ("stopped-a start-b leave-b end", holds(1)),
                ("stopped-a stopped-b start-b leave-b leave-a", violated(4, &[0])),
            ],
        );
    }

    #[test]
    fn and_reports_the_earlier_violation_and_the_weaker_verdict() {
        let never_word = |word: &'static str| never(move |e| (e.text == word).then(|| "why".to_owned()));
        check(
            &never_word("x").and(never_word("y")),
            &[("a", holds(2)), ("y x", violated(0, &[])), ("a x", violated(1, &[]))],
        );
        check(&never_word("x").and(always(|_| None)), &[("a", Verdict::Vacuous)]);
    }
}
