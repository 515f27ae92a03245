//! YAML nodes that remember where they stand, and the questions a scenario's parser asks of them.
//!
//! Every question says what it expects, so that a wrong answer becomes a [`Mistake`] that names the place, what was
//! expected there and what was found instead.
use std::time::Duration;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as Marks};

use crate::mistake::{Mistake, Span};

/// One node of a YAML document, with its place in the source.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it stands: byte offsets into the source.
    pub at: Span,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Scalar { text: String, plain: bool },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// Nesting deeper than this is refused: no scenario needs it, and the reader recurses.
const MAX_DEPTH: usize = 64;

impl Node {
    /// Reads the one document of `source`.
    ///
    /// Anchors, aliases and tags are refused: a scenario is short, and a place in the source must mean one thing.
    pub fn read(source: &str) -> Result<Node, Mistake> {
        Reader { source, offsets: Offsets::new(source), parser: Parser::new_from_str(source) }.document()
    }
    /// What it is, in words for a message.
    pub fn found(&self) -> String {
        match &self.value {
            Value::Scalar { text, plain: true } if text.is_empty() => "nothing".into(),
            Value::Scalar { text, .. } => format!("`{text}`"),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Map(entries) => format!("a map of {}", entries.len()),
        }
    }
    /// "expected {what}, found ..." at this node.
    pub fn expected(&self, what: &str) -> Mistake {
        Mistake::new(self.at, format!("expected {what}, found {}", self.found())).label("here")
    }
    /// Its text, if it is a scalar that is not empty.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, plain } if !(text.is_empty() && *plain) => Some(text),
            _ => None,
        }
    }
    /// Is it a map?
    pub fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }
    /// Is it a list?
    pub fn is_list(&self) -> bool {
        matches!(self.value, Value::List(_))
    }
    /// Its text; `what` says what was expected, e.g. "the name of a host".
    pub fn text(&self, what: &str) -> Result<&str, Mistake> {
        self.as_text().ok_or_else(|| self.expected(what))
    }
    /// Its text, which must be one of `known`; `kind` names the family in messages: "host", "property".
    pub fn word<'k>(&self, kind: &str, known: impl IntoIterator<Item = &'k str>) -> Result<&'k str, Mistake> {
        let known: Vec<&str> = known.into_iter().collect();
        let text = self.text(&format!("a {kind} ({})", known.join(", ")))?;
        known.iter().find(|k| **k == text).copied().ok_or_else(|| Mistake::unknown(self.at, kind, text, known))
    }
    /// A whole number.
    pub fn number(&self, what: &str) -> Result<u64, Mistake> {
        self.text(what)?.parse().map_err(|_| self.expected(what))
    }
    /// `true` or `false`.
    pub fn truth(&self) -> Result<bool, Mistake> {
        match self.as_text() {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(self.expected("`true` or `false`")),
        }
    }
    /// A span of virtual time with its unit: `200ms`, `1.5s`, `2m`, `1h`, `300us`.
    pub fn duration(&self) -> Result<Duration, Mistake> {
        self.as_text()
            .and_then(parse_duration)
            .ok_or_else(|| self.expected("a duration with its unit, such as 200ms, 1.5s or 2m"))
    }
    /// A span as [`Node::duration`], with a sign: whether it is negative, and its length.
    pub fn signed_duration(&self) -> Result<(bool, Duration), Mistake> {
        let text = self.as_text().unwrap_or_default();
        let (negative, span) = match text.strip_prefix('-') {
            Some(span) => (true, span),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let span = parse_duration(span);
        span.map(|span| (negative, span)).ok_or_else(|| self.expected("a duration with its unit, such as 2s or -500ms"))
    }
    /// The items of a list.
    pub fn list(&self, what: &str) -> Result<&[Node], Mistake> {
        match &self.value {
            Value::List(items) => Ok(items),
            _ => Err(self.expected(what)),
        }
    }
    /// The items of a list, or the node itself as the only one.
    pub fn one_or_more(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }
    /// The entries of a map whose keys are names of the author's choice, in the order of the source.
    pub fn entries(&self, what: &str) -> Result<&[(Node, Node)], Mistake> {
        match &self.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.expected(what)),
        }
    }
    /// The only entry of a map, e.g. `demo: Ready` of `await: {demo: Ready}`.
    pub fn entry(&self, what: &str) -> Result<(&Node, &Node), Mistake> {
        match &self.entries(what)? {
            [(k, v)] => Ok((k, v)),
            [_, (second, _), ..] => Err(second.expected(&format!("{what}, with one entry only"))),
            [] => Err(self.expected(what)),
        }
    }
    /// The entries of a map whose keys are fixed words: read them one by one, then [`Fields::finish`].
    pub fn fields(&self, what: &str) -> Result<Fields<'_>, Mistake> {
        let entries = self.entries(what)?;
        Ok(Fields { node: self, taken: vec![false; entries.len()], entries, asked: Vec::new() })
    }
    /// The same content as JSON, with YAML 1.2's core schema for plain scalars.
    pub fn json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::List(items) => items.iter().map(Node::json).collect(),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|(k, v)| (k.as_text().unwrap_or("").to_owned(), v.json())).collect())
            }
            Value::Scalar { text, plain: false } => Json::String(text.clone()),
            Value::Scalar { text, plain: true } => match text.as_str() {
                "" | "~" | "null" => Json::Null,
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                t if t.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') => {
                    let number = t.strip_prefix('+').unwrap_or(t);
                    number.parse::<i64>().map(Json::from).ok().or_else(|| number.parse::<f64>().map(Json::from).ok())
                }
                .unwrap_or_else(|| Json::String(t.to_owned())),
                t => Json::String(t.to_owned()),
            },
        }
    }
}

