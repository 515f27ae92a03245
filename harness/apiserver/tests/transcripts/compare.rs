//! Equality of answers, up to what two runs of a real server differ in.

use std::collections::BTreeMap;

use serde_json::Value;

/// What stands here for what was recorded there, learned answer by answer.
#[derive(Default)]
pub(crate) struct Names {
    uids: BTreeMap<String, String>,
    /// Revisions of objects.
    revisions: BTreeMap<u64, u64>,
    /// Other texts: tokens, generated names.
    texts: BTreeMap<String, String>,
}

/// One place where the answers differ: the path of the field, what was recorded, what came.
pub(crate) type Found = (String, String, String);

impl Names {
    /// A recorded request's text, as it must read here.
    pub(crate) fn translate(&self, text: &str) -> String {
        if let Some(known) = self.texts.get(text).or_else(|| self.uids.get(text)) {
            return known.clone();
        }
        match text.parse::<u64>() {
            Ok(number) => match self.revisions.get(&number) {
                Some(known) => known.to_string(),
                // Recorded as "a revision far ahead": still far ahead here. Anything else is older than the session.
                None => text.to_owned(),
            },
            Err(_) => text.to_owned(),
        }
    }

    /// A recorded request body, as it must read here.
    pub(crate) fn translate_body(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let translated = map.iter().map(|(key, value)| {
                    let value = match (key.as_str(), value) {
                        ("resourceVersion" | "uid" | "name", Value::String(text)) => self.translate(text).into(),
                        _ => self.translate_body(value),
                    };
                    (key.clone(), value)
                });
                Value::Object(translated.collect())
            }
            Value::Array(list) => list.iter().map(|value| self.translate_body(value)).collect(),
            other => other.clone(),
        }
    }

    /// Compares an object, list or `Status`, and learns from it.
    pub(crate) fn compare(&mut self, recorded: &Value, ours: &Value) -> Vec<Found> {
        let mut found = Vec::new();
        self.walk("", recorded, ours, &mut found);
        found
    }

    fn walk(&mut self, path: &str, recorded: &Value, ours: &Value, found: &mut Vec<Found>) {
        let key = path.rsplit(['.', '[']).next().unwrap_or_default();
        match (recorded, ours) {
            (Value::Object(recorded), Value::Object(ours)) => {
                let keys: std::collections::BTreeSet<&String> = recorded.keys().chain(ours.keys()).collect();
                for key in keys.into_iter().filter(|key| *key != "managedFields") {
                    let path = format!("{path}.{key}");
                    match (recorded.get(key), ours.get(key)) {
                        (Some(a), Some(b)) => self.walk(&path, a, b, found),
                        (Some(a), None) => found.push((path, a.to_string(), "nothing".into())),
                        (None, Some(b)) => found.push((path, "nothing".into(), b.to_string())),
                        (None, None) => unreachable!("a key of either"),
                    }
                }
            }
            (Value::Array(recorded), Value::Array(ours)) if recorded.len() == ours.len() => {
                for (at, (a, b)) in recorded.iter().zip(ours).enumerate() {
                    self.walk(&format!("{path}[{at}]"), a, b, found);
                }
            }
            (Value::String(a), Value::String(b)) if self.alike(path, key, a, b) => {}
            (a, b) if a == b => {}
            (a, b) => found.push((path.to_owned(), a.to_string(), b.to_string())),
        }
    }

    fn alike(&mut self, path: &str, key: &str, recorded: &str, ours: &str) -> bool {
        match key {
            "uid" => learn(&mut self.uids, recorded, ours),
            "resourceVersion" => match (recorded.parse(), ours.parse()) {
                // A list or bookmark shows the store's revision, which writes of no session move as well.
                (Ok(a), Ok(b)) if path == ".metadata.resourceVersion" => self.learn_revision(a, b),
                (Ok(a), Ok(b)) => self.learn_revision(a, b),
                _ => recorded == ours,
            },
            "continue" if !recorded.is_empty() && !ours.is_empty() => {
                self.texts.insert(recorded.into(), ours.into());
                true
            }
            "clusterIP" => address(recorded) && address(ours) || recorded == ours,
            _ if path.contains(".clusterIPs[") => address(recorded) && address(ours) || recorded == ours,
            _ if time(recorded) => time(ours),
            "message" => without_current(&self.known_words(recorded)) == without_current(ours),
            _ if recorded == ours => true,
            _ => generated(recorded, ours) && learn(&mut self.texts, recorded, ours),
        }
    }

    /// Order must hold, and for the same recorded number the same number here, unless it only moved ahead.
    fn learn_revision(&mut self, recorded: u64, ours: u64) -> bool {
        if let Some(known) = self.revisions.get(&recorded) {
            return *known == ours;
        }
        let before = self.revisions.range(..recorded).next_back().map(|(_, known)| *known);
        let after = self.revisions.range(recorded..).next().map(|(_, known)| *known);
        let fits = before.is_none_or(|before| before <= ours) && after.is_none_or(|after| ours <= after);
        if fits {
            self.revisions.insert(recorded, ours);
        }
        fits
    }

    /// A message with the uids and revisions of this run.
    fn known_words(&self, message: &str) -> String {
        let mut out = String::new();
        let mut word = String::new();
        for c in message.chars().chain(['\0']) {
            if c.is_ascii_alphanumeric() || c == '-' {
                word.push(c);
                continue;
            }
            out.push_str(&self.translate(&word));
            word.clear();
            if c != '\0' {
                out.push(c);
            }
        }
        out
    }
}

fn learn(known: &mut BTreeMap<String, String>, recorded: &str, ours: &str) -> bool {
    known.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned()) == ours
}

/// A message without the store's revision of that moment, which writes of no session move.
fn without_current(message: &str) -> String {
    match message.split_once("current: ") {
        Some((start, end)) => format!("{start}current: {}", end.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => message.to_owned(),
    }
}

/// `2026-11-29T16:15:18Z`, with or without a fraction.
fn time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T' && text.as_bytes()[4] == b'-'
}

fn address(text: &str) -> bool {
    text.starts_with("10.0.") && text.split('.').count() == 4
}

/// The same base with five generated characters behind it.
fn generated(recorded: &str, ours: &str) -> bool {
    let base = |text: &str| {
        let cut = text.len().checked_sub(5)?;
        let suffix = text.get(cut..)?;
        suffix.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)).then(|| text[..cut].to_owned())
    };
    matches!((base(recorded), base(ours)), (Some(a), Some(b)) if a == b && (a.ends_with('-') || a.len() == 58))
}
