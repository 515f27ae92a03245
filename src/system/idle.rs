//! A long time in which nobody asks for anything: sweeps, rounds of the driver and heartbeats go on, and must come to
//! nothing.
//!
//! The trace keeps only what would be news; the rest is counted, hour by hour.
use super::rig::Rig;
use photofinish::mistake::Mistake;
use photofinish::scenario::yaml::Node;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, Parsed, Scope};
use photofinish_sim::trace::Entry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) const USAGE: &str = "idle: {for: 24h, objects: COUNT, rows: COUNT}";

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Idle {
    lasts: Duration,
    limits: Limits,
}

/// Most writes in an hour.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Of objects of the cluster.
    objects: u64,
    /// Of rows of the gateway.
    rows: u64,
}

/// `idle: {for: 24h, objects: 100, rows: 10000}`
pub(super) fn idle(node: &Node, _: &mut Scope<'_>) -> Parsed {
    let mut fields = node.fields(USAGE)?;
    let at = fields.required("for")?;
    let lasts = at.duration()?;
    let mut number =
        |name: &'static str| -> Result<u64, Mistake> { fields.required(name)?.number("how many writes an hour") };
    let limits = Limits { objects: number("objects")?, rows: number("rows")? };
    fields.finish()?;
    if lasts < 2 * HOUR {
        return Err(at.expected("at least 2h: the hours are compared"));
    }
    Ok(Box::new(Idle { lasts, limits }))
}

/// What happened in an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hour {
    /// Writes of objects, by client.
    objects: BTreeMap<String, u64>,
    /// Writes of rows.
    rows: u64,
    /// Phase changes, as logged.
    changes: Vec<String>,
    /// The most snapshots that were sent by a driver and not yet received by its gateway.
    queue: u64,
}

impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects: u64 = self.objects.values().sum();
        write!(f, "{objects} writes of objects, {} of rows, at most {} snapshots under way", self.rows, self.queue)
    }
}

#[derive(Debug, Default)]
struct Count {
    hour: Hour,
    /// Snapshots under way, by replica.
    under_way: BTreeMap<String, u64>,
}

impl Count {
    /// Counts an entry. Is it worth keeping?
    fn note(&mut self, e: &Entry) -> bool {
        let replica = || e.host.trim_start_matches("driver").trim_start_matches("gateway").to_owned();
        match &*e.kind {
            "http" => {
                if e.field("rv").is_some() && !matches!(&*e.name, "get" | "list" | "watch") {
                    *self.hour.objects.entry(e.field("client").unwrap_or_default().to_owned()).or_default() += 1;
                }
                false
            }
            "log" if e.text.starts_with("store commit ") => {
                self.hour.rows += 1;
                false
            }
            "log" if e.text.starts_with("snapshot sent ") => {
                let under_way = self.under_way.entry(replica()).or_default();
                *under_way += 1;
                self.hour.queue = self.hour.queue.max(*under_way);
                false
            }
            "log" if e.text.starts_with("snapshot received ") => {
                let under_way = self.under_way.entry(replica()).or_default();
                *under_way = under_way.saturating_sub(1);
                false
            }
            "log" if e.text.starts_with("Sandbox phase changed ") => {
                self.hour.changes.push(e.text.clone());
                true
            }
            // What else is said is news from `info` on.
            "log" => e.name != "debug" && e.name != "trace",
            "span" | "span-end" | "watch" => false,
            _ => true,
        }
    }
}

/// What is wrong with an hour, by the limits and by the first hour.
fn wrong(hour: &Hour, first: &Hour, limits: Limits) -> Option<String> {
    let objects: u64 = hour.objects.values().sum();
    if let Some(change) = hour.changes.first() {
        return Some(format!("no phase to change; {} changes, the first: {change}", hour.changes.len()));
    }
    if objects > limits.objects {
        return Some(format!("at most {} writes of objects; there were {:?}", limits.objects, hour.objects));
    }
    if hour.rows > limits.rows {
        return Some(format!("at most {} writes of rows; there were {}", limits.rows, hour.rows));
    }
    // How the lists and pushes of two periods meet may differ by a few.
    if hour.queue > 2 * first.queue.max(1) {
        return Some(format!(
            "at most twice the {} snapshots under way of the first hour; it had {}",
            first.queue, hour.queue
        ));
    }
    None
}