/// Reads a map with fixed keys; a key that nobody asked for is a mistake, with the nearest one that was.
pub struct Fields<'a> {
    node: &'a Node,
    entries: &'a [(Node, Node)],
    taken: Vec<bool>,
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The value of `key`, if it is there.
    pub fn optional(&mut self, key: &'static str) -> Option<&'a Node> {
        Some(self.entry(key)?.1)
    }
    /// The key's own node and its value, if they are there.
    pub fn entry(&mut self, key: &'static str) -> Option<(&'a Node, &'a Node)> {
        self.asked.push(key);
        let i = self.entries.iter().position(|(k, _)| k.as_text() == Some(key))?;
        self.taken[i] = true;
        Some((&self.entries[i].0, &self.entries[i].1))
    }
    /// The value of `key`, which must be there.
    pub fn required(&mut self, key: &'static str) -> Result<&'a Node, Mistake> {
        self.optional(key).ok_or_else(|| {
            // The likeliest reason is a misspelt key: then point at that one.
            let near = self.entries.iter().filter(|(k, _)| k.as_text().is_some_and(|t| strsim::jaro(t, key) > 0.8));
            match near.map(|(k, _)| k).next() {
                Some(k) => Mistake::unknown(k.at, "key", k.as_text().unwrap_or(""), [key]),
                None => Mistake::new(self.node.at, format!("expected the key `{key}` in this map")).label("here"),
            }
        })
    }
    /// All keys must have been asked for.
    pub fn finish(self) -> Result<(), Mistake> {
        match self.entries.iter().zip(&self.taken).find(|(_, taken)| !**taken) {
            Some(((key, _), _)) => Err(Mistake::unknown(key.at, "key", key.text("a key")?, self.asked)),
            None => Ok(()),
        }
    }
}

/// `200ms`, `1.5s`, `2m`, `1h`, `300us`, `10ns`; nothing else.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let nanos: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') || fraction.len() > 9 {
        return None;
    }
    // Exact, without floats: the same text is the same instant everywhere.
    let whole = whole.parse::<u64>().ok()?.checked_mul(nanos)?;
    let part = match fraction {
        "" => 0,
        f => (u128::from(f.parse::<u64>().ok()?) * u128::from(nanos) / 10u128.pow(f.len() as u32)) as u64,
    };
    Some(Duration::from_nanos(whole.checked_add(part)?))
}

