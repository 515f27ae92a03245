//! What a trace of this system means, for reports: which sandbox each entry is about, what the gateway holds of it
//! beside what is stored in the cluster, and which event each phase rests on.
//!
//! A row rests on the resource version of the last snapshot that reached its gateway, whoever set its phase. Gateways
//! with one store hold one row.

use std::collections::BTreeMap;

use photofinish::reading::{Grid, Link, Meeting, Reading, View};
use photofinish_sim::trace::{Entry, EntryId};

use super::oracle::STATE;
use super::{Change, Snapshots, says};

/// Who holds the rows.
const HOLDER: &str = "gateway";

/// Reads a whole trace, or the part that a killed run left.
pub fn reading(entries: &[Entry]) -> Reading {
    let names = Names::of(entries);
    let mut reading = Reading {
        subjects: entries.iter().filter_map(|e| Some((e.id, names.subject(e)?.to_owned()))).collect(),
        labels: entries.iter().filter_map(|e| Some((e.id, label(e)?))).collect(),
        ..Reading::default()
    };
    let (mut truth, mut rows) = (Truth::default(), Rows::default());
    for e in entries {
        truth.read(e, &names, &mut reading.views);
        rows.read(e, &names, &mut reading);
    }
    reading.views.sort_by_key(|view| view.at);
    reading
}

/// The phase of a row that nobody has stored.
const NO_ROW: &str = "no row";
/// A snapshot of a resource without a bootstrap marker.
const NO_MARKER: &str = "no marker";
/// The resource is gone.
const DELETED: &str = "deleted";

/// Phases of rows, and what a snapshot may say of the resource's bootstrap.
pub fn grid() -> Grid {
    Grid {
        state: "row phase",
        states: vec![
            NO_ROW,
            "Provisioning",
            "Ready",
            "Stopping",
            "Stopped",
            "Starting",
            "Completed",
            "Error",
            "Deleting",
            "Unknown",
        ],
        event: "snapshot",
        events: vec![
            "create/preparing",
            "create/released",
            "restart/preparing",
            "restart/released",
            "stop/releasing",
            "stop/suspending",
            NO_MARKER,
            DELETED,
        ],
    }
}

/// Which snapshot met which phase of its row, at the gateway that got it.
pub fn meetings(entries: &[Entry]) -> Vec<Meeting> {
    let mut snapshots = Snapshots::default();
    let mut phases: BTreeMap<&str, &str> = BTreeMap::new();
    let mut met = Vec::new();
    for e in entries {
        let event = if let Some(sent) = snapshots.received(e) {
            let field = |name| sent.field(name).unwrap_or_default();
            match field("operation") {
                "" => NO_MARKER.to_owned(),
                operation => format!("{operation}/{}", field("bootstrap_phase")),
            }
        } else if e.kind == "span" && e.name == "driver_watch.sandbox_deleted" {
            DELETED.to_owned()
        } else {
            if says(e, "store commit").is_some()
                && let Some((id, phase)) = e.field("id").zip(e.field("phase"))
            {
                phases.insert(id, phase);
            }
            continue;
        };
        let phase = e.field("sandbox_id").and_then(|id| phases.get(id)).filter(|phase| !phase.is_empty());
        met.push(Meeting { state: phase.copied().unwrap_or(NO_ROW).to_owned(), event });
    }
    met
}

/// Names of sandboxes by what else stands for them.
#[derive(Default)]
struct Names<'a> {
    by_id: BTreeMap<&'a str, &'a str>,
    by_object: BTreeMap<&'a str, &'a str>,
}

