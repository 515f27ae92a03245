//! Reports as text: pure functions from a run and its trace to what a human reads.
//!
//! Virtual times only, and nothing about the machine, so the same run gives the same text everywhere (the command that
//! replays it is given by the caller).
use std::fmt::Write;

use photofinish_sim::trace::Entry;

use crate::outcome::{Outcome, RunReport, led_there};
use crate::property::{Property, always_checked};

/// How much of what led to a violation is shown.
const LED_LIMIT: usize = 6;
/// How many choices that differ from their defaults are named.
const CHOICES_LIMIT: usize = 8;

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

/// One aligned line for one run: outcome, scenario, virtual time, and the property that a reader wants to know first.
pub fn line(name: &str, width: usize, report: &RunReport, style: Style) -> String {
    let outcome = style.outcome(report.outcome, &format!("{:<16}", report.outcome));
    let mut line = format!("{outcome} {name:<width$} {:>13}", time(report.virtual_ns));
    if let Some(property) = report.property().filter(|_| report.outcome != Outcome::Holds) {
        let _ = write!(line, "  {property}");
    }
    line
}

/// One entry on a line: time, host, spans and text.
pub fn entry(e: &Entry) -> String {
    let spans = if e.spans.is_empty() { String::new() } else { format!("{}: ", e.spans.join(":")) };
    let text = match e.text.is_empty() {
        false => e.text.replace('\n', "\n                                         "),
        // A span has no text of its own.
        true => e.fields.iter().fold(e.name.to_string(), |all, (k, v)| all + &format!(" {k}={v}")),
    };
    format!("{:>13}  {:<11} {:<8} {spans}{text}", time(e.at_ns), e.host, e.kind)
}

/// The whole trace, an entry a line.
pub fn trace(entries: &[Entry]) -> String {
    entries.iter().fold(String::new(), |all, e| all + &entry(e) + "\n")
}

/// Why a run does not hold: each violated property with the entry that broke it and the few that led there, then how to
/// run it again. Empty for a run that holds.
pub fn failure(report: &RunReport, entries: &[Entry], properties: &[Property], replay: &str, style: Style) -> String {
    let mut out = String::new();
    if report.outcome == Outcome::Holds {
        return out;
    }
    let always = always_checked();
    let sentence = |name: &str| properties.iter().chain(&always).find(|p| p.name == name).map_or("", |p| p.sentence);
    if let Some(end) = &report.end {
        let _ = writeln!(out, "  {}: {end}", style.outcome(report.outcome, report.outcome.name()));
    }
    for broken in &report.violations {
        let _ =
            writeln!(out, "  {}: {}", style.outcome(Outcome::Violated, &broken.property), sentence(&broken.property));
        let led = led_there(entries, &broken.violation, LED_LIMIT);
        if !led.is_empty() {
            let _ = writeln!(out, "    what led there:");
        }
        for e in led {
            let _ = writeln!(out, "    {}", style.dim(&entry(e)));
        }
        let _ = writeln!(out, "    broken here: {}", broken.violation.why);
        if let Some(e) = entries.get(broken.violation.entry as usize) {
            let _ = writeln!(out, "    {}", style.bold(&entry(e)));
        }
    }
    // Beside a violation, or in a run that was cut short, a property that was not reached says little.
    for name in report.vacuous.iter().filter(|_| report.outcome == Outcome::Vacuous) {
        let _ = writeln!(out, "  {}: {}", style.outcome(Outcome::Vacuous, name), sentence(name));
        let _ = writeln!(out, "    nothing in this run let it be judged: its trigger never came");
    }
    if report.violations.is_empty()
        && matches!(report.outcome, Outcome::Stuck | Outcome::Crashed | Outcome::Hung)
        && !entries.is_empty()
    {
        let _ = writeln!(out, "    the last entries:");
        for e in &entries[entries.len().saturating_sub(LED_LIMIT)..] {
            let _ = writeln!(out, "    {}", style.dim(&entry(e)));
        }
    }
    let choices: Vec<&Entry> = entries.iter().filter(|e| e.kind == "choice").collect();
    if !choices.is_empty() {
        let shown = choices.iter().take(CHOICES_LIMIT).map(|e| e.text.as_str()).collect::<Vec<_>>().join(", ");
        let more = choices.len().saturating_sub(CHOICES_LIMIT);
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(out, "  not as usual in this run: {shown}{tail}");
    }
    // The same request again would be refused again.
    match report.outcome {
        Outcome::Refused if !report.wrong_pins.is_empty() => _ = writeln!(out, "    nothing was judged"),
        Outcome::Refused => _ = writeln!(out, "    nothing was judged; without --engine every fault is known"),
        _ => _ = writeln!(out, "  replay: {replay}"),
    }
    out
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
    use crate::outcome::Broken;
    use crate::property::Violation;
    use crate::temporal;

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
    fn report(outcome: Outcome) -> RunReport {
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
        let style = Style::default();
        assert_eq!(line("a", 3, &report(Outcome::Holds), style), "holds            a      12.345678s");
        let vacuous = RunReport { vacuous: vec!["p".into()], ..report(Outcome::Vacuous) };
        assert_eq!(line("abc", 3, &vacuous, style), "vacuous          abc    12.345678s  p");
    }

    #[test]
    fn a_failure_shows_property_entry_what_led_there_and_the_command() {
        let entries =
            [e(0, "client", "stop demo", None), e(1, "driver", "sent", Some(0)), e(2, "gateway", "left", Some(1))];
        let violation = Violation { entry: 2, why: "left Stopped".into(), led: vec![0] };
        let report = RunReport {
            violations: vec![Broken { property: "stable".into(), violation }],
            ..report(Outcome::Violated)
        };
        let properties = [Property::new("stable", "Stays.", temporal::never(|_| None))];
        let expected = "  stable: Stays.
    what led there:
        0.000000s  client      log      stop demo
        0.001500s  driver      log      sent
    broken here: left Stopped
        0.003000s  gateway     log      driver_watch: left
  replay: photofinish replay 'x'
";
        assert_eq!(failure(&report, &entries, &properties, "photofinish replay 'x'", Style::default()), expected);
    }

    #[test]
    fn a_refused_run_says_which_step_and_offers_no_replay() {
        let end = "not on this engine (turmoil): line 5, `cut: [a, b]`";
        let report = RunReport { end: Some(end.into()), ..report(Outcome::Refused) };
        let expected = format!("  refused: {end}\n    nothing was judged; without --engine every fault is known\n");
        assert_eq!(failure(&report, &[], &[], "x", Style::default()), expected);
    }

    #[test]
    fn a_run_that_holds_needs_no_words() {
        assert_eq!(failure(&report(Outcome::Holds), &[], &[], "x", Style::default()), "");
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
