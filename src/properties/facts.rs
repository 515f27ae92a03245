//! What a trace says up to an entry: rows, resources, Pods, sessions, and what was asked and accepted.

use std::collections::{BTreeMap, BTreeSet};

use photofinish::property::Tally;
use photofinish_sim::trace::{Entry, EntryId};

use super::oracle::STATE;
use super::{Change, accepted, says};

/// Nanoseconds of this many seconds.
pub(super) const fn seconds(s: u64) -> u64 {
    s * 1_000_000_000
}

/// Is this a gateway's host, of whatever replica?
pub(super) fn is_gateway(host: &str) -> bool {
    host == "gateway" || host.starts_with("gateway-")
}

/// A row of the gateway's store.
#[derive(Clone, Debug, Default)]
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) phase: &'a str,
    pub(super) admits: &'a str,
    pub(super) deadline_armed: bool,
    /// It was Ready once.
    pub(super) was_ready: bool,
    /// A delete of it was accepted.
    pub(super) deleted: bool,
    /// The last accepted request was a stop, and no start has followed.
    pub(super) told_to_stop: bool,
}

/// A Sandbox resource.
#[derive(Clone, Debug)]
pub(super) struct Resource<'a> {
    pub(super) object: &'a str,
    pub(super) sandbox_id: &'a str,
    pub(super) gateway: &'a str,
    pub(super) off: bool,
    pub(super) marker: &'a str,
    pub(super) ending: bool,
}

/// A Pod of a sandbox.
#[derive(Clone, Debug)]
pub(super) struct Pod<'a> {
    pub(super) sandbox_id: &'a str,
    pub(super) workload: bool,
    pub(super) phase: &'a str,
    pub(super) ending: bool,
    pub(super) run: &'a str,
}

impl Pod<'_> {
    /// Neither told to end nor ended.
    pub(super) fn is_live(&self) -> bool {
        !self.ending && matches!(self.phase, "" | "Pending" | "Running")
    }
}

/// A supervisor's session as a gateway tells it.
#[derive(Clone, Debug)]
struct Session<'a> {
    instance: &'a str,
    host: &'a str,
    /// The gateway that served it is gone: its owner row is believed until then.
    until_ns: Option<u64>,
}

/// How long the owner row of a session is believed after the last heartbeat.
const OWNER_TTL_NS: u64 = seconds(45);

/// Everything known at one entry.
#[derive(Default)]
pub(super) struct Facts<'a> {
    /// By sandbox id; removed rows are not in it.
    pub(super) rows: BTreeMap<&'a str, Row<'a>>,
    /// By uid.
    pub(super) resources: BTreeMap<&'a str, Resource<'a>>,
    /// By uid.
    pub(super) pods: BTreeMap<&'a str, Pod<'a>>,
    /// Sandboxes that had a resource and have none, by id.
    pub(super) lost: BTreeSet<&'a str>,
    sessions: BTreeMap<&'a str, Vec<Session<'a>>>,
}

/// What an entry changed, for properties that judge only then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News<'a> {
    /// Nothing that facts are made of.
    Nothing,
    /// Something about this sandbox.
    Of(&'a str),
}

