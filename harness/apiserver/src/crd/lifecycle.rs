//! What follows the write of a CRD: conditions, the type itself, the end of its watches, and its objects' end.
//!
//! A real server's controllers do this some milliseconds later, and so does this one: each step stands in an agenda with
//! the time at which it is due. Steps are taken by a task of the request that caused them, and by every later request,
//! so that none is lost when that task ends with its host. The times are those of a recorded session (kube-apiserver
//! 1.36, one server, no load).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::names::{self, Outcome};
use super::{CLEANUP, is, named, resource};
use crate::clock;
use crate::history::History;
use crate::ownership::{self, Author, Scope};
use crate::store::{self, Store};

/// The names are looked at.
const NAMES: Duration = Duration::from_millis(11);
/// The type is established, that long after its names were accepted.
const ESTABLISH: Duration = Duration::from_millis(6);
/// Requests find the type, that long after it was established.
const SERVE: Duration = Duration::from_millis(10);
/// A server that was told of a change lets its old storage live that long.
const OLD_STORAGE: Duration = Duration::from_secs(1);
/// A new storage's watch cache needs that long after the first request.
const WARM_UP: Duration = Duration::from_millis(30);
/// The finalizer's controller begins, and is done with the objects.
const CLEAN: Duration = Duration::from_millis(11);
const CLEANED: Duration = Duration::from_millis(90);
/// Creates that come sooner after a type was established wait that long, for the sake of other servers.
pub(crate) const SETTLING: Duration = Duration::from_secs(2);

/// Steps to come, and their times.
#[derive(Debug, Default)]
pub(crate) struct Agenda(Vec<(Instant, Step)>);

#[derive(Clone, Debug)]
enum Step {
    AcceptNames(String),
    Establish(String),
    Serve(String),
    /// Ends the watches that were opened before this epoch of the table.
    EndWatches {
        table: usize,
        epoch: u64,
    },
    Clean(String),
    Finish(String),
}

impl Agenda {
    fn add(&mut self, after: Duration, step: Step) {
        self.0.push((Instant::now() + after, step));
    }

    /// When the next step is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().map(|(at, _)| *at).min()
    }

    fn take(&mut self, now: Instant) -> Option<Step> {
        // Of two steps for one time the one that was added first.
        let (at, _) = self.0.iter().enumerate().min_by_key(|(_, (at, _))| *at).filter(|(_, (at, _))| *at <= now)?;
        Some(self.0.remove(at).1)
    }
}

/// How far a type's storage is, on a server that may just have been told of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Serving {
    /// Nothing serves the type any more.
    pub(crate) retired: bool,
    pub(crate) cache: Cache,
    /// Its CRD is being deleted: nothing new can be made.
    pub(crate) terminating: bool,
    /// When the type was established, if that was not long ago.
    pub(crate) established: Option<Instant>,
}

/// The watch cache of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Cache {
    #[default]
    Warm,
    /// Nobody has asked for it yet.
    Cold,
    Warming(Instant),
}

impl Serving {
    /// A request comes. Whether the cache can serve it.
    pub(crate) fn touch(&mut self) -> bool {
        match self.cache {
            Cache::Warm => true,
            Cache::Cold => {
                self.cache = Cache::Warming(Instant::now() + WARM_UP);
                false
            }
            Cache::Warming(until) if until <= Instant::now() => {
                self.cache = Cache::Warm;
                true
            }
            Cache::Warming(_) => false,
        }
    }

    /// How long a create has to wait.
    pub(crate) fn settling(&mut self) -> Option<Duration> {
        let established = self.established?;
        if established.elapsed() < SETTLING {
            return Some(SETTLING);
        }
        self.established = None;
        None
    }
}

