//! One stored state of one object, encoded at most once for each way in which it can be shown.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::convert;
use crate::history::{CLOSING, EventType, event_line, opening};
use crate::resource::Resource;

/// How a client sees objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Position in [`Resource::versions`].
    pub(crate) version: usize,
    /// Only `metadata`, as a `PartialObjectMetadata`.
    pub(crate) metadata_only: bool,
}

impl View {
    /// As it is stored.
    #[cfg(test)]
    pub(crate) const STORAGE: View = View { version: 0, metadata_only: false };

    /// How many views a type has.
    pub(crate) fn count(resource: &Resource) -> usize {
        2 * resource.versions.len()
    }

    /// Position among them; 0 is the stored form.
    pub(crate) fn position(self) -> usize {
        2 * self.version + usize::from(self.metadata_only)
    }
}

/// A stored state. Immutable; shared by the live table, the history, lists and watch events.
#[derive(Debug)]
pub(crate) struct Object {
    /// Revision of the write that made this state.
    pub(crate) revision: u64,
    storage: Form,
    /// The other views, made when first asked for.
    others: Box<[OnceLock<Form>]>,
}

/// The object in one version: as a value, as JSON, or both. One of them is there from the beginning, the other once
/// somebody needed it.
#[derive(Debug)]
pub(crate) struct Form {
    /// What a watch without a selector says of the write that made this state.
    event: EventType,
    value: OnceLock<Arc<Value>>,
    json: OnceLock<Encoded>,
}

/// JSON of an object as the line of the event that tells of it: the bytes of both are the same.
#[derive(Debug)]
struct Encoded {
    line: Bytes,
    /// Where the object begins in it.
    object: usize,
    /// Where its members after `kind` and `apiVersion` begin.
    members: usize,
}

impl Encoded {
    /// Where the object ends: what follows closes the event.
    fn end(&self) -> usize {
        self.line.len() - CLOSING.len()
    }
}

impl Form {
    fn new(value: Value, event: EventType) -> Form {
        Form { event, value: Arc::new(value).into(), json: OnceLock::new() }
    }

    /// As JSON alone, which takes a fifth of the memory. What might not come back as it was keeps its value.
    fn packed(value: Value, event: EventType) -> Form {
        if !comes_back(&value, 0) {
            return Form::new(value, event);
        }
        Form { event, value: OnceLock::new(), json: encode(&value, event).into() }
    }

    pub(crate) fn value(&self) -> &Arc<Value> {
        self.value.get_or_init(|| {
            let packed = self.json.get().expect("a form without a value is made of JSON");
            let object = &packed.line[packed.object..packed.end()];
            Arc::new(serde_json::from_slice(object).expect("it was encoded here"))
        })
    }

    fn encoded(&self) -> &Encoded {
        self.json.get_or_init(|| encode(self.value(), self.event))
    }

    /// The whole object as JSON.
    pub(crate) fn json(&self) -> &[u8] {
        let encoded = self.encoded();
        &encoded.line[encoded.object..encoded.end()]
    }

    /// The same, without a copy.
    pub(crate) fn shared_json(&self) -> Bytes {
        let encoded = self.encoded();
        encoded.line.slice(encoded.object..encoded.end())
    }

    /// The members without `kind` and `apiVersion`, and without the opening brace: what core lists show of an item.
    pub(crate) fn members(&self) -> &[u8] {
        let encoded = self.encoded();
        &encoded.line[encoded.members..encoded.end()]
    }

    /// The line of the event that told of this state. `None`: an event of that type was another one.
    pub(crate) fn shared_line(&self, event: EventType) -> Option<Bytes> {
        (event == self.event).then(|| self.encoded().line.clone())
    }

    /// The line of an event that shows this state.
    pub(crate) fn line(&self, event: EventType) -> Bytes {
        self.shared_line(event).unwrap_or_else(|| event_line(event, self.json()))
    }
}

