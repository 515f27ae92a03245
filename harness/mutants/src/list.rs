//! The list of `cargo mutants --workspace --list --json`, as far as it is needed here.

use serde::Deserialize;

/// A place in a file. Both count from 1; columns count characters.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// What a mutant replaces.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Span {
    pub start: Position,
    pub end: Position,
}

/// The kinds of mutants that cargo-mutants 27 makes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

/// One mutant.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// Counts from 1, in the order of the list; 0 is the code as it is.
    #[serde(skip)]
    pub id: usize,
    pub name: String,
    pub package: String,
    pub file: String,
    pub genre: Genre,
    pub replacement: String,
    pub span: Span,
}

/// Reads the list and numbers it.
pub fn read(json: &str) -> Result<Vec<Mutant>, serde_json::Error> {
    let mut mutants: Vec<Mutant> = serde_json::from_str(json)?;
    for (n, mutant) in mutants.iter_mut().enumerate() {
        mutant.id = n + 1;
    }
    Ok(mutants)
}

/// Byte offsets of a file's lines, to turn positions into offsets.
pub struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Lines { text, starts }
    }

    /// The byte offset of a position, if the file has it.
    pub fn offset(&self, position: Position) -> Option<usize> {
        let start = *self.starts.get(position.line.checked_sub(1)?)?;
        let line = &self.text[start..];
        let column = position.column.checked_sub(1)?;
        match line.char_indices().nth(column) {
            Some((at, _)) => Some(start + at),
            None => (line.chars().count() == column).then_some(self.text.len()),
        }
    }

    /// The line of a byte offset, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }
}
