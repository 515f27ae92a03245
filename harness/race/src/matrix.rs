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
//! A run tells which switches it looked at ([`System::asked`]), and so what a run with others would show that differ only
//! in what it never looked at. Such a cell is not measured but inferred: it is the same run.
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use photofinish_sim::choices::{Pins, Source};
use serde::Serialize;

use crate::options::Options;
use crate::outcome::Outcome;
use crate::pool::{Again, Crew, Job, Pool, PoolError, Run};
use crate::scenario::Scenario;
use crate::switch::{Switch, SwitchKind};
use crate::system::System;

mod shown;
use shown::Shown;

/// Of a scenario that fails for certain seeds, so many are measured.
const SEEDS: usize = 3;
/// So many cells are measured between two looks at what can be inferred by then; one of each scenario at least.
const ROUND: usize = 24;

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
    /// It was not measured: a run that looked at none of the switches that differ has shown it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
}

/// A scenario's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The scenario.
    pub scenario: String,
    /// One for each column.
    pub cells: Vec<Cell>,
    /// The smallest sets of proposed remedies that make it hold; `[[]]` if it holds as reported, empty if no set does of as
    /// many as were looked for.
    pub smallest: Vec<Vec<String>>,
}

/// Measures all scenarios, and looks for the smallest sets of up to `largest` remedies. `each` gets every cell as soon as it is known, those of larger sets too, and how many cells there
/// are to be known as far as that can be told by then.
pub fn measure(
    system: &'static dyn System,
    pool: &Pool,
    scenarios: &[Arc<Scenario>],
    largest: usize,
    mut each: impl FnMut(&Cell, u64),
) -> Result<Vec<Row>, PoolError> {
    let switches = system.switches();
    let columns = columns(switches);
    let question = |s, column, options| Question::new(switches, s, column, options);
    let questions: Vec<Question> =
        scenarios.iter().flat_map(|s| columns.iter().map(|c| question(s, c.name.clone(), c.options.clone()))).collect();
    let mut lab = Lab::new(system, pool);
    let mut known = questions.len() as u64;
    let cells = lab.ask(questions, |cell| each(cell, known))?;
    let mut rows: Vec<Row> = cells
        .chunks(columns.len())
        .map(|cells| Row { scenario: cells[0].scenario.clone(), smallest: smallest(cells), cells: cells.to_vec() })
        .collect();
    let names = proposed(switches);
    for size in 2..=largest {
        let open = |row: &Row| row.smallest.is_empty() && row.cells.iter().any(Cell::holds);
        let questions: Vec<Question> = rows
            .iter()
            .zip(scenarios)
            .filter(|(row, _)| open(row))
            .flat_map(|(_, scenario)| {
                sets(&names, size)
                    .into_iter()
                    .map(move |set| question(scenario, set.join("+"), Options::as_reported().with(set)))
            })
            .collect();
        known += questions.len() as u64;
        for cell in lab.ask(questions, |cell| each(cell, known))?.into_iter().filter(Cell::holds) {
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
                questions.push(Question::new(system.switches(), scenario, name.to_owned(), options));
            }
        }
    }
    let known = questions.len() as u64;
    Lab::new(system, pool).ask(questions, |cell| each(cell, known))
}

impl Cell {
    /// Does the scenario hold?
    pub fn holds(&self) -> bool {
        self.outcome == Outcome::Holds
    }
}

/// A cell to be known.
struct Question {
    scenario: Arc<Scenario>,
    column: String,
    options: Options,
    sources: Vec<Source>,
    /// The switches that are on.
    on: IndexSet<String>,
}

impl Question {
    fn new(switches: &[Switch], scenario: &Arc<Scenario>, column: String, options: Options) -> Question {
        let seeds = scenario.failing_seeds.iter().take(SEEDS).map(|f| Source::Seed(f.seed));
        let sources = match scenario.failing_seeds.is_empty() {
            true => vec![Source::Benign],
            false => seeds.collect(),
        };
        let on = options.resolve(switches, &scenario.reported_without);
        Question { scenario: scenario.clone(), column, options, sources, on }
    }
    /// What the runs are about, but for their switches: those with the same may be one run.
    fn about(&self) -> (String, String) {
        (self.scenario.name.clone(), self.options.cluster_words().join(","))
    }
    fn remedies(&self, proposed: &[&str]) -> Vec<String> {
        proposed.iter().filter(|name| self.on.contains(**name)).map(|name| (*name).to_owned()).collect()
    }
    /// The cell that these runs show, one for each source.
    fn cell(&self, proposed: &[&str], runs: &[Run]) -> Cell {
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
            remedies: self.remedies(proposed),
            outcome: worst,
            property: (worst != Outcome::Holds)
                .then(|| violated.keys().copied().collect::<Vec<_>>().join(", "))
                .filter(|names| !names.is_empty()),
            inferred: false,
        }
    }
    /// The cell that another question's runs show, which would be the same runs.
    fn inferred(&self, proposed: &[&str], cell: &Cell) -> Cell {
        let (column, remedies) = (self.column.clone(), self.remedies(proposed));
        Cell { column, remedies, inferred: true, ..cell.clone() }
    }
    /// What these runs speak for, if all of them tell what they looked at.
    fn shown(&self, runs: &[Run]) -> Option<Shown> {
        let asked: Option<Vec<&Vec<String>>> = runs.iter().map(|run| run.asked.as_ref()).collect();
        asked.map(|asked| Shown::new(&self.on, asked.into_iter().flatten().cloned()))
    }
}

