//! `.photofinish/`: runs that failed before, one a file, replayed first next time.
//!
//! A file is one JSON object, version 1. One that cannot be read is told, set aside under another name, and harms nothing.
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::explore::findings::Finding;
use crate::run_id::RunId;

/// The folder, in the present one.
pub const FOLDER: &str = ".photofinish";

/// A run that failed once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// Version of this format: 1.
    pub v: u32,
    /// What replays it.
    pub run_id: String,
    /// Name of its scenario.
    pub scenario: String,
    /// What it is known by.
    pub fingerprint: String,
    /// What it violated, or how it ended.
    pub property: String,
    /// What that was about.
    pub object: String,
}

impl From<&Finding> for Remembered {
    fn from(finding: &Finding) -> Remembered {
        let Finding { run_id, scenario, fingerprint, property, object, .. } = finding.clone();
        Remembered { v: 1, run_id, scenario, fingerprint, property, object }
    }
}

/// Remembered runs, each with its id.
pub type Known = Vec<(Remembered, RunId)>;

/// A file that could not be read.
#[derive(Debug)]
pub struct Corrupt {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
    /// Where it is now, or why it could not be set aside.
    pub aside: Result<PathBuf, io::Error>,
}

/// The folder of remembered runs.
#[derive(Clone, Debug)]
pub struct Memory(PathBuf);

impl Memory {
    /// In this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Memory {
        Memory(folder.into())
    }
    /// All that is remembered, in the order of the files' names, and what could not be read. That is set aside.
    ///
    /// # Errors
    /// If the folder is there and cannot be read.
    pub fn recall(&self) -> io::Result<(Known, Vec<Corrupt>)> {
        let mut paths = match fs::read_dir(&self.0) {
            Ok(files) => files.map(|f| f.map(|f| f.path())).collect::<Result<Vec<_>, _>>()?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(e) => return Err(e),
        };
        paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
        paths.sort_unstable();
        let (mut known, mut corrupt) = (Vec::new(), Vec::new());
        for path in paths {
            match read(&path) {
                Ok(remembered) => known.push(remembered),
                Err(why) => {
                    let to = path.with_extension("corrupt");
                    let aside = fs::rename(&path, &to).map(|()| to);
                    corrupt.push(Corrupt { path, why, aside });
                }
            }
        }
        Ok((known, corrupt))
    }
    /// Keeps a run, unless one of its kind is kept already. Whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, remembered: &Remembered) -> io::Result<()> {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let scenario: String = remembered.scenario.chars().map(plain).collect();
        let path = self.0.join(format!("{scenario}-{}.json", remembered.fingerprint));
        if path.exists() {
            return Ok(());
        }
        fs::create_dir_all(&self.0)?;
        let part = path.with_extension(format!("part-{}", std::process::id()));
        let written = fs::File::create(&part).and_then(|mut file| {
            file.write_all(&serde_json::to_vec_pretty(remembered)?)?;
            file.write_all(b"\n")
        });
        let kept = written.and_then(|()| fs::rename(&part, &path));
        if kept.is_err() {
            // What is left of it is of no use to anybody.
            let _ = fs::remove_file(&part);
        }
        kept
    }
}

fn read(path: &Path) -> Result<(Remembered, RunId), String> {
    let text = fs::read(path).map_err(|e| e.to_string())?;
    let remembered: Remembered = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    if remembered.v != 1 {
        return Err(format!("it has version {}, this program knows 1", remembered.v));
    }
    let id = remembered.run_id.parse::<RunId>().map_err(|e| e.to_string())?;
    Ok((remembered, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(std::env::temp_dir().join(format!("photofinish-memory-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn run(fingerprint: &str, run_id: &str) -> Remembered {
        let text = |t: &str| t.to_owned();
        Remembered {
            v: 1,
            run_id: text(run_id),
            scenario: text("a@b"),
            fingerprint: text(fingerprint),
            property: text("p"),
            object: text("demo"),
        }
    }

    #[test]
    fn the_first_run_of_a_kind_is_remembered() {
        let folder = Folder::new("first");
        let memory = Memory::at(&folder.0);
        assert!(memory.recall().expect("no folder is no error").0.is_empty());
        for (fingerprint, id) in [("02", "pf1:a::s=1:"), ("01", "pf1:a::w=2:"), ("02", "pf1:a::s=3:")] {
            memory.keep(&run(fingerprint, id)).expect("kept");
        }
        let (known, corrupt) = memory.recall().expect("read");
        let ids: Vec<_> = known.iter().map(|(r, id)| (r.run_id.as_str(), id.to_string())).collect();
        assert_eq!(ids, [("pf1:a::w=2:", "pf1:a::w=2:".to_owned()), ("pf1:a::s=1:", "pf1:a::s=1:".to_owned())]);
        assert!(corrupt.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_set_aside_and_the_rest_is_remembered() {
        let folder = Folder::new("corrupt");
        let memory = Memory::at(&folder.0);
        memory.keep(&run("01", "pf1:a::s=1:")).expect("kept");
        let bad = [("b.json", "{half"), ("c.json", "{\"v\": 1}"), ("d.json", "")];
        for (name, text) in bad {
            fs::write(folder.0.join(name), text).expect("written");
        }
        let newer = Remembered { v: 2, ..run("x", "pf1:a::s=1:") };
        let unreadable = run("x", "pf9:a::s=1:");
        for (name, run) in [("e.json", newer), ("f.json", unreadable)] {
            fs::write(folder.0.join(name), serde_json::to_vec(&run).expect("plain")).expect("written");
        }
        let (known, corrupt) = memory.recall().expect("read");
        assert_eq!((known.len(), corrupt.len()), (1, 5));
        assert!(
            corrupt
                .iter()
                .all(|c| c.aside.as_ref().is_ok_and(|to| to.exists()) && !c.path.exists() && !c.why.is_empty())
        );
        let (known, corrupt) = memory.recall().expect("read");
        assert_eq!((known.len(), corrupt.len()), (1, 0), "told once");
    }
}
