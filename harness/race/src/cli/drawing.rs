//! `--html FILE`, `--perfetto FILE`: the runs of a command as pictures.
use std::path::{Path, PathBuf};

use crate::html::{Page, Told};
use crate::mistake::BadInput;
use crate::outcome::Outcome;
use crate::perfetto;
use crate::pool::Run;
use crate::property::always_checked;
use crate::system::System;

use super::replay_command;

/// How many runs that hold are drawn: the first of them.
const HOLDING: usize = 8;

/// Pictures that fill while runs are done.
pub(super) struct Drawing {
    system: &'static dyn System,
    sentences: Vec<(&'static str, &'static str)>,
    html: Option<(PathBuf, Page)>,
    perfetto: Option<PathBuf>,
    /// The worst run so far, as trace events.
    worst: Option<(Outcome, String)>,
    holding: usize,
}

impl Drawing {
    /// Nothing if there is nothing to be drawn.
    pub(super) fn new(system: &'static dyn System, html: Option<&Path>, perfetto: Option<&Path>) -> Option<Drawing> {
        if html.is_none() && perfetto.is_none() {
            return None;
        }
        let properties = system.properties().into_iter().chain(always_checked());
        Some(Drawing {
            system,
            sentences: properties.map(|p| (p.name, p.sentence)).collect(),
            html: html.map(|path| (path.to_owned(), Page::new("Photofinish"))),
            perfetto: perfetto.map(Path::to_owned),
            worst: None,
            holding: 0,
        })
    }
    /// Draws a run; of those that hold only the first few.
    pub(super) fn add(&mut self, run: &Run) {
        let outcome = run.report.outcome;
        let role = |host: &str| self.system.role(host);
        if self.perfetto.is_some() && self.worst.as_ref().is_none_or(|(worst, _)| worst.severity() < outcome.severity())
        {
            let reading = self.system.reading(&run.entries);
            self.worst = Some((outcome, perfetto::trace(&run.report, &run.entries, &reading, &role)));
        }
        let Some((_, page)) = &mut self.html else { return };
        self.holding += usize::from(outcome == Outcome::Holds);
        let drawn = outcome != Outcome::Holds || self.holding <= HOLDING;
        let id = run.job.id().to_string();
        let sentences = &self.sentences;
        let entries = if drawn { run.entries.as_slice() } else { &[] };
        page.add(&Told {
            name: run.job.name(),
            replay: replay_command(&id),
            run_id: id,
            report: &run.report,
            entries,
            reading: self.system.reading(entries),
            role: &role,
            sentence: &|name| {
                sentences.iter().find(|(n, _)| *n == name).map_or(String::new(), |(_, s)| (*s).to_owned())
            },
            objects: &run.objects,
        });
    }
    /// Writes the files, over older ones.
    pub(super) fn write(&self) -> Result<(), BadInput> {
        let write = |option: &str, path: &Path, text: &str| {
            std::fs::write(path, text)
                .map_err(|e| BadInput::new(format!("{option} {}: the file cannot be written: {e}", path.display())))
        };
        if let Some((path, page)) = &self.html {
            write("--html", path, &page.finish())?;
        }
        match (&self.perfetto, &self.worst) {
            (Some(path), Some((_, text))) => write("--perfetto", path, text),
            _ => Ok(()),
        }
    }
}
