//! The mutation score without a build per mutant.
//!
//! `cargo mutants` builds and tests the tree once a mutant: hours. Here all mutants of its list are woven into one copy of
//! the tree, each behind the question whether it is the one that is on; the tests are built once, and run per mutant until
//! the first of them fails.
//!
//! ```text
//! photofinish-mutants weave LIST.json FROM TO WOVEN.json     TO is a clone of FROM, with a target folder of its own
//! photofinish-mutants run TO WOVEN.json RESULTS.jsonl [--files PREFIX,...] [--after RESULTS.jsonl] \
//!     --tests PACKAGE:TARGET,... [-- ARGUMENTS OF THE TESTS]
//! photofinish-mutants score RESULTS.jsonl...                 later files overrule earlier ones
//! ```
//!
//! `PACKAGE` is the package's folder (empty for the root), `TARGET` is `lib` or the name of a test target; `@module` behind
//! it runs the tests of the mutant's own module only, `@name` those that have this in their names. What is cheap stands first.

mod list;
mod run;
mod schema;
mod score;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use run::{Only, Outcome, Verdict};
use weave::Woven;

/// Whatever goes wrong is told to whoever runs the tool.
pub type BoxError = Box<dyn std::error::Error>;

const USAGE: &str = "usage: photofinish-mutants weave|run|score ...: see the top of src/main.rs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn command(arguments: &[String]) -> Result<(), BoxError> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["weave", list, from, to, woven] => {
            let mutants =
                weave::weave(Path::new(list), Path::new(from), &std::fs::canonicalize(to)?, Path::new(woven))?;
            let out = mutants.iter().filter(|m| m.left_out.is_some()).count();
            println!("{} mutants, {out} of them left out", mutants.len());
            Ok(())
        }
        ["run", tree, woven, results, rest @ ..] => run_command(tree, woven, results, rest),
        ["score", results @ ..] => score::print(&read(results)?),
        _ => Err(USAGE.into()),
    }
}

fn run_command(tree: &str, woven: &str, results: &str, rest: &[&str]) -> Result<(), BoxError> {
    let tree: PathBuf = std::fs::canonicalize(tree)?;
    let mut mutants: Vec<Woven> = serde_json::from_str(&std::fs::read_to_string(woven)?)?;
    let packages = weave::packages(mutants.iter().map(|m| m.package.as_str()));
    let mut named = Vec::new();
    let mut passed_on = Vec::new();
    let mut options = rest.iter();
    while let Some(option) = options.next() {
        if *option == "--" {
            passed_on = options.by_ref().map(|a| (*a).to_owned()).collect();
            break;
        }
        let value = options.next().ok_or(USAGE)?;
        match *option {
            "--files" => {
                let prefixes: Vec<&str> = value.split(',').collect();
                mutants.retain(|m| prefixes.iter().any(|prefix| m.file.starts_with(prefix)));
            }
            "--after" => {
                let settled: BTreeSet<String> =
                    read(&[value])?.into_iter().filter(|o| o.verdict != Verdict::Missed).map(|o| o.name).collect();
                mutants.retain(|m| !settled.contains(&m.name));
            }
            "--tests" => {
                for name in value.split(',') {
                    let (package, target) = name.split_once(':').ok_or(USAGE)?;
                    let (target, choice) = target.split_once('@').map_or((target, None), |(t, c)| (t, Some(c)));
                    named.push((package.to_owned(), target.to_owned(), Only::read(choice)));
                }
            }
            _ => return Err(USAGE.into()),
        }
    }
    let mut programs = run::programs(&tree, &packages, &named)?;
    run::measure(&tree, &mut programs, &passed_on)?;
    println!("{} mutants", mutants.len());
    let mut out = std::fs::OpenOptions::new().create(true).append(true).open(results)?;
    run::run(&tree, &programs, &mutants, &passed_on, &mut out)
}

/// The outcomes of these files; of a mutant that several have, the last one.
fn read(files: &[&str]) -> Result<Vec<Outcome>, BoxError> {
    let mut outcomes = BTreeMap::new();
    for file in files {
        for line in std::fs::read_to_string(file)?.lines() {
            let outcome: Outcome = serde_json::from_str(line)?;
            outcomes.insert(outcome.name.clone(), outcome);
        }
    }
    Ok(outcomes.into_values().collect())
}