/// A CRD was written: `before` and `after` are its states around the write.
pub(crate) fn definition_changed(history: &mut History, before: Option<&Value>, after: Option<&Value>) {
    let name = |crd: &Value| crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match (before, after) {
        (None, Some(crd)) => history.agenda.add(NAMES, Step::AcceptNames(name(crd))),
        (Some(before), Some(after)) => {
            let dying = |crd: &Value| crd["metadata"].get("deletionTimestamp").is_some();
            if dying(after) && !dying(before) {
                history.agenda.add(CLEAN, Step::Clean(name(after)));
                if let Some(table) = find(history, after) {
                    history.tables[table].serving.terminating = true;
                }
            }
            if is(after, "Established") && before["spec"] != after["spec"] {
                install(history, after);
            }
            if before["spec"]["names"] != after["spec"]["names"] {
                history.agenda.add(NAMES, Step::AcceptNames(name(after)));
            }
        }
        (Some(crd), None) => {
            if let Some(table) = find(history, crd) {
                history.retire(table);
            }
            // Its names are free for those that wait for them.
            let waiting = siblings(history, crd).into_iter().filter(|other| !is(other, "NamesAccepted"));
            for other in waiting.collect::<Vec<_>>() {
                history.agenda.add(NAMES, Step::AcceptNames(name(&other)));
            }
        }
        (None, None) => {}
    }
}

/// Takes all steps that are due.
pub(crate) fn settle(history: &mut History) {
    // Nearly always; the clock is not even read then.
    if history.agenda.0.is_empty() {
        return;
    }
    while let Some(step) = history.agenda.take(Instant::now()) {
        take(history, step);
    }
}

fn find(history: &History, crd: &Value) -> Option<usize> {
    let (group, plural) = (crd["spec"]["group"].as_str()?, crd["spec"]["names"]["plural"].as_str()?);
    history.tables.iter().position(|t| !t.serving.retired && t.resource.group == group && t.resource.plural == plural)
}

/// Makes the type, or changes it.
fn install(history: &mut History, crd: &Value) {
    let webhook = history.webhook;
    let made = resource(crd, webhook);
    let Some(table) = find(history, crd) else {
        history.install(made);
        return;
    };
    let same_versions = made.versions == history.tables[table].resource.versions;
    history.redefine(table, made);
    let epoch = history.tables[table].epoch();
    // Open watches speak of versions by position.
    let grace = if same_versions { OLD_STORAGE } else { Duration::ZERO };
    history.agenda.add(grace, Step::EndWatches { table, epoch });
}

/// Makes the type of a CRD as if that had been long ago.
pub(crate) fn install_at_once(history: &mut History, crd: &Value) {
    install(history, crd);
    if let Some(table) = find(history, crd) {
        let serving = &mut history.tables[table].serving;
        serving.cache = Cache::Warm;
        serving.established = None;
    }
}

/// The current state of a CRD, and where it is.
fn definition(history: &History, name: &str) -> Option<(usize, Value)> {
    let table = store::position(history, "customresourcedefinitions")?;
    let crd = history.get(table, name)?;
    Some((table, Value::clone(crd.value())))
}

/// All other CRDs of the same group.
fn siblings(history: &History, crd: &Value) -> Vec<Arc<Value>> {
    let Some(table) = store::position(history, "customresourcedefinitions") else { return Vec::new() };
    let all = history.tables[table].live.values().map(|object| object.value().clone());
    let other = |of: &Arc<Value>| {
        of["spec"]["group"] == crd["spec"]["group"] && of["metadata"]["name"] != crd["metadata"]["name"]
    };
    all.filter(other).collect()
}

/// What is to be said of the names of a CRD.
fn outcome(history: &History, crd: &Value) -> Outcome {
    names::accept(crd, siblings(history, crd).iter().map(|other| &**other))
}

/// Stores a status that a controller of the server has written.
fn write_status(history: &mut History, table: usize, name: &str, mut crd: Value) {
    let Some(before) = history.get(table, name).map(|object| object.value().clone()) else { return };
    let tracked = before["metadata"].get("managedFields").is_some();
    let author = Author { manager: history.process, subresource: "status", tracked };
    let resource = history.tables[table].resource.clone();
    let scope = Scope { resource: &resource, version: 0, author, status: true, now: clock::now() };
    ownership::updated(scope, Some(&before), &mut crd);
    history.commit(table, name, Some(crd));
}

