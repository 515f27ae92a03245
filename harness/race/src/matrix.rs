//! Scenarios against remedies: what each remedy does alone, what the sets do, and which are the smallest that help.
//!
//! | column | the code |
//! |---|---|
//! | `as reported` | no proposed remedy |
//! | a remedy's name | as reported, and this one |
//! | `recommended` | the default: all recommended ones |
//! | `all` | the default, and every other proposed one |
//!
//! A scenario that fails for certain seeds only is measured at those seeds: its cell holds if all of them do.
use std::collections::BTreeMap;
use std::sync::Arc;

use photofinish_sim::choices::{Pins, Source};
use serde::Serialize;

use crate::options::Options;
use crate::outcome::Outcome;
use crate::pool::{Again, Job, Pool, PoolError, Run};
use crate::scenario::Scenario;
use crate::switch::{Switch, SwitchKind};
use crate::system::System;

/// Sets of more remedies are not looked for.
const LARGEST_SET: usize = 3;
/// Of a scenario that fails for certain seeds, so many are measured.
const SEEDS: usize = 3;

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// The code.
    pub options: Options,
}

/// The columns for a system with these switches.
pub fn columns(switches: &[Switch]) -> Vec<Column> {
    let proposed = proposed(switches);
    let column = |name: &str, options| Column { name: name.to_owned(), options };
    let mut columns = vec![column("as reported", Options::as_reported())];
    columns.extend(proposed.iter().map(|name| column(name, Options::as_reported().with([*name]))));
    columns.push(column("recommended", Options::new()));
    columns.push(column("all", Options::new().with(proposed)));
    columns
}

fn proposed(switches: &[Switch]) -> Vec<&'static str> {
    switches.iter().filter(|s| matches!(s.kind, SwitchKind::Proposed { .. })).map(|s| s.name).collect()
}

/// What one scenario showed under one set of remedies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The scenario's name.
    pub scenario: String,
    /// Heading of the column.
    pub column: String,
    /// Cluster options that differ from the scenario's own, as `controller=v0.4.6,api=v1alpha1`; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The proposed remedies that were on.
    pub remedies: Vec<String>,
    /// How the run ended; of several seeds, the worst.
    pub outcome: Outcome,
    /// The violated properties, with a comma between; none if it holds.
    pub property: Option<String>,
}

/// A scenario's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The scenario.
    pub scenario: String,
    /// One for each column.
    pub cells: Vec<Cell>,
    /// The smallest sets of proposed remedies that make it hold; `[[]]` if it holds as reported, empty if no set of up
    /// to three does.
    pub smallest: Vec<Vec<String>>,
}

/// Measures all scenarios. `each` gets every cell as soon as it is measured, those of larger sets too, and how many cells
/// there are to be measured as far as that is known by then.
pub fn measure(
    system: &'static dyn System,
    pool: &Pool,
    scenarios: &[Arc<Scenario>],
    mut each: impl FnMut(&Cell, u64),
) -> Result<Vec<Row>, PoolError> {
    let switches = system.switches();
    let columns = columns(switches);
    let questions: Vec<Question> = scenarios
        .iter()
        .flat_map(|s| columns.iter().map(|c| Question::new(s, c.name.clone(), c.options.clone())))
        .collect();
    let mut known = questions.len() as u64;
    let cells = ask(system, pool, questions, &mut |cell| each(cell, known))?;
    let mut rows: Vec<Row> = cells
        .chunks(columns.len())
        .map(|cells| Row { scenario: cells[0].scenario.clone(), smallest: smallest(cells), cells: cells.to_vec() })
        .collect();
    let names = proposed(switches);
    for size in 2..=LARGEST_SET {
        let open = |row: &Row| row.smallest.is_empty() && row.cells.iter().any(Cell::holds);
        let questions: Vec<Question> = rows
            .iter()
            .zip(scenarios)
            .filter(|(row, _)| open(row))
            .flat_map(|(_, scenario)| {
                sets(&names, size)
                    .into_iter()
                    .map(move |set| Question::new(scenario, set.join("+"), Options::as_reported().with(set)))
            })
            .collect();
        known += questions.len() as u64;
        for cell in ask(system, pool, questions, &mut |cell| each(cell, known))?.into_iter().filter(Cell::holds) {
            let row = rows.iter_mut().find(|row| row.scenario == cell.scenario).expect("it was asked for a row");
            row.smallest.push(cell.remedies);
        }
    }
    Ok(rows)
}

/// Measures the scenarios in other clusters: as reported, and with the default remedies.
pub fn measure_clusters(
    system: &'static dyn System,
    pool: &Pool,
    scenarios: &[Arc<Scenario>],
    clusters: &[Vec<(&'static str, &'static str)>],
    mut each: impl FnMut(&Cell, u64),
) -> Result<Vec<Cell>, PoolError> {
    let mut questions = Vec::new();
    for scenario in scenarios {
        for cluster in clusters {
            for (name, options) in [("as reported", Options::as_reported()), ("recommended", Options::new())] {
                let options = options.in_cluster(cluster.iter().copied());
                questions.push(Question::new(scenario, name.to_owned(), options));
            }
        }
    }
    let known = questions.len() as u64;
    ask(system, pool, questions, &mut |cell| each(cell, known))
}

impl Cell {
    /// Does the scenario hold?
    pub fn holds(&self) -> bool {
        self.outcome == Outcome::Holds
    }
}

/// A cell to measure.
struct Question {
    scenario: Arc<Scenario>,
    column: String,
    options: Options,
    sources: Vec<Source>,
}

