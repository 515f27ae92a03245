//! YAML as a Kubernetes server reads it: YAML 1.1, turned into JSON.
//!
//! Plain scalars follow YAML 1.1, in which `y`, `no` or `off` are booleans, also as keys: `{y: 1}` is `{"true": 1}`.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Number, Value};

/// Nesting deeper than this is refused; the reader recurses.
const MAX_DEPTH: usize = 200;
/// Aliases may repeat at most this many nodes in all, lest a small text becomes a large value. Long texts count for more
/// than one.
const MAX_NODES: usize = 200_000;
const NODE: usize = 64;
const EXCESSIVE: &str = "yaml: document contains excessive aliasing";

/// The first document of a text, or the reason why it is none. An empty text is `null`.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    Ok(documents(text)?.into_iter().next().unwrap_or(Value::Null))
}

/// All documents of a text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: BTreeMap::new(), nodes: 0 };
    let mut out = Vec::new();
    loop {
        match reader.next()? {
            Event::StreamEnd => return Ok(out),
            Event::DocumentStart(_) | Event::DocumentEnd | Event::StreamStart | Event::Nothing => {}
            event => out.push(reader.value(event, 0)?),
        }
    }
}

struct Reader<'s> {
    parser: Parser<'s, StrInput<'s>>,
    /// Values by the parser's anchor number.
    anchors: BTreeMap<usize, Value>,
    nodes: usize,
}

impl<'s> Reader<'s> {
    fn next(&mut self) -> Result<Event<'s>, String> {
        match self.parser.next_event() {
            None => Ok(Event::StreamEnd),
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(format!("yaml: line {}: {}", error.marker().line(), error.info())),
        }
    }

    fn value(&mut self, event: Event<'s>, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err("yaml: exceeded max depth".into());
        }
        self.nodes += 1;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                (anchor, if plain { resolved(&text) } else { Value::String(text.into_owned()) })
            }
            Event::SequenceStart(anchor, _) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break,
                        event => list.push(self.value(event, depth + 1)?),
                    }
                }
                (anchor, Value::Array(list))
            }
            Event::MappingStart(anchor, _) => {
                let mut map = Map::new();
                loop {
                    let key = match self.next()? {
                        Event::MappingEnd => break,
                        event => self.value(event, depth + 1)?,
                    };
                    let key = match key {
                        Value::String(text) => text,
                        Value::Bool(_) | Value::Number(_) => key.to_string(),
                        Value::Null => "null".to_owned(),
                        _ => return Err("yaml: a key must be a scalar".into()),
                    };
                    let event = self.next()?;
                    let value = self.value(event, depth + 1)?;
                    if map.insert(key.clone(), value).is_some() {
                        return Err(format!("yaml: unmarshal errors:\n  key {key:?} already set in map"));
                    }
                }
                (anchor, Value::Object(map))
            }
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).ok_or("yaml: unknown anchor referenced")?;
                self.nodes += size(known);
                if self.nodes > MAX_NODES {
                    return Err(EXCESSIVE.into());
                }
                let value = known.clone();
                (0, value)
            }
            other => return Err(format!("yaml: unexpected {other:?}")),
        };
        if self.nodes > MAX_NODES {
            return Err(EXCESSIVE.into());
        }
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.iter().map(|(key, value)| key.len() / NODE + size(value)).sum::<usize>(),
        Value::String(text) => 1 + text.len() / NODE,
        _ => 1,
    }
}

/// What a plain scalar means in YAML 1.1.
fn resolved(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return true.into(),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return false.into(),
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return None;
    }
    let digits = text.replace('_', "");
    let (sign, unsigned) = match digits.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let based = |digits: &str, base: u32| i64::from_str_radix(digits, base).ok().map(|n| Number::from(sign * n));
    let only = |digits: &str, base: u32| !digits.is_empty() && digits.chars().all(|c| c.is_digit(base));
    if let Some(hex) = unsigned.strip_prefix("0x").filter(|hex| only(hex, 16)) {
        return based(hex, 16);
    }
    if let Some(binary) = unsigned.strip_prefix("0b").filter(|binary| only(binary, 2)) {
        return based(binary, 2);
    }
    if let Some(octal) = unsigned.strip_prefix("0o").or(unsigned.strip_prefix('0')).filter(|octal| only(octal, 8)) {
        return based(octal, 8);
    }
    if only(unsigned, 10) {
        return based(unsigned, 10).or_else(|| digits.parse::<u64>().ok().map(Number::from));
    }
    let float = unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '-' | '+'));
    (float && unsigned.contains(|c: char| c.is_ascii_digit()))
        .then(|| digits.parse::<f64>().ok().and_then(Number::from_f64))
        .flatten()
}

/// A value as a server writes YAML: members by name, lists at the indentation of their name.
pub(crate) fn text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, 0, &mut out),
        Value::Array(list) if !list.is_empty() => write_list(list, 0, &mut out),
        other => out.push_str(&format!("{}\n", scalar(other, 0))),
    }
    out
}

fn write_map(map: &Map<String, Value>, indent: usize, out: &mut String) {
    for (at, (name, value)) in map.iter().enumerate() {
        if at > 0 {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&quoted(name));
        out.push(':');
        write_value(value, indent, indent, out);
    }
}

fn write_list(list: &[Value], indent: usize, out: &mut String) {
    for (at, value) in list.iter().enumerate() {
        if at > 0 {
            out.push_str(&" ".repeat(indent));
        }
        out.push('-');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push(' ');
                write_map(map, indent + 2, out);
            }
            Value::Array(inner) if !inner.is_empty() => {
                out.push(' ');
                write_list(inner, indent + 2, out);
            }
            other => write_scalar(other, indent + 2, out),
        }
    }
}

