//! `choices NAME`: where a scenario's benign run could go another way.
use clap::Args;
use photofinish_sim::choices::{Pins, Source as ChoiceSource};
use serde::Serialize;

use crate::explore::choices::ChoicePoint;
use crate::mistake::BadInput;
use crate::pool::{Again, Job, Pool};
use crate::system::System;

use super::output::{Output, note};
use super::{HARNESS, SystemArgs, selected};

#[derive(Args)]
pub(super) struct ChoicesArgs {
    /// Name of a built-in scenario, or a file.
    #[arg(value_name = "NAME|FILE")]
    scenario: String,
    #[command(flatten)]
    system: SystemArgs,
    /// Print one JSON object a choice, and nothing else.
    #[arg(long)]
    json: bool,
}

/// Version 1: fields may be added, none is removed or changes its meaning.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    scenario: &'a str,
    #[serde(flatten)]
    point: &'a ChoicePoint,
}

pub(super) fn choices(system: &'static dyn System, args: &ChoicesArgs, output: &mut Output) -> Result<u8, BadInput> {
    let options = args.system.options(system)?;
    let mut code = 0;
    for scenario in selected(system, std::slice::from_ref(&args.scenario))? {
        let name = scenario.name.clone();
        let mut job = Job::new(system, scenario, &options, ChoiceSource::Benign, Pins::default());
        job.learn = true;
        let run = match Pool::new(system).again(Again::Never).run_one(&job) {
            Ok(run) => run,
            Err(e) => {
                note(format!("error: {e}"));
                return Ok(HARNESS);
            }
        };
        if run.points.is_empty() {
            let end = run.report.end.as_deref().unwrap_or("nothing in it asks for one");
            note(format!("{name}: no choices are known: the benign run is {}: {end}", run.report.outcome));
            code = code.max(run.report.outcome.exit_code());
            continue;
        }
        let mut alternatives = 0;
        for point in &run.points {
            alternatives += point.alternatives.len();
            let more = match args.json {
                true => {
                    let line = Line { v: 1, scenario: &name, point };
                    output.line(serde_json::to_string(&line).expect("a choice is plain data"))
                }
                false => output.line(self::line(point)),
            };
            if !more {
                return Ok(code);
            }
        }
        if !args.json {
            output.line(format!("{name}: {} choices, {alternatives} alternatives", run.points.len()));
        }
    }
    Ok(code)
}

fn line(point: &ChoicePoint) -> String {
    let ChoicePoint { key, default, taken, alternatives, fault, legality, at_ns, .. } = point;
    let fault = fault.as_deref().unwrap_or("a choice between equals");
    let taken = if taken == default { String::new() } else { format!(" (the script: {taken})") };
    let time = crate::report::time(*at_ns);
    format!("{time:>13}  {key}={default}{taken} | {}  {fault}, {legality}", alternatives.join(" | "))
}
