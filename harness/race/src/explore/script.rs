//! A shrunk run as a scenario file: the scenario's own text with the pins as steps, and the side on which it fails.
use indexmap::IndexSet;
use photofinish_sim::choices::{Pins, Source as ChoiceSource};

use crate::explore::story;
use crate::options::Options;
use crate::pool::Job;
use crate::scenario::Scenario;
use crate::scenario::schema::MODELINE;
use crate::switch::{Switch, SwitchKind};
use crate::system::Engine;

/// The text of a scenario that fails as this job does, and holds by default.
///
/// # Errors
/// What a scenario file cannot say about this run.
pub fn of_job(job: &Job, switches: &[Switch], violated: &[&str], sentence: &str) -> Result<String, String> {
    let Job { scenario, options, source, pins, .. } = job;
    if *source != ChoiceSource::Benign {
        return Err(format!(
            "a scenario has no seed of its own, and this run needs the world's randomness of {source}"
        ));
    }
    if options.engine != Engine::default() {
        return Err(format!("a scenario does not choose its engine, and this run is on {}", options.engine));
    }
    if violated.is_empty() {
        return Err("no property is violated: a scenario fails by properties".to_owned());
    }
    let side = side(options, switches, &scenario.reported_without, violated)?;
    let blocks = blocks(&scenario.source.text)?;
    let block = |key: &str| blocks.iter().find(|(k, _)| *k == key).map_or("", |(_, text)| *text);
    let base = scenario.name.split('@').next().unwrap_or(&scenario.name);
    let mut text = format!("{MODELINE}\n# Shrunk from a run that failed: {}\n", job.id());
    text += &format!("scenario: {base}-shrunk\n");
    text += block("reports");
    text += &format!("summary: {}\n", serde_json::to_string(sentence).expect("a text is plain data"));
    let cluster = options.cluster_of(scenario);
    let cluster: Vec<String> = cluster.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    if !cluster.is_empty() {
        text += &format!("cluster: {{{}}}\n", cluster.join(", "));
    }
    text += block("env");
    text += &steps(block("steps"), pins, scenario)?;
    text += block("check");
    text += block("reported-without");
    Ok(text + &side)
}

/// The side that fails: which switches differ from the default.
fn side(
    options: &Options,
    switches: &[Switch],
    reported_without: &[String],
    violated: &[&str],
) -> Result<String, String> {
    let (usual, now) =
        (Options::new().resolve(switches, reported_without), options.resolve(switches, reported_without));
    let off: IndexSet<&String> = usual.difference(&now).collect();
    let on: Vec<&String> = now.difference(&usual).collect();
    let mutant = |name: &str| switches.iter().any(|s| s.name == name && matches!(s.kind, SwitchKind::Mutant));
    let violates = violated.join(", ");
    let recommended = |s: &&Switch| matches!(s.kind, SwitchKind::Proposed { recommended: true });
    match (off.is_empty(), &on[..]) {
        (true, []) => Err("it fails with the default remedies, and a scenario must hold by default: it is a finding still to be fixed".into()),
        (true, [name]) if mutant(name) => Ok(format!("fails-with:\n  - {{mutant: {name}, violates: [{violates}]}}\n")),
        (false, []) => {
            let proposed: IndexSet<&str> = switches.iter().filter(recommended).map(|s| s.name).collect();
            let all = proposed.iter().all(|name| off.iter().any(|o| o == name)) && !proposed.is_empty();
            let single = off.iter().map(|name| name.as_str()).filter(|name| !all || !proposed.contains(name));
            let names: Vec<&str> = all.then_some("proposed").into_iter().chain(single).collect();
            Ok(format!("fails-without:\n  - {{off: [{}], violates: [{violates}]}}\n", names.join(", ")))
        }
        _ => Err(format!(
            "it needs {} switched on, and a scenario's failing side only switches remedies off, or one mutant on",
            on.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
        )),
    }
}

/// The keys of the file's map with their lines, comments between them with the key before.
fn blocks(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let starts_block = |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(':');
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if starts_block(line) {
            starts.push(at);
        }
        at += line.len();
    }
    if starts.is_empty() {
        return Err("the scenario is not written as lines of `key: value`, so its steps cannot be taken over".into());
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let block = |(start, end): (&usize, usize)| {
        let block = &text[*start..end];
        (block.split(':').next().unwrap_or(block), block)
    };
    Ok(starts.iter().zip(ends).map(block).collect())
}

/// The steps with a `pin` for each pin before them.
fn steps(block: &str, pins: &Pins, scenario: &Scenario) -> Result<String, String> {
    let (_, list) = block.split_once('\n').unwrap_or((block, ""));
    let Some(first) = list.lines().find(|line| line.trim_start().starts_with('-')) else {
        return Err("its steps are not written as lines of `- step`, so no pin can be put before them".into());
    };
    let indent = &first[..first.len() - first.trim_start().len()];
    let mut text = "steps:\n".to_owned();
    for (key, value) in pins.iter() {
        if scenario.pins.get(key).is_some() {
            return Err(format!("the scenario pins {key} itself, and this run pins it to {value}"));
        }
        text += &format!("{indent}- pin: {{{key}: {value}}} # {}\n", story::pin(key, value));
    }
    // Without a newline at the end of the file, the next key would stand on the same line.
    Ok(text + list.trim_end() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn switch(name: &'static str, kind: SwitchKind) -> Switch {
        Switch { name, kind, sentence: "", from: "" }
    }
    const SWITCHES: &[Switch] = &[
        switch("a", SwitchKind::Proposed { recommended: true }),
        switch("b", SwitchKind::Proposed { recommended: true }),
        switch("maybe", SwitchKind::Proposed { recommended: false }),
        switch("old", SwitchKind::Merged),
        switch("wrong", SwitchKind::Mutant),
    ];

    #[test]
    fn the_failing_side_is_what_differs_from_the_default() {
        let side = |options: Options| side(&options, SWITCHES, &["old".to_owned()], &["p", "q"]);
        let off = |names: &str| Ok(format!("fails-without:\n  - {{off: [{names}], violates: [p, q]}}\n"));
        assert_eq!(side(Options::as_reported()), off("proposed, old"));
        assert_eq!(side(Options::new().without(["a"])), off("a"));
        assert_eq!(side(Options::as_reported().with(["a"])), off("b, old"));
        assert_eq!(
            side(Options::new().with(["wrong"])),
            Ok("fails-with:\n  - {mutant: wrong, violates: [p, q]}\n".into())
        );
        for options in [Options::new(), Options::new().with(["maybe"]), Options::as_reported().with(["wrong"])] {
            assert!(side(options.clone()).is_err(), "{options:?}");
        }
    }

    #[test]
    fn a_file_is_cut_at_its_keys() {
        let text = "# head\nscenario: x\nsteps:\n- run: 1s # a: b\n# about check\ncheck:\n  - p\n";
        let expected = [
            ("scenario", "scenario: x\n"),
            ("steps", "steps:\n- run: 1s # a: b\n# about check\n"),
            ("check", "check:\n  - p\n"),
        ];
        assert_eq!(blocks(text).expect("blocks"), expected);
        assert!(blocks("{scenario: x}\n").is_err());
    }
}
