//! What a script waits for in vain: a phase that no step before it can bring about.
use photofinish::mistake::Mistake;
use photofinish::scenario::lint::{Told, told};
use photofinish::scenario::yaml::Node;

/// Phases that somebody has to ask for, and the steps that do, or that may change a row by other ways.
const ASKED_FOR: &[(&str, &[&str])] = &[
    ("Stopping", &["stop"]),
    ("Stopped", &["stop"]),
    ("Starting", &["start"]),
    ("Deleting", &["delete"]),
    ("gone", &["delete"]),
];

/// Steps behind which any phase is possible: other hands, played streams, faults (a lost node ends in a stop that nobody
/// asked for).
const OTHER_HANDS: &[&str] = &[
    "set-phase",
    "kubectl",
    "replay",
    "feed",
    "reach",
    "supervisor",
    "exit",
    "script",
    "crash",
    "power-off",
    "restart",
    "cut",
    "blackhole",
    "skew",
];

/// The `await` steps whose phase nothing before them can bring about.
pub(super) fn unreachable(root: &Node) -> Vec<Mistake> {
    let steps = told(root);
    let awaited = steps.iter().enumerate().filter(|(_, step)| step.verb == "await");
    awaited.filter_map(|(n, step)| in_vain(&steps[..n], step)).collect()
}

fn in_vain(before: &[Told<'_>], step: &Told<'_>) -> Option<Mistake> {
    let (_, what) = step.argument.entries("a map").ok()?.first()?;
    let phase = match what.entries("a map") {
        Ok(entries) => &entries.iter().find(|(key, _)| key.as_text() == Some("phase"))?.1,
        Err(_) => what,
    };
    let (name, verbs) = ASKED_FOR.iter().find(|(name, _)| phase.as_text() == Some(name))?;
    let possible = before.iter().any(|s| verbs.contains(&s.verb) || OTHER_HANDS.contains(&s.verb));
    (!possible).then(|| {
        Mistake::new(phase.at, format!("no step before this one can bring about {name}"))
            .label("waits in vain")
            .help(format!("`{}: NAME` does", verbs[0]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_that_nobody_asks_for_is_waited_for_in_vain() {
        for (steps, in_vain) in [
            ("[{create: {a: {}}}, {await: {a: Stopped}}]", 1),
            ("[{create: {a: {}}}, {await: {a: {phase: Stopping, marker: none}}}]", 1),
            ("[{create: {a: {}}}, {stop: a}, {await: {a: Stopped}}, {await: {a: gone}}]", 1),
            ("[{stop: a}, {await: {a: Stopped}}, {start: a}, {await: {a: Starting}}]", 0),
            ("[{await: {a: Ready}}, {await: {a: {marker: none}, within: 2m}}]", 0),
            ("[{kubectl: {delete: x}}, {await: {a: gone}}]", 0),
            ("[{reported: [{stop: a}]}, {await: {a: Stopped}}]", 0),
            ("[{create: {a: {}}}, {power-off: kubelet}, {await: {a: Stopped}}]", 0),
        ] {
            let root = Node::read(&format!("steps: {steps}")).expect("YAML");
            assert_eq!(unreachable(&root).len(), in_vain, "{steps}");
        }
    }
}