/// Measures cells, and no cell that another has shown.
struct Lab {
    system: &'static dyn System,
    proposed: Vec<&'static str>,
    crew: Crew,
    /// By what it is about: all that was measured, and what it speaks for.
    known: IndexMap<(String, String), Vec<(Shown, Cell)>>,
}

impl Lab {
    fn new(system: &'static dyn System, pool: &Pool) -> Lab {
        let crew = Crew::new(&pool.clone().again(Again::Never));
        Lab { system, proposed: proposed(system.switches()), crew, known: IndexMap::new() }
    }

    /// The cells of these questions, in their order; `each` gets them as they become known, in an order that depends on the
    /// questions alone.
    fn ask(&mut self, questions: Vec<Question>, mut each: impl FnMut(&Cell)) -> Result<Vec<Cell>, PoolError> {
        let mut cells: Vec<Option<Cell>> = questions.iter().map(|_| None).collect();
        let mut open: IndexMap<_, VecDeque<usize>> = IndexMap::new();
        for (i, question) in questions.iter().enumerate() {
            open.entry(question.about()).or_default().push_back(i);
        }
        let proposed = &self.proposed;
        let mut told = |i: usize, cell: Cell, cells: &mut [Option<Cell>]| {
            each(&cell);
            cells[i] = Some(cell);
        };
        let infer = |open: &mut VecDeque<usize>, shown: &Shown, cell: &Cell| -> Vec<(usize, Cell)> {
            let (known, left) = open.drain(..).partition(|i: &usize| shown.speaks_for(&questions[*i].on));
            *open = left;
            VecDeque::into_iter(known).map(|i| (i, questions[i].inferred(proposed, cell))).collect()
        };
        for (about, open) in &mut open {
            for (shown, cell) in self.known.get(about).into_iter().flatten() {
                infer(open, shown, cell).into_iter().for_each(|(i, cell)| told(i, cell, &mut cells));
            }
        }
        loop {
            open.retain(|_, open| !open.is_empty());
            let share = ROUND.div_ceil(open.len().max(1));
            let round: Vec<usize> =
                open.values_mut().flat_map(|open| open.drain(..share.min(open.len())).collect::<Vec<_>>()).collect();
            if round.is_empty() {
                break;
            }
            let jobs = round.iter().flat_map(|i| {
                let Question { scenario, options, sources, .. } = &questions[*i];
                let job = |s: &Source| Job::new(self.system, scenario.clone(), options, *s, Pins::default());
                sources.iter().map(move |s| Job { account: true, ..job(s) }).collect::<Vec<_>>()
            });
            let (mut runs, mut measured) = (Vec::new(), Vec::new());
            let mut next = round.iter();
            let mut question = next.next();
            self.crew.run(jobs, |run| {
                runs.push(run);
                if let Some(i) = question.filter(|i| questions[**i].sources.len() == runs.len()) {
                    let q = &questions[*i];
                    measured.push((*i, q.shown(&runs), q.cell(proposed, &runs)));
                    runs.clear();
                    question = next.next();
                }
                true
            })?;
            for (i, shown, cell) in measured {
                told(i, cell.clone(), &mut cells);
                if let Some(shown) = shown {
                    let about = questions[i].about();
                    let inferred = infer(&mut open[&about], &shown, &cell);
                    inferred.into_iter().for_each(|(i, cell)| told(i, cell, &mut cells));
                    self.known.entry(about).or_default().push((shown, cell));
                }
            }
        }
        Ok(cells.into_iter().map(|cell| cell.expect("each was measured or inferred")).collect())
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
            inferred: false,
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
