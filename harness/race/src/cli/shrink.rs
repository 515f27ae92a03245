//! `shrink RUN-ID`: the fewest pins and the shortest delays with which the same property fails on the same object.
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

use clap::Args;
use photofinish_sim::choices::Pins;
use serde::Serialize;

use crate::explore::fingerprint::Fingerprint;
use crate::explore::{script, shrink as smaller, simpler, story};
use crate::mistake::BadInput;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::pool::{Job, Run};
use crate::scenario::{self, Source};
use crate::system::System;

use super::drawing::Drawing;
use super::lab::{Lab, LabError};
use super::output::{Output, note};
use super::progress::QuietArg;
use super::{HARNESS, replay_command};

#[derive(Args)]
pub(super) struct ShrinkArgs {
    /// As a failing run prints it: pf1:...
    run_id: String,
    /// Write the result as a scenario to this new file.
    #[arg(long, value_name = "FILE.yaml")]
    scenario: Option<String>,
    /// Draw the shrunk run as a timeline, into one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<std::path::PathBuf>,
    /// Print a unit test's skeleton, too, where the violation comes down to one input of one rule.
    #[arg(long, conflicts_with = "json")]
    rust: bool,
    /// Print one JSON object, and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: QuietArg,
}

/// Version 1: fields may be added, none is removed or changes its meaning.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    from: String,
    run_id: String,
    property: &'a str,
    object: &'a str,
    /// Choices of the given run that were not as usual.
    choices: usize,
    pins: usize,
    /// How many runs it took.
    runs: u64,
    sentence: &'a str,
    scenario: Option<&'a str>,
}

pub(super) fn shrink(system: &'static dyn System, args: &ShrinkArgs, output: &mut Output) -> Result<u8, BadInput> {
    if let Some(path) = args.scenario.as_deref() {
        // Before the work, not after it.
        if std::path::Path::new(path).exists() {
            return Err(BadInput::new(format!("--scenario {path}: there is a file already"))
                .help("expected the name of a new file"));
        }
    }
    match shrunk(system, args, output) {
        Ok(code) => Ok(code),
        Err(LabError::Input(bad)) => Err(bad),
        Err(LabError::Harness(e)) => {
            note(format!("error: {e}"));
            Ok(HARNESS)
        }
    }
}

fn shrunk(system: &'static dyn System, args: &ShrinkArgs, output: &mut Output) -> Result<u8, LabError> {
    let mut lab = Lab::telling(system, args.how.quiet || args.json);
    let (first, fingerprint) = lab.failing(system, &args.run_id)?;
    let choices = smaller::drawn(&first.entries, &first.job.scenario.pins).len();
    let job = match lab.pinned(&first, &fingerprint)? {
        Some(job) => job,
        None => {
            note(
                "note: its draws, as pins, do not fail in the same way without its seed: only the pins of the id are shrunk",
            );
            first.job.clone()
        }
    };
    let pins = smaller::fewest(&job.pins, |pins| lab.fails_with(&job, pins, &fingerprint))?;
    let (job, fingerprint) = simplest(&mut lab, Job { pins, ..job }, fingerprint)?;
    let pins = smaller::shortest(&job.pins, |pins| lab.fails_with(&job, pins, &fingerprint))?;
    let job = Job { pins, ..job };
    let last = lab.run(&job)?;
    lab.told();
    let why = match last.report.violations.iter().find(|b| b.property == fingerprint.property) {
        Some(broken) => broken.violation.why.clone(),
        None => last.report.end.clone().unwrap_or_default(),
    };
    let sentence = story::sentence(&fingerprint, &job.pins, &why);
    let id = job.id().to_string();
    let mut code = last.report.outcome.exit_code();
    match args.json {
        true => {
            let line = Line {
                v: 1,
                from: first.job.id().to_string(),
                run_id: id,
                property: &fingerprint.property,
                object: &fingerprint.object,
                choices,
                pins: job.pins.len(),
                runs: lab.runs,
                sentence: &sentence,
                scenario: args.scenario.as_deref(),
            };
            output.line(serde_json::to_string(&line).expect("a line is plain data"));
        }
        false => {
            output.line(format!("{choices} choices not as usual, {} left after {} runs", job.pins.len(), lab.runs));
            output.line(format!("  {sentence}"));
            output.line(format!("  replay: {}", replay_command(&id)));
        }
    }
    if let Some(mut drawing) = Drawing::new(system, args.html.as_deref(), None) {
        drawing.remark(&sentence);
        drawing.add(&lab.run(&Job { objects: true, ..job.clone() })?);
        drawing.write()?;
    }
    if args.rust {
        let broken = last.report.violations.iter().find(|b| b.property == fingerprint.property);
        match broken.and_then(|broken| system.unit_test(&last.entries, broken.violation.entry)) {
            Some(test) => test.lines().for_each(|line| _ = output.line(line)),
            None => note("note: no unit test: the violation does not come down to one input of one rule"),
        }
    }
    if let Some(path) = &args.scenario {
        code = code.max(write(system, &mut lab, path, &last, &sentence)?);
    }
    Ok(code)
}