/// JSON of an object, `kind` and `apiVersion` first.
fn encode(value: &Value, event: EventType) -> Encoded {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(opening(event).as_bytes());
    let object = out.len();
    out.push(b'{');
    let empty = serde_json::Map::new();
    let map = value.as_object().unwrap_or(&empty);
    let member = |out: &mut Vec<u8>, key: &str, value: &Value| {
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, key).expect("a string encodes");
        out.push(b':');
        serde_json::to_writer(&mut *out, value).expect("a JSON value encodes");
    };
    for key in ["kind", "apiVersion"] {
        if let Some(value) = map.get(key) {
            member(&mut out, key, value);
        }
    }
    // The comma, if there is one, belongs to neither half.
    let members = out.len() + usize::from(out.len() > object + 1);
    for (key, value) in map.iter().filter(|(key, _)| *key != "kind" && *key != "apiVersion") {
        member(&mut out, key, value);
    }
    out.push(b'}');
    let members = members.min(out.len() - 1);
    out.extend_from_slice(CLOSING);
    // Of very many objects each byte counts: no more of them than there are to keep.
    Encoded { line: Bytes::from(out.into_boxed_slice()), object, members }
}

/// Whether reading the JSON of a value gives it again: it has no fraction, which may be rounded, and is not as deep as
/// the reader refuses to go (128).
fn comes_back(value: &Value, depth: usize) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(list) => depth < 100 && list.iter().all(|element| comes_back(element, depth + 1)),
        Value::Object(map) => depth < 100 && map.values().all(|member| comes_back(member, depth + 1)),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// An object as a watch shows it, taken apart when somebody looks at it.
#[derive(Clone, Debug)]
pub struct Shown(Way);

#[derive(Clone, Debug)]
enum Way {
    Apart(Arc<Value>),
    Within(Arc<Object>, View),
}

impl Shown {
    /// An object in a view that was made already.
    pub(crate) fn of(object: &Arc<Object>, view: View) -> Shown {
        Shown(Way::Within(object.clone(), view))
    }

    /// The object as JSON.
    pub fn get(&self) -> &Arc<Value> {
        match &self.0 {
            Way::Apart(value) => value,
            Way::Within(object, view) => object.made(*view).value(),
        }
    }
}

impl From<Value> for Shown {
    fn from(value: Value) -> Shown {
        Shown(Way::Apart(Arc::new(value)))
    }
}

impl Object {
    /// Stores `value` (in the storage version) as the state of `revision`, of which `event` tells.
    pub(crate) fn new(resource: &Resource, revision: u64, value: Value, event: EventType) -> Object {
        Object::with(resource, revision, value, |value| Form::new(value, event))
    }

    /// The same, kept small until somebody looks into it.
    pub(crate) fn packed(resource: &Resource, revision: u64, value: Value, event: EventType) -> Object {
        Object::with(resource, revision, value, |value| Form::packed(value, event))
    }

    fn with(resource: &Resource, revision: u64, mut value: Value, form: impl FnOnce(Value) -> Form) -> Object {
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let others = (1..View::count(resource)).map(|_| OnceLock::new()).collect();
        Object { revision, storage: form(value), others }
    }

    /// The same state under another revision: what DELETED events show.
    pub(crate) fn departed(&self, resource: &Resource, revision: u64) -> Object {
        Object::new(resource, revision, Value::clone(self.storage.value()), EventType::Deleted)
    }

    /// The same state of a type that was defined anew.
    pub(crate) fn redefined(&self, resource: &Resource) -> Object {
        Object::new(resource, self.revision, Value::clone(self.storage.value()), self.storage.event)
    }

    /// The object in the storage version.
    pub(crate) fn value(&self) -> &Arc<Value> {
        self.storage.value()
    }

