//! What the typed objects of built-in resources can hold: names and types of all their fields.
//!
//! `typed/fields.txt` has one line for each type of the published OpenAPI description of Kubernetes 1.36: its name, and
//! its fields as `name:type`. `[` before a type is a list of it, `{` a map from text to it; `s` is a text, `i` and `l`
//! are integers of 32 and 64 bits, `n` is a number, `b` a boolean, `y` base64, `t` a time, `m` a time with microseconds,
//! `x` a number or a text, `q` a quantity, `o` anything.

use std::sync::{LazyLock, OnceLock};

use serde_json::{Map, Value};

use crate::body::go_kind;
use crate::resource::Resource;
use crate::schema::Path;

pub(crate) static TABLE: &str = include_str!("typed/fields.txt");

struct Type {
    name: &'static str,
    line: &'static str,
    /// Sorted by name. The last one is where the field's own type is, once somebody asked.
    fields: OnceLock<Vec<(&'static str, &'static str, OnceLock<usize>)>>,
}

static TYPES: LazyLock<Vec<Type>> = LazyLock::new(|| {
    let parsed = TABLE.lines().filter_map(|line| line.split_once(' ').or(Some((line, ""))));
    parsed.map(|(name, line)| Type { name, line, fields: OnceLock::new() }).collect()
});

fn position(name: &str) -> Option<usize> {
    TYPES.binary_search_by_key(&name, |of| of.name).ok()
}

impl Type {
    fn field(&self, name: &str) -> Option<&(&'static str, &'static str, OnceLock<usize>)> {
        let fields = self.fields.get_or_init(|| {
            let mut fields: Vec<_> = self
                .line
                .split(' ')
                .filter_map(|field| field.split_once(':'))
                .map(|(name, of)| (name, of, OnceLock::new()))
                .collect();
            fields.sort_by_key(|(name, ..)| *name);
            fields
        });
        fields.binary_search_by_key(&name, |(field, ..)| *field).ok().map(|at| &fields[at])
    }
}

/// The line of the table that describes a kind: some are other types in other groups and versions.
pub(crate) fn definition<'a>(api_version: &str, kind: &'a str) -> &'a str {
    match (api_version, kind) {
        ("events.k8s.io/v1", "Event") => "events.Event",
        ("autoscaling/v1", "HorizontalPodAutoscaler") => "autoscaling1.HorizontalPodAutoscaler",
        _ => kind,
    }
}

/// What a field of a type holds, as the table names it.
pub(crate) fn kind(of: &str, field: &str) -> Option<&'static str> {
    TYPES[position(of)?].field(field).map(|(_, kind, _)| *kind)
}

/// Whether the table has that type.
#[cfg(test)]
pub(crate) fn has(name: &str) -> bool {
    position(name).is_some()
}

/// A value that the typed object cannot hold, in the words of the server's decoder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Misfit(pub(crate) String);

/// `spec.containers.image`: a path as the decoder names fields.
fn fields(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Member(Path::Root, name) => (*name).to_owned(),
        Path::Member(parent, name) => format!("{}.{name}", fields(parent)),
        Path::Element(parent, _) => fields(parent),
    }
}

/// Drops members that the type does not have, and returns where they were. Custom resources have a typed `metadata`
/// alone; what else they can hold their schema says.
pub(crate) fn fit(resource: &Resource, version: usize, object: &mut Value) -> Result<Vec<String>, Misfit> {
    let mut unknown = Vec::new();
    if resource.custom || resource.group == crate::crd::GROUP {
        if let (Some(metadata), Some(of)) = (object.get_mut("metadata"), position("ObjectMeta")) {
            structure(metadata, of, &Path::Member(&Path::Root, "metadata"), &mut unknown)?;
        }
        return Ok(unknown);
    }
    let name = definition(&resource.api_version(version), &resource.kind);
    // A type that the table lacks is taken as it comes.
    if let Some(of) = position(name) {
        structure(object, of, &Path::Root, &mut unknown)?;
    }
    Ok(unknown)
}

fn structure(value: &mut Value, of: usize, path: &Path<'_>, unknown: &mut Vec<String>) -> Result<(), Misfit> {
    let Value::Object(map) = value else { return Ok(()) };
    let of = &TYPES[of];
    let mut strange = false;
    for (name, value) in map.iter_mut() {
        let path = Path::Member(path, name);
        match of.field(name) {
            Some((_, kind, at)) => check(value, kind, at, of.name, &path, unknown)?,
            None => {
                strange = true;
                unknown.push(path.to_string());
            }
        }
    }
    if strange {
        map.retain(|name, _| of.field(name).is_some());
    }
    Ok(())
}

