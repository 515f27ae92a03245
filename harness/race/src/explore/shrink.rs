//! A failure with the fewest pins, then with the shortest delays.
//!
//! Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002, over pins.
use std::time::Duration;

use photofinish_sim::choices::{Pins, parse_delay, print_delay};
use photofinish_sim::trace::Entry;

/// The draws of a run as pins: all choices that are not as usual, except those that its scenario pins itself.
pub fn drawn(entries: &[Entry], of_scenario: &Pins) -> Pins {
    let choices = entries.iter().filter(|e| e.kind == "choice" && of_scenario.get(&e.name) != e.field("value"));
    choices.filter_map(|e| Some((e.name.as_ref(), e.field("value")?))).collect()
}

/// The fewest of these pins with which it still fails: none of them can be taken away any more.
///
/// # Errors
/// What `fails` returns.
pub fn fewest<E>(pins: &Pins, mut fails: impl FnMut(&Pins) -> Result<bool, E>) -> Result<Pins, E> {
    let mut left: Vec<(String, String)> = pins.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let of = |part: &[(String, String)]| part.iter().cloned().collect::<Pins>();
    if fails(&Pins::default())? {
        return Ok(Pins::default());
    }
    let mut parts = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(parts);
        let chunks = left.len().div_ceil(size);
        let mut smaller = None;
        for at in 0..chunks {
            let part = left[at * size..left.len().min((at + 1) * size)].to_vec();
            if fails(&of(&part))? {
                smaller = Some((part, 2));
                break;
            }
        }
        // With two parts, each is what the other leaves.
        for at in 0..if smaller.is_none() && chunks > 2 { chunks } else { 0 } {
            let rest: Vec<_> =
                left[..at * size].iter().chain(&left[left.len().min((at + 1) * size)..]).cloned().collect();
            if fails(&of(&rest))? {
                smaller = Some((rest, (chunks - 1).max(2)));
                break;
            }
        }
        match smaller {
            Some((rest, next)) => (left, parts) = (rest, next),
            None if size == 1 => break,
            None => parts = (parts * 2).min(left.len()),
        }
    }
    Ok(of(&left))
}

/// The shortest delays with which it still fails, each to about a tenth.
///
/// # Errors
/// What `fails` returns.
pub fn shortest<E>(pins: &Pins, mut fails: impl FnMut(&Pins) -> Result<bool, E>) -> Result<Pins, E> {
    let mut best = pins.clone();
    for (key, value) in pins.iter() {
        let Some(delay) = parse_delay(value) else { continue };
        // Without it, it does not fail: `fewest` has tried.
        let (mut low, mut high) = (100_000u64, delay.as_nanos() as u64);
        while high as f64 > low as f64 * 1.1 {
            let middle = two_digits((low as f64 * high as f64).sqrt() as u64);
            if middle <= low || middle >= high {
                break;
            }
            let mut tried = best.clone();
            tried.insert(key, print_delay(Duration::from_nanos(middle)));
            match fails(&tried)? {
                true => (best, high) = (tried, middle),
                false => low = middle,
            }
        }
    }
    Ok(best)
}

fn two_digits(n: u64) -> u64 {
    let unit = 10u64.pow(n.max(1).ilog10().saturating_sub(1));
    n / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn pins(n: usize) -> Pins {
        (0..n).map(|i| (format!("k#{i}"), "+4s")).collect()
    }
    fn keys(pins: &Pins) -> Vec<String> {
        pins.iter().map(|(k, _)| k.trim_start_matches("k#").to_owned()).collect()
    }

    #[test]
    fn the_pins_that_matter_are_left_whichever_they_are() {
        for (n, cause) in
            [(1, vec![0]), (7, vec![6]), (40, vec![3, 17, 39]), (16, vec![0, 15]), (30, vec![]), (3, vec![0, 1, 2])]
        {
            let mut runs = 0;
            let all = |p: &Pins| cause.iter().all(|i| p.get(&format!("k#{i}")).is_some());
            let left = fewest(&pins(n), |p| {
                runs += 1;
                Ok::<_, Infallible>(all(p))
            });
            let Ok(left) = left;
            assert_eq!(keys(&left), cause.iter().map(usize::to_string).collect::<Vec<_>>());
            assert!(runs <= 20 + 12 * cause.len() * 6, "{runs} runs for {n}");
        }
    }

    #[test]
    fn no_pin_of_the_result_can_be_taken_away_even_where_others_stand_in() {
        // Any two of five fail.
        let fails = |p: &Pins| Ok::<_, Infallible>(p.len() >= 2);
        let Ok(left) = fewest(&pins(5), fails);
        assert_eq!(left.len(), 2);
    }

    #[test]
    fn delays_are_shortened_and_other_pins_left_alone() {
        let pins: Pins = "a=+8s,b=yes,c=+2s".parse().expect("pins");
        let needs = |p: &Pins, key: &str, ms| {
            parse_delay(p.get(key).unwrap_or("")).is_some_and(|d| d >= Duration::from_millis(ms))
        };
        let Ok(best) =
            shortest(&pins, |p| Ok::<_, Infallible>(needs(p, "a", 250) && needs(p, "c", 1) && p.get("b").is_some()));
        let of = |key| parse_delay(best.get(key).expect("kept")).expect("a delay").as_micros();
        assert_eq!(best.get("b"), Some("yes"));
        assert!((250_000..=280_000).contains(&of("a")) && (1_000..=1_150).contains(&of("c")), "{best}");
    }

    #[test]
    fn what_was_drawn_becomes_pins_but_what_the_scenario_pins_does_not() {
        let entry = |key: &'static str, value: &str| Entry {
            id: 0,
            at_ns: 0,
            host: "world".into(),
            kind: "choice".into(),
            name: key.into(),
            text: String::new(),
            fields: vec![("value".into(), value.to_owned()), ("default".into(), "no".into())],
            spans: vec![],
            cause: None,
        };
        let other = Entry { kind: "log".into(), ..entry("z", "yes") };
        let entries = [entry("a", "yes"), entry("b", "+1s"), other, entry("c", "yes")];
        assert_eq!(drawn(&entries, &"a=yes,c=no".parse().expect("pins")).to_string(), "b=+1s,c=yes");
    }
}
