//! What a scenario does in vain: steps that can be read, but that change nothing or contradict what stands before them.
//!
//! Unknown words, holds released twice, links healed that nobody cut are mistakes of the parser already.
use super::yaml::{Node, parse_duration};
use super::{Kind, Scenario, verbs};
use crate::mistake::{Mistake, Span};

/// One step, those within `reported` and `remedied` among the others.
#[derive(Clone, Copy, Debug)]
pub struct Told<'n> {
    /// Its verb.
    pub verb: &'n str,
    /// The verb's own place.
    pub word: &'n Node,
    /// What stands behind the verb.
    pub argument: &'n Node,
}

/// The steps of a scenario's text, in order.
pub fn told(root: &Node) -> Vec<Told<'_>> {
    let steps = root.entries("a scenario").into_iter().flatten().find(|(k, _)| k.as_text() == Some("steps"));
    let mut all = Vec::new();
    if let Some((_, steps)) = steps {
        collect(steps, &mut all);
    }
    all
}

fn collect<'n>(steps: &'n Node, all: &mut Vec<Told<'n>>) {
    for step in steps.list("steps").into_iter().flatten() {
        let Ok((word, argument)) = step.entry("a step") else { continue };
        match word.as_text() {
            Some("reported" | "remedied") => collect(argument, all),
            Some(verb) => all.push(Told { verb, word, argument }),
            None => {}
        }
    }
}

/// What is done in vain, in the order of the text. `text` is that of the scenario.
pub fn lint(scenario: &Scenario, root: &Node) -> Vec<Mistake> {
    let steps = told(root);
    let mut found = Vec::new();
    if scenario.kind == Kind::Unproven {
        let message = format!("the scenario {} says nowhere how it can fail", scenario.name);
        found.push(
            Mistake::new(Span::at(root.at.start), message)
                .label("a race that cannot be lost shows nothing")
                .help("add fails-without (red/green), fails-with (guard) or failing-seeds (flow)"),
        );
    }
    for (n, step) in steps.iter().enumerate() {
        found.extend(match step.verb {
            "run" => stands_still(step),
            "release" => released_at_once(&steps[..n], step),
            "delay" | "slow" => ends_nothing(&steps[..n], step),
            _ => None,
        });
    }
    found.extend(nothing_runs_behind(&steps));
    found.sort_by_key(|m| m.at.start);
    found
}

/// Does the world run while this step acts? Of the generic ones only `run` takes time; a system's own may.
fn takes_time(step: &Told<'_>) -> bool {
    step.verb == "run" || !verbs::GENERIC.iter().any(|v| v.name == step.verb)
}

fn is_zero(node: &Node) -> bool {
    node.as_text().and_then(parse_duration).is_some_and(|span| span.is_zero())
}

/// A field of a step's argument.
fn field<'n>(argument: &'n Node, name: &str) -> Option<&'n Node> {
    let entries = argument.entries("a map").ok()?;
    entries.iter().find(|(k, _)| k.as_text() == Some(name)).map(|(_, v)| v)
}

/// `run: 0s`
fn stands_still(step: &Told<'_>) -> Option<Mistake> {
    is_zero(step.argument).then(|| {
        Mistake::new(step.argument.at, "this step lets no time pass").label("nothing happens").help("leave it out")
    })
}

/// A hold that is released before anything could be held.
fn released_at_once(before: &[Told<'_>], step: &Told<'_>) -> Option<Mistake> {
    let name = match step.argument.as_text() {
        Some(name) => name,
        None => step.argument.entry("{NAME: WHAT}").ok()?.0.as_text()?,
    };
    let held = before
        .iter()
        .rposition(|s| s.verb == "hold" && field(s.argument, "as").and_then(Node::as_text) == Some(name))?;
    let idle = !before[held..].iter().any(takes_time);
    idle.then(|| {
        Mistake::new(step.argument.at, format!("`{name}` holds nothing yet: no time has passed since `hold`"))
            .label("releases nothing")
            .help("let something happen between the two: an operation, an await, a run")
    })
}

/// `by: 0s` of what was not slowed down.
fn ends_nothing(before: &[Told<'_>], step: &Told<'_>) -> Option<Mistake> {
    let by = field(step.argument, "by").filter(|by| is_zero(by))?;
    let what = |s: &Told<'_>| field(s.argument, "link").or(field(s.argument, "call"))?.as_text().map(str::to_owned);
    let began = before.iter().any(|s| s.verb == step.verb && what(s) == what(step));
    (!began).then(|| {
        Mistake::new(by.at, format!("no step before this one begins a `{}` here", step.verb)).label("ends nothing")
    })
}

/// A fault behind which no time passes any more.
fn nothing_runs_behind(steps: &[Told<'_>]) -> Option<Mistake> {
    let last = steps.iter().rposition(takes_time).map_or(0, |n| n + 1);
    let acts = |s: &&Told<'_>| !matches!(s.verb, verbs::PIN | "crash-points");
    let step = steps[last.min(steps.len())..].iter().find(acts)?;
    Some(
        Mistake::new(step.word.at, format!("nothing runs behind this `{}`", step.verb))
            .label("changes nothing any more")
            .help("end the script with a step that lets time pass, such as `- run: 2s`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(steps: &str) -> Vec<String> {
        let text = format!("steps:\n{}", steps.split("; ").map(|s| format!("  - {s}\n")).collect::<String>());
        let root = Node::read(&text).expect("yaml");
        let steps = told(&root);
        let rules = steps.iter().enumerate().filter_map(|(n, step)| match step.verb {
            "run" => stands_still(step),
            "release" => released_at_once(&steps[..n], step),
            "delay" | "slow" => ends_nothing(&steps[..n], step),
            _ => None,
        });
        rules.chain(nothing_runs_behind(&steps)).map(|m| m.label.unwrap_or_default()).collect()
    }

    #[test]
    fn steps_in_vain_are_told() {
        for (steps, expected) in [
            ("set: 1; run: 1s", &[][..]),
            ("set: 1; run: 0ms", &["nothing happens"]),
            ("hold: {watch: a/b, as: x}; release: x; run: 1s", &["releases nothing"]),
            ("hold: {watch: a/b, as: x}; cut: [a, b]; release: {x: all}; run: 1s", &["releases nothing"]),
            ("hold: {watch: a/b, as: x}; set: 1; release: x; run: 1s", &[]),
            ("delay: {link: a->b, by: 0s}; run: 1s", &["ends nothing"]),
            ("delay: {link: a->b, by: 1s}; run: 1s; delay: {link: a->b, by: 0s}; run: 1s", &[]),
            ("delay: {link: a->b, by: 1s}; slow: {call: a/GET/b, by: 0s}; run: 1s", &["ends nothing"]),
            ("run: 1s; crash: a", &["changes nothing any more"]),
            ("crash: a; set: 1", &[]),
            ("reported: [{hold: {watch: a/b, as: x}}, {release: x}]; run: 1s", &["releases nothing"]),
            ("run: 1s; pin: {a: b}; crash-points: none", &[]),
        ] {
            assert_eq!(said(steps), expected, "{steps}");
        }
    }
}