fn check(
    value: &mut Value,
    kind: &'static str,
    at: &OnceLock<usize>,
    owner: &str,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), Misfit> {
    if value.is_null() {
        return Ok(());
    }
    let misfit = |value: &Value| {
        Misfit(format!(
            "json: cannot unmarshal {} into Go struct field {}.{} of type {}",
            found(value),
            owner.rsplit('.').next().unwrap_or_default(),
            fields(path),
            go_type(kind)
        ))
    };
    match (kind.as_bytes().first(), &mut *value) {
        (Some(b'['), Value::Array(list)) => {
            for (index, element) in list.iter_mut().enumerate() {
                check(element, &kind[1..], at, owner, &Path::Element(path, index), unknown)?;
            }
            Ok(())
        }
        (Some(b'{'), Value::Object(map)) => members(map, &kind[1..], at, owner, path, unknown),
        (Some(b'[' | b'{'), other) => Err(misfit(other)),
        (Some(b'A'..=b'Z'), _) | (Some(b'a'..=b'z'), _) if kind.len() > 1 => {
            if !value.is_object() {
                return Err(misfit(value));
            }
            match at.get().copied().or_else(|| position(kind)) {
                Some(of) => {
                    let of = *at.get_or_init(|| of);
                    structure(value, of, path, unknown)
                }
                None => Ok(()),
            }
        }
        (Some(b's' | b'y'), Value::String(_)) => Ok(()),
        (Some(b'i'), Value::Number(number)) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
        (Some(b'l'), Value::Number(number)) if number.as_i64().is_some() => Ok(()),
        (Some(b'n'), Value::Number(_)) | (Some(b'b'), Value::Bool(_)) | (Some(b'o'), _) => Ok(()),
        (Some(b'x' | b'q'), Value::Number(_) | Value::String(_)) => Ok(()),
        (Some(b't'), Value::String(text)) => time(text, "2006-01-02T15:04:05Z07:00").map_err(Misfit),
        (Some(b'm'), Value::String(text)) => time(text, "2006-01-02T15:04:05.000000Z07:00").map_err(Misfit),
        (_, other) => Err(misfit(other)),
    }
}

fn members(
    map: &mut Map<String, Value>,
    kind: &'static str,
    at: &OnceLock<usize>,
    owner: &str,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), Misfit> {
    for (name, value) in map.iter_mut() {
        check(value, kind, at, owner, &Path::Member(path, name), unknown)?;
    }
    Ok(())
}

/// How the decoder names what it found: integers that do not fit are shown.
fn found(value: &Value) -> String {
    match value {
        Value::Number(number) => format!("number {number}"),
        other => go_kind(other).to_owned(),
    }
}

fn go_type(kind: &str) -> String {
    match kind {
        "s" => "string".into(),
        "i" => "int32".into(),
        "l" => "int64".into(),
        "n" => "float64".into(),
        "b" => "bool".into(),
        "y" => "[]uint8".into(),
        "t" => "v1.Time".into(),
        "m" => "v1.MicroTime".into(),
        "x" => "intstr.IntOrString".into(),
        "q" => "resource.Quantity".into(),
        "o" => "interface {}".into(),
        list if list.starts_with('[') => format!("[]{}", go_type(&list[1..])),
        map if map.starts_with('{') => format!("map[string]{}", go_type(&map[1..])),
        name => format!("v1.{}", name.rsplit('.').next().unwrap_or_default()),
    }
}

/// A patched object as messages show it. What the patch left alone comes in the order of the typed object's fields, what
/// it changed is sorted by name; custom resources are sorted throughout.
pub(crate) fn ordered(resource: &Resource, before: &Value, patched: &Value) -> String {
    let untouched = |name: &str, value: &Value| !resource.custom && before.get(name) == Some(value);
    let member = |(name, value): (&String, &Value)| match name.as_str() {
        "metadata" if untouched(name, value) => format!("{}:{}", Value::from(name.as_str()), metadata(value)),
        _ => format!("{}:{value}", Value::from(name.as_str())),
    };
    let members: Vec<String> = patched.as_object().into_iter().flatten().map(member).collect();
    format!("{{{}}}", members.join(","))
}

