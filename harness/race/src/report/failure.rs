//! Why a run does not hold, on one screen: what is violated, the few entries that matter with a column for each host and
//! times counted from the violation, and the command that runs it again.
use std::collections::BTreeMap;
use std::fmt::Write;

use indexmap::IndexSet;
use photofinish_sim::trace::{Entry, EntryId};

use super::Style;
use crate::outcome::{Broken, Outcome, RunReport, led_there};
use crate::property::{Property, SCRIPT, always_checked};
use crate::reading::Reading;

/// Lines of a failure, the run's own line among them.
pub const LINES: usize = 25;
/// Rows of the table: [`LINES`] less what can stand around it.
const ROWS: usize = 12;
/// Violations with a sentence each; those behind them are only named.
const VIOLATIONS: usize = 3;
/// Entries that led to the first violation, and to each further one.
const LED: [usize; 2] = [6, 3];
/// Last changes of what a step waited for in vain.
const CHANGES: usize = 6;
/// Last entries of a run that ended before a verdict.
const LAST: usize = 6;
/// How many choices that differ from their defaults are named.
const CHOICES: usize = 4;
/// How many properties that had nothing to judge are named.
const VACUOUS: usize = 8;
/// Columns of a row.
const WIDTH: usize = 118;
/// Least columns of a lane.
const LANE: usize = 8;

/// Why a run does not hold, in less than [`LINES`] lines, each ended. Empty for a run that holds.
///
/// `replay` is the command that runs it again. `reading` says what the entries mean, and is asked only where the script
/// waited in vain.
pub fn failure(
    report: &RunReport,
    entries: &[Entry],
    properties: &[Property],
    reading: impl Fn(&[Entry]) -> Reading,
    replay: &str,
    style: Style,
) -> String {
    let mut out = String::new();
    if report.outcome == Outcome::Holds {
        return out;
    }
    let always = always_checked();
    let sentence = |name: &str| properties.iter().chain(&always).find(|p| p.name == name).map_or("", |p| p.sentence);
    if let Some(end) = &report.end {
        let _ = writeln!(out, "  {}: {end}", style.outcome(report.outcome, report.outcome.name()));
    }
    let (told, named) = report.violations.split_at(report.violations.len().min(VIOLATIONS));
    for Broken { property, violation } in told {
        let _ = writeln!(out, "  {}: {}", style.outcome(Outcome::Violated, property), sentence(property));
        let _ = writeln!(out, "    broken here: {}", one_line(&violation.why));
    }
    if !named.is_empty() {
        let names: Vec<&str> = named.iter().map(|b| b.property.as_str()).collect();
        let _ = writeln!(out, "  violated as well: {}", names.join(", "));
    }
    // Beside a violation, or in a run that was cut short, a property that was not reached says little.
    if report.outcome == Outcome::Vacuous {
        for name in report.vacuous.iter().take(VACUOUS) {
            let _ = writeln!(out, "  {}: {}", style.outcome(Outcome::Vacuous, name), sentence(name));
            let _ = writeln!(out, "    nothing in this run let it be judged: its trigger never came");
        }
    }
    match told.first() {
        Some(first) => {
            let at = entries.get(first.violation.entry as usize).map_or(0, |e| e.at_ns);
            let broken: Vec<EntryId> = told.iter().map(|b| b.violation.entry).collect();
            let last = match &*first.property {
                SCRIPT => changes(entries, first, &reading(entries)),
                _ => BTreeMap::new(),
            };
            out += &table(&that_matter(entries, told, last.keys().copied()), &last, &broken, at, style);
        }
        None if matches!(report.outcome, Outcome::Stuck | Outcome::Crashed | Outcome::Hung) => {
            let last = &entries[entries.len().saturating_sub(LAST)..];
            if !last.is_empty() {
                let _ = writeln!(out, "    the last entries:");
            }
            out += &table(&last.iter().collect::<Vec<_>>(), &BTreeMap::new(), &[], report.virtual_ns, style);
        }
        None => {}
    }
    let choices: Vec<&Entry> = entries.iter().filter(|e| e.kind == "choice").collect();
    if !choices.is_empty() {
        let shown = choices.iter().take(CHOICES).map(|e| shorter(&e.text)).collect::<Vec<_>>().join(", ");
        let more = choices.len().saturating_sub(CHOICES);
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

/// The entries that broke the properties, and of those that led there as many as there is room for, in order.
fn that_matter<'e>(entries: &'e [Entry], told: &[Broken], besides: impl Iterator<Item = EntryId>) -> Vec<&'e Entry> {
    let mut ids: IndexSet<EntryId> = told.iter().map(|b| b.violation.entry).chain(besides).collect();
    for (n, Broken { violation, .. }) in told.iter().enumerate() {
        let led = led_there(entries, violation, LED[n.min(1)]);
        // A span that closes says nothing that its opening or its events have not said.
        ids.extend(led.iter().filter(|e| e.kind != "span-end").map(|e| e.id));
    }
    ids.truncate(ROWS);
    ids.sort_unstable();
    ids.iter().filter_map(|id| entries.get(*id as usize)).collect()
}