/// saphyr counts characters, diagnostics count bytes.
struct Offsets(Option<Vec<usize>>, usize);

impl Offsets {
    fn new(source: &str) -> Self {
        let table = (!source.is_ascii()).then(|| source.char_indices().map(|(byte, _)| byte).collect());
        Offsets(table, source.len())
    }
    fn byte(&self, at: &Marker) -> usize {
        match &self.0 {
            None => at.index().min(self.1),
            Some(table) => table.get(at.index()).copied().unwrap_or(self.1),
        }
    }
}

struct Reader<'s> {
    source: &'s str,
    offsets: Offsets,
    parser: Parser<'s, saphyr_parser::StrInput<'s>>,
}

impl<'s> Reader<'s> {
    fn document(mut self) -> Result<Node, Mistake> {
        let nothing = |at| {
            Mistake::new(at, "expected a scenario, found an empty document")
                .label("here")
                .help("`photofinish new NAME` writes one to start from")
        };
        loop {
            let (event, marks) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => continue,
                Event::StreamEnd | Event::DocumentEnd => return Err(nothing(self.span(&marks))),
                event => {
                    let root = self.node(event, marks, 0)?;
                    loop {
                        let (event, marks) = self.next()?;
                        match event {
                            Event::StreamEnd => return Ok(root),
                            Event::DocumentEnd => continue,
                            _ => {
                                let at = self.span(&marks);
                                return Err(Mistake::new(at, "expected one document in a file, found a second")
                                    .label("starts here")
                                    .help("put each scenario into a file of its own"));
                            }
                        }
                    }
                }
            }
        }
    }
    fn next(&mut self) -> Result<(Event<'s>, Marks), Mistake> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(e)) => {
                let at = self.offsets.byte(e.marker());
                let wrong = Mistake::new(Span::at(at), format!("this is not YAML: {}", e.info())).label("here");
                // The place is where the reader gave up: the mistake may be before it.
                Err(wrong.help(match self.source[..at].ends_with('\t') || self.source[at..].starts_with('\t') {
                    true => "indent with spaces",
                    false => "look at this line and the one before: brackets, quotes, and the blanks at the beginning",
                }))
            }
            None => Ok((Event::StreamEnd, Marks::default())),
        }
    }
    fn span(&self, marks: &Marks) -> Span {
        let (start, end) = (self.offsets.byte(&marks.start), self.offsets.byte(&marks.end));
        Span { start, end: end.max(start) }
    }
    /// A collection's span goes to the end of its last child: the parser's own end is where the next token starts.
    fn node(&mut self, event: Event<'s>, marks: Marks, depth: usize) -> Result<Node, Mistake> {
        let mut at = self.span(&marks);
        let refuse = |what: &str| Err(Mistake::new(at, format!("{what} are not supported in scenarios")).label("here"));
        if depth > MAX_DEPTH {
            return refuse("collections nested this deeply");
        }
        let value = match event {
            Event::Alias(_) => return refuse("aliases"),
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                return refuse("anchors");
            }
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                return refuse("tags");
            }
            Event::Scalar(text, style, ..) => {
                Value::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain }
            }
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, end) => {
                            at.end = self.closed_at(&end, items.last(), at);
                            break Value::List(items);
                        }
                        (event, marks) => items.push(self.node(event, marks, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut entries: Vec<(Node, Node)> = Vec::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd, end) => {
                            at.end = self.closed_at(&end, entries.last().map(|(_, v)| v), at);
                            // A block map starts, for the parser, at its first `:`.
                            at.start = entries.first().map_or(at.start, |(k, _)| k.at.start.min(at.start));
                            break Value::Map(entries);
                        }
                        (event, marks) => self.node(event, marks, depth + 1)?,
                    };
                    let name = key.text("a plain word as a key")?;
                    if let Some((first, _)) = entries.iter().find(|(k, _)| k.as_text() == Some(name)) {
                        let line = self.source[..first.at.start].lines().count().max(1);
                        return Err(Mistake::new(key.at, format!("the key `{name}` is here twice"))
                            .label("second time")
                            .help(format!("the first is near line {line}; a map has each key once")));
                    }
                    let (event, marks) = self.next()?;
                    let mut value = self.node(event, marks, depth + 1)?;
                    if matches!(&value.value, Value::Scalar { text, plain: true } if text.is_empty()) {
                        value.at = key.at; // a missing value is shown at its key
                    }
                    entries.push((key, value));
                }
            }
            other => {
                return Err(Mistake::new(at, format!("this is not YAML that scenarios know: {other:?}")).label("here"));
            }
        };
        Ok(Node { at, value })
    }
    fn closed_at(&self, end: &Marks, last: Option<&Node>, at: Span) -> usize {
        let end = self.span(end);
        // Flow collections end with a bracket that has a length; block ones end nowhere.
        if end.end > end.start { end.end } else { last.map_or(at.end, |n| n.at.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> Node {
        Node::read(source).unwrap_or_else(|m| panic!("{m:?}"))
    }

    #[test]
    fn durations_are_exact_and_need_a_unit() {
        for (text, nanos) in [
            ("200ms", Some(200_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("0.1s", Some(100_000_000)),
            ("2m", Some(120_000_000_000)),
            ("1h", Some(3_600_000_000_000)),
            ("300us", Some(300_000)),
            ("7ns", Some(7)),
            ("200", None),
            ("ms", None),
            ("1.s", None),
            (".5s", None),
            ("-1s", None),
            ("1 s", None),
            ("1d", None),
            ("99999999999999h", None),
        ] {
            assert_eq!(parse_duration(text), nanos.map(Duration::from_nanos), "{text}");
        }
    }

    #[test]
    fn nodes_know_their_place_in_bytes() {
        let source = "a: é\nlist:\n  - {x: [1, 2]}\n  - word\nlast: end\n";
        let root = read(source);
        let at = |n: &Node| &source[n.at.start..n.at.end];
        let entries = root.entries("a map").expect("a map");
        assert_eq!(at(&entries[0].1), "é");
        assert_eq!(at(&entries[1].0), "list");
        assert_eq!(at(&entries[1].1.list("a list").expect("a list")[0]), "{x: [1, 2]}");
        assert_eq!(at(&entries[2].1), "end");
        assert_eq!(at(&root), source.trim_end());
    }

    #[test]
    fn an_unknown_key_is_told_with_the_nearest_known_one() {
        let node = read("{watch: a, az: b}");
        let mut fields = node.fields("a map").expect("a map");
        fields.optional("watch");
        fields.optional("as");
        let mistake = fields.finish().expect_err("`az` is unknown");
        assert!(mistake.message.contains("unknown key `az`"), "{mistake:?}");
        assert_eq!(mistake.help.as_deref(), Some("did you mean `as`? known: as, watch"));
    }

    #[test]
    fn what_scenarios_do_not_use_is_refused() {
        for (source, message) in [
            ("a: &x 1", "anchors"),
            ("a: !t 1", "tags"),
            ("a: 1\na: 2", "twice"),
            ("--- a\n--- b", "second"),
            ("", "empty document"),
            ("a: [1", "not YAML"),
            ("[a]: 1", "a plain word as a key"),
        ] {
            let mistake = Node::read(source).expect_err(source);
            assert!(mistake.message.contains(message), "{source:?}: {mistake:?}");
        }
    }

    #[test]
    fn scalars_become_json_by_the_core_schema() {
        let json = read("{a: 1, b: '1', c: true, d: null, e: 1.5, f: 1.2.3, g: -4, h: [x]}").json();
        let expected =
            serde_json::json!({"a": 1, "b": "1", "c": true, "d": null, "e": 1.5, "f": "1.2.3", "g": -4, "h": ["x"]});
        assert_eq!(json, expected);
    }
}
