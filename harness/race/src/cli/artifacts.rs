//! `--artifacts DIR`: a folder for each run that does not hold, with all that somebody needs who was not there.
use std::io;
use std::path::{Path, PathBuf};

use photofinish_sim::choices::Source as ChoiceSource;

use crate::mistake::BadInput;
use crate::outcome::Outcome;
use crate::pool::Run;
use crate::system::System;

use super::drawing;

/// The folder of all runs. What is in it is never overwritten: a rerun gets folders of its own.
pub(super) struct Artifacts {
    system: &'static dyn System,
    folder: PathBuf,
    lost: Option<(PathBuf, io::Error)>,
}

impl Artifacts {
    pub(super) fn new(system: &'static dyn System, folder: &Path) -> Artifacts {
        Artifacts { system, folder: folder.to_owned(), lost: None }
    }
    /// Keeps a run, unless it holds. `text` is what a terminal shows of it.
    pub(super) fn add(&mut self, run: &Run, text: &str) {
        if run.report.outcome == Outcome::Holds || self.lost.is_some() {
            return;
        }
        if let Err(e) = self.keep(run, text) {
            self.lost = Some((self.folder.clone(), e));
        }
    }
    /// An error if something could not be written.
    pub(super) fn end(&self) -> Result<(), BadInput> {
        match &self.lost {
            None => Ok(()),
            Some((path, e)) => Err(BadInput::new(format!("--artifacts {}: cannot be written: {e}", path.display()))),
        }
    }
    fn keep(&self, run: &Run, text: &str) -> io::Result<()> {
        let source = match run.job.source {
            ChoiceSource::Benign => String::new(),
            drawn => format!("-{drawn}"),
        };
        let folder = new_folder(&self.folder, &plain(&(run.job.name() + &source)))?;
        let lines = run.entries.iter().map(|e| serde_json::to_string(e).map(|line| line + "\n"));
        let trace = lines.collect::<Result<String, _>>()?;
        std::fs::write(folder.join("run-id"), format!("{}\n", run.job.id()))?;
        std::fs::write(folder.join("report.txt"), text)?;
        std::fs::write(folder.join("trace.jsonl"), trace)?;
        std::fs::write(folder.join("timeline.html"), drawing::page(self.system, run))
    }
}

/// A name that every file system takes.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// A folder that was not there before: `name`, or `name-2`, `name-3` ...
fn new_folder(parent: &Path, name: &str) -> io::Result<PathBuf> {
    std::fs::create_dir_all(parent)?;
    let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}-{n}")));
    for name in names {
        let folder = parent.join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    unreachable!("there is no last number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rerun_overwrites_nothing() {
        let parent = std::env::temp_dir().join(format!("photofinish-artifacts-{}", std::process::id()));
        let made = [(); 3].map(|()| new_folder(&parent, "demo").expect("a folder"));
        let names = made.map(|folder| folder.file_name().expect("a name").to_string_lossy().into_owned());
        std::fs::remove_dir_all(&parent).expect("it was made");
        assert_eq!(names, ["demo", "demo-2", "demo-3"]);
    }

    #[test]
    fn names_of_runs_are_names_of_folders() {
        assert_eq!(plain("crash-after-every-write/gateway/stop#3"), "crash-after-every-write_gateway_stop_3");
        assert_eq!(plain("restart@shared-s=51"), "restart_shared-s_51");
    }
}
