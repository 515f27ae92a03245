//! Weaves all mutants into a copy of the repository, and leaves out what does not compile until all of it does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::BoxError;
use crate::list::{self, Lines, Mutant};
use crate::schema::{self, LeftOut};

/// The file in the woven tree that holds the number of the mutant that is on.
pub const SWITCH: &str = "which-mutant";

/// What became of a mutant here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Woven {
    pub id: usize,
    pub name: String,
    pub package: String,
    pub file: String,
    /// Why it is not in the tree, if it is not.
    pub left_out: Option<LeftOut>,
}

/// Weaves the mutants of `list`, whose texts are read in `from`, into the tree `to`. What `woven` already says does not
/// compile is not tried again; it is written after each build.
///
/// # Errors
///
/// A file cannot be read, written or parsed, or the tree does not compile for a reason that no mutant gives.
pub fn weave(list: &Path, from: &Path, to: &Path, woven: &Path) -> Result<Vec<Woven>, BoxError> {
    let mutants = list::read(&std::fs::read_to_string(list)?)?;
    let mut left_out = known(&mutants, woven)?;
    loop {
        let placed = write(&mutants, from, to, &mut left_out)?;
        let found = complaints(to, &placed, &packages(mutants.iter().map(|m| m.package.as_str())))?;
        if found.is_empty() {
            break;
        }
        println!("{} mutants do not compile", found.len());
        left_out.extend(found);
        store(&mutants, &left_out, woven)?;
    }
    store(&mutants, &left_out, woven)
}

/// What an earlier weaving of the same list has found.
fn known(mutants: &[Mutant], woven: &Path) -> Result<BTreeMap<usize, LeftOut>, BoxError> {
    let Ok(text) = std::fs::read_to_string(woven) else { return Ok(BTreeMap::new()) };
    let before: Vec<Woven> = serde_json::from_str(&text)?;
    if !before.iter().map(|m| &m.name).eq(mutants.iter().map(|m| &m.name)) {
        return Ok(BTreeMap::new());
    }
    Ok(before.into_iter().filter_map(|m| Some((m.id, m.left_out?))).collect())
}

fn store(mutants: &[Mutant], left_out: &BTreeMap<usize, LeftOut>, to: &Path) -> Result<Vec<Woven>, BoxError> {
    let woven = |m: &Mutant| Woven {
        id: m.id,
        name: m.name.clone(),
        package: m.package.clone(),
        file: m.file.clone(),
        left_out: left_out.get(&m.id).cloned(),
    };
    let woven: Vec<Woven> = mutants.iter().map(woven).collect();
    std::fs::write(to, serde_json::to_string_pretty(&woven)?)?;
    Ok(woven)
}

/// Of each changed file: which lines belong to which mutant.
type Placed = BTreeMap<String, Vec<(usize, Range<usize>)>>;

fn write(
    mutants: &[Mutant],
    from: &Path,
    to: &Path,
    left_out: &mut BTreeMap<usize, LeftOut>,
) -> Result<Placed, BoxError> {
    let unviable: BTreeSet<usize> = left_out.keys().copied().collect();
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    let mut placed = Placed::new();
    for (file, mutants) in &files {
        let schema = schema::build(&std::fs::read_to_string(from.join(file))?, mutants, &unviable)
            .map_err(|error| format!("{file}: {error}"))?;
        let lines = Lines::of(&schema.text);
        let at = |bytes: &Range<usize>| lines.line(bytes.start)..lines.line(bytes.end) + 1;
        placed.insert((*file).to_owned(), schema.placed.iter().map(|(id, bytes)| (*id, at(bytes))).collect());
        left_out.extend(schema.left_out);
        put(&to.join(file), &schema.text)?;
    }
    let roots: BTreeSet<&str> = files.keys().map(|file| &file[..file.find("src/").unwrap_or(0)]).collect();
    for root in roots {
        let lib = format!("{root}src/lib.rs");
        let text = std::fs::read_to_string(from.join(&lib))?;
        put(&to.join(&lib), &(text + &switch(&to.join(SWITCH))))?;
    }
    Ok(placed)
}

/// Writes a file unless it has this text: cargo builds anew what stands on a file that was written.
fn put(file: &Path, text: &str) -> std::io::Result<()> {
    if std::fs::read_to_string(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    std::fs::write(file, text)
}

/// What a woven crate asks for the mutant that is on. A file, since simulated processes have an environment of their own.
fn switch(file: &Path) -> String {
    format!(
        r#"
/// The number of the mutant that is on; 0 is none.
pub(crate) fn which_mutant() -> u32 {{
    static WHICH: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *WHICH.get_or_init(|| {{
        let text = std::fs::read_to_string({file:?}).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }})
}}
"#
    )
}

/// What tells cargo to build these packages alone, all of them at once: together they resolve the workspace's features.
pub fn packages<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().flat_map(|name| ["--package".to_owned(), name.to_owned()]).collect()
}

#[derive(Deserialize)]
struct Line {
    reason: String,
    message: Option<Message>,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    message: String,
    rendered: Option<String>,
    spans: Vec<Place>,
}

#[derive(Deserialize)]
struct Place {
    file_name: String,
    line_start: usize,
    is_primary: bool,
}

/// What the compiler says against mutants.
fn complaints(to: &Path, placed: &Placed, packages: &[String]) -> Result<BTreeMap<usize, LeftOut>, BoxError> {
    let build = Command::new("cargo")
        .args(["test", "--lib", "--no-run", "--locked", "--message-format", "json"])
        .args(packages)
        .current_dir(to)
        .stderr(std::process::Stdio::null())
        .output()?;
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&build.stdout).lines() {
        let Ok(Line { reason, message: Some(message) }) = serde_json::from_str::<Line>(line) else { continue };
        if reason != "compiler-message" || message.level != "error" {
            continue;
        }
        let mutant = |place: &Place| {
            let (_, mutants) = placed.iter().find(|(file, _)| place.file_name.ends_with(file.as_str()))?;
            mutants.iter().find(|(_, lines)| lines.contains(&place.line_start)).map(|(id, _)| *id)
        };
        let primary = message.spans.iter().filter(|p| p.is_primary).find_map(mutant);
        let Some(id) = primary.or_else(|| message.spans.iter().find_map(mutant)) else {
            if !message.spans.is_empty() {
                return Err(message.rendered.unwrap_or(message.message).into());
            }
            continue;
        };
        found.insert(id, LeftOut::Unviable(message.message));
    }
    if found.is_empty() && !build.status.success() {
        return Err("the woven tree does not compile, and the compiler names no mutant".into());
    }
    Ok(found)
}