impl Action for Idle {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let count = Arc::new(Mutex::new(Count::default()));
        let lock = |count: &Mutex<Count>, act: &mut dyn FnMut(&mut Count) -> bool| -> bool {
            act(&mut count.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let trace = scene.trace().clone();
        let counted = count.clone();
        trace.keep(move |e| lock(&counted, &mut |count| count.note(e)));
        scene.choices().remember_defaults(false);
        let (mut first, mut missed) = (None, None);
        let mut left = self.lasts;
        for n in 1.. {
            let span = left.min(HOUR);
            left -= span;
            scene.run_for(span)?;
            // What steps wait for is read from the trace as it grows.
            scene.live::<Rig>().row("");
            let hour = std::mem::take(&mut count.lock().unwrap_or_else(PoisonError::into_inner).hour);
            trace.entry("step", "idle").host("world").text(format!("hour {n}: {hour}")).record();
            let first = first.get_or_insert_with(|| hour.clone());
            missed =
                missed.or_else(|| wrong(&hour, first, self.limits).map(|why| format!("expected in hour {n} {why}")));
            if left.is_zero() {
                break;
            }
        }
        trace.keep_all();
        scene.choices().remember_defaults(true);
        missed.map_or(Ok(()), |why| Err(StepError::Missed(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(objects: u64, rows: u64, queue: u64, changes: &[&str]) -> Hour {
        let objects = [("driver".to_owned(), objects)].into();
        Hour { objects, rows, queue, changes: changes.iter().map(|c| (*c).to_owned()).collect() }
    }

    #[test]
    fn an_hour_is_wrong_by_a_change_of_phase_too_many_writes_or_a_queue_that_grows() {
        let limits = Limits { objects: 10, rows: 100 };
        let first = hour(10, 100, 3, &[]);
        for (hour, expected) in [
            (hour(10, 100, 6, &[]), None),
            (hour(11, 0, 0, &[]), Some("at most 10 writes of objects; there were {\"driver\": 11}")),
            (hour(0, 101, 0, &[]), Some("at most 100 writes of rows; there were 101")),
            (hour(0, 0, 7, &[]), Some("at most twice the 3 snapshots under way of the first hour; it had 7")),
            (hour(0, 0, 0, &["a", "b"]), Some("no phase to change; 2 changes, the first: a")),
        ] {
            assert_eq!(wrong(&hour, &first, limits).as_deref(), expected, "{hour}");
        }
    }

    #[test]
    fn the_queue_is_what_was_sent_and_not_yet_received_by_replica() {
        let entry = |host: &'static str, text: &str| Entry {
            id: 0,
            at_ns: 0,
            host: host.into(),
            kind: "log".into(),
            name: "debug".into(),
            text: text.into(),
            fields: vec![],
            spans: vec![],
            cause: None,
        };
        let mut count = Count::default();
        for host in ["driver", "driver", "driver-2"] {
            assert!(!count.note(&entry(host, "snapshot sent a=b")));
        }
        for host in ["gateway", "gateway", "gateway"] {
            assert!(!count.note(&entry(host, "snapshot received a=b")));
        }
        assert!(!count.note(&entry("driver", "snapshot sent a=b")));
        assert_eq!((count.hour.queue, &count.under_way["-2"], &count.under_way[""]), (2, &1, &1));
        assert!(count.note(&entry("gateway", "Sandbox phase changed old_phase=Ready")));
        assert_eq!(count.hour.changes.len(), 1);
    }
}
