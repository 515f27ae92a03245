//! Request bodies: from bytes to an object that the rules can work on.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::{ApiError, Cause};
use crate::resource::Resource;
use crate::schema::Path;
use crate::{typed, yaml};

/// Bodies above this size are refused, as by a stock server.
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;

/// A body as it came.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) bytes: &'a [u8],
    /// YAML rather than JSON.
    pub(crate) yaml: bool,
}

impl Sent<'_> {
    /// The value, and the members that it has twice, as `duplicate field "spec.x"`. The later one counts.
    pub(crate) fn read(self) -> Result<(Value, Vec<String>), String> {
        if self.yaml {
            return Ok((yaml::parse(&String::from_utf8_lossy(self.bytes))?, Vec::new()));
        }
        json(self.bytes).map_err(|error| format!("json parse error: {}", parse_error(&error)))
    }
}

/// JSON, and what it has twice.
pub(crate) fn json(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut twice = Vec::new();
    let mut decoder = serde_json::Deserializer::from_slice(bytes);
    let value = Reading { path: &Path::Root, twice: &mut twice }.deserialize(&mut decoder)?;
    decoder.end()?;
    Ok((value, twice))
}

/// Reads a value like any other reader of JSON, and notes the members that come twice.
struct Reading<'p, 't> {
    path: &'p Path<'p>,
    twice: &'t mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Reading<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<Value, D::Error> {
        decoder.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a JSON number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = self.path.element(list.len());
            match elements.next_element_seed(Reading { path: &path, twice: self.twice })? {
                Some(element) => list.push(element),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let path = self.path.member(&name);
            let value = members.next_value_seed(Reading { path: &path, twice: self.twice })?;
            if map.contains_key(&name) {
                self.twice.push(format!("duplicate field {:?}", path.to_string()));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// Drops the members that objects of that type do not have. Returns them, as `unknown field "spec.x"`, or what keeps
/// a value from being decoded.
pub(crate) fn fit(resource: &Resource, version: usize, object: &mut Value) -> Result<Vec<String>, typed::Misfit> {
    let mut unknown = typed::fit(resource, version, object)?;
    if let Some(custom) = resource.custom_version(version) {
        unknown.extend(custom.schema.prune(object));
    }
    Ok(unknown.into_iter().map(|path| format!("unknown field {path:?}")).collect())
}

/// Why a body cannot be an object of that type.
pub(crate) fn unfit(resource: &Resource, version: usize, why: impl fmt::Display) -> ApiError {
    let kind = &resource.kind;
    let in_version = resource.api_version(version);
    let in_version = in_version.rsplit('/').next().unwrap_or_default();
    ApiError::bad_request(format!("{kind} in version {in_version:?} cannot be handled as a {kind}: {why}"))
}

/// Decodes an object of that type and version, and checks what all rules rely on: it is an object, `kind` and
/// `apiVersion` are right, and `metadata` has the types it should have. Also returns what strict decoding complains of.
pub(crate) fn object(resource: &Resource, version: usize, sent: Sent<'_>) -> Result<(Value, Vec<String>), ApiError> {
    let bytes = sent.bytes;
    let kind = &resource.kind;
    let unrecognized = |why: String| {
        let shown = match bytes {
            [] => "<empty>".into(),
            [b'{', ..] => String::from_utf8_lossy(bytes).into_owned(),
            // What does not even begin like an object is shown in hexadecimal.
            _ => bytes.iter().take(1024).map(|byte| format!("{byte:02x}")).collect(),
        };
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
    };
    let (mut value, mut problems) =
        sent.read().map_err(|error| unrecognized(format!("couldn't get version/kind; {error}")))?;
    let Some(map) = value.as_object_mut() else {
        // The Go type that a server first decodes into.
        const INTO: &str =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        let found = go_kind(&value);
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {INTO}"
        );
        return Err(unrecognized(why));
    };
    check_kind(resource, version, map, bytes)?;
    map.insert("kind".into(), kind.to_string().into());
    map.insert("apiVersion".into(), resource.api_version(version).into());
    check_metadata(resource, version, &mut value)?;
    problems.extend(fit(resource, version, &mut value).map_err(|misfit| unfit(resource, version, misfit.0))?);
    Ok((value, problems))
}

fn check_kind(resource: &Resource, version: usize, map: &Map<String, Value>, bytes: &[u8]) -> Result<(), ApiError> {
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let (want_kind, want_version) = (&*resource.kind, resource.api_version(version));
    if resource.custom {
        let shown = String::from_utf8_lossy(bytes);
        for (member, value) in [("Kind", kind), ("apiVersion", api_version)] {
            if value.is_empty() {
                return Err(ApiError::bad_request(format!(
                    "the object provided is unrecognized (must be of type {want_kind}): Object '{member}' is missing in '{shown}' ({})",
                    shortened(&shown)
                )));
            }
        }
        if api_version != want_version {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({want_version})"
            )));
        }
        if kind != want_kind {
            let name = map.get("metadata").and_then(|m| m["name"].as_str()).unwrap_or_default();
            let cause = Cause::invalid("kind", &kind.into(), format_args!("must be {want_kind}"));
            return Err(ApiError::invalid_as(&resource.group, kind, name, &[cause]));
        }
        return Ok(());
    }
    let in_version = api_version.rsplit('/').next().unwrap_or_default();
    if !api_version.is_empty() && api_version != want_version {
        let kind = if kind.is_empty() { want_kind } else { kind };
        return Err(ApiError::bad_request(format!(
            "{kind} in version {in_version:?} cannot be handled as a {want_kind}: no kind {kind:?} is registered for version {api_version:?} in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
        )));
    }
    if !kind.is_empty() && kind != want_kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {in_version:?} cannot be handled as a {want_kind}: converting (v1.{kind}) to (core.{want_kind}): unknown conversion"
        )));
    }
    Ok(())
}

