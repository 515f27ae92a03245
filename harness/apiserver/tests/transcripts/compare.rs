//! Equality of answers, up to what two runs of a real server differ in.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// What stands here for what was recorded there, learned answer by answer.
#[derive(Default)]
pub(crate) struct Names {
    uids: BTreeMap<String, String>,
    /// Revisions of objects.
    revisions: BTreeMap<u64, u64>,
    /// Other texts: tokens, generated names.
    texts: BTreeMap<String, String>,
    /// Times, by the path at which they were last seen: a client that sends back what it read sends them too.
    times: BTreeMap<(String, String), String>,
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
        self.translate_at("", value)
    }

    fn translate_at(&self, path: &str, value: &Value) -> Value {
        let key = path.rsplit(['.', '[']).next().unwrap_or_default();
        match value {
            Value::Object(map) => {
                let inner =
                    |(key, value): (&String, &Value)| (key.clone(), self.translate_at(&format!("{path}.{key}"), value));
                Value::Object(map.iter().map(inner).collect())
            }
            Value::Array(list) => {
                list.iter().enumerate().map(|(at, value)| self.translate_at(&format!("{path}[{at}]"), value)).collect()
            }
            Value::String(text) if matches!(key, "resourceVersion" | "uid" | "name") => self.translate(text).into(),
            Value::String(text) if time(text) => {
                self.times.get(&(path.to_owned(), text.clone())).unwrap_or(text).clone().into()
            }
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
            (Value::Object(a), Value::Object(b)) if a.get("kind") == b.get("kind") && recorded["kind"] == "Table" => {
                let (mut a, mut b) = (recorded.clone(), ours.clone());
                a["kind"] = "Table, its ages judged".into();
                b["kind"] = a["kind"].clone();
                judge_ages(&mut a, &mut b);
                self.walk(path, &a, &b, found);
            }
            (Value::Object(recorded), Value::Object(ours)) => {
                // Keys of `managedFields` can be made of uids.
                let renamed = |key: &String| match key.strip_prefix("k:{\"uid\":\"").and_then(|k| k.strip_suffix("\"}"))
                {
                    Some(uid) => format!("k:{{\"uid\":\"{}\"}}", self.translate(uid)),
                    None => key.clone(),
                };
                let recorded: serde_json::Map<String, Value> =
                    recorded.iter().map(|(key, value)| (renamed(key), value.clone())).collect();
                let keys: std::collections::BTreeSet<&String> = recorded.keys().chain(ours.keys()).collect();
                for key in keys {
                    let path = format!("{path}.{key}");
                    match (recorded.get(key), ours.get(key)) {
                        (Some(Value::Array(a)), Some(Value::Array(b))) if key == "managedFields" => {
                            self.owners(&path, a, b, found);
                        }
                        (Some(a), Some(b)) if key == "causes" && conflicts(a) => {
                            self.walk(&path, &sorted(a), &sorted(b), found);
                        }
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
            // An object kept as text has uids and times in it as well.
            (Value::String(a), Value::String(b)) if a.starts_with('{') && b.starts_with('{') => {
                match (serde_json::from_str(a), serde_json::from_str(b)) {
                    (Ok(a), Ok(b)) => self.walk(&format!("{path}~"), &a, &b, found),
                    _ => found.push((path.to_owned(), a.clone(), b.clone())),
                }
            }
            (a, b) if a == b => {}
            (a, b) => found.push((path.to_owned(), a.to_string(), b.to_string())),
        }
    }

    /// Entries of `managedFields` come in the order of their times, which have whole seconds: they are a set.
    fn owners(&mut self, path: &str, recorded: &[Value], ours: &[Value], found: &mut Vec<Found>) {
        let entries = |list: &[Value]| -> BTreeMap<String, Value> {
            list.iter()
                .map(|entry| {
                    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                    let of = ["manager", "operation", "apiVersion", "subresource"].map(text);
                    (of.join(" "), entry.clone())
                })
                .collect()
        };
        let (recorded, ours) = (entries(recorded), entries(ours));
        let names: std::collections::BTreeSet<&String> = recorded.keys().chain(ours.keys()).collect();
        for name in names {
            let path = format!("{path}[{name}]");
            match (recorded.get(name), ours.get(name)) {
                (Some(a), Some(b)) => self.walk(&path, a, b, found),
                (a, b) => {
                    let show = |entry: Option<&Value>| entry.map_or("nothing".into(), Value::to_string);
                    found.push((path, show(a), show(b)));
                }
            }
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
            _ if time(recorded) => {
                self.times.insert((path.to_owned(), recorded.to_owned()), ours.to_owned());
                time(ours)
            }
            "message" => self.same_words(&without_current(recorded), &without_current(ours)),
            _ if recorded == ours || self.uids.get(recorded).is_some_and(|known| known == ours) => true,
            // Taken out of the recording.
            "token" if recorded == "<jwt>" => !ours.is_empty(),
            _ if recorded.starts_with("JTI=") && ours.starts_with("JTI=") => learn(&mut self.texts, recorded, ours),
            _ => generated(recorded, ours) && learn(&mut self.texts, recorded, ours),
        }
    }

    /// What a revision of the recording is here.
    pub(crate) fn learn(&mut self, recorded: u64, ours: u64) {
        self.revisions.insert(recorded, ours);
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

    /// A message with the uids and revisions of this run. Revisions that no answer has shown yet are learned.
    pub(crate) fn same_words(&mut self, recorded: &str, ours: &str) -> bool {
        let (recorded, ours) = (words(recorded), words(ours));
        recorded.len() == ours.len()
            && recorded.into_iter().zip(ours).all(|(a, b)| match (a.parse::<u64>(), b.parse::<u64>()) {
                _ if a == b || self.translate(a) == b => true,
                (Ok(a), Ok(b)) if !self.revisions.contains_key(&a) => self.learn_revision(a, b),
                _ => time(a) && time(b),
            })
    }
}

/// A text cut at every border of a word. Times are one word.
fn words(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let stamp = rest.get(..20).is_some_and(time);
        let end = match rest.find(|c| inner(c) != inner(first)) {
            _ if stamp => 20,
            Some(end) => end,
            None => rest.len(),
        };
        out.push(&rest[..end]);
        rest = &rest[end..];
    }
    out
}

/// Causes of a failed apply: their order follows the times of the owners.
fn conflicts(causes: &Value) -> bool {
    causes[0]["reason"] == "FieldManagerConflict"
}

fn sorted(list: &Value) -> Value {
    let mut list = list.as_array().cloned().unwrap_or_default();
    list.sort_by_key(Value::to_string);
    list.into()
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

/// Takes ages out of the rows of two tables, where ours is what it may be.
///
/// An age in a table is the time from a timestamp to the answer. Two runs of a real server take different times to come
/// to the same request, so that they differ in ages as they do in timestamps. But an age is not free: what stands in the
/// column `Age` counts from the object's own `creationTimestamp`, which stands in the same row, and ends before now. Of a
/// watch only the first event names the columns; in a later one any cell may be that column's.
fn judge_ages(recorded: &mut Value, ours: &mut Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let columns = recorded["columnDefinitions"].as_array().cloned();
    let is_age =
        |at: usize| columns.as_ref().is_none_or(|columns| columns.get(at).is_some_and(|of| of["name"] == "Age"));
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    for row in 0..count(&recorded["rows"]).min(count(&ours["rows"])) {
        let created = &ours["rows"][row]["object"]["metadata"]["creationTimestamp"];
        // A row that was asked for without its object shows no timestamp: no session lasts longer than two minutes.
        let longest = created.as_str().and_then(seconds).map_or(119, |created| now.saturating_sub(created));
        for at in (0..count(&recorded["rows"][row]["cells"])).filter(|at| is_age(*at)) {
            let cell = |table: &Value| in_seconds(&table["rows"][row]["cells"][at]);
            if cell(recorded).is_some() && cell(ours).is_some_and(|age| age <= longest) {
                for table in [&mut *recorded, &mut *ours] {
                    table["rows"][row]["cells"][at] = "as its creationTimestamp says".into();
                }
            }
        }
    }
}

/// `0s`, `59s`: an age of less than two minutes in a table.
fn in_seconds(cell: &Value) -> Option<u64> {
    cell.as_str()?.strip_suffix('s')?.parse().ok().filter(|seconds| *seconds < 120)
}

/// Seconds since 1970 of `2026-11-29T16:15:18Z`.
fn seconds(text: &str) -> Option<u64> {
    let time: k8s_openapi::jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_second()).ok()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(uid: &str, revision: &str) -> Value {
        json!({"metadata": {"uid": uid, "resourceVersion": revision}})
    }

    #[test]
    fn a_uid_stands_for_one_other_uid_and_revisions_keep_their_order() {
        let mut names = Names::default();
        assert_eq!(names.compare(&at("u1", "100"), &at("x", "5")), []);
        assert_eq!(names.compare(&at("u1", "107"), &at("x", "6")), []);
        assert_eq!(names.compare(&at("u2", "109"), &at("y", "6")), [], "equal is not before");
        let swapped = names.compare(&at("u1", "120"), &at("y", "9"));
        assert_eq!(swapped[0].0, ".metadata.uid");
        for (recorded, ours) in [("108", "5"), ("107", "7"), ("99", "6")] {
            let found = names.compare(&at("u1", recorded), &at("x", ours));
            assert_eq!(found.len(), 1, "{recorded} as {ours}");
            assert_eq!(found[0].0, ".metadata.resourceVersion");
        }
    }

    #[test]
    fn whatever_two_runs_do_not_differ_in_is_a_difference() {
        let table = [
            (json!({"a": 1}), json!({"a": 2})),
            (json!({"a": 1}), json!({})),
            (json!({}), json!({"a": null})),
            (json!({"a": [1, 2]}), json!({"a": [2, 1]})),
            (json!({"a": [1]}), json!({"a": [1, 1]})),
            (json!({"a": "x"}), json!({"a": "y"})),
            (json!({"a": "2026-11-29T16:15:18Z"}), json!({"a": "soon"})),
            (json!({"name": "p-abcde"}), json!({"name": "q-bcdfg"})),
            (json!({"a": "{\"b\": 1}"}), json!({"a": "{\"b\": 2}"})),
            (json!({"message": "3 pods"}), json!({"message": "some pods"})),
            (
                json!({"managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}]}),
                json!({"managedFields": [{"manager": "m", "fieldsV1": {"f:b": {}}}]}),
            ),
            (json!({"managedFields": [{"manager": "m"}]}), json!({"managedFields": [{"manager": "n"}]})),
        ];
        for (recorded, ours) in table {
            assert!(!Names::default().compare(&recorded, &ours).is_empty(), "{recorded} and {ours}");
        }
    }

    #[test]
    fn an_age_must_be_that_of_its_own_object() {
        let now = k8s_openapi::jiff::Timestamp::now();
        let table = |column: &str, age: &str, seconds_ago: i64| {
            let created = k8s_openapi::jiff::Timestamp::from_second(now.as_second() - seconds_ago).expect("a time");
            let object = json!({"metadata": {"creationTimestamp": created.to_string()}});
            json!({
                "kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": column}],
                "rows": [{"cells": ["a", age], "object": object}],
            })
        };
        let cases = [
            ("Age", "7s", "7s", 7, true),
            ("Age", "0s", "7s", 7, true),
            ("Age", "0s", "7s", 9, true),
            ("Age", "0s", "9s", 7, false),
            ("Age", "0s", "<unknown>", 0, false),
            ("Age", "3m20s", "0s", 0, false),
            ("Last Seen", "0s", "7s", 7, false),
        ];
        for (column, recorded, ours, seconds_ago, alike) in cases {
            let found = Names::default().compare(&table(column, recorded, 0), &table(column, ours, seconds_ago));
            assert_eq!(found.is_empty(), alike, "{column} {recorded} {ours} {seconds_ago}: {found:?}");
        }
    }

    #[test]
    fn what_two_runs_differ_in_is_none() {
        let table = [
            (json!({"a": "2026-11-29T16:15:18Z"}), json!({"a": "2027-01-01T00:00:00Z"})),
            (json!({"name": "p-bcdfg"}), json!({"name": "p-x2456"})),
            (json!({"clusterIP": "10.0.4.2"}), json!({"clusterIP": "10.0.0.9"})),
            (json!({"a": "{\"uid\": \"u\"}"}), json!({"a": "{\"uid\": \"x\"}"})),
            (
                json!({"managedFields": [{"manager": "m"}, {"manager": "n"}]}),
                json!({"managedFields": [{"manager": "n"}, {"manager": "m"}]}),
            ),
        ];
        for (recorded, ours) in table {
            assert_eq!(Names::default().compare(&recorded, &ours), [], "{recorded} and {ours}");
        }
    }
}
