//! The script of a [`ScriptedDriver`](super::ScriptedDriver): JSON Lines, one entry a line, `#` starts a comment line.
//!
//! An entry has one action and any of its modifiers:
//!
//! | action | what it does | modifiers |
//! |---|---|---|
//! | `"sandbox": {…}` | sends a snapshot on the watch; from then on Get and List show it too | `after_ms`, `wait`, `on`, `late`, `marker` |
//! | `"truth": {…}` | only Get and List show this from now on | `after_ms`, `wait`, `on` |
//! | `"deleted": "demo"` | sends that the sandbox is gone; Get and List know it no more | `after_ms`, `wait`, `on`, `late` |
//! | `"platform": {"name": "demo", "event": "…"}` | sends a platform event | `after_ms`, `wait`, `on` |
//! | `"end": "OK"` | ends the watch with this code; the next watch goes on behind it | `after_ms`, `wait`, `on` |
//! | `"answer": "stop"` | how the next unanswered call of this kind is answered | `after_ms`, `wait`, `code`, `message`, `identity` |
//!
//! Entries of the watch are played in their order, each after the one before:
//! first `on` (`"stop#2"`: the second StopSandbox was answered; `"stop"` is the first), then `wait` (until that name is
//! released from outside), then `after_ms` (a pause). `late` sends an outdated snapshot: what Get and List show stays.
//! `marker` (`"stop/suspending"`) tells the log from what state of the resource the snapshot was made.
//! Answers are given to calls of `create`, `start`, `stop`, `delete`, `get`, `list` in their order, whatever the watch
//! does meanwhile; a call without one succeeds at once (Get of an unknown sandbox: NOT_FOUND). `identity` is the runtime
//! identity that a create or start returns.
//!
//! A sandbox is `{"name": "demo"}` with any of `id`, `workspace`, `namespace`, `instance_id`, `deleting` (boolean) and
//! `conditions`, a list of `"Ready=False/DependenciesNotReady: why"` (reason and message may be missing) or of objects
//! with `type`, `status`, `reason`, `message`, `last_transition_time`. Without an id the one of the gateway's create of
//! that name is taken. Without `conditions` and `deleting` it has no status.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tonic::Code;

use crate::pb::compute::watch_sandboxes_event::Payload;
use crate::pb::compute::{DriverCondition, DriverSandbox, DriverSandboxStatus, WatchSandboxesEvent};

/// A line of a script that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What was expected there, and what came.
    pub problem: String,
}

/// A parsed script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    pub(super) watch: Vec<Entry>,
    pub(super) answers: Vec<Answer>,
}

/// One entry of the watch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) on: Option<(Call, usize)>,
    pub(super) wait: Option<String>,
    pub(super) after: Duration,
    pub(super) late: bool,
    /// Operation and phase of the bootstrap marker of the resource behind a snapshot; empty for none.
    pub(super) marker: (String, String),
    pub(super) action: Action,
}

/// What an entry of the watch does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Send(DriverSandbox),
    Truth(DriverSandbox),
    Deleted(String),
    Platform { name: String, event: String },
    End(Code),
}

/// How one call is answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) call: Call,
    pub(super) wait: Option<String>,
    pub(super) after: Duration,
    pub(super) code: Code,
    pub(super) message: String,
    pub(super) identity: Option<String>,
}

/// A kind of call that a script can answer or wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// CreateSandbox
    Create,
    /// StartSandbox
    Start,
    /// StopSandbox
    Stop,
    /// DeleteSandbox
    Delete,
    /// GetSandbox
    Get,
    /// ListSandboxes
    List,
}

const CALLS: [(&str, Call); 6] = [
    ("create", Call::Create),
    ("start", Call::Start),
    ("stop", Call::Stop),
    ("delete", Call::Delete),
    ("get", Call::Get),
    ("list", Call::List),
];

const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

const ACTIONS: [&str; 6] = ["sandbox", "truth", "deleted", "platform", "end", "answer"];

