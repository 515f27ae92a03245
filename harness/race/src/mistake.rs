//! A mistake in what a user wrote: the place, what was expected, the nearest known word.
use miette::{Diagnostic, LabeledSpan, NamedSource, Severity, SourceCode};

/// A place in a source: byte offsets, the end not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Byte behind the last one.
    pub end: usize,
}

impl Span {
    /// The empty span at a byte.
    pub fn at(start: usize) -> Span {
        Span { start, end: start }
    }
}

/// A mistake at a place of one source; [`Mistake::within`] makes it printable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub at: Span,
    /// What was expected and what came.
    pub message: String,
    /// A word or two beside the place.
    pub label: Option<String>,
    /// What to do next.
    pub help: Option<String>,
}

impl Mistake {
    /// A mistake at `at`.
    pub fn new(at: Span, message: impl Into<String>) -> Mistake {
        Mistake { at, message: message.into(), label: None, help: None }
    }
    /// A word or two beside the place.
    pub fn label(self, label: impl Into<String>) -> Mistake {
        Mistake { label: Some(label.into()), ..self }
    }
    /// What to do next.
    pub fn help(self, help: impl Into<String>) -> Mistake {
        Mistake { help: Some(help.into()), ..self }
    }
    /// `word` is none of `known`: names the nearest, or all if there are few.
    pub fn unknown<'k>(at: Span, kind: &str, word: &str, known: impl IntoIterator<Item = &'k str>) -> Mistake {
        let mistake = Mistake::new(at, format!("unknown {kind} `{word}`")).label(format!("no {kind} has this name"));
        match suggestion(word, known) {
            Some(help) => mistake.help(help),
            None => mistake,
        }
    }
    /// The mistake with the source it is in, ready to be printed.
    pub fn within(self, name: &str, source: &str) -> BadInput {
        let (line, column) = position(source, self.at.start);
        BadInput(Box::new(Located {
            place: Some((name.to_owned(), line, column)),
            source: Some(NamedSource::new(name, source.to_owned())),
            mistake: self,
        }))
    }
}

/// Line and column, both from 1, columns in characters.
pub fn position(source: &str, byte: usize) -> (usize, usize) {
    let before = &source[..source.floor_char_boundary(byte)];
    let start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// "did you mean ...?", and the known words where that is a guess, or where they are few.
pub fn suggestion<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    let mut known: Vec<&str> = known.into_iter().collect();
    let near = known.iter().map(|k| (strsim::jaro_winkler(k, word), *k)).max_by(|a, b| a.0.total_cmp(&b.0));
    let (score, nearest) = near?;
    let slip = strsim::damerau_levenshtein(nearest, word);
    // Jaro-Winkler is unkind to words of one or two letters.
    let near = score > 0.75 || (slip == 1 && word.len() > 1);
    let is_slip = near && slip <= 2;
    known.sort_unstable();
    known.dedup();
    let meant = near.then(|| format!("did you mean `{nearest}`?"));
    let listed = (!is_slip || known.len() <= FEW).then(|| {
        let more = known.len().saturating_sub(LISTED);
        known.truncate(LISTED);
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("known: {}{tail}", known.join(", "))
    });
    Some(meant.into_iter().chain(listed).collect::<Vec<_>>().join(" "))
}

/// So few words are listed even beside the one that was surely meant.
const FEW: usize = 4;
/// So many words are listed at most.
const LISTED: usize = 16;

/// What a user wrote cannot be used: a scenario file, a run id, an option. Exit code 2.
#[derive(Debug)]
pub struct BadInput(Box<Located>);

#[derive(Debug)]
struct Located {
    mistake: Mistake,
    /// File, line, column.
    place: Option<(String, usize, usize)>,
    source: Option<NamedSource<String>>,
}

impl BadInput {
    /// A mistake outside any source: an option, a run id, a file that is not there.
    pub fn new(message: impl Into<String>) -> BadInput {
        BadInput::outside(Mistake::new(Span::default(), message))
    }
    /// `word` is none of `known`.
    pub fn unknown<'k>(kind: &str, word: &str, known: impl IntoIterator<Item = &'k str>) -> BadInput {
        BadInput::outside(Mistake::unknown(Span::default(), kind, word, known))
    }
    fn outside(mistake: Mistake) -> BadInput {
        BadInput(Box::new(Located { mistake, place: None, source: None }))
    }
    /// What to do next.
    pub fn help(mut self, help: impl Into<String>) -> BadInput {
        self.0.mistake.help = Some(help.into());
        self
    }
    /// The mistake itself.
    pub fn mistake(&self) -> &Mistake {
        &self.0.mistake
    }
    /// File, line and column (both from 1), for mistakes in a file.
    pub fn place(&self) -> Option<(&str, usize, usize)> {
        self.0.place.as_ref().map(|(file, line, column)| (file.as_str(), *line, *column))
    }
}

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((file, line, column)) = self.place() {
            write!(f, "{file}:{line}:{column}: ")?;
        }
        f.write_str(&self.mistake().message)
    }
}

impl std::error::Error for BadInput {}

impl Diagnostic for BadInput {
    fn severity(&self) -> Option<Severity> {
        Some(Severity::Error)
    }
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.mistake().help.as_ref().map(|h| Box::new(h) as Box<dyn std::fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.0.source.as_ref().map(|s| s as &dyn SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let Mistake { at, label, .. } = self.mistake();
        self.0.source.as_ref()?;
        Some(Box::new(std::iter::once(LabeledSpan::new(label.clone(), at.start, at.end - at.start))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word_is_named_and_few_are_listed() {
        for (word, known, expected) in [
            ("awiat", &["await", "run", "stop", "hold", "cut"][..], "did you mean `await`?"),
            ("gatway", &["driver", "gateway"], "did you mean `gateway`? known: driver, gateway"),
            ("az", &["as", "watch", "link", "by", "of"], "did you mean `as`?"),
            ("v0.5.7", &["v0.5.6", "v0.5.0"], "did you mean `v0.5.0`? known: v0.5.0, v0.5.6"),
            // It begins alike, and may well be something else.
            (
                "node",
                &["node-lifecycle", "kubelet", "api", "gc", "driver"],
                "did you mean `node-lifecycle`? known: api, driver, gc, kubelet, node-lifecycle",
            ),
            ("x", &["stop", "run"], "known: run, stop"),
        ] {
            assert_eq!(suggestion(word, known.iter().copied()).as_deref(), Some(expected), "{word}");
        }
        assert_eq!(suggestion("x", []), None);
    }

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let source = "ab\né: c\n";
        for (byte, place) in [(0, (1, 1)), (1, (1, 2)), (3, (2, 1)), (5, (2, 2)), (99, (3, 1))] {
            assert_eq!(position(source, byte), place, "byte {byte}");
        }
    }

    #[test]
    fn a_mistake_in_a_file_says_file_line_and_column() {
        let bad = Mistake::new(Span { start: 3, end: 5 }, "expected x").within("a.yaml", "ab\ncd");
        assert_eq!(bad.to_string(), "a.yaml:2:1: expected x");
    }
}
