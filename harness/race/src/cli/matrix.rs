//! `photofinish matrix`: the table of scenarios and remedies, for people, for documents and for scripts.
use std::sync::Arc;

use serde::Serialize;

use super::output::{Output, note};
use super::progress::{Extent, Progress};
use crate::matrix::{self, Cell, Row};
use crate::pool::{Pool, PoolError};
use crate::property::SCRIPT;
use crate::scenario::Scenario;
use crate::system::System;

/// How the table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Markdown,
    Json,
}

/// What `--json` prints of a row at the end.
#[derive(Serialize)]
struct Smallest<'a> {
    scenario: &'a str,
    smallest: &'a [Vec<String>],
}

/// Measures and prints, with sets of up to `largest` remedies. Returns how many scenarios do not hold with the recommended remedies.
pub(super) fn print(
    system: &'static dyn System,
    pool: &Pool,
    scenarios: &[Arc<Scenario>],
    largest: usize,
    form: Form,
    quiet: bool,
    output: &mut Output,
) -> Result<usize, PoolError> {
    let mut telling = Telling::new(form, quiet);
    let rows = matrix::measure(system, pool, scenarios, largest, |cell, known| {
        telling.tell(cell, known);
        if form == Form::Json {
            output.line(serde_json::to_string(cell).expect("a cell is plain data"));
        }
    })?;
    telling.end(form);
    match form {
        Form::Json => {
            for row in &rows {
                let smallest = Smallest { scenario: &row.scenario, smallest: &row.smallest };
                output.line(serde_json::to_string(&smallest).expect("it is plain data"));
            }
        }
        Form::Markdown => {
            table(&rows, largest).iter().for_each(|line| _ = output.line(line.clone()));
        }
        Form::Text => {
            for row in &rows {
                output.line(row.scenario.clone());
                for (what, text) in told(row, largest) {
                    output.line(format!("  {what:<12} {text}"));
                }
            }
        }
    }
    Ok(rows.iter().filter(|row| row.cells.iter().any(|c| c.column == "recommended" && !c.holds())).count())
}

/// Measures and prints the clusters that are affected.
pub(super) fn print_clusters(
    system: &'static dyn System,
    pool: &Pool,
    scenarios: &[Arc<Scenario>],
    form: Form,
    quiet: bool,
    output: &mut Output,
) -> Result<(), PoolError> {
    let mut telling = Telling::new(form, quiet);
    let clusters = system.profiles();
    // Their variants are other clusters, too.
    let scenarios: Vec<_> = scenarios.iter().filter(|s| s.variant.is_none()).cloned().collect();
    let cells = matrix::measure_clusters(system, pool, &scenarios, &clusters, |cell, known| {
        telling.tell(cell, known);
        if form == Form::Json {
            output.line(serde_json::to_string(cell).expect("a cell is plain data"));
        }
    })?;
    telling.end(form);
    if form == Form::Json {
        return Ok(());
    }
    if form == Form::Markdown {
        output.line("| scenario | cluster | as reported | recommended |".to_owned());
        output.line("|---|---|---|---|".to_owned());
    }
    for pair in cells.chunks(2) {
        let [reported, recommended] = pair else { continue };
        let (scenario, cluster) = (&reported.scenario, reported.cluster.replace(',', ", "));
        let (before, after) = (affected(reported), affected(recommended));
        match form {
            Form::Markdown => output.line(format!("| {scenario} | {cluster} | {before} | {after} |")),
            _ => output.line(format!("{scenario}  {cluster}: as reported {before}, recommended {after}")),
        };
    }
    Ok(())
}

/// Progress, cell by cell.
struct Telling {
    progress: Progress,
    done: u64,
    broken: u64,
    inferred: u64,
}

impl Telling {
    fn new(form: Form, quiet: bool) -> Telling {
        let progress = Progress::new(quiet || form == Form::Json, "cells", Extent::default());
        Telling { progress, done: 0, broken: 0, inferred: 0 }
    }
    fn tell(&mut self, cell: &Cell, known: u64) {
        self.done += 1;
        self.broken += u64::from(!cell.holds());
        self.inferred += u64::from(cell.inferred);
        self.progress.extend(known);
        let broken = self.broken;
        self.progress.tell(self.done, || format!("{broken} of them violated"));
    }
    /// Ends the progress, and says what was measured. JSON lines say it each for itself.
    fn end(self, form: Form) {
        let Telling { progress, done, inferred, .. } = self;
        drop(progress);
        if form != Form::Json {
            let runs = done - inferred;
            note(format!(
                "{done} cells: {runs} measured, {inferred} inferred from runs that looked at none of the remedies that differ"
            ));
        }
    }
}