impl Script {
    /// Parses JSON Lines.
    ///
    /// # Errors
    /// The first line that is not an entry, with what was expected.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let mut script = Script::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                script.add(line).map_err(|problem| ScriptError { line: at + 1, problem })?;
            }
        }
        Ok(script)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let value = serde_json::from_str(line).map_err(|e| format!("expected a JSON object: {e}"))?;
        let entry = Fields::of(&value, "an entry")?;
        let actions: Vec<&str> = ACTIONS.into_iter().filter(|a| entry.map.contains_key(*a)).collect();
        let [action] = actions[..] else {
            return Err(format!("expected one of {}, got {}", ACTIONS.join(", "), entry.keys()));
        };
        let (wait, after) = (entry.text("wait")?, Duration::from_millis(entry.number("after_ms")?.unwrap_or(0)));
        if action == "answer" {
            entry.only(&["answer", "wait", "after_ms", "code", "message", "identity"])?;
            let call = call(&entry.text("answer")?.unwrap_or_default())?;
            let code = entry.text("code")?.map_or(Ok(Code::Ok), |name| code(&name))?;
            let message = entry.text("message")?.unwrap_or_default();
            let identity = entry.text("identity")?;
            self.answers.push(Answer { call, wait, after, code, message, identity });
            return Ok(());
        }
        let may_be_late = ["sandbox", "deleted"].contains(&action);
        entry.only(if action == "sandbox" {
            &["sandbox", "wait", "after_ms", "on", "late", "marker"]
        } else if may_be_late {
            &["deleted", "wait", "after_ms", "on", "late"]
        } else {
            &["truth", "platform", "end", "wait", "after_ms", "on"]
        })?;
        let on = entry.text("on")?.map(|text| moment(&text)).transpose()?;
        let late = entry.flag("late")?.unwrap_or(false);
        let action = match action {
            "sandbox" => Action::Send(sandbox(&entry.map["sandbox"])?),
            "truth" => Action::Truth(sandbox(&entry.map["truth"])?),
            "deleted" => Action::Deleted(entry.text("deleted")?.unwrap_or_default()),
            "end" => Action::End(code(&entry.text("end")?.unwrap_or_default())?),
            _ => {
                let platform = Fields::of(&entry.map["platform"], "\"platform\"")?;
                platform.only(&["name", "event"])?;
                Action::Platform { name: platform.required("name")?, event: platform.required("event")? }
            }
        };
        let marker = entry.text("marker")?.unwrap_or_default();
        let marker = match marker.split_once('/') {
            Some((operation, phase)) => (operation.to_owned(), phase.to_owned()),
            None if marker.is_empty() => Default::default(),
            None => return Err(format!("expected a marker like \"stop/suspending\", got {marker:?}")),
        };
        self.watch.push(Entry { on, wait, after, late, marker, action });
        Ok(())
    }
}

/// The line that plays an event of a driver's watch again, `after` the one before: for recording a stream.
///
/// `None` for an event without a payload.
pub fn line(event: &WatchSandboxesEvent, after: Duration) -> Option<String> {
    let mut entry = match event.payload.as_ref()? {
        Payload::Sandbox(event) => json!({"sandbox": sandbox_json(event.sandbox.as_ref()?)}),
        Payload::Deleted(event) => json!({"deleted": event.sandbox_id}),
        Payload::PlatformEvent(event) => json!({"platform": {"name": event.sandbox_id, "event": event.event}}),
    };
    if !after.is_zero() {
        entry["after_ms"] = json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    }
    Some(entry.to_string())
}

fn sandbox_json(s: &DriverSandbox) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            out.insert(key.into(), text.into());
        }
    };
    put("name", &s.name);
    put("id", &s.id);
    put("workspace", &s.workspace);
    put("namespace", &s.namespace);
    if let Some(status) = &s.status {
        put("instance_id", &status.instance_id);
        if status.deleting {
            out.insert("deleting".into(), true.into());
        }
        out.insert("conditions".into(), status.conditions.iter().map(condition_json).collect());
    }
    Value::Object(out)
}

fn condition_json(c: &DriverCondition) -> Value {
    let all = [
        ("type", &c.r#type),
        ("status", &c.status),
        ("reason", &c.reason),
        ("message", &c.message),
        ("last_transition_time", &c.last_transition_time),
    ];
    all.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), json!(v))).collect::<Map<_, _>>().into()
}

fn sandbox(value: &Value) -> Result<DriverSandbox, String> {
    let fields = Fields::of(value, "a sandbox")?;
    fields.only(&["name", "id", "workspace", "namespace", "instance_id", "deleting", "conditions"])?;
    let name = fields.required("name")?;
    let deleting = fields.flag("deleting")?;
    let conditions = match fields.map.get("conditions") {
        None => None,
        Some(Value::Array(list)) => Some(list.iter().map(condition).collect::<Result<Vec<_>, _>>()?),
        Some(other) => return Err(format!("expected a list as \"conditions\", got {other}")),
    };
    let status = (conditions.is_some() || deleting.is_some()).then_some(());
    let status = match status {
        None => None,
        Some(()) => Some(DriverSandboxStatus {
            sandbox_name: name.clone(),
            instance_id: fields.text("instance_id")?.unwrap_or_default(),
            conditions: conditions.unwrap_or_default(),
            deleting: deleting.unwrap_or(false),
            ..Default::default()
        }),
    };
    Ok(DriverSandbox {
        id: fields.text("id")?.unwrap_or_default(),
        workspace: fields.text("workspace")?.unwrap_or_default(),
        namespace: fields.text("namespace")?.unwrap_or_default(),
        name,
        status,
        ..Default::default()
    })
}

