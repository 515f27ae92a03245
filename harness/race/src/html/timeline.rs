//! The data of one run's timeline: a pure function of its trace and of what the system reads in it.
use photofinish_sim::trace::{Entry, EntryId};
use serde::Serialize;

use super::arrows::{Arrow, arrows};
use super::bars::{self, Bar};
use super::belief::{Belief, beliefs};
use super::lanes::{Lane, Weight, label, lanes, weight};
use super::objects::{Object, objects};
use super::strings::Strings;
use crate::outcome::RunReport;
use crate::reading::{ObjectState, Reading, Role};

/// What a timeline is made of.
pub struct Told<'a> {
    /// What the run is called.
    pub name: String,
    /// The id that replays it.
    pub run_id: String,
    /// How to replay it: a command.
    pub replay: String,
    /// What the run showed.
    pub report: &'a RunReport,
    /// Its trace.
    pub entries: &'a [Entry],
    /// What the entries mean.
    pub reading: Reading,
    /// The part of each host.
    pub role: &'a dyn Fn(&str) -> Role,
    /// The sentence of a property.
    pub sentence: &'a dyn Fn(&str) -> String,
    /// States of objects, by revision; empty where they are not known.
    pub objects: &'a [ObjectState],
    /// An entry to look at, and why: where two runs part, say.
    pub mark: Option<(EntryId, String)>,
}

/// The data, version 1, as the page reads it.
#[derive(Serialize)]
pub(super) struct Timeline {
    v: u32,
    name: String,
    run_id: String,
    replay: String,
    outcome: &'static str,
    end: Option<String>,
    end_ns: u64,
    trace_hash: String,
    violations: Vec<Marked>,
    vacuous: Vec<String>,
    mark: Option<(EntryId, String)>,
    lanes: Vec<Lane>,
    bars: Vec<Bar>,
    beliefs: Vec<Belief>,
    arrows: Vec<Arrow>,
    objects: Vec<Object>,
    entries: Columns,
    strings: Strings,
}

/// A violated property.
#[derive(Serialize)]
struct Marked {
    property: String,
    sentence: String,
    entry: u64,
    why: String,
    led: Vec<u64>,
}

/// The entries, a column a member; texts by number.
#[derive(Default, Serialize)]
struct Columns {
    /// Nanoseconds since the entry before.
    after_ns: Vec<u64>,
    host: Vec<usize>,
    kind: Vec<usize>,
    name: Vec<usize>,
    text: Vec<usize>,
    label: Vec<usize>,
    /// The cause's distance back; 0: none.
    cause: Vec<u64>,
    lane: Vec<usize>,
    weight: Vec<u8>,
    /// Numbers of the subjects, plus one; 0: none.
    subject: Vec<usize>,
    /// Names and values in turn.
    fields: Vec<Vec<usize>>,
    spans: Vec<Vec<usize>>,
}

impl Timeline {
    pub(super) fn of(told: &Told<'_>) -> Timeline {
        let Told { report, entries, reading, .. } = told;
        let (lanes, of) = lanes(entries, told.role);
        let lane_id = |e: &Entry| of.get(e.id as usize).and_then(|at| lanes.get(*at)).map_or("", |lane| &*lane.id);
        let writes = bars::writes(entries);
        let marked = report.violations.iter().map(|broken| Marked {
            property: broken.property.clone(),
            sentence: (told.sentence)(&broken.property),
            entry: broken.violation.entry,
            why: broken.violation.why.clone(),
            led: broken.violation.led.clone(),
        });
        let mut strings = Strings::default();
        Timeline {
            v: 1,
            name: told.name.clone(),
            run_id: told.run_id.clone(),
            replay: told.replay.clone(),
            outcome: report.outcome.name(),
            end: report.end.clone(),
            end_ns: report.virtual_ns.max(entries.last().map_or(0, |e| e.at_ns)),
            trace_hash: report.trace_hash.clone(),
            violations: marked.collect(),
            vacuous: report.vacuous.clone(),
            mark: told.mark.clone(),
            bars: bars::bars(entries, lane_id),
            beliefs: beliefs(&reading.views, entries),
            arrows: arrows(entries, &reading.links, &report.violations),
            objects: objects(told.objects, |rv| bars::write_of(&writes, rv)),
            entries: columns(entries, &of, reading, &mut strings),
            lanes,
            strings,
        }
    }
}

fn columns(entries: &[Entry], lanes: &[usize], reading: &Reading, strings: &mut Strings) -> Columns {
    let mut columns = Columns::default();
    let mut before_ns = 0;
    for (e, lane) in entries.iter().zip(lanes) {
        columns.after_ns.push(e.at_ns.saturating_sub(before_ns));
        before_ns = e.at_ns;
        columns.host.push(strings.number(&e.host));
        columns.kind.push(strings.number(&e.kind));
        columns.name.push(strings.number(&e.name));
        columns.text.push(strings.number(&e.text));
        let own = || label(e);
        columns.label.push(strings.number(&reading.labels.get(&e.id).cloned().unwrap_or_else(own)));
        columns.cause.push(e.cause.map_or(0, |cause| e.id.saturating_sub(cause)));
        columns.lane.push(*lane);
        columns.weight.push(match weight(e) {
            Weight::Noise => 0,
            Weight::Detail => 1,
            Weight::Telling => 2,
        });
        columns.subject.push(reading.subjects.get(&e.id).map_or(0, |subject| strings.number(subject) + 1));
        columns.fields.push(e.fields.iter().flat_map(|(k, v)| [strings.number(k), strings.number(v)]).collect());
        columns.spans.push(e.spans.iter().map(|span| strings.number(span)).collect());
    }
    columns
}
