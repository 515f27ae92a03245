//! `--html FILE`, `--perfetto FILE`: the runs of a command as pictures.
use std::path::{Path, PathBuf};

use photofinish_sim::trace::EntryId;

use crate::html::{Page, Swept, Told};
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
    html: Option<(PathBuf, Page)>,
    perfetto: Option<PathBuf>,
    /// The worst run so far, as trace events.
    worst: Option<(Outcome, String)>,
    holding: usize,
}

impl Drawing {
    /// Nothing if there is nothing to be drawn.
    pub(super) fn new(system: &'static dyn System, html: Option<&Path>, perfetto: Option<&Path>) -> Option<Drawing> {
        let html = html.map(|path| (path.to_owned(), Page::new("Photofinish")));
        let perfetto = perfetto.map(Path::to_owned);
        let asked = html.is_some() || perfetto.is_some();
        asked.then_some(Drawing { system, html, perfetto, worst: None, holding: 0 })
    }
    /// A line above the runs.
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        if let Some((_, page)) = &mut self.html {
            page.remark(text);
        }
    }
    /// The two runs to come are compared: they stand side by side.
    pub(super) fn side_by_side(&mut self) {
        if let Some((_, page)) = &mut self.html {
            page.side_by_side();
        }
    }
    /// Draws a run; of those that hold only the first few.
    pub(super) fn add(&mut self, run: &Run) {
        self.add_marked(run, None);
    }
    /// The same with a flag at an entry.
    pub(super) fn add_marked(&mut self, run: &Run, mark: Option<(EntryId, &str)>) {
        let outcome = run.report.outcome;
        if self.perfetto.is_some() && self.worst.as_ref().is_none_or(|(worst, _)| worst.severity() < outcome.severity())
        {
            let reading = self.system.reading(&run.entries);
            let role = |host: &str| self.system.role(host);
            self.worst = Some((outcome, perfetto::trace(&run.report, &run.entries, &reading, &role)));
        }
        self.holding += usize::from(outcome == Outcome::Holds);
        let drawn = outcome != Outcome::Holds || self.holding <= HOLDING;
        if let Some((_, page)) = &mut self.html {
            draw(self.system, page, run, drawn, mark);
        }
    }
    /// The same for a run that is a finding of a sweep: the section that shows it, if there is room.
    pub(super) fn add_section(&mut self, run: &Run) -> Option<usize> {
        let (_, page) = self.html.as_mut()?;
        draw(self.system, page, run, true, None)
    }
    /// The runs are what this sweep found.
    pub(super) fn sweep(&mut self, swept: &Swept<'_>) {
        if let Some((_, page)) = &mut self.html {
            page.sweep(swept);
        }
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

/// The page of one run.
pub(super) fn page(system: &'static dyn System, run: &Run) -> String {
    let mut page = Page::new("Photofinish");
    draw(system, &mut page, run, true, None);
    page.finish()
}

fn draw(
    system: &'static dyn System,
    page: &mut Page,
    run: &Run,
    drawn: bool,
    mark: Option<(EntryId, &str)>,
) -> Option<usize> {
    let id = run.job.id().to_string();
    let properties: Vec<_> = system.properties().into_iter().chain(always_checked()).collect();
    let entries = if drawn { run.entries.as_slice() } else { &[] };
    page.add(&Told {
        name: run.job.name(),
        replay: replay_command(&id),
        run_id: id,
        report: &run.report,
        entries,
        reading: system.reading(entries),
        role: &|host| system.role(host),
        sentence: &|name| properties.iter().find(|p| p.name == name).map_or("", |p| p.sentence).to_owned(),
        objects: &run.objects,
        mark: mark.map(|(entry, text)| (entry, text.to_owned())),
    })
}
