//! What GitHub Actions shows: an annotation for each run that does not hold, and a summary of the job.
//!
//! Source: "Workflow commands for GitHub Actions". Annotations are lines on standard error, the summary is added to the
//! file that `GITHUB_STEP_SUMMARY` names.
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use crate::outcome::Outcome;
use crate::pool::Run;

use super::output::note;

/// How many annotations are made: GitHub shows ten a step.
const ANNOTATIONS: usize = 10;

/// The job that this process is part of.
pub(super) struct GitHub {
    summary: Option<PathBuf>,
    failed: Vec<String>,
    runs: usize,
}

impl GitHub {
    /// Nothing outside GitHub Actions.
    pub(super) fn here() -> Option<GitHub> {
        let inside = std::env::var_os("GITHUB_ACTIONS").is_some_and(|v| v == "true");
        let summary = std::env::var_os("GITHUB_STEP_SUMMARY").map(PathBuf::from);
        inside.then_some(GitHub { summary, failed: Vec::new(), runs: 0 })
    }
    /// Tells of a run.
    pub(super) fn add(&mut self, run: &Run) {
        self.runs += 1;
        if run.report.outcome == Outcome::Holds {
            return;
        }
        let why = run.report.violations.first().map(|b| b.violation.why.as_str());
        let told = Told {
            name: &run.job.name(),
            outcome: run.report.outcome.name(),
            property: run.report.property().unwrap_or_default(),
            why: why.or(run.report.end.as_deref()).unwrap_or_default(),
            run_id: &run.job.id().to_string(),
            file: &run.job.scenario.source.path,
        };
        if self.failed.len() < ANNOTATIONS {
            note(annotation(&told));
        }
        self.failed.push(row(&told));
    }
    /// Adds the summary of all runs. The runs are judged already: where it cannot be written, that is only said.
    pub(super) fn end(&self) {
        let Some(path) = &self.summary else { return };
        let text = summary(self.runs, &self.failed);
        let file = OpenOptions::new().create(true).append(true).open(path);
        if let Err(e) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
            note(format!("note: the job's summary cannot be written to {}: {e}", path.display()));
        }
    }
}

/// What is told of a run that does not hold.
struct Told<'a> {
    name: &'a str,
    outcome: &'a str,
    property: &'a str,
    why: &'a str,
    run_id: &'a str,
    file: &'a str,
}

fn annotation(told: &Told<'_>) -> String {
    let Told { name, outcome, property, why, run_id, file } = told;
    let title = value(&format!("{name}: {outcome} {property}"));
    format!(
        "::error file={},line=1,title={}::{}",
        value(file),
        title.trim_end(),
        data(&format!("{why}\nreplay: photofinish replay '{run_id}'"))
    )
}

/// Text of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a command's parameter.
fn value(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

fn row(told: &Told<'_>) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let Told { name, outcome, property, why, run_id, .. } = told;
    format!("| {} | {outcome} | {} | {} | `{}` |\n", cell(name), cell(property), cell(why), cell(run_id))
}

fn summary(runs: usize, failed: &[String]) -> String {
    if failed.is_empty() {
        return format!("### Races\n\nAll {runs} runs hold.\n");
    }
    let rows = failed.concat();
    let head = "| run | outcome | property | why | run id |\n|---|---|---|---|---|\n";
    format!("### Races\n\n{} of {runs} runs do not hold.\n\n{head}{rows}", failed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Told<'static> = Told {
        name: "late@shared",
        outcome: "violated",
        property: "stable",
        why: "left, 100 %: a|b",
        run_id: "pf1:late:x",
        file: "scenarios/late.yaml",
    };

    #[test]
    fn an_annotation_is_one_line_and_what_would_end_a_part_is_escaped() {
        let expected = "::error file=scenarios/late.yaml,line=1,title=late@shared%3A violated stable::\
                        left, 100 %25: a|b%0Areplay: photofinish replay 'pf1:late:x'";
        assert_eq!(annotation(&TOLD), expected);
    }

    #[test]
    fn the_summary_is_a_table_of_what_does_not_hold() {
        assert_eq!(summary(3, &[]), "### Races\n\nAll 3 runs hold.\n");
        let text = summary(3, &[row(&TOLD)]);
        assert!(text.starts_with("### Races\n\n1 of 3 runs do not hold.\n"), "{text}");
        assert!(text.ends_with("| late@shared | violated | stable | left, 100 %: a\\|b | `pf1:late:x` |\n"), "{text}");
    }
}
