//! `explain RUN-ID`: the causal chain that ends in the violation. `diff RUN-ID [RUN-ID]`: where two runs part.
use clap::Args;
use photofinish_sim::trace::Entry;

use crate::explore::story;
use crate::mistake::BadInput;
use crate::outcome::Outcome;
use crate::pool::{Job, Run};
use crate::report;
use crate::switch::{Switch, SwitchKind};
use crate::system::System;

use super::drawing::Drawing;
use super::lab::{Lab, LabError};
use super::output::{Output, note};
use super::progress::QuietArg;
use super::{HARNESS, when};

/// How many entries of each side are shown from where they part.
const SHOWN: usize = 6;

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// As a failing run prints it: pf1:...
    run_id: String,
    /// Show requests, watch events and spans of the chain, too.
    #[arg(long)]
    all: bool,
    /// Leave the run at its state changes, go on with other faults, and print how often it fails all the same.
    #[arg(long, conflicts_with = "all")]
    when: bool,
    /// How often it is left at each of them.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "when", value_parser = clap::value_parser!(u64).range(1..))]
    forks: u64,
    #[command(flatten)]
    how: QuietArg,
}

#[derive(Args)]
pub(super) struct DiffArgs {
    /// A run: as a failing run prints it.
    run_id: String,
    /// Another run; without it, the nearest one that holds: one choice of the first taken back, or else one remedy on.
    other: Option<String>,
    /// Draw both runs as timelines from where they part, into one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<std::path::PathBuf>,
    #[command(flatten)]
    how: QuietArg,
}

fn ended(done: Result<u8, LabError>) -> Result<u8, BadInput> {
    match done {
        Ok(code) => Ok(code),
        Err(LabError::Input(bad)) => Err(bad),
        Err(LabError::Harness(e)) => {
            note(format!("error: {e}"));
            Ok(HARNESS)
        }
    }
}

pub(super) fn explain(system: &'static dyn System, args: &ExplainArgs, output: &mut Output) -> Result<u8, BadInput> {
    match args.when {
        true => ended(when::tell(system, &args.run_id, args.forks, args.how.quiet, output)),
        false => ended(explained(system, args, output)),
    }
}

fn explained(system: &'static dyn System, args: &ExplainArgs, output: &mut Output) -> Result<u8, LabError> {
    let (run, fingerprint) = Lab::new(system).failing(system, &args.run_id)?;
    let style = output.style;
    let outcome = style.outcome(run.report.outcome, run.report.outcome.name());
    output.line(format!("{outcome} {}", fingerprint.what()));
    if let Some(end) = &run.report.end {
        output.line(format!("  {end}"));
    }
    for broken in &run.report.violations {
        output.line(format!("  {}", style.bold(&broken.property)));
        let (mut hidden, mut before) = (0, None);
        for e in story::causes(&run.entries, &broken.violation) {
            let tells = args.all || crate::outcome::telling(e) || e.kind == "choice" || e.id == broken.violation.entry;
            if !tells {
                hidden += 1;
                continue;
            }
            if hidden > 0 {
                output.line(style.dim(&format!("{:>13}  (between them: {hidden} of requests, events, spans)", "")));
                hidden = 0;
            }
            // The same line twice in a row says nothing new.
            let line = report::entry(e);
            if before.as_ref() != Some(&line) {
                output.line(format!("    {line}"));
            }
            before = Some(line);
        }
        output.line(format!("    broken here: {}", broken.violation.why));
    }
    Ok(run.report.outcome.exit_code())
}

pub(super) fn diff(system: &'static dyn System, args: &DiffArgs, output: &mut Output) -> Result<u8, BadInput> {
    ended(differs(system, args, output))
}

