//! Failures in words: what a pin does, what caused a violation, where two runs part.
use photofinish_sim::choices::Pins;
use photofinish_sim::trace::{Entry, EntryId};

use crate::explore::fingerprint::{Fingerprint, WORLD};
use crate::property::Violation;

/// What a pinned choice makes happen, in words. The keys are those of the table of API faults; others are named as they are.
pub fn pin(key: &str, value: &str) -> String {
    known(key, value).unwrap_or_else(|| format!("the choice {key} takes {value}"))
}

fn known(key: &str, value: &str) -> Option<String> {
    match key.split_once('/') {
        Some(("op", n)) => return Some(format!("step {n} of the script is {value}")),
        Some(("when", n)) => return Some(format!("step {n} of the script comes {}", when(value))),
        Some(("crash", place)) => {
            let (place, n) = place.split_once("/after-write#")?;
            let (host, section) = place.split_once('/')?;
            let n = ordinal(n.parse().ok()?);
            return Some(format!("{host} crashes after its {n} write of the {section}"));
        }
        _ => {}
    }
    let (point, rest) = key.split_once('#')?;
    let (n, suffix) = rest.split_once('/').map_or((rest, ""), |(n, suffix)| (n, suffix));
    let n = ordinal(n.parse().ok()?);
    let late = value.strip_prefix('+').map(|by| format!("{by} late"));
    let parts: Vec<&str> = point.split('/').collect();
    Some(match (&parts[..], suffix, late) {
        (["watch", client, resource @ .., object], "", Some(late)) if !resource.is_empty() => {
            format!("{client} sees the {n} event of {object} in its watch of {} {late}", resource.join("/"))
        }
        (["watch", client, resource @ ..], "expired", _) => {
            format!("the {n} watch of {} that {client} resumes is told 410", resource.join("/"))
        }
        (["watch", client, resource @ .., object], suffix, _) if !resource.is_empty() => {
            let what = match suffix {
                "end" => "ends instead of",
                "reset" => "breaks before",
                "torn" => "breaks in the middle of",
                "drop" => "leaves out",
                "duplicate" => "repeats",
                "swap" => "swaps with the next one",
                _ => return None,
            };
            format!("the watch of {} by {client} {what} the {n} event of {object}", resource.join("/"))
        }
        (["call", client, verb, what @ ..], suffix, late) => {
            let does = match (suffix, late) {
                ("", Some(late)) => format!("is handled {late}"),
                ("reply", Some(late)) => format!("is answered {late}"),
                ("lost", _) => "takes effect, but its answer is lost".to_owned(),
                ("timed-out", _) => "takes effect, but is answered 504".to_owned(),
                ("expired", _) => "is told that its continue token has expired".to_owned(),
                (code @ ("429" | "500" | "503" | "504"), _) => format!("is refused with {code}"),
                _ => return None,
            };
            format!("the {n} {verb} of {} by {client} {does}", what.join("/"))
        }
        (["cache", server, resource, object], "", Some(late)) => {
            format!("the {n} change of {object} arrives in {server}'s watch cache of {resource} {late}")
        }
        (["start", "pod", name], "", Some(_)) => format!("the {n} pod {name} takes {} longer to start", &value[1..]),
        (["stop", "pod", name], "", Some(_)) => format!("the {n} pod {name} takes {} longer to end", &value[1..]),
        _ => return None,
    })
}

/// `at-once`, `settled`, or after so many changes: `change.2`.
fn when(value: &str) -> String {
    match value.split_once('.') {
        Some((what, n)) => format!("{n} {what}s after the one before"),
        None if value == "settled" => "when all is settled".to_owned(),
        None => value.replace('-', " "),
    }
}

fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// The sentence of cause: what fails, on what, because of which pins, and how it shows.
pub fn sentence(fingerprint: &Fingerprint, pins: &Pins, why: &str) -> String {
    let causes: Vec<String> = pins.iter().map(|(key, value)| pin(key, value)).collect();
    let because = match causes.is_empty() {
        true => "without any fault, by the script alone".to_owned(),
        false => format!("because {}", causes.join(", and ")),
    };
    let on = if fingerprint.object == WORLD { String::new() } else { format!(" on {}", fingerprint.object) };
    format!("{} fails{on} {because}: {why}", fingerprint.property)
}

/// All entries that a violation goes back to, oldest first: its causes to the start of the run, and what its property names.
pub fn causes<'e>(entries: &'e [Entry], violation: &Violation) -> Vec<&'e Entry> {
    // A cause is always older: this ends.
    let cause = |id: EntryId| entries.get(id as usize)?.cause.filter(|cause| *cause < id);
    let mut ids: Vec<EntryId> = std::iter::successors(cause(violation.entry), |id| cause(*id)).collect();
    ids.extend(&violation.led);
    ids.push(violation.entry);
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().filter_map(|id| entries.get(id as usize)).collect()
}

/// Where two runs part: positions in both of the first entries that differ in time, place or words. Choices are no
/// difference of their own: what they lead to is. `None` if the runs are alike.
pub fn parting(one: &[Entry], other: &[Entry]) -> Option<(usize, usize)> {
    let positions = |entries: &[Entry]| -> Vec<usize> {
        entries.iter().enumerate().filter(|(_, e)| e.kind != "choice").map(|(i, _)| i).collect()
    };
    let (a, b) = (positions(one), positions(other));
    let alike = |x: &Entry, y: &Entry| {
        (x.at_ns, &x.host, &x.kind, &x.name, &x.text, &x.fields)
            == (y.at_ns, &y.host, &y.kind, &y.name, &y.text, &y.fields)
    };
    let at = a.iter().zip(&b).take_while(|(x, y)| alike(&one[**x], &other[**y])).count();
    let place = |of: &[usize], all: &[Entry]| of.get(at).copied().unwrap_or(all.len());
    (at < a.len().max(b.len())).then(|| (place(&a, one), place(&b, other)))
}

