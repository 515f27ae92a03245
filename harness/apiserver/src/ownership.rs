//! Who owns which field: `metadata.managedFields`, kept by every write, and server-side apply, which follows from it.
//!
//! Source: Kubernetes API concepts, "Server-side apply". An owner is a manager's name together with the operation
//! (Update or Apply), the subresource, and for updates the API version. An update owns the fields that it changed; an
//! apply owns the fields that its configuration mentions.

mod compare;
mod merge;
mod set;
pub(crate) mod shape;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::compare::{Comparison, blank, mentioned, objects};
use self::merge::{merge, none, prune, scoped};
use self::set::{Paths, intersection, shown, subtract, union};
use crate::crd::Conversion;
use crate::error::ApiError;
use crate::resource::Resource;
use crate::{clock, convert};

/// Who writes, as far as ownership is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Author<'a> {
    /// The request's `fieldManager`, else the first part of its `User-Agent`.
    pub(crate) manager: &'a str,
    /// The subresource that is written, or empty.
    pub(crate) subresource: &'a str,
    /// False: no ownership is kept, as little as for objects from before there was any.
    pub(crate) tracked: bool,
}

/// The name of a manager that gives none: what its `User-Agent` begins with.
pub(crate) fn manager_of<'a>(field_manager: &'a str, user_agent: &'a str) -> &'a str {
    let of_agent = user_agent.split('/').next().unwrap_or_default();
    match (field_manager, of_agent) {
        ("", "") => "unknown",
        ("", agent) => agent,
        (given, _) => given,
    }
}

/// Owners of an update are merged into one above this number.
const MAX_UPDATERS: usize = 10;
/// The one that they are merged into.
const ANCIENT: &str = "ancient-changes";
/// The owner of what was there before the first apply of an object without owners.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// What a write means for ownership: the type, the version that it speaks, the endpoint, the author.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) version: usize,
    pub(crate) author: Author<'a>,
    /// The endpoint writes `status` (or `status` alone), rather than everything else.
    pub(crate) status: bool,
    /// Seconds since 1970.
    pub(crate) now: u64,
}

impl Scope<'_> {
    fn api_version(&self) -> String {
        self.resource.api_version(self.version)
    }

    fn identity(&self, manager: &str, operation: &str) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": self.api_version()});
        if !self.author.subresource.is_empty() {
            entry["subresource"] = self.author.subresource.into();
        }
        entry
    }

    fn entry(&self, manager: &str, operation: &str, fields: Paths, stamped: bool) -> Value {
        let mut entry = self.identity(manager, operation);
        entry["fieldsType"] = "FieldsV1".into();
        entry["fieldsV1"] = Value::Object(fields);
        if stamped {
            entry["time"] = clock::rfc3339(self.now).into();
        }
        entry
    }
}

/// Whether two entries have the same owner.
fn same_owner(one: &Value, other: &Value) -> bool {
    let alike = |key: &str| one.get(key) == other.get(key);
    // An applier is the same one whatever version it applies.
    alike("manager")
        && alike("operation")
        && alike("subresource")
        && (one["operation"] == "Apply" || alike("apiVersion"))
}

/// What a request body says of ownership.
#[derive(Debug, PartialEq)]
enum Sent {
    /// Nothing that can be used: the live object's owners stand.
    Nothing,
    /// An empty list, or one empty entry: all ownership is given up.
    Reset,
    Entries(Vec<Value>),
}

fn sent(body: Option<Value>) -> Sent {
    let Some(Value::Array(list)) = body else { return Sent::Nothing };
    if list.is_empty() || matches!(list.as_slice(), [Value::Object(only)] if only.is_empty()) {
        return Sent::Reset;
    }
    let sound = |entry: &Value| {
        matches!(entry["operation"].as_str(), Some("Apply" | "Update"))
            && entry["fieldsType"] == "FieldsV1"
            && entry["fieldsV1"].is_object()
    };
    if list.iter().all(sound) { Sent::Entries(list) } else { Sent::Nothing }
}

fn owners(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
}

fn store(object: &mut Value, mut entries: Vec<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    let order = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        (text("operation"), text("time"), text("manager"), text("apiVersion"), text("subresource"))
    };
    entries.sort_by_cached_key(order);
    metadata.insert("managedFields".into(), Value::Array(entries));
}

fn fields(entry: &Value) -> &Paths {
    static NONE: std::sync::LazyLock<Paths> = std::sync::LazyLock::new(Map::new);
    entry["fieldsV1"].as_object().unwrap_or(&NONE)
}

/// Differences between two states, in the version of whoever asks.
struct Differences<'a> {
    scope: Scope<'a>,
    old: &'a Value,
    new: &'a Value,
    here: Comparison,
    elsewhere: BTreeMap<String, Option<Comparison>>,
}