/// The last changes of what a step waited for in vain, in words: nothing caused the waiting, so its causes say nothing.
///
/// A step is about whatever it names.
fn changes(entries: &[Entry], missed: &Broken, reading: &Reading) -> BTreeMap<EntryId, String> {
    let at = missed.violation.entry;
    let step = entries.get(at as usize).map_or("", |e| &*e.text);
    let words: Vec<&str> = step.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let mut states = BTreeMap::new();
    let mut changes = BTreeMap::new();
    for view in reading.views.iter().filter(|view| view.at < at && words.contains(&&*view.subject)) {
        let state = view.state.as_deref();
        if states.insert((&view.subject, &view.holder), state) != Some(state) {
            changes.insert(view.at, format!("{}: {}", view.subject, state.unwrap_or("gone")));
        }
    }
    let from = changes.keys().rev().nth(CHANGES - 1).copied().unwrap_or(0);
    changes.split_off(&from)
}

/// A row an entry, a column a host: what happens in a lane starts in its column and goes on to the right. Some entries
/// have other words than their own.
fn table(rows: &[&Entry], words: &BTreeMap<EntryId, String>, broken: &[EntryId], zero_ns: u64, style: Style) -> String {
    let lanes: IndexSet<&str> = rows.iter().map(|e| &*e.host).collect();
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    let width = |lane: &str| (lane.chars().count() + 2).max(LANE);
    let header: String = lanes.iter().map(|lane| format!("{lane:<w$}", w = width(lane))).collect();
    let _ = writeln!(out, "  {}", style.dim(&format!("{:>10}  {}", "", header.trim_end())));
    for e in rows {
        let mine = lanes.get_index_of(&*e.host).unwrap_or(0);
        let left: String = lanes.iter().take(mine).map(|lane| format!("{:<w$}", "|", w = width(lane))).collect();
        let text = words.get(&e.id).cloned().unwrap_or_else(|| row(e));
        let text = cut(&text, WIDTH.saturating_sub(14 + left.len()));
        let is_broken = broken.contains(&e.id);
        let mark = if is_broken { "!" } else { " " };
        let text = if is_broken { style.bold(&text) } else { text };
        let _ = writeln!(out, "{mark} {:>10}  {}{text}", since(e.at_ns, zero_ns), style.dim(&left));
    }
    out
}

/// What an entry says, on one line, without what its lane says already and with ids cut short.
fn row(e: &Entry) -> String {
    let text = one_line(&super::said(e));
    let text = text.strip_prefix(&format!("{}: ", e.host)).unwrap_or(&text);
    match &*e.kind {
        "step" | "net" | "host" | "panic" => format!("[{}] {}", e.kind, shorter(text)),
        _ => shorter(text),
    }
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" / ")
}

