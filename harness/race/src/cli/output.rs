//! Where the command line writes to: a broken pipe ends the work quietly, colours are for terminals.
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use miette::{GraphicalReportHandler, GraphicalTheme};
use photofinish_sim::choices::Source as ChoiceSource;
use photofinish_sim::trace::Entry;
use serde::Serialize;

use crate::explore::fingerprint::Fingerprint;
use crate::mistake::BadInput;
use crate::outcome::{Broken, Outcome};
use crate::pool::Run;
use crate::report::Style;

use super::progress::aside;

/// `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    Always,
    Never,
}

/// As the command line says; complaints are written before and behind it.
static COLOUR: OnceLock<Colour> = OnceLock::new();

impl Colour {
    pub(super) fn parse(text: &str) -> Result<Colour, String> {
        match text {
            "auto" => Ok(Colour::Auto),
            "always" => Ok(Colour::Always),
            "never" => Ok(Colour::Never),
            _ => Err("expected auto, always or never".into()),
        }
    }
    fn on(self, terminal: bool) -> bool {
        match self {
            Colour::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
            Colour::Always => true,
            Colour::Never => false,
        }
    }
}

/// Standard output.
pub(super) struct Output {
    stdout: io::Stdout,
    /// How to write to it.
    pub(super) style: Style,
    broken: bool,
    /// Why results were lost, other than by a reader who had seen enough.
    lost: Option<io::Error>,
}

impl Output {
    pub(super) fn new(colour: Colour) -> Output {
        let stdout = io::stdout();
        let style = Style { colour: colour.on(stdout.is_terminal()) };
        // Once a process: complaints are coloured as results are.
        let _ = COLOUR.set(colour);
        Output { stdout, style, broken: false, lost: None }
    }
    /// Writes a line. `false` once the reader is gone: then there is no more to do.
    pub(super) fn line(&mut self, text: impl Display) -> bool {
        if !self.broken {
            let mut out = self.stdout.lock();
            if let Err(e) = aside(|| writeln!(out, "{text}").and_then(|()| out.flush())) {
                self.broken = true;
                self.lost = (e.kind() != io::ErrorKind::BrokenPipe).then_some(e);
            }
        }
        !self.broken
    }
    /// Why not everything was written, if somebody still wanted it: a full disk, say.
    pub(super) fn lost(&self) -> Option<&io::Error> {
        self.lost.as_ref()
    }
    /// Writes text that ends with a newline, or nothing.
    pub(super) fn text(&mut self, text: &str) -> bool {
        text.is_empty() || self.line(text.trim_end_matches('\n'))
    }
}

/// Standard error: a line that is no result.
pub(super) fn note(text: impl Display) {
    // Nobody reads it: nothing to be done about that.
    let _ = aside(|| writeln!(io::stderr(), "{text}"));
}

/// Whether standard error is coloured, if it is a terminal or not.
pub(super) fn coloured(terminal: bool) -> bool {
    COLOUR.get().copied().unwrap_or(Colour::Auto).on(terminal)
}

/// Standard error: what is wrong with the input, with the source around it.
pub(super) fn complain(bad: &BadInput) {
    let theme = match coloured(io::stderr().is_terminal()) {
        true => GraphicalTheme::unicode(),
        false => GraphicalTheme::unicode_nocolor(),
    };
    let mut text = String::new();
    let rendered = GraphicalReportHandler::new_themed(theme).with_width(120).render_report(&mut text, bad);
    note(if rendered.is_ok() { text.trim_end().to_owned() } else { format!("error: {bad}") });
}

/// The JSON line of a run, version 1: fields may be added, none is removed or changes its meaning.
#[derive(Serialize)]
struct JsonLine<'r> {
    v: u32,
    scenario: String,
    run_id: String,
    seed: Option<u64>,
    outcome: Outcome,
    /// The first violated property, or the first vacuous one.
    property: Option<&'r str>,
    violations: &'r [Broken],
    vacuous: &'r [String],
    /// What a failing run is known by.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    /// Sets of remedies that each make it hold, as its scenario says of this crash.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    closed_by: &'r [Vec<String>],
    /// Why the run ended before its script did.
    end: Option<&'r str>,
    trace_hash: &'r str,
    virtual_ms: f64,
    wall_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'r [Entry]>,
}

/// The JSON line of a run.
pub(super) fn json_line(run: &Run, with_trace: bool) -> String {
    let report = &run.report;
    let line = JsonLine {
        v: 1,
        scenario: run.job.name(),
        run_id: run.job.id().to_string(),
        seed: match run.job.source {
            ChoiceSource::Benign => None,
            source => Some(source.seed()),
        },
        outcome: report.outcome,
        property: report.property(),
        violations: &report.violations,
        vacuous: &report.vacuous,
        fingerprint: Fingerprint::of(report, &run.entries).map(|f| f.short()),
        closed_by: if report.outcome == Outcome::Holds { &[] } else { run.job.closed_by() },
        end: report.end.as_deref(),
        trace_hash: &report.trace_hash,
        virtual_ms: report.virtual_ns as f64 / 1e6,
        wall_ms: run.wall.as_micros() as f64 / 1e3,
        trace: with_trace.then_some(&run.entries),
    };
    serde_json::to_string(&line).expect("a run's line is plain data")
}