/// `metadata` in the order of its fields.
fn metadata(value: &Value) -> String {
    const FIELDS: [&str; 15] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    const ENTRY: [&str; 7] = ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
    let listed = |fields: &[&str], value: &Value, show: &dyn Fn(&str, &Value) -> String| {
        let members: Vec<String> =
            fields.iter().filter_map(|name| Some(format!("\"{name}\":{}", show(name, value.get(*name)?)))).collect();
        format!("{{{}}}", members.join(","))
    };
    listed(&FIELDS, value, &|name, value| match (name, value.as_array()) {
        ("managedFields", Some(entries)) => {
            let entries: Vec<String> =
                entries.iter().map(|entry| listed(&ENTRY, entry, &|_, value| value.to_string())).collect();
            format!("[{}]", entries.join(","))
        }
        _ => value.to_string(),
    })
}

/// Whether a text is a time of that layout, which has a fraction of six digits or takes any fraction.
fn time(text: &str, layout: &str) -> Result<(), String> {
    let micro = layout.contains(".000000");
    let refused = |rest: &str, element: &str| {
        Err(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}"))
    };
    let mut rest = text;
    for (digits, element, after) in
        [(4, "2006", "-"), (2, "01", "-"), (2, "02", "T"), (2, "15", ":"), (2, "04", ":"), (2, "05", "")]
    {
        let number = rest.get(..digits).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        if number.is_none() {
            return refused(rest, element);
        }
        rest = &rest[digits..];
        match rest.strip_prefix(after) {
            Some(behind) => rest = behind,
            None => return refused(rest, after),
        }
    }
    let fraction = rest.strip_prefix('.').map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
    match (micro, fraction) {
        (true, 6) => rest = &rest[7..],
        (true, _) => return refused(rest, ".000000"),
        (false, 0) => {}
        (false, digits) => rest = &rest[digits + 1..],
    }
    let zone = |rest: &str| {
        let bytes = rest.as_bytes();
        bytes.len() == 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit())
    };
    if rest == "Z" || zone(rest) { Ok(()) } else { refused(rest, "Z07:00") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn fitted(plural: &str, mut object: Value) -> (Result<Vec<String>, Misfit>, Value) {
        let all = registry(SandboxVersions::Both, true);
        let resource = all.iter().find(|r| r.plural == plural).expect("registered");
        (fit(resource, 0, &mut object), object)
    }

    #[test]
    fn the_table_is_sorted_and_names_only_types_that_it_has() {
        assert!(TYPES.is_sorted_by_key(|of| of.name));
        for of in TYPES.iter() {
            for field in of.line.split(' ') {
                let (_, kind) = field.split_once(':').expect("a name and a type");
                let inner = kind.trim_start_matches(['[', '{']);
                assert!(inner.len() == 1 || position(inner).is_some(), "{} {field}", of.name);
            }
        }
    }

    #[test]
    fn unknown_members_are_dropped_wherever_they_are() {
        let pod = json!({
            "metadata": {"name": "p", "odd": 1},
            "spec": {"containers": [{"name": "c", "imagee": "x"}, {"name": "d"}], "nodeSelector": {"any": "thing"}},
            "bogus": {},
        });
        let (unknown, left) = fitted("pods", pod);
        assert_eq!(unknown, Ok(vec!["bogus".into(), "metadata.odd".into(), "spec.containers[0].imagee".into()]));
        assert_eq!(
            left,
            json!({
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c"}, {"name": "d"}], "nodeSelector": {"any": "thing"}},
            })
        );
        let (unknown, left) = fitted("sandboxes", json!({"metadata": {"odd": 1}, "spec": {"any": "thing"}}));
        assert_eq!(
            (unknown, left),
            (Ok(vec!["metadata.odd".into()]), json!({"metadata": {}, "spec": {"any": "thing"}}))
        );
    }

    #[test]
    fn values_of_another_type_are_refused_in_the_decoders_words() {
        let table = [
            (
                "pods",
                json!({"spec": {"containers": [{"image": 1}]}}),
                "json: cannot unmarshal number 1 into Go struct field Container.spec.containers.image of type string",
            ),
            (
                "pods",
                json!({"spec": {"containers": {}}}),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                "leases",
                json!({"spec": {"renewTime": "yesterday"}}),
                "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\"",
            ),
            (
                "leases",
                json!({"spec": {"renewTime": "2026-01-01T00:00:02Z"}}),
                "parsing time \"2026-01-01T00:00:02Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\"",
            ),
            (
                "leases",
                json!({"spec": {"leaseDurationSeconds": 3000000000_i64}}),
                "json: cannot unmarshal number 3000000000 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
            ),
        ];
        for (plural, object, message) in table {
            assert_eq!(fitted(plural, object).0, Err(Misfit(message.into())));
        }
        let fine = json!({"spec": {"renewTime": "2026-01-01T00:00:02.123456Z", "acquireTime": null}});
        assert_eq!(fitted("leases", fine.clone()), (Ok(vec![]), fine));
    }
}