fn take(history: &mut History, step: Step) {
    let now = || clock::rfc3339(clock::now());
    match step {
        Step::AcceptNames(name) => {
            let Some((table, mut crd)) = definition(history, &name) else { return };
            let had = crd["status"].clone();
            crd["status"] = named(&crd, outcome(history, &crd), false, &now());
            if crd["status"] == had {
                return;
            }
            write_status(history, table, &name, crd.clone());
            if !is(&crd, "Established") {
                history.agenda.add(ESTABLISH, Step::Establish(name));
            } else if crd["status"]["acceptedNames"] != had["acceptedNames"] {
                install(history, &crd);
            }
        }
        Step::Establish(name) => {
            let Some((table, mut crd)) = definition(history, &name) else { return };
            let outcome = outcome(history, &crd);
            if outcome.conflict.is_some() || is(&crd, "Established") {
                return;
            }
            crd["status"] = named(&crd, outcome, true, &now());
            write_status(history, table, &name, crd);
            history.agenda.add(SERVE, Step::Serve(name));
        }
        Step::Serve(name) => {
            let Some((_, crd)) = definition(history, &name) else { return };
            if find(history, &crd).is_none() {
                install(history, &crd);
            }
        }
        Step::EndWatches { table, epoch } => history.end_watches(table, epoch),
        Step::Clean(name) => {
            let Some((table, mut crd)) = definition(history, &name) else { return };
            condition(&mut crd, "InstanceDeletionInProgress", "CustomResource deletion is in progress", &now());
            write_status(history, table, &name, crd.clone());
            if let Some(table) = find(history, &crd) {
                let keys: Vec<String> = history.tables[table].live.keys().cloned().collect();
                for key in keys {
                    remove(history, table, &key);
                }
            }
            history.agenda.add(CLEANED, Step::Finish(name));
        }
        Step::Finish(name) => {
            let Some((table, mut crd)) = definition(history, &name) else { return };
            // Objects with finalizers of their own keep their type.
            if let Some(table) = find(history, &crd)
                && !history.tables[table].live.is_empty()
            {
                history.agenda.add(Duration::from_secs(1), Step::Finish(name));
                return;
            }
            let Some(finalizers) = crd["metadata"]["finalizers"].as_array_mut() else { return };
            finalizers.retain(|finalizer| finalizer != CLEANUP);
            let last = finalizers.is_empty();
            history.commit(table, &name, (!last).then_some(crd));
        }
    }
}

/// Deletes an object of a type that goes away, or marks it.
fn remove(history: &mut History, table: usize, key: &str) {
    let Some(object) = history.get(table, key) else { return };
    let mut value = Value::clone(object.value());
    if value.pointer("/metadata/finalizers/0").is_none() {
        history.commit(table, key, None);
    } else if value["metadata"].get("deletionTimestamp").is_none() {
        value["metadata"]["deletionTimestamp"] = clock::rfc3339(clock::now()).into();
        value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        history.commit(table, key, Some(value));
    }
}

/// Marks a CRD that a client deletes.
pub(crate) fn marked(mut crd: Value, now: &str) -> Value {
    crd["metadata"]["deletionTimestamp"] = now.into();
    let finalizers = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        let all: Vec<Value> = finalizers.into_iter().chain([CLEANUP.into()]).collect();
        crd["metadata"]["finalizers"] = all.into();
    }
    let pending = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    condition(&mut crd, "InstanceDeletionPending", pending, now);
    crd
}

/// Sets the condition `Terminating`.
fn condition(crd: &mut Value, reason: &str, message: &str, now: &str) {
    let mut condition = json!({
        "type": "Terminating", "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
    });
    let mut conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
    match conditions.iter_mut().find(|c| c["type"] == "Terminating") {
        Some(there) => {
            condition["lastTransitionTime"] = there["lastTransitionTime"].clone();
            *there = condition;
        }
        None => conditions.push(condition),
    }
    crd["status"]["conditions"] = conditions.into();
}

/// Takes the steps of the agenda when they are due, until there are none.
pub(crate) async fn attend(store: Store) {
    loop {
        let next = {
            let mut history = store.lock();
            settle(&mut history);
            history.agenda.next()
        };
        match next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => return,
        }
    }
}