fn differs(system: &'static dyn System, args: &DiffArgs, output: &mut Output) -> Result<u8, LabError> {
    let mut lab = Lab::telling(system, args.how.quiet);
    let (one, other, how) = match &args.other {
        Some(other) => (lab.run_id(system, &args.run_id)?, lab.run_id(system, other)?, None),
        None => {
            let (run, fingerprint) = lab.failing(system, &args.run_id)?;
            let pinned = lab.pinned(&run, &fingerprint)?;
            if let Some((job, sibling, flipped)) = pinned.map(|job| sibling(&mut lab, job)).transpose()?.flatten() {
                let how = format!("it holds without: {}", story::pin(&flipped.0, &flipped.1));
                (lab.run(&job)?, sibling, Some(how))
            } else if let Some((remedy, remedied)) = remedied(&mut lab, system, &run)? {
                (run, remedied, Some(format!("it holds with: {remedy}")))
            } else {
                return Err(BadInput::new(
                    "no single choice of this run, taken back, makes it hold, nor does a single remedy: it has no passing sibling",
                )
                .help("shrink it first, or name another run to compare it with")
                .into());
            }
        }
    };
    lab.told();
    if let Some(how) = &how {
        output.line(how);
    }
    for (side, run) in [("one", &one), ("another", &other)] {
        let property = run.report.property().map_or(String::new(), |p| format!(" {p}"));
        output.line(format!("{side:<8} {}{property}  {}", run.report.outcome, run.job.id()));
    }
    let Some((a, b)) = story::parting(&one.entries, &other.entries) else {
        output.line("the runs are alike, entry by entry");
        return Ok(0);
    };
    if let Some(mut drawing) = Drawing::new(system, args.html.as_deref(), None) {
        drawing.side_by_side();
        if let Some(how) = &how {
            drawing.remark(how);
        }
        for (run, at) in [(&one, a), (&other, b)] {
            let run = lab.run(&Job { objects: true, ..run.job.clone() })?;
            // The one that ended there has no entry to show.
            let at = at.min(run.entries.len().saturating_sub(1));
            drawing.add_marked(&run, Some((at as u64, "the runs part here")));
        }
        drawing.write()?;
    }
    let time = [one.entries.get(a), other.entries.get(b)].into_iter().flatten().map(|e| e.at_ns).min().unwrap_or(0);
    output.line(format!("they part at {}, entry {a} of the one, {b} of the other", report::time(time)));
    for (side, entries, at) in [("one", &one.entries, a), ("another", &other.entries, b)] {
        output.line(format!("  {side}:"));
        for line in side_of(entries, at) {
            output.line(format!("    {line}"));
        }
    }
    Ok(0)
}

/// A failing job, the nearest run that holds, and the pin that it lacks.
type Sibling = (Job, Run, (String, String));

/// The nearest run that holds: one pin taken back, the last one first.
fn sibling(lab: &mut Lab, job: Job) -> Result<Option<Sibling>, LabError> {
    let pins: Vec<(String, String)> = job.pins.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    for (key, value) in pins.into_iter().rev() {
        let mut fewer = job.pins.clone();
        fewer.remove(&key);
        let run = lab.run(&Job { pins: fewer, ..job.clone() })?;
        if run.report.outcome == Outcome::Holds {
            return Ok(Some((job, run, (key, value))));
        }
    }
    Ok(None)
}

/// The nearest run that holds with one recommended remedy more: the one that goes the same way for longest.
fn remedied(lab: &mut Lab, system: &dyn System, failing: &Run) -> Result<Option<(&'static str, Run)>, LabError> {
    let Job { scenario, options, .. } = &failing.job;
    let switches = system.switches();
    let on = options.resolve(switches, &scenario.reported_without);
    let recommended = |s: &&Switch| matches!(s.kind, SwitchKind::Proposed { recommended: true });
    let mut nearest: Option<(usize, &'static str, Run)> = None;
    for switch in switches.iter().filter(recommended).filter(|s| !on.contains(s.name)) {
        let options = options.clone().with([switch.name]).canonical(switches, &scenario.reported_without);
        let run = lab.run(&Job { options, ..failing.job.clone() })?;
        let alike = story::parting(&failing.entries, &run.entries).map_or(failing.entries.len(), |(at, _)| at);
        let farther = nearest.as_ref().is_none_or(|(so_far, ..)| alike > *so_far);
        if run.report.outcome == Outcome::Holds && farther {
            nearest = Some((alike, switch.name, run));
        }
    }
    Ok(nearest.map(|(_, name, run)| (name, run)))
}

/// What one side shows from where they part: the entry itself, and the next that say what happened.
fn side_of(entries: &[Entry], at: usize) -> Vec<String> {
    let Some(first) = entries.get(at) else { return vec!["no entry: the run ends before".to_owned()] };
    let next = entries[at + 1..].iter().filter(|e| crate::outcome::telling(e)).take(SHOWN - 1);
    std::iter::once(first).chain(next).map(report::entry).collect()
}