/// What may be behind a difference between two runs of one id: the likeliest source, from the first entries that differ.
pub fn likely_source(one: Option<&Entry>, other: Option<&Entry>) -> &'static str {
    let (Some(a), Some(b)) = (one, other) else {
        return "something ended or began that the world does not decide: a thread, a child process, a real signal";
    };
    if (&a.host, &a.kind, &a.name) != (&b.host, &b.kind, &b.name) {
        return "the order differs: iteration over a HashMap with a hasher of its own, or threads that race";
    }
    let stripped = |e: &Entry| {
        let all = e.fields.iter().fold(e.text.clone(), |all, (k, v)| all + " " + k + "=" + v);
        all.chars().filter(|c| !c.is_ascii_hexdigit()).collect::<String>()
    };
    match (a.text == b.text && a.fields == b.fields, a.at_ns == b.at_ns) {
        (true, false) => "only the time differs: a clock that the world does not answer, or work that took real time",
        (true, true) => "only the cause differs: the order in which tasks of one instant ran",
        (false, _) if a.text.contains("0x") => "an address: of memory, printed or hashed",
        (false, _) if stripped(a) == stripped(b) => {
            "numbers that the world does not give: a process id, an address, a clock or random source of C code"
        }
        (false, _) => "the words differ: data from outside (a file, an environment variable), or an order within them",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_told_in_words() {
        for (key, value, words) in [
            (
                "watch/driver/sandboxes/demo#4",
                "+1.4s",
                "driver sees the 4th event of demo in its watch of sandboxes 1.4s late",
            ),
            (
                "watch/driver/sandboxes/demo#2/end",
                "yes",
                "the watch of sandboxes by driver ends instead of the 2nd event of demo",
            ),
            ("watch/driver/pods#1/expired", "yes", "the 1st watch of pods that driver resumes is told 410"),
            ("call/driver/GET/pods/demo#3", "+2s", "the 3rd GET of pods/demo by driver is handled 2s late"),
            (
                "call/driver/PATCH/pods/demo#11/lost",
                "yes",
                "the 11th PATCH of pods/demo by driver takes effect, but its answer is lost",
            ),
            ("call/gc/LIST/pods#21/503", "yes", "the 21st LIST of pods by gc is refused with 503"),
            ("start/pod/demo#1", "+5s", "the 1st pod demo takes 5s longer to start"),
            ("lose/server/reply#1", "yes", "the choice lose/server/reply#1 takes yes"),
            ("op/2", "stop.demo", "step 2 of the script is stop.demo"),
            ("when/3", "at-once", "step 3 of the script comes at once"),
            ("when/3", "change.2", "step 3 of the script comes 2 changes after the one before"),
            ("crash/gateway/script/after-write#12", "yes", "gateway crashes after its 12th write of the script"),
        ] {
            assert_eq!(pin(key, value), words);
        }
    }

    fn entry(id: u64, kind: &'static str, text: &str, cause: Option<u64>) -> Entry {
        let (host, name) = ("h".into(), "n".into());
        Entry { id, at_ns: 5, host, kind: kind.into(), name, text: text.into(), fields: vec![], spans: vec![], cause }
    }

    #[test]
    fn the_causes_of_a_violation_go_back_to_the_start() {
        let entries: Vec<Entry> = (0..8).map(|i| entry(i, "log", "x", i.checked_sub(3))).collect();
        let violation = Violation { entry: 7, why: String::new(), led: vec![2] };
        assert_eq!(causes(&entries, &violation).iter().map(|e| e.id).collect::<Vec<_>>(), [1, 2, 4, 7]);
    }

    #[test]
    fn runs_part_where_something_else_happens_and_not_at_the_choice_itself() {
        let one = [
            entry(0, "log", "a", None),
            entry(1, "choice", "c", None),
            entry(2, "log", "b", Some(1)),
            entry(3, "log", "x", None),
        ];
        let other = [entry(0, "log", "a", None), entry(1, "log", "b", Some(0)), entry(2, "log", "y", None)];
        assert_eq!(parting(&one, &other), Some((3, 2)));
        assert_eq!(parting(&one[..3], &other[..2]), None);
        assert_eq!(parting(&one, &other[..2]), Some((3, 2)));
    }

    #[test]
    fn a_difference_has_a_likely_source() {
        let e = |text: &str| entry(0, "log", text, None);
        for (a, b, expected) in [
            (Some(e("a")), None, "ended or began"),
            (Some(e("a")), Some(Entry { at_ns: 6, ..e("a") }), "only the time"),
            (Some(e("process 17")), Some(e("process 4711")), "process id"),
            (Some(e("at 0x7f")), Some(e("at 0x9f")), "an address"),
            (Some(e("one two")), Some(e("two one")), "the words differ"),
            (Some(e("a")), Some(Entry { kind: "http".into(), ..e("a") }), "the order differs"),
            (Some(e("a")), Some(Entry { cause: Some(1), ..e("a") }), "only the cause"),
        ] {
            let said = likely_source(a.as_ref(), b.as_ref());
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}