impl<'a> Facts<'a> {
    /// Takes an entry in.
    pub(super) fn note(&mut self, e: &'a Entry) -> News<'a> {
        match &*e.kind {
            STATE => self.state(e),
            "host" => {
                if is_gateway(&e.host) && matches!(&*e.name, "crash" | "exit" | "power-off") {
                    let mut all = self.sessions.values_mut().flatten();
                    let lost = |s: &&mut Session<'_>| s.host == e.host && s.until_ns.is_none();
                    all.by_ref().filter(lost).for_each(|s| s.until_ns = Some(e.at_ns + OWNER_TTL_NS));
                }
                News::Nothing
            }
            "log" if is_gateway(&e.host) => self.log(e),
            _ => News::Nothing,
        }
    }

    fn log(&mut self, e: &'a Entry) -> News<'a> {
        if let Some(c) = Change::of(e) {
            let Some(id) = e.field("sandbox_id") else { return News::Nothing };
            let row = self.rows.entry(id).or_default();
            (row.name, row.phase) = (c.sandbox, c.new);
            row.was_ready |= c.new == "Ready";
            // A stop that could not be carried out is taken back.
            row.told_to_stop &= !(c.old == "Stopping" && c.new != "Stopped" && c.by == "recovery");
            News::Of(id)
        } else if says(e, "row exits").is_some() {
            let Some(id) = e.field("sandbox_id") else { return News::Nothing };
            let row = self.rows.entry(id).or_default();
            row.name = e.field("sandbox_name").unwrap_or_default();
            row.phase = e.field("phase").unwrap_or_default();
            row.admits = e.field("admits").unwrap_or_default();
            row.deadline_armed = e.field("deadline_ms").is_some_and(|d| d != "0");
            News::Of(id)
        } else if says(e, "store commit").is_some() && e.field("phase") == Some("") {
            let Some(id) = e.field("id") else { return News::Nothing };
            self.rows.remove(id);
            News::Of(id)
        } else if accepted(e, &["create", "start", "stop", "delete"]).is_some() {
            let Some(id) = e.field("sandbox_id") else { return News::Nothing };
            let row = self.rows.entry(id).or_default();
            row.name = e.field("sandbox_name").unwrap_or_default();
            match e.field("op") {
                Some("stop") => row.told_to_stop = true,
                Some("delete") => row.deleted = true,
                _ => row.told_to_stop = false,
            }
            News::Of(id)
        } else if says(e, "supervisor session: accepted").is_some() {
            let Some(id) = e.field("sandbox_id") else { return News::Nothing };
            let instance = e.field("instance_id").unwrap_or_default();
            self.sessions.entry(id).or_default().push(Session { instance, host: &e.host, until_ns: None });
            News::Of(id)
        } else if says(e, "supervisor session: closed").is_some() {
            let Some(id) = e.field("sandbox_id") else { return News::Nothing };
            let instance = e.field("instance_id").unwrap_or_default();
            let sessions = self.sessions.entry(id).or_default();
            if let Some(at) = sessions.iter().position(|s| s.instance == instance && s.host == e.host) {
                sessions.remove(at);
            }
            News::Of(id)
        } else {
            News::Nothing
        }
    }

    fn state(&mut self, e: &'a Entry) -> News<'a> {
        let field = |name| e.field(name).unwrap_or_default();
        let (uid, gone, ending) = (field("uid"), field("gone") == "true", field("ending") == "true");
        let sandbox_id = field("sandbox_id");
        match &*e.name {
            "resource" if gone => {
                self.resources.remove(uid);
                self.lost.insert(sandbox_id);
            }
            "resource" => {
                let (object, gateway, marker) = (field("object"), field("gateway"), field("marker"));
                let off = field("run") == "off";
                self.lost.remove(sandbox_id);
                self.resources.insert(uid, Resource { object, sandbox_id, gateway, off, marker, ending });
            }
            "pod" if gone => _ = self.pods.remove(uid),
            "pod" => {
                let workload = field("role") == "workload";
                self.pods.insert(uid, Pod { sandbox_id, workload, phase: field("phase"), ending, run: field("run") });
            }
            _ => return News::Nothing,
        }
        News::Of(sandbox_id)
    }

    /// The resource of this sandbox, unless there is none or it is ending.
    pub(super) fn resource(&self, sandbox_id: &str) -> Option<&Resource<'a>> {
        self.resources.values().find(|r| r.sandbox_id == sandbox_id && !r.ending)
    }
    /// Its Pods that exist, ending ones too.
    pub(super) fn pods<'f>(&'f self, sandbox_id: &'f str) -> impl Iterator<Item = &'f Pod<'a>> {
        self.pods.values().filter(move |p| p.sandbox_id == sandbox_id)
    }
    /// Has it a session, or one whose owner row is still believed?
    pub(super) fn has_session(&self, sandbox_id: &str, at_ns: u64) -> bool {
        let of = self.sessions.get(sandbox_id).into_iter().flatten();
        of.into_iter().any(|s| s.until_ns.is_none_or(|until| at_ns <= until))
    }
    /// Is its resource off, unmarked, and without any workload Pod?
    pub(super) fn is_off_and_empty(&self, sandbox_id: &str) -> bool {
        self.resource(sandbox_id).is_some_and(|r| r.off && r.marker.is_empty())
            && !self.pods(sandbox_id).any(|p| p.workload)
    }
}

/// What must have happened by some time, by sandbox id.
#[derive(Default)]
pub(super) struct Obligations<'a> {
    open: BTreeMap<&'a str, (EntryId, u64, String)>,
}

impl<'a> Obligations<'a> {
    /// `owed`: it must end by `limit_ns` from now on, if it was not owed already. Otherwise nothing is owed.
    pub(super) fn owe(&mut self, id: &'a str, owed: bool, e: &Entry, limit_ns: u64, why: impl FnOnce() -> String) {
        if owed {
            self.open.entry(id).or_insert_with(|| (e.id, e.at_ns + limit_ns, why()));
        } else {
            self.open.remove(id);
        }
    }
    /// Begins anew, whatever was owed.
    pub(super) fn restart(&mut self, id: &str) {
        self.open.remove(id);
    }
    /// What is owed need not have happened before this time.
    pub(super) fn defer(&mut self, until_ns: u64) {
        self.open.values_mut().for_each(|(_, due, _)| *due = until_ns.max(*due));
    }
    /// Says what is overdue at this entry.
    pub(super) fn check(&mut self, e: &Entry, tally: &mut Tally) {
        if self.open.values().all(|(_, due, _)| e.at_ns <= *due) {
            return;
        }
        self.open.retain(|_, (trigger, due, why)| {
            let late = e.at_ns > *due;
            if late {
                tally.violated(e.id, why.clone(), [*trigger]);
            }
            !late
        });
    }
}
