//! A failing script made shorter: steps moved to the front, sandboxes merged, the cluster as usual.
//!
//! Delta debugging takes pins away, which leaves a script's usual step in a step's place. What it cannot do is change a
//! pin, and that is done here: each function gives the attempts, and the caller keeps what still fails.
use std::collections::BTreeSet;

use photofinish_sim::choices::Pins;

use super::inevitable::is_word;

/// What the keys of a script's steps begin with.
const STEP: &str = "op";

/// A numbered part of a script: `when/3` is 3 of `when`.
fn numbered(key: &str) -> Option<(&str, u32)> {
    let (family, n) = key.rsplit_once('/')?;
    (!family.contains('#')).then_some((family, n.parse().ok()?))
}

/// A step at a smaller number that is free, the smallest first: `op/5=stop.demo` as `op/2=stop.demo`. What else is pinned
/// at its number (`when/5`) is left out, or goes along.
pub fn earlier(pins: &Pins) -> Vec<Pins> {
    let mut attempts = Vec::new();
    for (key, _) in pins.iter() {
        let Some((_, n)) = numbered(key).filter(|(family, _)| *family == STEP) else { continue };
        for to in (1..n).filter(|to| pins.get(&format!("{STEP}/{to}")).is_none()) {
            let moved = |others: bool| -> Pins {
                let place = |k: &str| match numbered(k) {
                    Some((f, at)) if at == n => (f == STEP || others).then(|| format!("{f}/{to}")),
                    _ => Some(k.to_owned()),
                };
                pins.iter().filter_map(|(k, v)| Some((place(k)?, v.to_owned()))).collect()
            };
            attempts.push(moved(false));
            attempts.push(moved(true));
        }
    }
    attempts.dedup();
    attempts
}

/// Pins with one name less.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The pins.
    pub pins: Pins,
    /// The name that is gone.
    pub from: String,
    /// What stands in its place.
    pub to: String,
}

/// One name less: `stop.other` as `stop.demo`, in words and in keys. Names are what stands behind a word's first dot.
pub fn merged(pins: &Pins) -> Vec<Merged> {
    let names = names(pins);
    let mut attempts = Vec::new();
    for from in &names {
        for to in names.iter().filter(|to| *to < from) {
            let pins = pins.iter().map(|(k, v)| (k.replace(*from, to), v.replace(*from, to))).collect();
            attempts.push(Merged { pins, from: (*from).to_owned(), to: (*to).to_owned() });
        }
    }
    attempts
}

/// How hard a run is to read: pins, then sandboxes, then how late its steps are.
pub fn cost(pins: &Pins) -> (usize, usize, u32) {
    (pins.len(), names(pins).len(), pins.iter().filter_map(|(key, _)| numbered(key)).map(|(_, n)| n).sum())
}

fn names(pins: &Pins) -> BTreeSet<&str> {
    let steps = pins.iter().filter(|(key, value)| is_word(value) && numbered(key).is_some_and(|(f, _)| f == STEP));
    steps.filter_map(|(_, value)| value.split('.').nth(1)).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(attempts: &[Pins]) -> Vec<String> {
        attempts.iter().map(Pins::to_string).collect()
    }

    #[test]
    fn a_step_moves_to_every_smaller_number_that_is_free_with_and_without_what_belongs_to_it() {
        let pins: Pins = "op/2=none,op/4=stop.demo,when/4=at-once,a#1=+1s".parse().expect("pins");
        assert_eq!(
            lines(&earlier(&pins)),
            [
                "op/1=none,op/4=stop.demo,when/4=at-once,a#1=+1s",
                "op/2=none,op/1=stop.demo,a#1=+1s",
                "op/2=none,op/1=stop.demo,when/1=at-once,a#1=+1s",
                "op/2=none,op/3=stop.demo,a#1=+1s",
                "op/2=none,op/3=stop.demo,when/3=at-once,a#1=+1s",
            ]
        );
    }

    #[test]
    fn two_sandboxes_become_one() {
        let pins: Pins = "op/2=stop.other,op/3=start.demo,watch/d/pods/os-other#1=+1s".parse().expect("pins");
        let merged_pins: Vec<Pins> = merged(&pins).into_iter().map(|m| m.pins).collect();
        assert_eq!(lines(&merged_pins), ["op/2=stop.demo,op/3=start.demo,watch/d/pods/os-demo#1=+1s"]);
        assert!(merged(&"op/1=session-drop".parse().expect("pins")).is_empty());
    }

    #[test]
    fn fewer_pins_are_simpler_and_then_earlier_steps() {
        let cost = |pins: &str| cost(&pins.parse().expect("pins"));
        assert!(cost("op/2=a") < cost("op/3=a") && cost("op/8=a") < cost("op/2=a,op/3=b"));
    }
}
