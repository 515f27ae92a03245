//! Finding scenarios: by name among the built-in ones, by path among files, by run id.
use std::path::Path;
use std::sync::Arc;

use crate::mistake::BadInput;
use crate::pool::Job;
use crate::run_id::{RunId, ScenarioRef};
use crate::scenario::{self, Scenario, Source};
use crate::system::{Builtin, System};

fn source(builtin: &Builtin) -> Arc<Source> {
    Arc::new(Source { path: builtin.path.to_owned(), text: builtin.text.to_owned(), builtin: true })
}

fn shared(scenarios: Vec<Scenario>) -> impl Iterator<Item = Arc<Scenario>> {
    scenarios.into_iter().map(Arc::new)
}

/// All built-in scenarios, in the system's order.
pub fn all(system: &dyn System) -> Result<Vec<Arc<Scenario>>, BadInput> {
    let mut all = Vec::new();
    for (i, builtin) in system.scenarios().iter().enumerate() {
        if system.scenarios()[..i].iter().any(|b| b.name == builtin.name) {
            return Err(BadInput::new(format!("the system has two scenarios named `{}`", builtin.name)));
        }
        all.extend(shared(scenario::read(system, &source(builtin))?));
    }
    Ok(all)
}

/// The scenarios of one argument: a built-in name as `list` prints it, or a file with all that it holds.
pub fn find(system: &dyn System, argument: &str) -> Result<Vec<Arc<Scenario>>, BadInput> {
    match argument.contains('/') || argument.ends_with(".yaml") || argument.ends_with(".yml") {
        true => file(system, argument),
        false => Ok(vec![builtin(system, argument)?]),
    }
}

fn builtin(system: &dyn System, name: &str) -> Result<Arc<Scenario>, BadInput> {
    let all = system.scenarios();
    let base = name.split_once('@').map_or(name, |(base, _)| base);
    let Some(builtin) = all.iter().find(|b| b.name == base) else {
        let bad = BadInput::unknown("scenario", base, all.iter().map(|b| b.name));
        // The nearest name says it better than a long list.
        return Err(match bad.mistake().help.as_deref() {
            Some(help) if help.starts_with("did you mean") => bad,
            _ => bad.help("`list` prints all scenarios; a file is named with its folder or its ending .yaml"),
        });
    };
    let scenarios = scenario::read(system, &source(builtin))?;
    let names: Vec<String> = scenarios.iter().map(|s| s.name.clone()).collect();
    let found = shared(scenarios).find(|s| s.name == name);
    found.ok_or_else(|| BadInput::unknown("scenario", name, names.iter().map(String::as_str)))
}

/// The scenarios of one file.
pub fn file(system: &dyn System, path: &str) -> Result<Vec<Arc<Scenario>>, BadInput> {
    let text = std::fs::read_to_string(Path::new(path))
        .map_err(|e| BadInput::new(format!("the scenario file {path} cannot be read: {e}")))?;
    // Some editors put a mark before the text that no column counts.
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    let source = Arc::new(Source { path: path.to_owned(), text, builtin: false });
    Ok(shared(scenario::read(system, &source)?).collect())
}

/// The job that a run id stands for.
pub fn by_id(system: &dyn System, id: &RunId) -> Result<Job, BadInput> {
    id.options.check(system.switches(), system.cluster_options())?;
    let scenario = match &id.scenario {
        ScenarioRef::Builtin(name) => builtin(system, name)?,
        ScenarioRef::File { path, hash, variant } => {
            let found = file(system, path).map_err(|bad| match Path::new(path).exists() {
                true => bad,
                false => {
                    bad.help("paths in a run id are as they were given: replay it in the folder where it was made")
                }
            })?;
            let now = found.first().map(|s| s.source.hash()).unwrap_or_default();
            if now != *hash {
                return Err(BadInput::new(format!("{path} has changed since this run: its hash is {now}, not {hash}"))
                    .help("a run id of a file replays with the file's content of that time; restore it, or run the file anew"));
            }
            let all = found.iter().map(|s| s.name.as_str());
            found
                .iter()
                .find(|s| s.variant == *variant)
                .cloned()
                .ok_or_else(|| BadInput::unknown("variant", variant.as_deref().unwrap_or(""), all))?
        }
    };
    Ok(Job::new(system, scenario, &id.options, id.source, id.pins.clone()))
}