fn condition(value: &Value) -> Result<DriverCondition, String> {
    if let Value::String(text) = value {
        let (head, message) = text.split_once(": ").unwrap_or((text, ""));
        let Some((kind, state)) = head.split_once('=') else {
            return Err(format!("expected a condition like \"Ready=False/Reason: message\", got {text:?}"));
        };
        let (status, reason) = state.split_once('/').unwrap_or((state, ""));
        if !["True", "False", "Unknown"].contains(&status) {
            return Err(format!("expected the status True, False or Unknown in {text:?}, got {status:?}"));
        }
        return Ok(DriverCondition {
            r#type: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_transition_time: String::new(),
        });
    }
    let fields = Fields::of(value, "a condition")?;
    fields.only(&["type", "status", "reason", "message", "last_transition_time"])?;
    Ok(DriverCondition {
        r#type: fields.required("type")?,
        status: fields.required("status")?,
        reason: fields.text("reason")?.unwrap_or_default(),
        message: fields.text("message")?.unwrap_or_default(),
        last_transition_time: fields.text("last_transition_time")?.unwrap_or_default(),
    })
}

fn call(name: &str) -> Result<Call, String> {
    let known = CALLS.iter().find(|(known, _)| *known == name).map(|(_, call)| *call);
    known.ok_or_else(|| format!("expected a call (create, start, stop, delete, get or list), got {name:?}"))
}

fn code(name: &str) -> Result<Code, String> {
    let at = CODES.iter().position(|known| *known == name);
    at.map(|at| Code::from_i32(at as i32))
        .ok_or_else(|| format!("expected a gRPC code like OK, NOT_FOUND or UNAVAILABLE, got {name:?}"))
}

fn moment(text: &str) -> Result<(Call, usize), String> {
    let (name, count) = text.split_once('#').unwrap_or((text, "1"));
    let count = count.parse::<usize>().ok().filter(|n| *n > 0);
    let count = count.ok_or_else(|| format!("expected a call and its number like \"stop#1\", got {text:?}"))?;
    Ok((call(name)?, count))
}

/// A JSON object that is read key by key, with errors that name the key.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    what: &'static str,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, what: &'static str) -> Result<Self, String> {
        let map = value.as_object().ok_or_else(|| format!("expected an object as {what}, got {value}"))?;
        Ok(Fields { map, what })
    }
    fn keys(&self) -> String {
        let keys: Vec<&str> = self.map.keys().map(String::as_str).collect();
        if keys.is_empty() { "no key".into() } else { keys.join(", ") }
    }
    fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.map.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(format!("expected only {} in {}, got {key:?}", known.join(", "), self.what)),
        }
    }
    fn get<T>(&self, key: &str, kind: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, String> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| format!("expected {kind} as {key:?}, got {value}"))
    }
    fn text(&self, key: &str) -> Result<Option<String>, String> {
        self.get(key, "a string", |v| v.as_str().map(str::to_owned))
    }
    fn number(&self, key: &str) -> Result<Option<u64>, String> {
        self.get(key, "a whole number of milliseconds", Value::as_u64)
    }
    fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        self.get(key, "true or false", Value::as_bool)
    }
    fn required(&self, key: &str) -> Result<String, String> {
        self.text(key)?.ok_or_else(|| format!("expected {key:?} in {}, got {}", self.what, self.keys()))
    }
}

#[cfg(test)]
mod tests {
    use crate::pb::compute::{DeletedEvent, SandboxEvent};

    use super::*;