impl<'a> Differences<'a> {
    fn new(scope: Scope<'a>, old: &'a Value, new: &'a Value) -> Differences<'a> {
        let here = objects(old, new, shape::of(scope.resource, scope.version));
        Differences { scope, old, new, here, elsewhere: BTreeMap::new() }
    }

    /// `None` for a version that is no longer served: its owners own nothing any more.
    fn in_version(&mut self, api_version: &str) -> Option<&Comparison> {
        let resource = self.scope.resource;
        if api_version == self.scope.api_version() {
            return Some(&self.here);
        }
        let (old, new, scope) = (self.old, self.new, self.scope);
        self.elsewhere
            .entry(api_version.to_owned())
            .or_insert_with(|| {
                let mut versions = 0..resource.versions.len();
                let version = versions.find(|version| resource.api_version(*version) == api_version)?;
                let there = |value: &Value| {
                    let stored = convert::to_storage(resource, scope.version, value.clone());
                    convert::from_storage(resource, version, stored)
                };
                Some(objects(&there(old), &there(new), shape::of(resource, version)))
            })
            .as_ref()
    }
}

/// Takes changed and removed fields away from their owners. Owners of nothing are dropped.
fn yielded(entries: &mut Vec<Value>, differences: &mut Differences<'_>, except: Option<&Value>) {
    entries.retain_mut(|entry| {
        if except.is_some_and(|except| same_owner(entry, except)) {
            return !fields(entry).is_empty();
        }
        let version = entry["apiVersion"].as_str().unwrap_or_default().to_owned();
        let Some(comparison) = differences.in_version(&version) else { return false };
        let Some(fields) = entry["fieldsV1"].as_object_mut() else { return false };
        subtract(fields, &comparison.changed);
        subtract(fields, &comparison.removed);
        !fields.is_empty()
    });
}

/// Settles the owners of `next` after a create, an update or a patch that led there from `live` (`None`: created).
/// Both are in the version of the request, with defaults; `next` has the owners that the client sent, if any.
pub(crate) fn updated(scope: Scope<'_>, live: Option<&Value>, next: &mut Value) {
    let metadata = next.get_mut("metadata").and_then(Value::as_object_mut);
    let from_client = metadata.and_then(|metadata| metadata.remove("managedFields"));
    if !scope.author.tracked {
        return;
    }
    let of_live = || live.map(owners).unwrap_or_default();
    let mut entries = match sent(from_client) {
        // What a subresource's writer says of owners is not heard.
        _ if !scope.author.subresource.is_empty() => of_live(),
        Sent::Reset => Vec::new(),
        Sent::Entries(entries) => entries,
        Sent::Nothing => of_live(),
    };
    if live.is_some() && incomparable(scope, &entries, next) {
        return;
    }
    let blank_object;
    let old = match live {
        // Objects without owners stay without, until somebody applies.
        Some(_) if entries.is_empty() => return,
        Some(live) => live,
        None => {
            blank_object = blank(scope.resource, scope.version);
            &blank_object
        }
    };
    let mut differences = Differences::new(scope, old, next);
    if !differences.here.is_same() {
        yielded(&mut entries, &mut differences, None);
        let mine = scoped(differences.here.changed, scope.status, scope.resource.custom);
        // Through a scale nothing is owned that the storage version's scale does not know, and what is owned goes
        // without a time.
        let scales = scope.author.subresource == "scale";
        let unknown = scales && scope.resource.scale(0).is_none();
        if !mine.is_empty() && !unknown {
            let stamped = !scales;
            claim(&mut entries, scope.entry(scope.author.manager, "Update", mine, stamped));
            cap(&mut entries);
        }
    }
    store(next, entries);
}

/// Whether an update cannot be seen in the version of some owner: without a webhook an object is only relabelled, and
/// then it has fields that the other version does not declare. A real server gives up all ownership then.
fn incomparable(scope: Scope<'_>, entries: &[Value], next: &Value) -> bool {
    let resource = scope.resource;
    if !resource.definition.as_ref().is_some_and(|definition| definition.conversion == Conversion::None) {
        return false;
    }
    let own = scope.api_version();
    let others = (0..resource.versions.len()).filter(|version| {
        let name = resource.api_version(*version);
        name != own && entries.iter().any(|entry| entry["apiVersion"] == name)
    });
    others
        .filter_map(|version| resource.custom_version(version))
        .any(|custom| !custom.schema.prune(&mut next.clone()).is_empty())
}

/// Adds an owner's fields to those that it has.
fn claim(entries: &mut Vec<Value>, mine: Value) {
    match entries.iter_mut().find(|entry| same_owner(entry, &mine)) {
        Some(entry) => {
            if let Some(set) = entry["fieldsV1"].as_object_mut() {
                union(set, fields(&mine));
            }
            if let Some(time) = mine.get("time") {
                entry["time"] = time.clone();
            }
        }
        None => entries.push(mine),
    }
}

/// Merges the oldest owners of updates where there are too many.
fn cap(entries: &mut Vec<Value>) {
    let updaters = entries.iter().filter(|entry| entry["operation"] == "Update").count();
    if updaters <= MAX_UPDATERS {
        return;
    }
    let time = |entry: &Value| entry["time"].as_str().unwrap_or_default().to_owned();
    let (mut updates, mut others): (Vec<Value>, Vec<Value>) =
        entries.drain(..).partition(|entry| entry["operation"] == "Update");
    updates.sort_by_cached_key(time);
    let oldest: Vec<Value> = updates.drain(..=updaters - MAX_UPDATERS).collect();
    for mut old in oldest {
        old["manager"] = ANCIENT.into();
        if let Some(entry) = old.as_object_mut() {
            entry.remove("subresource");
        }
        claim(&mut updates, old);
    }
    others.append(&mut updates);
    *entries = others;
}

/// Whether two states are the same but for the times at which fields changed owners.
pub(crate) fn same_but_times(one: &Value, other: &Value) -> bool {
    let (Some(a), Some(b)) = (one.as_object(), other.as_object()) else { return one == other };
    if a.len() != b.len() || a.iter().any(|(key, value)| key != "metadata" && b.get(key) != Some(value)) {
        return false;
    }
    let (Some(a), Some(b)) = (one["metadata"].as_object(), other["metadata"].as_object()) else {
        return one["metadata"] == other["metadata"];
    };
    if a.len() != b.len() || a.iter().any(|(key, value)| key != "managedFields" && b.get(key) != Some(value)) {
        return false;
    }
    match (a.get("managedFields").and_then(Value::as_array), b.get("managedFields").and_then(Value::as_array)) {
        (Some(a), Some(b)) => {
            let same = |one: &Value, other: &Value| {
                same_owner(one, other) && one["apiVersion"] == other["apiVersion"] && fields(one) == fields(other)
            };
            a.len() == b.len() && a.iter().all(|entry| b.iter().any(|other| same(entry, other)))
        }
        (a, b) => a == b,
    }
}

/// Applies a configuration to the live object, or to none. Gives the object with its owners, before defaults, in the
/// version of the request.
///
/// A conflict is a 409 with one cause for each owner and field, unless `force` takes the fields over.
pub(crate) fn applied(scope: Scope<'_>, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, ApiError> {
    if config["metadata"].get("managedFields").is_some_and(|sent| !sent.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let shape = shape::of(scope.resource, scope.version);
    let empty = blank(scope.resource, scope.version);
    let old = live.unwrap_or(&empty);
    let mut entries = owners(old);
    if entries.is_empty() && live.is_some() && scope.author.tracked {
        let before = scoped(objects(&empty, old, shape).changed, scope.status, scope.resource.custom);
        if !before.is_empty() {
            entries.push(scope.entry(BEFORE_FIRST_APPLY, "Update", before, true));
        }
    }
    let me = scope.identity(scope.author.manager, "Apply");
    let mine = scoped(mentioned(config, shape), scope.status, scope.resource.custom);
    let before = entries.iter().position(|entry| same_owner(entry, &me)).map(|at| entries.remove(at));
    let (last, last_time) = match before {
        Some(mut entry) => {
            (entry["fieldsV1"].as_object_mut().map(std::mem::take).unwrap_or_default(), entry.get("time").cloned())
        }
        None => (none(), None),
    };
    entries.push(scope.entry(scope.author.manager, "Apply", mine, false));

    let mut next = merge(old, config, shape);
    // Nobody owns the identity of the object, and yet it stays.
    let identity = Map::from_iter([("f:metadata".to_owned(), json!({"f:name": {}}))]);
    let kept: Vec<&Paths> = entries.iter().map(fields).chain([&identity]).collect();
    prune(&mut next, &last, &kept, shape);

    let mut differences = Differences::new(scope, old, &next);
    if !differences.here.is_same() {
        if !force && scope.author.tracked {
            conflicts(&entries, &me, &mut differences)?;
        }
        yielded(&mut entries, &mut differences, Some(&me));
    }
    let same = differences.here.is_same();
    entries.retain(|entry| !fields(entry).is_empty());
    if let Some(entry) = entries.iter_mut().find(|entry| same_owner(entry, &me)) {
        let time = if same { last_time } else { Some(clock::rfc3339(scope.now).into()) };
        if let Some(time) = time {
            entry["time"] = time;
        }
    }
    if scope.author.tracked {
        store(&mut next, entries);
    } else if let Some(metadata) = next.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Ok(next)
}

/// Fields of others that the apply would set to another value.
fn conflicts(entries: &[Value], me: &Value, differences: &mut Differences<'_>) -> Result<(), ApiError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for entry in entries.iter().filter(|entry| !same_owner(entry, me)) {
        let version = entry["apiVersion"].as_str().unwrap_or_default().to_owned();
        let Some(comparison) = differences.in_version(&version) else { continue };
        let owner = named(entry);
        let paths = shown(&intersection(fields(entry), &comparison.changed));
        found.extend(paths.into_iter().map(|path| (owner.clone(), path)));
    }
    if found.is_empty() { Ok(()) } else { Err(ApiError::apply_conflict(&found)) }
}

/// How a conflict names an owner. Updates are told by version as well.
fn named(entry: &Value) -> String {
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    let mut out = format!("{:?}", text("manager"));
    if !text("subresource").is_empty() {
        out.push_str(&format!(" with subresource {:?}", text("subresource")));
    }
    if entry["operation"] == "Update" {
        out.push_str(&format!(" using {}", text("apiVersion")));
    }
    out
}