fn word(cell: &Cell) -> String {
    match (&cell.property, cell.holds()) {
        (_, true) => "holds".to_owned(),
        (Some(property), _) => property.clone(),
        (None, _) => cell.outcome.to_string(),
    }
}

/// In a cluster that may be another than the script was written for: what broke besides the script. `(script)`: nothing did,
/// only its steps expect something else.
fn affected(cell: &Cell) -> String {
    let broke = word(cell);
    let named: Vec<&str> = broke.split(", ").filter(|name| *name != SCRIPT).collect();
    if named.is_empty() { format!("({SCRIPT})") } else { named.join(", ") }
}

/// One row in words.
fn told(row: &Row, largest: usize) -> Vec<(&'static str, String)> {
    let of = |column: &str| row.cells.iter().find(|c| c.column == column).map(word).unwrap_or_default();
    vec![
        ("as reported", of("as reported")),
        ("closed by", sets(&row.smallest, largest)),
        ("recommended", of("recommended")),
        ("all", of("all")),
    ]
}

/// `a; b; c + d`
fn sets(smallest: &[Vec<String>], largest: usize) -> String {
    match smallest {
        [] => format!("no set of up to {largest}"),
        [none] if none.is_empty() => "nothing is needed".to_owned(),
        sets => sets.iter().map(|set| set.join(" + ")).collect::<Vec<_>>().join("; "),
    }
}

/// The whole table: a row a scenario, a column a set; `.` holds, else the property.
fn table(rows: &[Row], largest: usize) -> Vec<String> {
    let Some(first) = rows.first() else { return vec![] };
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let heads = first.cells.iter().map(|c| c.column.clone());
    let mut lines =
        vec![line([String::from("scenario")].into_iter().chain(heads).chain(["smallest sets".into()]).collect())];
    lines.push(format!("|{}", "---|".repeat(first.cells.len() + 2)));
    for row in rows {
        let cell = |c: &Cell| if c.holds() { ".".to_owned() } else { word(c) };
        let cells = row.cells.iter().map(cell);
        lines.push(line(
            [row.scenario.clone()].into_iter().chain(cells).chain([sets(&row.smallest, largest)]).collect(),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;

    #[test]
    fn elsewhere_a_script_that_expects_something_else_is_no_property_that_broke() {
        let cell = |property: Option<&str>| Cell {
            scenario: "s".into(),
            column: String::new(),
            cluster: "api=v1".into(),
            remedies: vec![],
            outcome: if property.is_some() { Outcome::Violated } else { Outcome::Holds },
            property: property.map(str::to_owned),
            inferred: false,
        };
        for (broke, shown) in
            [(None, "holds"), (Some("script"), "(script)"), (Some("p, script, q"), "p, q"), (Some("p"), "p")]
        {
            assert_eq!(affected(&cell(broke)), shown);
        }
    }

    #[test]
    fn a_table_has_a_line_a_scenario_and_says_what_broke() {
        let cell = |column: &str, property: Option<&str>| Cell {
            scenario: "s".into(),
            column: column.into(),
            cluster: String::new(),
            remedies: vec![],
            outcome: if property.is_some() { Outcome::Violated } else { Outcome::Holds },
            property: property.map(str::to_owned),
            inferred: false,
        };
        let row = Row {
            scenario: "s".into(),
            cells: vec![cell("as reported", Some("p")), cell("recommended", None)],
            smallest: vec![vec!["a".into()], vec!["b".into(), "c".into()]],
        };
        assert_eq!(
            table(std::slice::from_ref(&row), 2),
            [
                "| scenario | as reported | recommended | smallest sets |",
                "|---|---|---|---|",
                "| s | p | . | a; b + c |",
            ]
        );
        assert!(table(&[], 2).is_empty());
        assert_eq!(table(&[Row { smallest: vec![], ..row }], 2)[2], "| s | p | . | no set of up to 2 |");
    }
}
