//! Reading recordings.
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Error, STREAMS};

/// What happened to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone; the state is its last one.
    Deleted,
}

/// One line of a watch stream: an object as it was stored.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The file that it comes from.
    pub file: String,
    /// Its line there, from 1.
    pub line: usize,
    /// Time since the first state.
    pub at: Duration,
    /// What happened.
    pub kind: Kind,
    /// The whole object.
    pub object: Value,
}

/// A recorded watch stream of one Sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub(super) states: Vec<State>,
}

#[derive(Deserialize)]
struct Header {
    sandbox: Named,
}
#[derive(Deserialize)]
struct Named {
    name: String,
}
#[derive(Deserialize)]
struct Line {
    ms: f64,
    r#type: Kind,
    object: Value,
}

impl Recording {
    /// The built-in recording of this name: `create`, `suspend` or `resume`.
    pub fn named(name: &str) -> Result<Self, Error> {
        let (name, text) =
            STREAMS.iter().find(|(known, _)| *known == name).ok_or_else(|| Error::Unknown { name: name.to_owned() })?;
        Self::parse(&format!("fixtures/streams/{name}.jsonl"), text)
    }

    /// Reads a recording: a line that names the sandbox, then a line `{ms, type, object}` for each watch event of it,
    /// in order. `file` is what errors call it.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let malformed =
            |line, expected, found: String| Error::Malformed { file: file.to_owned(), line, expected, found };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.is_empty());
        let (at, first) = lines
            .next()
            .ok_or_else(|| malformed(1, "a line {\"sandbox\": {\"name\": ...}, ...}", "the end of the file".into()))?;
        let header: Header = serde_json::from_str(first)
            .map_err(|e| malformed(at, "a line {\"sandbox\": {\"name\": ...}, ...}", e.to_string()))?;
        let mut states: Vec<State> = Vec::new();
        for (at, text) in lines {
            let line: Line = serde_json::from_str(text)
                .map_err(|e| malformed(at, "a watch event {\"ms\", \"type\", \"object\"}", e.to_string()))?;
            let name = &line.object["metadata"]["name"];
            if *name != header.sandbox.name {
                return Err(malformed(at, "an event of the sandbox that the first line names", name.to_string()));
            }
            let since = Duration::try_from_secs_f64(line.ms / 1e3)
                .map_err(|_| malformed(at, "a time of 0 ms or more", line.ms.to_string()))?;
            if states.last().is_some_and(|before| before.at > since) {
                return Err(malformed(at, "a time not before that of the line above", format!("{} ms", line.ms)));
            }
            states.push(State { file: file.to_owned(), line: at, at: since, kind: line.r#type, object: line.object });
        }
        if states.is_empty() {
            return Err(malformed(at, "at least one watch event after this line", "the end of the file".into()));
        }
        Ok(Recording { states })
    }

    /// This recording and then another one, whose first state comes `pause` after the last one of this.
    pub fn then(mut self, pause: Duration, next: Recording) -> Self {
        let start = self.states.last().map_or(Duration::ZERO, |last| last.at) + pause;
        self.states.extend(next.states.into_iter().map(|state| State { at: start + state.at, ..state }));
        self
    }

    /// Its states, in order; never empty.
    pub fn states(&self) -> &[State] {
        &self.states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"sandbox":{"name":"s1"}}"#;

    fn refusal(lines: &[&str]) -> String {
        Recording::parse("f.jsonl", &lines.join("\n")).expect_err("the text is no recording").to_string()
    }

    #[test]
    fn the_recorded_streams_are_whole_and_end_where_their_names_say() {
        for (name, mode, ready, suspended) in [
            ("create", "Running", "True", "False"),
            ("suspend", "Suspended", "False", "True"),
            ("resume", "Running", "True", "False"),
        ] {
            let recording = Recording::named(name).expect("it is built in");
            let last = &recording.states().last().expect("never empty").object;
            assert_eq!(last["spec"]["operatingMode"], mode, "{name}");
            let status = |kind: &str| {
                let conditions = last["status"]["conditions"].as_array().expect("the controller wrote them");
                conditions.iter().find(|c| c["type"] == kind).map(|c| c["status"].clone())
            };
            assert_eq!(status("Ready"), Some(ready.into()), "{name}");
            assert_eq!(status("Suspended"), Some(suspended.into()), "{name}");
        }
        assert_eq!(
            Recording::named("delete").expect_err("it is not").to_string(),
            "no recorded stream \"delete\": expected one of create, suspend, resume"
        );
    }
    #[test]
    fn an_error_names_file_and_line_and_what_was_expected() {
        let event = |ms: i32, name: &str| {
            format!(r#"{{"ms":{ms},"type":"ADDED","object":{{"metadata":{{"name":"{name}"}}}}}}"#)
        };
        assert_eq!(
            refusal(&[]),
            "f.jsonl:1: expected a line {\"sandbox\": {\"name\": ...}, ...}, found the end of the file"
        );
        assert_eq!(
            refusal(&[HEADER]),
            "f.jsonl:1: expected at least one watch event after this line, found the end of the file"
        );
        assert_eq!(
            refusal(&[HEADER, &event(0, "s1"), &event(3, "s2")]),
            "f.jsonl:3: expected an event of the sandbox that the first line names, found \"s2\""
        );
        assert_eq!(
            refusal(&[HEADER, &event(5, "s1"), "", &event(4, "s1")]),
            "f.jsonl:4: expected a time not before that of the line above, found 4 ms"
        );
        assert!(
            refusal(&[HEADER, r#"{"ms":0,"type":"BOOKMARK","object":{}}"#])
                .starts_with("f.jsonl:2: expected a watch event {\"ms\", \"type\", \"object\"}, found unknown variant")
        );
    }
    #[test]
    fn a_recording_goes_on_after_another_one_and_a_pause() {
        let create = Recording::named("create").expect("it is built in");
        let suspend = Recording::named("suspend").expect("it is built in");
        let end = create.states().last().expect("never empty").at;
        let count = create.states().len();
        let both = create.then(Duration::from_secs(2), suspend);
        assert_eq!(both.states()[count].at, end + Duration::from_secs(2));
        assert_eq!(both.states()[count].file, "fixtures/streams/suspend.jsonl");
    }
}
