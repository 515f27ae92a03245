//! Reports as text: pure functions from a run and its trace to what a human reads.
//!
//! Nothing about the machine but what the caller gives (the wall time, the command that replays a run), so the same run
//! gives the same text everywhere.
use std::time::Duration;

use photofinish_sim::trace::Entry;

use crate::outcome::{Outcome, RunReport};

mod failure;

pub(crate) use failure::cut;
pub use failure::{LINES, failure};

/// With or without colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// ANSI colours, for terminals.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
    /// For what stands out.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
    /// For what may be overlooked.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
    /// Green for what holds, red for what does not, yellow where there is no verdict.
    pub fn outcome(self, outcome: Outcome, text: &str) -> String {
        self.paint(["32", "1;31", "33", "1;33"][usize::from(outcome.exit_code())], text)
    }
}

/// `12.345678s`
pub fn time(ns: u64) -> String {
    format!("{}.{:06}s", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000)
}

/// `24ms`, `1.3s`, `12m 5s`: how long the machine took.
pub fn wall(span: Duration) -> String {
    match span.as_millis() {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        ms => format!("{}m {}s", ms / 60_000, ms / 1_000 % 60),
    }
}

/// One aligned line for the runs of one scenario.
#[derive(Clone, Debug)]
pub struct Line<'l> {
    /// The scenario's name.
    pub name: &'l str,
    /// Columns of the longest name.
    pub width: usize,
    /// The worst outcome.
    pub outcome: Outcome,
    /// How many runs.
    pub runs: usize,
    /// Virtual time of all of them, nanoseconds.
    pub virtual_ns: u64,
    /// What they took.
    pub wall: Duration,
    /// What a reader wants to know first: a property, counts.
    pub more: &'l str,
}

impl Line<'_> {
    /// Outcome, scenario, runs, virtual time, wall time, and what there is more to say.
    pub fn text(&self, style: Style) -> String {
        let outcome = style.outcome(self.outcome, &format!("{:<16}", self.outcome));
        let runs = if self.runs == 1 { "1 run ".to_owned() } else { format!("{} runs", self.runs) };
        let ms = self.virtual_ns / 1_000_000;
        let virtual_time = format!("{}.{:03}s", ms / 1_000, ms % 1_000);
        let (name, width, more) = (self.name, self.width, self.more);
        let wall = format!("in {:>6}", wall(self.wall));
        let line = format!("{outcome} {name:<width$} {runs:>9} {virtual_time:>11} {}  {more}", style.dim(&wall));
        line.trim_end().to_owned()
    }
}

/// The line of one run.
pub fn line(name: &str, width: usize, report: &RunReport, wall: Duration, style: Style) -> String {
    let property = report.property().filter(|_| report.outcome != Outcome::Holds);
    let (outcome, virtual_ns, more) = (report.outcome, report.virtual_ns, property.unwrap_or(""));
    Line { name, width, outcome, runs: 1, virtual_ns, wall, more }.text(style)
}

/// One entry on a line: time, host, spans and text.
pub fn entry(e: &Entry) -> String {
    let spans = if e.spans.is_empty() { String::new() } else { format!("{}: ", e.spans.join(":")) };
    let text = said(e).replace('\n', "\n                                         ");
    format!("{:>13}  {:<11} {:<8} {spans}{text}", time(e.at_ns), e.host, e.kind)
}

/// What an entry says; a span has no text of its own, and is called by its name and fields.
fn said(e: &Entry) -> String {
    match e.text.is_empty() {
        false => e.text.clone(),
        true => e.fields.iter().fold(e.name.to_string(), |all, (k, v)| all + &format!(" {k}={v}")),
    }
}

/// The whole trace, an entry a line.
pub fn trace(entries: &[Entry]) -> String {
    entries.iter().fold(String::new(), |all, e| all + &entry(e) + "\n")
}

/// Where two traces of one run part: the first entry that differs, from both sides.
pub fn difference(first: &[Entry], second: &[Entry]) -> String {
    let Some(at) = (0..first.len().max(second.len())).find(|i| first.get(*i) != second.get(*i)) else {
        return "the traces are equal".into();
    };
    let side = |entries: &[Entry]| match entries.get(at) {
        Some(e) => {
            let fields = e.fields.iter().map(|(k, v)| format!(" {k}={v}")).collect::<String>();
            let cause = e.cause.map_or("none".to_owned(), |c| c.to_string());
            format!("{} [{}{fields}, cause {cause}]", entry(e), e.name)
        }
        None => "no entry: the trace ends before".into(),
    };
    format!("the traces part at entry {at}:\n    one:     {}\n    another: {}", side(first), side(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn e(id: u64, host: &'static str, text: &str, cause: Option<u64>) -> Entry {
        Entry {
            id,
            at_ns: id * 1_500_000,
            host: host.into(),
            kind: "log".into(),
            name: "info".into(),
            text: text.into(),
            fields: vec![],
            spans: if id == 2 { vec!["driver_watch".into()] } else { vec![] },
            cause,
        }
    }
    pub(super) fn report(outcome: Outcome) -> RunReport {
        RunReport {
            outcome,
            violations: vec![],
            vacuous: vec![],
            trace_hash: "0".into(),
            virtual_ns: 12_345_678_901,
            end: None,
            wrong_pins: vec![],
            unused_pins: vec![],
            crash_points: Vec::new(),
        }
    }

    #[test]
    fn lines_are_aligned() {
        let (style, wall) = (Style::default(), Duration::from_millis(24));
        let holds = "holds            a      1 run      12.345s in   24ms";
        assert_eq!(line("a", 3, &report(Outcome::Holds), wall, style), holds);
        let vacuous = RunReport { vacuous: vec!["p".into()], ..report(Outcome::Vacuous) };
        let said = "vacuous          abc    1 run      12.345s in   24ms  p";
        assert_eq!(line("abc", 3, &vacuous, wall, style), said);
        let (name, more) = ("abc", "2 hold");
        let many = Line { name, width: 3, outcome: Outcome::Holds, runs: 500, virtual_ns: 5, wall, more };
        assert_eq!(many.text(style), "holds            abc  500 runs      0.000s in   24ms  2 hold");
    }

    #[test]
    fn wall_times_have_the_unit_that_fits() {
        for (ms, expected) in [(0, "0ms"), (999, "999ms"), (1_250, "1.2s"), (61_000, "1m 1s"), (3_600_000, "60m 0s")] {
            assert_eq!(super::wall(Duration::from_millis(ms)), expected);
        }
    }

    #[test]
    fn colours_are_only_there_when_asked_for() {
        let coloured = line("a", 1, &report(Outcome::Violated), Duration::ZERO, Style { colour: true });
        assert!(coloured.starts_with("\x1b[1;31mviolated"), "{coloured:?}");
        assert!(!line("a", 1, &report(Outcome::Violated), Duration::ZERO, Style::default()).contains('\x1b'));
    }

    #[test]
    fn the_first_differing_entry_is_shown_from_both_sides() {
        let (a, b) = ([e(0, "h", "same", None), e(1, "h", "x", None)], [e(0, "h", "same", None), e(1, "h", "y", None)]);
        let text = difference(&a, &b);
        assert!(text.starts_with("the traces part at entry 1:"), "{text}");
        assert!(
            text.contains("log      x [info, cause none]") && text.contains("log      y [info, cause none]"),
            "{text}"
        );
        assert!(difference(&a, &a[..1]).contains("another: no entry"));
    }
}
