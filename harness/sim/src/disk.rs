//! A host's folder: kept over crashes and restarts, made on first use.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Where the folders of one world's hosts are.
pub(crate) struct Disks {
    root: PathBuf,
    /// Ours to remove: nobody named a place to keep it.
    temporary: bool,
}

impl Disks {
    /// In `given`, or in a temporary folder that goes with the world.
    pub(crate) fn new(given: Option<PathBuf>) -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let temporary = given.is_none();
        let root = given.unwrap_or_else(|| {
            let n = WORLDS.fetch_add(1, Relaxed);
            std::env::temp_dir().join(format!("photofinish-{}-{n}", std::process::id()))
        });
        Disks { root, temporary }
    }
    /// Is what the hosts write now kept?
    pub(crate) fn outlive_the_world(&self) -> bool {
        !self.temporary
    }
    /// Where they are; it is there once a host has used its folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
    pub(crate) fn folder(&self, host: &str) -> PathBuf {
        self.root.join(host)
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        if self.temporary && self.root.exists() {
            // A folder left behind in the temporary directory harms nobody.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// A folder as it was at the moment of a crash, to be put back after the dead code's destructors ran.
pub(crate) struct Snapshot {
    folder: PathBuf,
    copy: PathBuf,
}

impl Snapshot {
    /// `None` if the folder was never used.
    pub(crate) fn take(folder: PathBuf) -> io::Result<Option<Self>> {
        if !folder.exists() {
            return Ok(None);
        }
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
        let folder = disks.folder("gateway");
        assert!(Snapshot::take(folder.clone()).unwrap().is_none(), "nothing to keep yet");
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/row"), "1").unwrap();
        let snapshot = Snapshot::take(folder.clone()).unwrap().unwrap();
        fs::write(folder.join("deep/row"), "2").unwrap();
        fs::write(folder.join("late"), "x").unwrap();
        snapshot.restore().unwrap();
        assert_eq!(fs::read_to_string(folder.join("deep/row")).unwrap(), "1");
        assert!(!folder.join("late").exists());
        let root = disks.root.clone();
        drop(disks);
        assert!(!root.exists(), "a temporary folder goes with its world");
    }
}