impl<'a> Names<'a> {
    fn of(entries: &'a [Entry]) -> Names<'a> {
        let mut names = Names::default();
        for e in entries {
            let name = e.field("sandbox_name").or_else(|| e.field("sandbox")).filter(|name| !name.is_empty());
            let Some(name) = name else { continue };
            if let Some(id) = e.field("sandbox_id").filter(|id| !id.is_empty()) {
                names.by_id.insert(id, name);
            }
            if let Some(object) = e.field("object").filter(|_| e.kind == STATE) {
                names.by_object.insert(object, name);
            }
        }
        names
    }
    fn subject(&self, e: &'a Entry) -> Option<&'a str> {
        let named = e.field("sandbox_name").or_else(|| e.field("sandbox")).filter(|name| !name.is_empty());
        let by_id = || e.field("sandbox_id").or_else(|| e.field("id")).and_then(|id| self.by_id.get(id)).copied();
        let object = || match &*e.kind {
            "watch" => e.field("object"),
            "http" => e.field("path"),
            _ => None,
        };
        named.or_else(by_id).or_else(|| self.in_path(object()?))
    }
    /// The sandbox that one of a path's parts stands for, or is named after.
    fn in_path(&self, path: &str) -> Option<&'a str> {
        let part = path.split('/').find_map(|part| self.by_object.get(part));
        let id = || self.by_id.iter().find(|(id, _)| path.contains(**id)).map(|(_, name)| name);
        part.or_else(id).copied()
    }
}

/// What is stored in the cluster: writes of Sandbox resources, with what the oracle noted of them.
#[derive(Default)]
struct Truth<'a> {
    /// A create of a resource that nothing has been noted of yet.
    created: Option<(EntryId, u64)>,
    /// By sandbox: what it is like, and the revision.
    known: BTreeMap<&'a str, (Option<String>, Option<u64>)>,
    /// By sandbox: its live Pods, by role.
    pods: BTreeMap<&'a str, BTreeMap<&'a str, String>>,
}

impl<'a> Truth<'a> {
    fn read(&mut self, e: &'a Entry, names: &Names<'a>, views: &mut Vec<View>) {
        let write = (e.kind == "http").then(|| e.field("rv")?.parse().ok()).flatten();
        if let Some(rv) = write.filter(|_| e.field("path").is_some_and(|path| path.contains("/sandboxes"))) {
            match names.subject(e) {
                Some(subject) => self.wrote(subject, e.id, rv, views),
                None => self.created = Some((e.id, rv)),
            }
        } else if e.kind == STATE
            && let Some(subject) = names.subject(e)
        {
            let field = |name| e.field(name).unwrap_or_default();
            let gone = field("gone") == "true";
            match &*e.name {
                "resource" => {
                    let ending = if field("ending") == "true" { " ending" } else { "" };
                    let run = format!("{} {}{ending}", field("run"), field("marker")).trim_end().to_owned();
                    self.known.entry(subject).or_default().0 = (!gone).then_some(run);
                    if let Some((at, rv)) = self.created.take() {
                        self.wrote(subject, at, rv, views);
                    }
                }
                "pod" => {
                    let pods = self.pods.entry(subject).or_default();
                    match gone {
                        true => _ = pods.remove(field("role")),
                        false => _ = pods.insert(field("role"), field("phase").to_owned()),
                    }
                }
                _ => return,
            }
            self.show(subject, e.id, views);
        }
    }
    fn wrote(&mut self, subject: &'a str, at: EntryId, rv: u64, views: &mut Vec<View>) {
        self.known.entry(subject).or_default().1 = Some(rv);
        self.show(subject, at, views);
    }
    fn show(&self, subject: &str, at: EntryId, views: &mut Vec<View>) {
        let (state, revision) = self.known.get(subject).cloned().unwrap_or_default();
        let pods = self.pods.get(subject).map_or(0, BTreeMap::len);
        let words = ["no pods".to_owned(), "1 pod".to_owned(), format!("{pods} pods")];
        let state = state.map(|state| format!("{state} · {}", words[pods.min(2)]));
        views.push(View { subject: subject.to_owned(), holder: None, at, state, revision });
    }
}

/// What the gateway holds, and why.
#[derive(Default)]
struct Rows<'a> {
    snapshots: Snapshots<'a>,
    /// Events of Sandbox resources, by who got them and their revision. Not every snapshot is made from one: some come
    /// of lists and reads.
    events: BTreeMap<(&'a str, u64), EntryId>,
    /// By sandbox: phase, resource version, and the entry that says that the snapshot came.
    known: BTreeMap<&'a str, Row>,
}

#[derive(Clone, Default)]
struct Row {
    phase: Option<String>,
    revision: Option<u64>,
    received: Option<EntryId>,
}

