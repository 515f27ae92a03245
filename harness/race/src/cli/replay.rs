//! `replay RUN-ID`, and the command line that does it.
use std::ffi::OsStr;
use std::path::Path;

use crate::catalogue;
use crate::mistake::BadInput;
use crate::run_id::RunId;
use crate::system::System;

use super::HowArgs;
use super::output::Output;
use super::printer::Printer;

pub(super) fn replay(
    system: &'static dyn System,
    id: &str,
    how: &HowArgs,
    output: &mut Output,
) -> Result<u8, BadInput> {
    let id: RunId = id.parse()?;
    let job = catalogue::by_id(system, &id)?;
    let width = job.scenario.name.len();
    let mut printer = Printer::new(system, how, output, width);
    printer.each(vec![job]);
    printer.end()
}

/// The command that replays a run with this very executable.
pub(crate) fn replay_command(id: &str) -> String {
    let exe = std::env::current_exe().unwrap_or_else(|_| "photofinish".into());
    let exe = called(&exe, std::env::var_os("PATH").as_deref());
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let exe = if exe.chars().all(plain) { exe } else { format!("'{}'", exe.replace('\'', r"'\''")) };
    format!("{exe} replay '{id}'")
}

/// How a shell with this search path calls an executable: by its name, if that leads to it, or else by its path.
fn called(exe: &Path, search: Option<&OsStr>) -> String {
    let first = exe.file_name().and_then(|name| {
        let found = std::env::split_paths(search?).map(|folder| folder.join(name)).find(|file| file.is_file())?;
        (found.canonicalize().ok()? == exe.canonicalize().ok()?).then_some(name)
    });
    first.unwrap_or(exe.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_on_the_search_path_is_called_by_its_name() {
        let folder = std::env::temp_dir().join(format!("photofinish-called-{}", std::process::id()));
        let (here, other) = (folder.join("here"), folder.join("other"));
        for folder in [&here, &other] {
            std::fs::create_dir_all(folder).expect("a folder");
            std::fs::write(folder.join("program"), "").expect("a file");
        }
        let exe = here.join("program");
        let path = exe.to_string_lossy().into_owned();
        let empty = folder.join("empty");
        for (search, expected) in [
            (vec![&empty, &here, &other], "program"),
            // Another one of this name comes first.
            (vec![&other, &here], &*path),
            (vec![&empty], &path),
        ] {
            let search = std::env::join_paths(search).expect("a search path");
            assert_eq!(called(&exe, Some(&search)), expected, "{search:?}");
        }
        assert_eq!(called(&exe, None), path);
        std::fs::remove_dir_all(&folder).expect("it is gone");
    }
}
