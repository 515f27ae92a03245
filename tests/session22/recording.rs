//! Reading `fixtures/session22/`.
use serde::Deserialize;
use serde_json::Value;

/// A recorded sandbox: what was done, what was seen.
pub(crate) struct Recording {
    pub(crate) script: Vec<Step>,
    pub(crate) seen: Vec<Seen>,
}

/// Something that the cluster's other users did.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at_ms: f64,
    pub(crate) action: Do,
}

/// A request. In its body, a `shutdownTime` like `+3s` counts from the start of the script.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Do {
    pub(crate) case: String,
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) query: std::collections::BTreeMap<String, String>,
    #[serde(default, rename = "type")]
    pub(crate) content_type: Option<String>,
    #[serde(default)]
    pub(crate) body: Value,
}

/// A watch event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) change: String,
    pub(crate) object: Value,
}

#[derive(Deserialize)]
struct Line {
    ms: f64,
    r#do: Option<Do>,
    saw: Option<String>,
    #[serde(default)]
    object: Value,
}

impl Recording {
    pub(crate) fn parse(file: &str, text: &str) -> Self {
        let mut recording = Recording { script: vec![], seen: vec![] };
        for (at, line) in text.lines().enumerate().skip(1) {
            let line: Line =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{file}:{}: not a recorded line: {e}", at + 1));
            match (line.r#do, line.saw) {
                (Some(action), None) => recording.script.push(Step { at_ms: line.ms, action }),
                (None, Some(change)) => recording.seen.push(Seen { change, object: line.object }),
                _ => panic!("{file}:{}: expected either \"do\" or \"saw\"", at + 1),
            }
        }
        assert!(!recording.script.is_empty() && !recording.seen.is_empty(), "{file}: nothing is recorded");
        recording
    }
}