impl<'a> Rows<'a> {
    fn read(&mut self, e: &'a Entry, names: &Names<'a>, reading: &mut Reading) {
        if says(e, "snapshot sent").is_some()
            && let Some(version) = e.field("resource_version")
        {
            let event = version.parse().ok().and_then(|rv: u64| self.events.get(&(&*e.host, rv)));
            let link = |from: &EntryId| Link { from: *from, to: e.id, how: format!("made from rv {version}") };
            reading.links.extend(event.map(link));
        } else if e.kind == "watch"
            && let Some((host, "sandboxes")) = e.field("stream").and_then(|s| s.split_once('/'))
            && let Some(rv) = e.field("rv").and_then(|rv| rv.parse().ok())
        {
            self.events.insert((host, rv), e.id);
        }
        let sent = self.snapshots.received(e);
        let Some(subject) = names.subject(e) else { return };
        let row = self.known.entry(subject).or_default();
        if let Some(sent) = sent {
            let version = sent.field("resource_version").and_then(|v| v.parse().ok());
            row.revision = version.or(row.revision);
            row.received = Some(e.id);
            reading.links.push(Link { from: sent.id, to: e.id, how: "snapshot".to_owned() });
        } else if says(e, "store commit").is_some() {
            row.phase = e.field("phase").filter(|phase| !phase.is_empty()).map(str::to_owned);
        } else {
            let by = Change::of(e).map_or("", |change| change.by);
            let applied = row.received.filter(|_| matches!(by, "snapshot" | "live"));
            reading.links.extend(applied.map(|from| Link { from, to: e.id, how: "applied".to_owned() }));
            return;
        }
        let view = |row: &Row| View {
            subject: subject.to_owned(),
            holder: Some(HOLDER.to_owned()),
            at: e.id,
            state: row.phase.clone(),
            revision: row.revision,
        };
        reading.views.push(view(row));
    }
}