/// The script shorter, the cluster as the scenario has it, wherever it fails all the same; again until nothing helps.
fn simplest(lab: &mut Lab, mut job: Job, mut fingerprint: Fingerprint) -> Result<(Job, Fingerprint), LabError> {
    loop {
        let cost = simpler::cost(&job.pins);
        for name in job.options.cluster.keys().cloned().collect::<Vec<_>>() {
            let mut options = job.options.clone();
            options.cluster.shift_remove(&name);
            let usual = Job { options, ..job.clone() };
            if lab.fails(&usual, &fingerprint)? {
                job = usual;
            }
        }
        let merged = simpler::merged(&job.pins).into_iter().map(|merged| {
            let object = fingerprint.object.replace(&merged.from, &merged.to);
            (merged.pins, Fingerprint { object, ..fingerprint.clone() })
        });
        let earlier = simpler::earlier(&job.pins).into_iter().map(|pins| (pins, fingerprint.clone()));
        let attempts: Vec<_> = merged.chain(earlier).filter(|(pins, _)| simpler::cost(pins) < cost).collect();
        for (pins, expected) in attempts {
            if lab.fails_with(&job, &pins, &expected)? {
                job.pins = smaller::fewest(&pins, |pins| lab.fails_with(&job, pins, &expected))?;
                fingerprint = expected;
                break;
            }
        }
        if simpler::cost(&job.pins) >= cost {
            return Ok((job, fingerprint));
        }
    }
}

/// Writes the scenario, and says whether it fails and holds as it should.
fn write(system: &'static dyn System, lab: &mut Lab, path: &str, run: &Run, sentence: &str) -> Result<u8, LabError> {
    let violated = run.report.violated();
    let text = script::of_job(&run.job, system.switches(), &violated, sentence).map_err(|why| {
        BadInput::new(format!("this run cannot be written as a scenario: {why}")).help("its run id says all of it")
    })?;
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| BadInput::new(format!("--scenario {path}: the file cannot be written: {e}")))?;
    let source = Arc::new(Source { path: path.to_owned(), text, builtin: false });
    let read = scenario::read(system, &source)?.into_iter().next();
    let scenario = Arc::new(read.ok_or_else(|| BadInput::new(format!("{path} holds no scenario")))?);
    let job = |options: &Options| Job::new(system, scenario.clone(), options, run.job.source, Pins::default());
    // Its cluster is that of the scenario now.
    let red = lab.run(&job(&Options { cluster: Default::default(), ..run.job.options.clone() }))?;
    let green = lab.run(&job(&Options::new()))?;
    let fails = red.report.violated() == violated;
    let holds = green.report.outcome == Outcome::Holds;
    match (fails, holds) {
        (true, true) => note(format!("note: {path} fails in the same way, and holds by default")),
        (false, _) => {
            note(format!("note: {path} violates {}, not {}", red.report.violated().join(", "), violated.join(", ")))
        }
        (_, false) => {
            note(format!("note: {path} fails in the same way, but by default it is {}", green.report.outcome))
        }
    }
    Ok(if fails && holds { 0 } else { 1 })
}