    #[test]
    fn entries_and_answers_are_read_with_their_modifiers() {
        let script = Script::parse(
            r#"
            # a stop, its middle late
            {"sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady: all up"]}}
            {"on": "stop#2", "wait": "late", "after_ms": 250, "late": true, "sandbox": {"name": "demo"}, "marker": "stop/suspending"}
            {"deleted": "demo"}
            {"end": "UNAVAILABLE"}
            {"answer": "stop", "code": "INTERNAL", "message": "no", "after_ms": 5}
            "#,
        )
        .unwrap();
        assert_eq!((script.watch.len(), script.answers.len()), (4, 1));
        let Action::Send(first) = &script.watch[0].action else { panic!() };
        let condition = &first.status.as_ref().unwrap().conditions[0];
        assert_eq!(
            [&condition.r#type, &condition.status, &condition.reason, &condition.message],
            ["Ready", "True", "DependenciesReady", "all up"]
        );
        let late = &script.watch[1];
        assert_eq!((late.on, late.wait.as_deref(), late.late), (Some((Call::Stop, 2)), Some("late"), true));
        assert_eq!(late.after, Duration::from_millis(250));
        assert_eq!((late.marker.0.as_str(), late.marker.1.as_str()), ("stop", "suspending"));
        let Action::Send(bare) = &late.action else { panic!() };
        assert_eq!(bare.status, None);
        assert_eq!(script.watch[3].action, Action::End(Code::Unavailable));
        assert_eq!((script.answers[0].code, script.answers[0].message.as_str()), (Code::Internal, "no"));
    }

    #[test]
    fn an_error_names_its_line_and_what_was_expected() {
        let table = [
            ("{", "line 1: expected a JSON object: "),
            ("[]", "line 1: expected an object as an entry, got []"),
            ("{}", "line 1: expected one of sandbox, truth, deleted, platform, end, answer, got no key"),
            (
                "\n\n{\"sandbx\": {}}",
                "line 3: expected one of sandbox, truth, deleted, platform, end, answer, got sandbx",
            ),
            (
                r#"{"deleted": "a", "end": "OK"}"#,
                "line 1: expected one of sandbox, truth, deleted, platform, end, answer, got deleted, end",
            ),
            (r#"{"sandbox": {"id": "x"}}"#, "line 1: expected \"name\" in a sandbox, got id"),
            (
                r#"{"sandbox": {"name": "a", "phase": "x"}}"#,
                "line 1: expected only name, id, workspace, namespace, instance_id, deleting, conditions in a sandbox, got \"phase\"",
            ),
            (
                r#"{"sandbox": {"name": "a", "conditions": ["Ready"]}}"#,
                "line 1: expected a condition like \"Ready=False/Reason: message\", got \"Ready\"",
            ),
            (
                r#"{"sandbox": {"name": "a", "conditions": ["Ready=true"]}}"#,
                "line 1: expected the status True, False or Unknown in \"Ready=true\", got \"true\"",
            ),
            (
                r#"{"after_ms": "5", "deleted": "a"}"#,
                "line 1: expected a whole number of milliseconds as \"after_ms\", got \"5\"",
            ),
            (
                r#"{"answer": "halt"}"#,
                "line 1: expected a call (create, start, stop, delete, get or list), got \"halt\"",
            ),
            (
                r#"{"sandbox": {"name": "a"}, "marker": "stop"}"#,
                "line 1: expected a marker like \"stop/suspending\", got \"stop\"",
            ),
            (r#"{"end": "GONE"}"#, "line 1: expected a gRPC code like OK, NOT_FOUND or UNAVAILABLE, got \"GONE\""),
            (
                r#"{"on": "stop#0", "deleted": "a"}"#,
                "line 1: expected a call and its number like \"stop#1\", got \"stop#0\"",
            ),
            (
                r#"{"truth": {"name": "a"}, "late": true}"#,
                "line 1: expected only truth, platform, end, wait, after_ms, on in an entry, got \"late\"",
            ),
        ];
        for (text, expected) in table {
            let error = Script::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}\n  {error}\n  {expected}");
        }
    }

    #[test]
    fn a_recorded_event_is_played_as_it_was() {
        let condition = DriverCondition {
            r#type: "Ready".into(),
            status: "False".into(),
            reason: "A/B".into(),
            message: "why: so".into(),
            last_transition_time: "2026-01-01T00:00:00Z".into(),
        };
        let status = DriverSandboxStatus {
            sandbox_name: "demo".into(),
            conditions: vec![condition],
            deleting: true,
            ..Default::default()
        };
        let sandbox = DriverSandbox {
            id: "1".into(),
            name: "demo".into(),
            workspace: "w".into(),
            status: Some(status),
            ..Default::default()
        };
        let event = |payload| WatchSandboxesEvent { payload: Some(payload) };
        let sent = event(Payload::Sandbox(SandboxEvent { sandbox: Some(sandbox.clone()) }));
        let gone = event(Payload::Deleted(DeletedEvent { sandbox_id: "1".into() }));
        let text = [line(&sent, Duration::from_millis(70)).unwrap(), line(&gone, Duration::ZERO).unwrap()].join("\n");
        let script = Script::parse(&text).unwrap();
        assert_eq!(script.watch[0].after, Duration::from_millis(70));
        assert_eq!(script.watch[0].action, Action::Send(sandbox));
        assert_eq!(script.watch[1].action, Action::Deleted("1".into()));
        assert_eq!(line(&WatchSandboxesEvent::default(), Duration::ZERO), None);
    }
}