/// Few words for what this system logs.
fn label(e: &Entry) -> Option<String> {
    let field = |name| e.field(name).unwrap_or_default();
    if let Some(change) = Change::of(e) {
        return Some(format!("{} → {}", change.old, change.new));
    }
    if e.kind == STATE {
        let words = match (&*e.name, field("gone")) {
            (_, "true") => vec!["gone"],
            ("resource", _) => vec![field("run"), field("marker")],
            _ => vec![field("phase"), if field("ending") == "true" { "ending" } else { "" }],
        };
        let what = Some(field("role")).filter(|role| !role.is_empty()).unwrap_or(&e.name);
        return Some(format!("{what} {} {}", field("sandbox"), words.join(" ")).trim_end().to_owned());
    }
    let marker = || format!("{}/{}", field("operation"), field("bootstrap_phase"));
    if says(e, "snapshot sent").is_some() {
        let marker = if field("operation").is_empty() { String::new() } else { format!(" {}", marker()) };
        return Some(format!("snapshot rv {}{marker}", field("resource_version")));
    }
    if says(e, "store commit").is_some() {
        return Some(format!("row {} by {}", field("phase"), field("op")));
    }
    let asked = |word: &str| Some(format!("{word} {}", field("op")));
    if says(e, "request accepted").is_some() {
        return asked("accepts");
    }
    if says(e, "request refused").is_some() {
        return asked("refuses");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    type Told<'a> = (&'static str, &'static str, &'static str, &'a [(&'static str, &'a str)]);

    fn trace(told: &[Told<'_>]) -> Vec<Entry> {
        let entry = |(id, (host, kind, text, fields)): (usize, &Told<'_>)| Entry {
            id: id as u64,
            at_ns: id as u64,
            host: (*host).into(),
            kind: (*kind).into(),
            name: if *kind == STATE { "resource" } else { "info" }.into(),
            text: (*text).to_owned(),
            fields: fields.iter().map(|(k, v)| ((*k).into(), (*v).to_owned())).collect(),
            spans: vec![],
            cause: None,
        };
        told.iter().enumerate().map(entry).collect()
    }

    const ROW: (&str, &str) = ("id", "1");
    const NAMED: [(&str, &str); 2] = [("sandbox_id", "1"), ("sandbox_name", "demo")];

    fn example() -> Vec<Entry> {
        let [id, name] = NAMED;
        let resource = |run| [("object", "cr"), ("sandbox", "demo"), id, ("run", run), ("marker", "create/preparing")];
        trace(&[
            ("gateway", "log", "store commit", &[("op", "create"), ROW, ("phase", "Provisioning")]),
            ("gateway", "log", "request accepted", &[("op", "create"), id, name]),
            ("api", "http", "", &[("path", "/apis/x/v1/namespaces/n/sandboxes"), ("rv", "12")]),
            ("world", STATE, "", &resource("off")),
            ("api", "watch", "", &[("stream", "driver/sandboxes"), ("object", "cr"), ("rv", "12")]),
            ("driver", "log", "snapshot stream opened", &[]),
            ("gateway", "log", "driver watch: opened", &[]),
            (
                "driver",
                "log",
                "snapshot sent",
                &[id, name, ("operation", "create"), ("bootstrap_phase", "preparing"), ("resource_version", "12")],
            ),
            ("gateway", "log", "snapshot received", &NAMED),
            ("gateway", "log", "store commit", &[("op", "snapshot"), ROW, ("phase", "Ready")]),
            (
                "gateway",
                "log",
                "Sandbox phase changed",
                &[id, name, ("old_phase", "Provisioning"), ("new_phase", "Ready"), ("by", "snapshot")],
            ),
            ("api", "http", "", &[("path", "/apis/x/v1/namespaces/n/sandboxes/cr"), ("rv", "13")]),
            ("world", STATE, "", &resource("on")),
            ("gateway", "log", "store commit", &[("op", "delete"), ROW, ("phase", "")]),
        ])
    }

    #[test]
    fn a_row_rests_on_the_last_snapshot_that_came_and_the_truth_on_the_last_write() {
        let views = reading(&example()).views;
        let told: Vec<_> = views.iter().map(|v| (v.holder.as_deref(), v.at, v.state.as_deref(), v.revision)).collect();
        let (off, on) = (Some("off create/preparing · no pods"), Some("on create/preparing · no pods"));
        let gateway = Some("gateway");
        let expected = [
            (gateway, 0, Some("Provisioning"), None),
            // What the first write made is told by the entry behind it.
            (None, 2, None, Some(12)),
            (None, 3, off, Some(12)),
            (gateway, 8, Some("Provisioning"), Some(12)),
            (gateway, 9, Some("Ready"), Some(12)),
            (None, 11, off, Some(13)),
            (None, 12, on, Some(13)),
            (gateway, 13, None, Some(12)),
        ];
        assert_eq!(told, expected);
        assert!(views.iter().all(|view| view.subject == "demo"));
    }

    #[test]
    fn a_snapshot_meets_the_phase_that_its_row_has_when_it_is_received() {
        let mut entries = example();
        let met = |entries: &[Entry]| -> Vec<_> { meetings(entries).into_iter().map(|m| (m.state, m.event)).collect() };
        let pair = |state: &str, event: &str| (state.to_owned(), event.to_owned());
        assert_eq!(met(&entries), [pair("Provisioning", "create/preparing")]);
        // The row is gone by now.
        let gone = trace(&[("gateway", "span", "", &NAMED)]);
        entries.extend(gone.into_iter().map(|e| Entry { name: "driver_watch.sandbox_deleted".into(), ..e }));
        assert_eq!(met(&entries)[1], pair("no row", "deleted"));
        // Nobody has stored one yet.
        assert_eq!(met(&entries[1..])[0], pair("no row", "create/preparing"));
        let Grid { states, events, .. } = grid();
        for (state, event) in met(&entries) {
            assert!(states.contains(&&*state) && events.contains(&&*event), "{state}, {event}");
        }
    }

    #[test]
    fn a_phase_rests_on_a_snapshot_and_that_on_an_event() {
        let links = reading(&example()).links;
        let told: Vec<_> = links.iter().map(|link| (link.from, link.to, link.how.as_str())).collect();
        assert_eq!(told, [(4, 7, "made from rv 12"), (7, 8, "snapshot"), (8, 10, "applied")]);
    }

    #[test]
    fn entries_are_about_a_sandbox_by_its_name_its_id_or_its_resource_and_say_it_shortly() {
        let Reading { subjects, labels, .. } = reading(&example());
        let about: Vec<u64> = subjects.keys().copied().collect();
        assert_eq!(about, [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13]);
        let label = |id: u64| labels.get(&id).map(String::as_str);
        for (id, expected) in [
            (1, Some("accepts create")),
            (3, Some("resource demo off create/preparing")),
            (5, None),
            (7, Some("snapshot rv 12 create/preparing")),
            (9, Some("row Ready by snapshot")),
            (10, Some("Provisioning → Ready")),
        ] {
            assert_eq!(label(id), expected, "{id}");
        }
    }
}