    /// The object as a view shows it.
    pub(crate) fn form(&self, resource: &Resource, view: View) -> &Form {
        match view.position().checked_sub(1) {
            None => &self.storage,
            // An object that is older than a change of its type may have fewer forms: it shows the stored one.
            Some(other) => self.others.get(other).map_or(&self.storage, |form| {
                form.get_or_init(|| Form::new(show(resource, view, self.storage.value()), self.storage.event))
            }),
        }
    }

    /// A form that [`Object::form`] has made.
    fn made(&self, view: View) -> &Form {
        let other = view.position().checked_sub(1).and_then(|other| self.others.get(other)?.get());
        other.unwrap_or(&self.storage)
    }

    /// `metadata.name`.
    pub(crate) fn name(&self) -> &str {
        self.value()["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// A value of the storage version as a view shows it.
pub(crate) fn show(resource: &Resource, view: View, stored: &Value) -> Value {
    let converted = |stored: Value| match view.version {
        0 => stored,
        version => convert::from_storage(resource, version, stored),
    };
    if !view.metadata_only {
        return converted(stored.clone());
    }
    // Conversion may look at all of an object; as it is stored, its metadata is all there is to copy.
    let metadata = match view.version {
        0 => stored["metadata"].clone(),
        _ => converted(stored.clone())["metadata"].take(),
    };
    let mut shown = serde_json::Map::new();
    shown.insert("kind".into(), "PartialObjectMetadata".into());
    shown.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    shown.insert("metadata".into(), metadata);
    Value::Object(shown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn encoding_puts_kind_and_version_first_and_knows_where_they_end() {
        let table = [
            (
                json!({"apiVersion": "v1", "data": {}, "kind": "X"}),
                r#"{"kind":"X","apiVersion":"v1","data":{}}"#,
                r#""data":{}}"#,
            ),
            (json!({"apiVersion": "v1", "kind": "X"}), r#"{"kind":"X","apiVersion":"v1"}"#, "}"),
            (json!({"a": 1}), r#"{"a":1}"#, r#""a":1}"#),
            (json!({}), "{}", "}"),
        ];
        for (value, whole, members) in table {
            for event in [EventType::Added, EventType::Modified, EventType::Deleted] {
                let form = Form::new(value.clone(), event);
                assert_eq!(form.json(), whole.as_bytes());
                assert_eq!(form.shared_json(), whole);
                assert_eq!(form.members(), members.as_bytes());
            }
        }
    }

    #[test]
    fn a_state_and_the_event_that_tells_of_it_are_the_same_bytes() {
        for make in [Form::new, Form::packed] {
            let form = make(json!({"a": 1}), EventType::Modified);
            let line = form.line(EventType::Modified);
            assert_eq!(line, "{\"type\":\"MODIFIED\",\"object\":{\"a\":1}}\n");
            let within = line.as_ptr_range();
            assert!(within.contains(&form.json().as_ptr()) && within.contains(&form.shared_json().as_ptr()));
            assert!(form.shared_line(EventType::Added).is_none(), "to whom it is new, it is another event");
            assert_eq!(form.line(EventType::Added), "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n");
        }
    }

    #[test]
    fn a_packed_form_says_the_same_and_is_a_value_only_when_somebody_looks() {
        let value = json!({"kind": "X", "data": {"n": -1, "text": "\u{e9}\n", "list": [null, true]}});
        let (packed, plain) =
            (Form::packed(value.clone(), EventType::Added), Form::new(value.clone(), EventType::Added));
        assert_eq!((packed.json(), packed.members()), (plain.json(), plain.members()));
        assert!(packed.value.get().is_none());
        assert_eq!(**packed.value(), value);
        let fraction = Form::packed(json!({"n": 0.1}), EventType::Added);
        assert!(fraction.value.get().is_some(), "a fraction is not parsed again");
        let deep = (0..200).fold(json!({}), |inner, _| json!({ "in": inner }));
        let kept = Form::packed(deep.clone(), EventType::Added);
        assert_eq!(**kept.value(), deep, "nor what is too deep to be parsed");
    }
}
