//! Conditions on a watch event, as `release: {late: {until: ...}}` uses them.
use photofinish_sim::gate::Meta;
use serde_json::Value;

use super::yaml::Node;
use crate::mistake::Mistake;

/// All of these must be true of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventCondition(Vec<Test>);

#[derive(Clone, Debug, PartialEq)]
enum Test {
    /// Event type: ADDED, MODIFIED, DELETED.
    Event(String),
    /// The object's name.
    Object(String),
    /// An annotation or label; `None`: it is not there.
    Metadata { map: &'static str, key: String, value: Option<String> },
    /// A status condition's status.
    Condition { kind: String, status: String },
    /// A place in the object, as a JSON pointer; null also matches what is not there.
    Pointer(String, Value),
}

/// How a condition is written; for usage texts.
pub const USAGE: &str = "{event: MODIFIED, object: NAME, annotation: {KEY: VALUE}, label: {KEY: VALUE}, condition: {TYPE: STATUS}, /json/pointer: VALUE}";

const KEYS: [&str; 5] = ["event", "object", "annotation", "label", "condition"];

impl EventCondition {
    /// Reads a condition; see [`USAGE`].
    pub fn parse(node: &Node) -> Result<EventCondition, Mistake> {
        let mut tests = Vec::new();
        for (key, value) in node.entries("a condition on an event, that is, a map")? {
            let word = key.text("a key of a condition")?;
            if word.starts_with('/') {
                tests.push(Test::Pointer(word.to_owned(), value.json()));
                continue;
            }
            match word {
                "event" => {
                    tests.push(Test::Event(
                        value.word("event type", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])?.into(),
                    ));
                }
                "object" => tests.push(Test::Object(value.text("an object's name")?.into())),
                "annotation" | "label" => {
                    let map = if word == "label" { "labels" } else { "annotations" };
                    for (key, value) in value.entries(&format!("{{{word}: value}}"))? {
                        let (key, value) = (key.text("a key")?.to_owned(), value.as_text().map(str::to_owned));
                        tests.push(Test::Metadata { map, key, value });
                    }
                }
                "condition" => {
                    for (kind, status) in value.entries("{TYPE: STATUS}")? {
                        let status = status.word("condition status", ["True", "False", "Unknown"])?.to_owned();
                        tests.push(Test::Condition { kind: kind.text("a condition type")?.to_owned(), status });
                    }
                }
                word => {
                    return Err(Mistake::unknown(key.at, "key of a condition", word, KEYS)
                        .help(format!("known: {}, or a JSON pointer such as /spec/replicas", KEYS.join(", "))));
                }
            }
        }
        match tests.is_empty() {
            true => Err(node.expected("at least one condition")),
            false => Ok(EventCondition(tests)),
        }
    }
    /// Is it true of this event?
    pub fn holds(&self, meta: &Meta) -> bool {
        self.matches(&meta.kind, &meta.object, &meta.value)
    }
    fn matches(&self, event: &str, object: &str, value: &Value) -> bool {
        self.0.iter().all(|test| match test {
            Test::Event(e) => e == event,
            Test::Object(o) => o == object,
            Test::Metadata { map, key, value: expected } => {
                value["metadata"][*map].get(key).and_then(Value::as_str) == expected.as_deref()
            }
            Test::Condition { kind, status } => value["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|c| c["type"] == kind.as_str() && c["status"] == status.as_str()),
            Test::Pointer(pointer, expected) => value.pointer(pointer).unwrap_or(&Value::Null) == expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_look_at_type_name_metadata_conditions_and_any_place() {
        let value = json!({
            "metadata": {"annotations": {"x/phase": "released"}, "labels": {"app": "demo"}},
            "spec": {"replicas": 0},
            "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Suspended", "status": "True"}]},
        });
        for (condition, expected) in [
            ("{event: MODIFIED}", true),
            ("{event: ADDED}", false),
            ("{object: demo, event: MODIFIED}", true),
            ("{object: other}", false),
            ("{annotation: {x/phase: released}}", true),
            ("{annotation: {x/phase: preparing}}", false),
            ("{annotation: {x/other: }}", true),
            ("{annotation: {x/phase: }}", false),
            ("{label: {app: demo}}", true),
            ("{condition: {Suspended: 'True'}}", true),
            ("{condition: {Ready: 'True'}}", false),
            ("{condition: {Absent: 'False'}}", false),
            ("{/spec/replicas: 0}", true),
            ("{/spec/replicas: '0'}", false),
            ("{/spec/absent: null}", true),
            ("{event: MODIFIED, /spec/replicas: 1}", false),
        ] {
            let parsed = EventCondition::parse(&Node::read(condition).expect(condition)).expect(condition);
            assert_eq!(parsed.matches("MODIFIED", "demo", &value), expected, "{condition}");
        }
    }

    #[test]
    fn wrong_conditions_are_refused() {
        for condition in ["{}", "{evnt: ADDED}", "{event: CHANGED}", "word", "{condition: {Ready: yes}}"] {
            assert!(EventCondition::parse(&Node::read(condition).expect(condition)).is_err(), "{condition}");
        }
    }
}
