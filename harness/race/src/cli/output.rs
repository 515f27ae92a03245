//! Where the command line writes to: a broken pipe ends the work quietly, colours are for terminals.
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use miette::{GraphicalReportHandler, GraphicalTheme};
use serde_json::{Value, json};

use crate::mistake::BadInput;
use crate::pool::Run;
use crate::report::Style;
use photofinish_sim::choices::Source as ChoiceSource;

/// Standard output.
pub(super) struct Output {
    stdout: io::Stdout,
    /// How to write to it.
    pub(super) style: Style,
    broken: bool,
}

impl Output {
    pub(super) fn new() -> Output {
        let stdout = io::stdout();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let style = Style { colour: stdout.is_terminal() && !no_colour };
        Output { stdout, style, broken: false }
    }
    /// Writes a line. `false` once the reader is gone: then there is no more to do.
    pub(super) fn line(&mut self, text: impl Display) -> bool {
        if !self.broken {
            let mut out = self.stdout.lock();
            self.broken = writeln!(out, "{text}").and_then(|()| out.flush()).is_err();
        }
        !self.broken
    }
    /// Writes text that ends with a newline, or nothing.
    pub(super) fn text(&mut self, text: &str) -> bool {
        text.is_empty() || self.line(text.trim_end_matches('\n'))
    }
}

/// Standard error: a line that is no result.
pub(super) fn note(text: impl Display) {
    // Nobody reads it: nothing to be done about that.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Standard error: what is wrong with the input, with the source around it.
pub(super) fn complain(bad: &BadInput) {
    let theme = match io::stderr().is_terminal() {
        true => GraphicalTheme::unicode(),
        false => GraphicalTheme::unicode_nocolor(),
    };
    let mut text = String::new();
    let rendered = GraphicalReportHandler::new_themed(theme).with_width(120).render_report(&mut text, bad);
    note(if rendered.is_ok() { text.trim_end().to_owned() } else { format!("error: {bad}") });
}

/// The JSON line of a run, version 1.
pub(super) fn json_line(run: &Run, with_trace: bool) -> Value {
    let report = &run.report;
    let seed = match run.job.source {
        ChoiceSource::Benign => Value::Null,
        ChoiceSource::Seed(seed) => json!(seed),
    };
    let mut line = json!({
        "v": 1,
        "scenario": run.job.scenario.name,
        "run_id": run.job.id().to_string(),
        "seed": seed,
        "outcome": report.outcome,
        "property": report.property(),
        "violations": report.violations,
        "vacuous": report.vacuous,
        "trace_hash": report.trace_hash,
        "virtual_ms": report.virtual_ns as f64 / 1e6,
        "wall_ms": run.wall.as_micros() as f64 / 1e3,
        "end": report.end,
    });
    if with_trace {
        line["trace"] = json!(run.entries);
    }
    line
}