impl Question {
    fn new(scenario: &Arc<Scenario>, column: String, options: Options) -> Question {
        let seeds = scenario.failing_seeds.iter().take(SEEDS).map(|f| Source::Seed(f.seed));
        let sources = match scenario.failing_seeds.is_empty() {
            true => vec![Source::Benign],
            false => seeds.collect(),
        };
        Question { scenario: scenario.clone(), column, options, sources }
    }
}

fn ask(
    system: &'static dyn System,
    pool: &Pool,
    questions: Vec<Question>,
    each: &mut impl FnMut(&Cell),
) -> Result<Vec<Cell>, PoolError> {
    let jobs: Vec<Job> = questions
        .iter()
        .flat_map(|q| q.sources.iter().map(|s| Job::new(system, q.scenario.clone(), &q.options, *s, Pins::default())))
        .collect();
    let proposed = proposed(system.switches());
    let (mut cells, mut runs) = (Vec::new(), Vec::new());
    let mut open = questions.iter();
    let mut question = open.next();
    pool.clone().again(Again::Never).run(jobs, |run| {
        runs.push(run);
        if let Some(q) = question.filter(|q| q.sources.len() == runs.len()) {
            let cell = q.cell(system.switches(), &proposed, &runs);
            each(&cell);
            cells.push(cell);
            runs.clear();
            question = open.next();
        }
        true
    })?;
    Ok(cells)
}

impl Question {
    fn cell(&self, switches: &[Switch], proposed: &[&str], runs: &[Run]) -> Cell {
        let on = self.options.resolve(switches, &self.scenario.reported_without);
        let worst = runs.iter().map(|run| run.report.outcome).max_by_key(|o| o.severity()).expect("one run at least");
        let mut violated: BTreeMap<&str, ()> = BTreeMap::new();
        for run in runs {
            violated.extend(run.report.violated().into_iter().map(|name| (name, ())));
            // What came to nothing because of a violation is not what broke.
            if worst == Outcome::Vacuous {
                violated.extend(run.report.vacuous.iter().map(|name| (name.as_str(), ())));
            }
        }
        Cell {
            scenario: self.scenario.name.clone(),
            column: self.column.clone(),
            cluster: self.options.cluster_words().join(","),
            remedies: proposed.iter().filter(|name| on.contains(**name)).map(|name| (*name).to_owned()).collect(),
            outcome: worst,
            property: (worst != Outcome::Holds)
                .then(|| violated.keys().copied().collect::<Vec<_>>().join(", "))
                .filter(|names| !names.is_empty()),
        }
    }
}

/// Of a row of columns, the smallest sets that hold: none at all, or single remedies.
fn smallest(cells: &[Cell]) -> Vec<Vec<String>> {
    if cells.iter().any(|c| c.remedies.is_empty() && c.holds()) {
        return vec![vec![]];
    }
    cells.iter().filter(|c| c.remedies.len() == 1 && c.holds()).map(|c| c.remedies.clone()).collect()
}

/// All sets of so many names, in their order.
fn sets<'n>(names: &[&'n str], size: usize) -> Vec<Vec<&'n str>> {
    if size == 0 {
        return vec![vec![]];
    }
    let with = |(i, name): (usize, &&'n str)| {
        sets(&names[i + 1..], size - 1).into_iter().map(|rest| [vec![*name], rest].concat()).collect::<Vec<_>>()
    };
    names.iter().enumerate().flat_map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(remedies: &[&str], holds: bool) -> Cell {
        Cell {
            scenario: "s".into(),
            column: String::new(),
            cluster: String::new(),
            remedies: remedies.iter().map(|r| (*r).to_owned()).collect(),
            outcome: if holds { Outcome::Holds } else { Outcome::Violated },
            property: None,
        }
    }

    #[test]
    fn sets_are_all_combinations_in_order() {
        assert_eq!(sets(&["a", "b", "c"], 2), [["a", "b"], ["a", "c"], ["b", "c"]]);
        assert_eq!(sets(&["a", "b", "c", "d"], 3).len(), 4);
        assert_eq!(sets(&["a"], 2), Vec::<Vec<&str>>::new());
    }

    #[test]
    fn the_smallest_set_is_none_if_it_holds_as_reported_and_else_the_single_remedies_that_help() {
        assert_eq!(smallest(&[cell(&[], true), cell(&["a"], true)]), [Vec::<String>::new()]);
        assert_eq!(smallest(&[cell(&[], false), cell(&["a"], true), cell(&["b"], false)]), [["a"]]);
        assert!(smallest(&[cell(&[], false), cell(&["a"], false), cell(&["a", "b"], true)]).is_empty());
    }

    #[test]
    fn the_columns_are_as_reported_each_proposed_one_and_the_two_sets() {
        const fn switch(name: &'static str, kind: SwitchKind) -> Switch {
            Switch { name, kind, sentence: "", from: "" }
        }
        let switches = [
            switch("a", SwitchKind::Proposed { recommended: true }),
            switch("b", SwitchKind::Proposed { recommended: false }),
            switch("old", SwitchKind::Merged),
            switch("wrong", SwitchKind::Mutant),
        ];
        let on = |c: &Column| c.options.resolve(&switches, &[]).into_iter().collect::<Vec<_>>().join(" ");
        let told: Vec<String> = columns(&switches).iter().map(|c| format!("{}: {}", c.name, on(c))).collect();
        assert_eq!(told, ["as reported: old", "a: a old", "b: b old", "recommended: a old", "all: a b old"]);
    }
}
