//! What `run` and `replay` print of runs, as they are done.
use std::time::Instant;

use photofinish_sim::choices::Source as ChoiceSource;

use crate::mistake::BadInput;
use crate::outcome::Outcome;
use crate::pool::{Job, Pool, PoolError, Run, WALL_LIMIT};
use crate::report;
use crate::scenario::Scenario;
use crate::system::System;

use super::artifacts::Artifacts;
use super::drawing::Drawing;
use super::github::GitHub;
use super::output::{Output, complain, json_line, note};
use super::progress::{Extent, Progress};
use super::{BAD_INPUT, HARNESS, HowArgs, replay_command};

/// How many lines of what a dying process printed are shown without `--trace`.
const PRINTED: usize = 10;
/// How many failing seeds are named.
const SEEDS_SHOWN: usize = 5;

/// Prints runs as they are done, and keeps the highest exit code.
pub(super) struct Printer<'a> {
    system: &'static dyn System,
    how: &'a HowArgs,
    output: &'a mut Output,
    width: usize,
    code: u8,
    done: usize,
    failed: usize,
    refused: usize,
    progress: Progress,
    drawing: Option<Drawing>,
    artifacts: Option<Artifacts>,
    github: Option<GitHub>,
}

impl<'a> Printer<'a> {
    pub(super) fn new(
        system: &'static dyn System,
        how: &'a HowArgs,
        output: &'a mut Output,
        width: usize,
    ) -> Printer<'a> {
        let drawing = Drawing::new(system, how.html.as_deref(), how.perfetto.as_deref());
        let artifacts = how.artifacts.as_ref().map(|folder| Artifacts::new(system, folder));
        Printer {
            system,
            how,
            output,
            width,
            code: 0,
            done: 0,
            failed: 0,
            refused: 0,
            progress: Progress::silent(),
            drawing,
            artifacts,
            github: GitHub::here(),
        }
    }
    /// The exit code, once the pictures are written.
    pub(super) fn end(self) -> Result<u8, BadInput> {
        self.github.iter().for_each(GitHub::end);
        self.artifacts.map_or(Ok(()), |artifacts| artifacts.end())?;
        self.drawing.map_or(Ok(()), |drawing| drawing.write())?;
        Ok(self.code)
    }
    pub(super) fn pool(&self) -> Pool {
        let limit = self.how.wall_limit.unwrap_or(WALL_LIMIT);
        Pool::new(self.system).wall_limit(limit).keep_traces(self.how.trace || self.drawing.is_some())
    }
    /// Does anything that is made of the runs show their objects?
    pub(super) fn shows_objects(&self) -> bool {
        self.drawing.is_some() || self.artifacts.is_some()
    }
    /// Makes room for the names of these runs.
    pub(super) fn widen(&mut self, jobs: &[Job]) {
        self.width = jobs.iter().map(|job| job.name().len()).chain([self.width]).max().unwrap_or(0);
    }
    /// So many runs are to come: one alone says nothing of its progress.
    pub(super) fn expect(&mut self, runs: Option<u64>) {
        let quiet = self.how.quiet || self.how.json || runs == Some(1);
        self.progress = Progress::new(quiet, "runs", Extent { total: runs, limit: None });
    }
    fn tell(&mut self) {
        let Printer { done, failed, .. } = *self;
        self.progress
            .tell(done as u64, || if failed == 0 { "all hold".to_owned() } else { format!("{failed} do not hold") });
    }
    /// Each run with a line, and why it fails.
    pub(super) fn each(&mut self, mut jobs: Vec<Job>) {
        let (pool, many) = (self.pool(), jobs.len() > 1);
        let objects = self.shows_objects();
        jobs.iter_mut().for_each(|job| job.objects = objects);
        self.expect(Some(jobs.len() as u64));
        let done = pool.run(jobs, |run| {
            self.count(&run);
            self.tell();
            match self.how.json {
                true => self.output.line(json_line(&run, self.how.trace)),
                false => self.one(&run),
            }
        });
        self.progress = Progress::silent();
        self.harness(done);
        if many && !self.how.json && !self.how.quiet {
            let mut text = format!("{} scenarios hold", self.done - self.failed - self.refused);
            for (runs, what) in [(self.failed, "do not"), (self.refused, "are not for this engine")] {
                if runs > 0 {
                    text += &format!(", {runs} {what}");
                }
            }
            self.output.line(text);
        }
    }
    pub(super) fn one(&mut self, run: &Run) -> bool {
        let style = self.output.style;
        if self.how.trace {
            self.output.text(&report::trace(&run.entries));
        }
        if self.how.quiet && run.report.outcome == Outcome::Holds {
            return true;
        }
        self.output.line(report::line(&run.job.name(), self.width, &run.report, run.wall, style));
        self.output.text(&self.failure(run))
    }
    pub(super) fn failure(&self, run: &Run) -> String {
        self.failure_in(run, self.output.style)
    }
    fn failure_in(&self, run: &Run, style: report::Style) -> String {
        let replay = replay_command(&run.job.id().to_string());
        let mut text = report::failure(
            &run.report,
            &run.entries,
            &self.system.properties(),
            |entries| self.system.reading(entries),
            &replay,
            style,
        );
        let closing: Vec<String> = run.job.closed_by().iter().map(|set| set.join(" + ")).collect();
        if run.report.outcome != Outcome::Holds && !closing.is_empty() {
            text += &format!("  holds with: {}\n", closing.join("; "));
        }
        // What a process printed before it died says more than its trace.
        let died = matches!(run.report.outcome, Outcome::Crashed | Outcome::Hung | Outcome::Failed);
        if died && !run.output.trim().is_empty() {
            text += "  the run printed:\n";
            let lines: Vec<&str> = run.output.trim_end().lines().collect();
            let shown = if self.how.trace { lines.len() } else { lines.len().min(PRINTED) };
            text.extend(lines[..shown].iter().map(|l| format!("    {l}\n")));
            if shown < lines.len() {
                text += &format!("    and {} lines more: --trace shows all\n", lines.len() - shown);
            }
        }
        text
    }
    /// Many seeds of one scenario: a summary, the first of the worst failures in full, the next few by their commands.
    pub(super) fn sweep(&mut self, scenario: &Scenario, runs: u64, jobs: impl Iterator<Item = Job> + Send) -> bool {
        let mut outcomes = std::collections::BTreeMap::<Outcome, usize>::new();
        // The worst first, those alike by seed; the first one in full.
        let mut shown: Vec<(Outcome, String)> = Vec::new();
        let mut worst = Outcome::Holds;
        let mut virtual_ns = 0;
        let began = Instant::now();
        let objects = self.shows_objects();
        let jobs = jobs.map(move |job| Job { objects, ..job });
        let pool = self.pool();
        self.done = 0;
        self.failed = 0;
        self.expect(Some(runs));
        let done = pool.run(jobs, |run| {
            self.count(&run);
            self.tell();
            *outcomes.entry(run.report.outcome).or_default() += 1;
            virtual_ns += run.report.virtual_ns;
            worst = std::cmp::max_by_key(worst, run.report.outcome, |o| o.severity());
            if self.how.json {
                return self.output.line(json_line(&run, self.how.trace));
            }
            if self.how.trace && !self.output.text(&report::trace(&run.entries)) {
                return false;
            }
            let outcome = run.report.outcome;
            let place = shown.iter().take_while(|(other, _)| other.severity() >= outcome.severity()).count();
            if outcome != Outcome::Holds && place < SEEDS_SHOWN {
                let more = match place {
                    0 => self.failure(&run),
                    _ => format!("    replay: {}\n", replay_command(&run.job.id().to_string())),
                };
                shown.insert(place, (outcome, format!("  {}\n{more}", seed_line(&run))));
                shown.truncate(SEEDS_SHOWN);
            }
            true
        });
        self.progress = Progress::silent();
        if !self.harness(done) || self.how.json {
            return self.code < HARNESS;
        }
        let runs: usize = outcomes.values().sum();
        let counts = outcomes.iter().map(|(o, n)| self.output.style.outcome(*o, &counted(*o, *n))).collect::<Vec<_>>();
        if self.how.quiet && worst == Outcome::Holds {
            return true;
        }
        let (name, width, more) = (&*scenario.name, self.width, &*counts.join(", "));
        let line = report::Line { name, width, outcome: worst, runs, virtual_ns, wall: began.elapsed(), more };
        self.output.line(line.text(self.output.style));
        let failures = runs - outcomes.get(&Outcome::Holds).copied().unwrap_or(0);
        let all = shown.iter().all(|(_, text)| self.output.text(text));
        match failures - shown.len() {
            0 => all,
            more => self.output.line(format!("  and {more} more: --json tells all of them")),
        }
    }
    pub(super) fn count(&mut self, run: &Run) {
        self.done += 1;
        if let Some(drawing) = &mut self.drawing {
            drawing.add(run);
        }
        if let Some(mut artifacts) = self.artifacts.take() {
            let plain = report::Style::default();
            let text =
                report::line(&run.job.name(), 0, &run.report, run.wall, plain) + "\n" + &self.failure_in(run, plain);
            artifacts.add(run, &text);
            self.artifacts = Some(artifacts);
        }
        if let Some(github) = &mut self.github {
            github.add(run);
        }
        match run.report.outcome {
            Outcome::Holds => {}
            Outcome::Refused => self.refused += 1,
            _ => self.failed += 1,
        }
        self.code = self.code.max(run.report.outcome.exit_code());
        for wrong in &run.report.wrong_pins {
            self.code = self.code.max(BAD_INPUT);
            complain(&BadInput::new(wrong.clone()).help("the run took the default there: it is not what its id says"));
        }
        for unused in &run.report.unused_pins {
            note(format!("note: {unused}"));
        }
    }
    /// `false` if the harness failed.
    pub(super) fn harness(&mut self, done: Result<(), PoolError>) -> bool {
        if let Err(e) = &done {
            note(format!("error: {e}"));
            self.code = HARNESS;
        }
        done.is_ok()
    }
}

fn seed_line(run: &Run) -> String {
    let seed = match run.job.source {
        ChoiceSource::Seed(seed) => format!("seed {seed}"),
        source => source.to_string(),
    };
    format!("{seed}: {} {}", run.report.outcome, run.report.violated().join(", ")).trim_end().to_owned()
}

pub(super) fn counted(outcome: Outcome, runs: usize) -> String {
    match (outcome, runs) {
        (Outcome::Holds, 1) => "1 holds".to_owned(),
        (Outcome::Holds, _) => format!("{runs} hold"),
        _ => format!("{runs} {outcome}"),
    }
}
