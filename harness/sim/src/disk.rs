//! A host's folder: kept over crashes and restarts, made on first use.
use crate::state;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Where the folders of one world's hosts are.
pub(crate) struct Disks(Arc<Root>);

struct Root {
    /// A place that somebody named, to keep it.
    given: Option<PathBuf>,
    /// Otherwise one of our own. It is chosen by the process that uses it first, and not by the one that begins the world:
    /// runs that are forked from one beginning must not find each other's files.
    own: OnceLock<PathBuf>,
}

impl Root {
    fn path(&self) -> &Path {
        match &self.given {
            Some(given) => given,
            None => self.own.get_or_init(new_folder),
        }
    }
}

/// A folder that nobody had before: a process that was killed has left its own behind, and another may have its number by
/// now.
fn new_folder() -> PathBuf {
    let named = |n: u32| std::env::temp_dir().join(format!("photofinish-{}-{n}", std::process::id()));
    let taken = |path: &PathBuf| fs::create_dir(path).is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists);
    // If it cannot be made, the first use of a file in it says so better than we could here.
    (0..).map(named).find(|path| !taken(path)).expect("numbers enough")
}

impl Disks {
    /// In `given`, or in a temporary folder that goes with the world.
    pub(crate) fn new(given: Option<PathBuf>) -> Self {
        Disks(Arc::new(Root { given, own: OnceLock::new() }))
    }
    /// Is what the hosts write now kept?
    pub(crate) fn outlive_the_world(&self) -> bool {
        self.0.given.is_some()
    }
    /// Tells whether a host has used its folder, for whoever has to know while the world runs.
    pub(crate) fn used(&self) -> impl Fn() -> bool + Send + use<> {
        let root = self.0.clone();
        move || match &root.given {
            Some(given) => state::outside(|| given.exists()),
            None => root.own.get().is_some(),
        }
    }
    pub(crate) fn folder(&self, host: &Arc<str>) -> Folder {
        Folder { root: self.0.clone(), host: host.clone(), path: OnceLock::new() }
    }
    /// Where a host's folder is, if it may be there.
    pub(crate) fn known(&self, host: &str) -> Option<PathBuf> {
        self.0.given.as_ref().or(self.0.own.get()).map(|root| root.join(host))
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        if let Some(own) = self.0.own.get() {
            // One that is left behind is nobody's.
            let _ = fs::remove_dir_all(own);
        }
    }
}

/// A host's folder, made at its first use.
#[derive(Clone)]
pub(crate) struct Folder {
    root: Arc<Root>,
    host: Arc<str>,
    path: OnceLock<PathBuf>,
}

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        state::outside(|| {
            let path = self.path.get_or_init(|| self.root.path().join(&*self.host));
            // As for the world's.
            let _ = fs::create_dir_all(path);
            path
        })
    }
}

/// A folder as it was at the moment of a crash, to be put back after the dead code's destructors ran.
pub(crate) struct Snapshot {
    folder: PathBuf,
    copy: PathBuf,
}

impl Snapshot {
    /// `None` if the folder was never used.
    pub(crate) fn take(folder: Option<PathBuf>) -> io::Result<Option<Self>> {
        let Some(folder) = folder.filter(|folder| folder.exists()) else {
            return Ok(None);
        };
        let mut name = folder.file_name().unwrap_or_default().to_owned();
        name.push(".crashed");
        let copy = folder.with_file_name(name);
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        copy_all(&folder, &copy)?;
        Ok(Some(Snapshot { folder, copy }))
    }
    pub(crate) fn restore(self) -> io::Result<()> {
        fs::remove_dir_all(&self.folder)?;
        fs::rename(&self.copy, &self.folder)
    }
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_folder_is_as_it_was_when_the_snapshot_was_taken() {
        let disks = Disks::new(None);
        let used = disks.used();
        assert!(Snapshot::take(disks.known("gateway")).unwrap().is_none() && !used(), "nothing to keep yet");
        let folder = disks.folder(&"gateway".into()).path().to_owned();
        assert!(used() && disks.known("gateway").as_ref() == Some(&folder));
        fs::create_dir(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/row"), "1").unwrap();
        let snapshot = Snapshot::take(Some(folder.clone())).unwrap().unwrap();
        fs::write(folder.join("deep/row"), "2").unwrap();
        fs::write(folder.join("late"), "x").unwrap();
        snapshot.restore().unwrap();
        assert_eq!(fs::read_to_string(folder.join("deep/row")).unwrap(), "1");
        assert!(!folder.join("late").exists());
        drop(disks);
        assert!(!folder.parent().unwrap().exists(), "a temporary folder goes with its world");
    }

    #[test]
    fn what_a_killed_process_left_is_not_found_by_another_of_its_number() {
        let killed = Disks::new(None);
        let left = killed.folder(&"gateway".into()).path().join("rows");
        fs::write(&left, "1").unwrap();
        let later = Disks::new(None);
        let folder = later.folder(&"gateway".into());
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
        drop(later);
        assert!(left.exists(), "nor does it take it away");
    }

    #[test]
    fn a_folder_that_was_named_stays() {
        let named = std::env::temp_dir().join(format!("photofinish-named-{}", std::process::id()));
        let disks = Disks::new(Some(named.clone()));
        assert!(!disks.used()() && disks.outlive_the_world());
        let folder = disks.folder(&"gateway".into()).path().to_owned();
        assert_eq!(folder, named.join("gateway"));
        drop(disks);
        assert!(folder.exists());
        fs::remove_dir_all(named).unwrap();
    }
}