/// Time since the violation: `-1.067s`, `-326us`, `0`, `+200ms`.
fn since(at_ns: u64, zero_ns: u64) -> String {
    let (sign, ns) = if at_ns < zero_ns { ('-', zero_ns - at_ns) } else { ('+', at_ns - zero_ns) };
    match ns {
        0 => "0".to_owned(),
        1..1_000_000 => format!("{sign}{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{sign}{:.1}ms", ns as f64 / 1e6),
        _ => format!("{sign}{:.3}s", ns as f64 / 1e9),
    }
}

/// Length of a UUID.
const UUID: usize = 36;

fn is_uuid(text: &[u8]) -> bool {
    let dash = |i| matches!(i, 8 | 13 | 18 | 23);
    text.len() == UUID && text.iter().enumerate().all(|(i, b)| if dash(i) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// The text with its UUIDs cut to their first four digits; a field that has nothing but one is left out.
fn shorter(text: &str) -> String {
    let words = text.split(' ').filter(|word| !word.split_once('=').is_some_and(|(_, v)| is_uuid(v.as_bytes())));
    let short = |word: &str| {
        let (bytes, mut out, mut from) = (word.as_bytes(), String::new(), 0);
        let mut i = 0;
        while i + UUID <= bytes.len() {
            if is_uuid(&bytes[i..i + UUID]) {
                out += &word[from..i + 4];
                out += "..";
                i += UUID;
                from = i;
            } else {
                i += 1;
            }
        }
        out + &word[from..]
    };
    words.map(short).collect::<Vec<_>>().join(" ")
}

/// The text, or its beginning and `...`: so many characters at most.
pub(crate) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(3)).collect::<String>() + "...",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Violation;
    use crate::reading::View;
    use crate::report::tests::report;
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
            spans: vec![],
            cause,
        }
    }
    fn unread(_: &[Entry]) -> Reading {
        Reading::default()
    }
    fn broken(property: &str, entry: u64, why: &str, led: Vec<u64>) -> Broken {
        Broken { property: property.into(), violation: Violation { entry, why: why.into(), led } }
    }

    #[test]
    fn a_failure_shows_property_lanes_what_led_there_and_the_command() {
        let entries = [
            e(0, "client", "client: stop demo", None),
            e(1, "driver", "sent", Some(0)),
            e(2, "gateway", "left", Some(1)),
            e(3, "client", "client: refused", Some(2)),
        ];
        let violations = vec![broken("stable", 2, "left Stopped", vec![0]), broken("idempotent", 3, "refused", vec![])];
        let report = RunReport { violations, ..report(Outcome::Violated) };
        let properties = [Property::new("stable", "Stays.", temporal::never(|_| None))];
        let expected = "  stable: Stays.
    broken here: left Stopped
  idempotent: 
    broken here: refused
              client  driver  gateway
      -3.0ms  stop demo
      -1.5ms  |       sent
!          0  |       |       left
!     +1.5ms  refused
  replay: photofinish replay 'x'
";
        assert_eq!(
            failure(&report, &entries, &properties, unread, "photofinish replay 'x'", Style::default()),
            expected
        );
    }

    #[test]
    fn a_step_that_waits_in_vain_shows_what_became_of_what_it_waits_for() {
        let step = |id, text| Entry { kind: "step".into(), ..e(id, "world", text, None) };
        let entries = [
            e(0, "gateway", "commit one", None),
            e(1, "gateway", "commit two", None),
            e(2, "gateway", "commit two again", None),
            e(3, "api", "patched two", None),
            step(4, "await: {two: Ready}"),
            Entry { cause: Some(4), ..step(5, "await: {two: Ready}: it is Stopped") },
            e(6, "gateway", "commit two", None),
        ];
        let view = |at, subject: &str, holder: Option<&str>, state: Option<&str>| View {
            subject: subject.into(),
            holder: holder.map(Into::into),
            at,
            state: state.map(Into::into),
            revision: None,
        };
        let gateway = Some("gateway");
        let views = vec![
            view(0, "one", gateway, Some("Ready")),
            view(1, "two", gateway, Some("Stopped")),
            view(2, "two", gateway, Some("Stopped")),
            view(3, "two", None, None),
            view(6, "two", gateway, Some("Ready")),
        ];
        let reading = |_: &[Entry]| Reading { views: views.clone(), ..Reading::default() };
        let violations = vec![broken(SCRIPT, 5, "it is Stopped", vec![])];
        let report = RunReport { violations, ..report(Outcome::Violated) };
        let text = failure(&report, &entries, &[], reading, "x", Style::default());
        let table: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "              gateway  api     world",
            "      -6.0ms  two: Stopped",
            "      -3.0ms  |        two: gone",
            "      -1.5ms  |        |       [step] await: {two: Ready}",
            "!          0  |        |       [step] await: {two: Ready}: it is Stopped",
            "  replay: x",
        ];
        assert_eq!(table, expected, "{text}");
    }

    #[test]
    fn a_failure_has_at_most_25_lines_however_much_is_broken() {
        let mut entries: Vec<Entry> = (0..200).map(|i| e(i, "h", &"long ".repeat(60), i.checked_sub(1))).collect();
        entries.extend((200..220).map(|i| Entry { kind: "choice".into(), ..e(i, "world", "a=b", None) }));
        let violations: Vec<Broken> =
            (0..9).map(|i| broken("p", 100 + 10 * i, "a\nb\n\nc", (0..90).collect())).collect();
        let report = RunReport { violations, end: Some("it ended".into()), ..report(Outcome::Violated) };
        let text = failure(&report, &entries, &[], unread, "x", Style::default());
        let lines = text.lines().count();
        assert!((15..LINES).contains(&lines), "{lines} lines:\n{text}");
        assert!(text.lines().all(|l| l.len() <= 120), "{text}");
        assert!(text.contains("broken here: a / b / c"), "{text}");
    }

    #[test]
    fn a_run_that_died_shows_its_last_entries() {
        let entries: Vec<Entry> = (0..20).map(|i| e(i, "h", &format!("n{i}"), None)).collect();
        let text = failure(&report(Outcome::Crashed), &entries, &[], unread, "x", Style::default());
        assert!(!text.contains("n13") && text.contains("n14") && text.contains("n19"), "{text}");
    }

    #[test]
    fn a_refused_run_says_which_step_and_offers_no_replay() {
        let end = "not on this engine (turmoil): line 5, `cut: [a, b]`";
        let report = RunReport { end: Some(end.into()), ..report(Outcome::Refused) };
        let expected = format!("  refused: {end}\n    nothing was judged; without --engine every fault is known\n");
        assert_eq!(failure(&report, &[], &[], unread, "x", Style::default()), expected);
    }

    #[test]
    fn a_run_that_holds_needs_no_words() {
        assert_eq!(failure(&report(Outcome::Holds), &[], &[], unread, "x", Style::default()), "");
    }

    #[test]
    fn times_are_counted_from_the_violation() {
        for (at, zero, expected) in [
            (5, 5, "0"),
            (0, 326_000, "-326us"),
            (1_066_638_000, 0, "+1.067s"),
            (0, 199_700_000, "-199.7ms"),
            (61_000_000_000, 1_000_000_000, "+60.000s"),
        ] {
            assert_eq!(since(at, zero), expected);
        }
    }

    #[test]
    fn ids_are_cut_short_and_fields_of_nothing_else_left_out() {
        let id = "c584133a-c916-4b3c-ac82-9abe1f4532e1";
        for (text, expected) in [
            (format!("phase changed sandbox_id={id} by=worker"), "phase changed by=worker"),
            (format!("get /pods/os-supervisor-{id} -> 404"), "get /pods/os-supervisor-c584.. -> 404"),
            (format!("{id}{id}"), "c584..c584.."),
            ("no id: ä".to_owned(), "no id: ä"),
        ] {
            assert_eq!(shorter(&text), expected);
        }
    }
}