/// What follows a name and its colon.
fn write_value(value: &Value, indent: usize, list_indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            out.push_str(&" ".repeat(indent + 2));
            write_map(map, indent + 2, out);
        }
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            out.push_str(&" ".repeat(list_indent));
            write_list(list, list_indent, out);
        }
        other => write_scalar(other, indent + 2, out),
    }
}

/// Lines are broken at the first space behind this column.
const WIDTH: usize = 80;

fn write_scalar(value: &Value, indent: usize, out: &mut String) {
    let text = scalar(value, indent);
    out.push(' ');
    if text.contains('\n') || text.starts_with('"') {
        out.push_str(&text);
        out.push('\n');
        return;
    }
    let mut column = out.chars().rev().take_while(|c| *c != '\n').count();
    let mut rest = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = rest.next() {
        let single = before != ' ' && rest.peek().is_some_and(|next| *next != ' ');
        if c == ' ' && column > WIDTH && single {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            out.push(c);
            column += 1;
        }
        before = c;
    }
    out.push('\n');
}

fn scalar(value: &Value, indent: usize) -> String {
    match value {
        Value::String(text) if text.contains('\n') && !text.chars().any(|c| c.is_control() && c != '\n') => {
            let tail = match text.len() - text.trim_end_matches('\n').len() {
                0 => "-",
                1 => "",
                _ => "+",
            };
            let pad = " ".repeat(indent);
            let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
            let lines: Vec<String> =
                lines.map(|line| if line.is_empty() { String::new() } else { format!("{pad}{line}") }).collect();
            format!("|{tail}\n{}", lines.join("\n"))
        }
        Value::String(text) => quoted(text),
        Value::Array(_) => "[]".into(),
        Value::Object(_) => "{}".into(),
        other => other.to_string(),
    }
}

/// A text on one line, in quotes where it would mean something else without them.
fn quoted(text: &str) -> String {
    let another = !matches!(resolved(text), Value::String(_)) || stamp(text);
    if another || text.chars().any(char::is_control) {
        return Value::from(text).to_string();
    }
    let first = text.chars().next().unwrap_or(' ');
    let special = "-?:,[]{}#&*!|>'\"%@`".contains(first)
        && !(matches!(first, '-' | '?' | ':') && text.chars().nth(1).is_some_and(|c| c != ' '));
    let odd = special
        || text.contains(": ")
        || text.contains(" #")
        || text.ends_with(':')
        || text.starts_with(' ')
        || text.ends_with(' ');
    if odd { format!("'{}'", text.replace('\'', "''")) } else { text.to_owned() }
}

/// A date, alone or with a time, which YAML 1.1 takes for a timestamp.
fn stamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let date =
        digits(0, 4) && digits(5, 7) && digits(8, 10) && bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-');
    date && (bytes.len() == 10 || matches!(bytes.get(10), Some(b'T' | b't' | b' ')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_are_read_as_yaml_1_1() {
        let table = [
            ("a: 1", json!({"a": 1})),
            ("y: \"1\"", json!({"true": "1"})),
            ("a: [no, off, 'no', ~, null]", json!({"a": [false, false, "no", null, null]})),
            (
                "a: 0x1F\nb: 010\nc: 1_000\nd: -1.5e3\ne: 1.2.3\nf: 12:30",
                json!({
                    "a": 31, "b": 8, "c": 1000, "d": -1500.0, "e": "1.2.3", "f": "12:30",
                }),
            ),
            ("1: x\ntrue: z", json!({"1": "x", "true": "z"})),
            ("a: &x {b: 1}\nc: *x", json!({"a": {"b": 1}, "c": {"b": 1}})),
            ("a: |\n  text\n  more\n", json!({"a": "text\nmore\n"})),
            ("{\"json\": [1, {}]}", json!({"json": [1, {}]})),
            ("a: !!str 1", json!({"a": "1"})),
            ("", Value::Null),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for refused in ["a: [", "a: 1\na: 2", "? {a: 1}\n: 2", "a: *nowhere", &"[".repeat(5000)] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_small_text_cannot_become_a_large_value() {
        let nine = |of: &str| format!("[{}]", [of; 9].join(","));
        let lines: Vec<String> = (1..9).map(|n| format!("a{n}: &a{n} {}", nine(&format!("*a{}", n - 1)))).collect();
        let laughs = format!("a0: &a0 ha\n{}", lines.join("\n"));
        let long = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), ["*a"; 1000].join(","));
        for text in [laughs, long] {
            assert_eq!(parse(&text), Err(EXCESSIVE.to_owned()));
        }
    }

    #[test]
    fn a_text_can_hold_several_documents() {
        assert_eq!(documents("a: 1\n---\nb: 2\n"), Ok(vec![json!({"a": 1}), json!({"b": 2})]));
    }

    #[test]
    fn values_are_written_as_they_are_read_back() {
        let value = json!({
            "apiVersion": "v1", "data": {"x": "1", "y": "yes", "t": "a\nb\n", "u": "a\nb", "q": "it's: so", "e": ""},
            "list": [{"a": 1, "b": [1, [2]]}, [], {}, "text"], "time": "2026-11-29T16:15:18Z",
            "k:{\"name\":\"c\"}": {".": {}, "f:a": null}, "n": -1.5, "b": false, "long": "many words ".repeat(30).trim(),
            "quoted": "a: ".repeat(60).trim(),
        });
        let written = text(&value);
        assert_eq!(parse(&written), Ok(value), "{written}");
        assert_eq!(
            text(&json!({"a": {"b": [{"c": "1", "d": {}}], "t": "2026-11-29T16:15:18Z"}, "p": "v"})),
            "a:\n  b:\n  - c: \"1\"\n    d: {}\n  t: \"2026-11-29T16:15:18Z\"\np: v\n"
        );
    }
}