/// What Go's decoder says about text that is no JSON, as far as it can be known.
pub(crate) fn parse_error(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

/// Long bodies are cut in messages.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 30;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.to_owned(),
    }
}

pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `metadata` and the members of it that rules look at have the right types; nulls and empty collections are dropped.
pub(crate) fn check_metadata(resource: &Resource, version: usize, object: &mut Value) -> Result<(), ApiError> {
    let (kind, api_version) = (&*resource.kind, resource.api_version(version));
    let in_version = api_version.rsplit('/').next().unwrap_or_default();
    let wrong = |found: &Value, field: &str, wanted: &str| {
        ApiError::bad_request(format!(
            "{kind} in version {in_version:?} cannot be handled as a {kind}: json: cannot unmarshal {} into Go struct field {field} of type {wanted}",
            go_kind(found)
        ))
    };
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!("a {kind} must be a JSON object")));
    };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(wrong(metadata, &format!("{kind}.metadata"), "v1.ObjectMeta"));
    };
    metadata.retain(|key, value| match value {
        Value::Null => false,
        // An empty list of owners means something.
        Value::Array(_) if key == "managedFields" => true,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    });
    for field in
        ["name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"]
    {
        if let Some(value) = metadata.get(field).filter(|value| !value.is_string()) {
            return Err(wrong(value, &format!("ObjectMeta.{field}"), "string"));
        }
    }
    for field in ["labels", "annotations"] {
        match metadata.get_mut(field) {
            None => {}
            Some(Value::Object(texts)) => {
                for text in texts.values_mut() {
                    match text {
                        Value::String(_) => {}
                        // Go's decoder leaves the zero value where it meets null.
                        Value::Null => *text = Value::String(String::new()),
                        other => return Err(wrong(other, &format!("ObjectMeta.{field}"), "string")),
                    }
                }
            }
            Some(other) => return Err(wrong(other, &format!("ObjectMeta.{field}"), "map[string]string")),
        }
    }
    match metadata.get("finalizers") {
        None => {}
        Some(Value::Array(list)) => {
            if let Some(other) = list.iter().find(|entry| !entry.is_string()) {
                return Err(wrong(other, "ObjectMeta.finalizers", "string"));
            }
        }
        Some(other) => return Err(wrong(other, "ObjectMeta.finalizers", "[]string")),
    }
    match metadata.get("ownerReferences") {
        None => {}
        Some(Value::Array(list)) => {
            if let Some(other) = list.iter().find(|entry| !entry.is_object()) {
                return Err(wrong(other, "ObjectMeta.ownerReferences", "v1.OwnerReference"));
            }
        }
        Some(other) => return Err(wrong(other, "ObjectMeta.ownerReferences", "[]v1.OwnerReference")),
    }
    match metadata.get("managedFields") {
        None => {}
        Some(Value::Array(list)) => {
            if let Some(other) = list.iter().find(|entry| !entry.is_object()) {
                return Err(wrong(other, "ObjectMeta.managedFields", "v1.ManagedFieldsEntry"));
            }
        }
        Some(other) => return Err(wrong(other, "ObjectMeta.managedFields", "[]v1.ManagedFieldsEntry")),
    }
    // `selfLink` died with 1.20.
    metadata.remove("selfLink");
    for (of, field) in [("ConfigMap", "data"), ("Secret", "stringData")] {
        let texts = map.get(field).filter(|_| kind == of).and_then(Value::as_object);
        if let Some(other) = texts.into_iter().flatten().map(|(_, v)| v).find(|v| !v.is_string() && !v.is_null()) {
            return Err(wrong(other, &format!("{kind}.{field}"), "string"));
        }
    }
    for section in ["spec", "status"] {
        match map.get(section) {
            None | Some(Value::Object(_)) => {}
            Some(Value::Null) => {
                map.remove(section);
            }
            Some(other) => return Err(wrong(other, &format!("{kind}.{section}"), &format!("{in_version}.{kind}"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    #[test]
    fn bodies_that_are_no_such_object_are_refused_with_the_servers_words() {
        let table = [
            (
                "configmaps",
                "{\"a\":",
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"a\":)",
            ),
            (
                "configmaps",
                "",
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
            ),
            (
                "configmaps",
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":"x"}"#,
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
            ),
            (
                "configmaps",
                r#"{"apiVersion":"v1","kind":"Secret"}"#,
                "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
            ),
            (
                "sandboxes",
                "{}",
                "the object provided is unrecognized (must be of type Sandbox): Object 'Kind' is missing in '{}' ({})",
            ),
            (
                "sandboxes",
                r#"{"apiVersion":"agents.x-k8s.io/v1alpha1","kind":"Sandbox"}"#,
                "the API version in the data (agents.x-k8s.io/v1alpha1) does not match the expected API version (agents.x-k8s.io/v1beta1)",
            ),
        ];
        let all = registry(SandboxVersions::Both, true);
        for (plural, body, message) in table {
            let resource = all.iter().find(|r| r.plural == plural).expect("registered");
            let sent = Sent { bytes: body.as_bytes(), yaml: false };
            let error = object(resource, 0, sent).expect_err(message);
            assert_eq!((error.code, error.message()), (400, message));
        }
    }

    #[test]
    fn members_that_come_twice_are_noted_and_the_later_one_counts() {
        let (value, twice) = json(br#"{"a": {"b": 1, "b": [{"c": 1, "c": 2}]}, "a2": null}"#).expect("JSON");
        assert_eq!(value, serde_json::json!({"a": {"b": [{"c": 2}]}, "a2": null}));
        assert_eq!(twice, ["duplicate field \"a.b[0].c\"", "duplicate field \"a.b\""]);
        for text in ["", "{", "{\"a\": 1} x", "[1,]", "nul"] {
            assert!(json(text.as_bytes()).is_err(), "{text}");
        }
    }
}
