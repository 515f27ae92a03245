//! A scenario without what its script does to make it fail: what is left is for a search to find.
use std::sync::Arc;

use crate::mistake::BadInput;
use crate::scenario::{self, Scenario, Source};
use crate::system::System;

/// Steps that order events by hand.
const BY_HAND: [&str; 5] = ["hold", "release", "pin", "slow", "delay"];

/// The same scenario with no stream or link held, nothing slowed and nothing pinned; `None` if it does none of that.
///
/// # Errors
/// If what is left is no scenario.
pub fn of(system: &dyn System, scenario: &Scenario) -> Result<Option<Arc<Scenario>>, BadInput> {
    let lines: Vec<&str> = scenario.source.text.split_inclusive('\n').collect();
    let mut dropped = vec![false; lines.len()];
    for step in scenario.steps.iter().filter(|step| BY_HAND.contains(&&*step.verb)) {
        let first = step.line - 1;
        let indent = |line: &str| line.len() - line.trim_start().len();
        // A step is its line and what stands deeper below it.
        let more = lines[first + 1..].iter().take_while(|l| indent(l) > indent(lines[first]) && !l.trim().is_empty());
        let last = first + more.count();
        dropped[first..=last].iter_mut().for_each(|d| *d = true);
    }
    if !dropped.contains(&true) {
        return Ok(None);
    }
    let text: String = lines.iter().zip(&dropped).filter(|(_, dropped)| !**dropped).map(|(line, _)| *line).collect();
    let Source { path, .. } = &*scenario.source;
    let source = Arc::new(Source { path: path.clone(), text, builtin: false });
    let read = scenario::read(system, &source)?;
    Ok(read.into_iter().find(|s| s.name == scenario.name).map(Arc::new))
}
