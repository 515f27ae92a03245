//! A watch alone: what it asks for, what it shows of the history, and when it tells how far it has come.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Context;

use futures::StreamExt;

use super::*;
use crate::hooks::{Plain, Straight};
use crate::resource::SandboxVersions;

/// A server's cache over a history of its own, and one type.
struct Rig {
    source: Source,
    began: Instant,
}

type Lines = Pin<Box<dyn Stream<Item = Result<Bytes, Lost>> + Send>>;

impl Rig {
    fn of(plural: &str) -> Rig {
        let store = Store::new(SandboxVersions::Both, true, false);
        let table = crate::store::position(&store.lock(), plural).expect("registered");
        let caches = Arc::new(Caches::new("a", Arc::new(Plain)));
        Rig { source: Source { store, caches, table, backlog: 100 }, began: Instant::now() }
    }

    fn write(&self, key: &str, n: usize) -> u64 {
        let (_, name) = key.split_once('/').expect("namespace and name");
        let value = json!({"metadata": {"name": name, "labels": {"n": n.to_string()}}});
        self.source.store.lock().commit(self.source.table, key, Some(value)).revision
    }

    /// A write of the server's own, that only moves the revision.
    fn tick(&self) -> u64 {
        self.source.store.lock().tick()
    }

    fn watch(&self, query: &str) -> Lines {
        self.watch_by(query, View::STORAGE, "", Box::new(Straight::default()))
    }

    fn watch_by(&self, query: &str, view: View, labels: &str, pipe: Box<dyn WatchPipe>) -> Lines {
        let options = Options::parse(&Query::parse(query)).expect("allowed options");
        let resource = self.source.store.lock().tables[self.source.table].resource.clone();
        let selector = Selector::parse(&resource, 0, labels, "").expect("a selector");
        Box::pin(Watch::new(self.source.clone(), view, "d", selector, &options, false, pipe).lines())
    }

    /// The next event: seconds since the beginning, type, name (of a status: reason), revision. `None`: the stream is over.
    async fn told(&self, lines: &mut Lines) -> Option<(f64, String)> {
        let event = event(lines).await?;
        let object = &event["object"];
        let name = [&object["metadata"]["name"], &object["reason"]].into_iter().find_map(Value::as_str);
        let words = [event["type"].as_str(), name, object["metadata"]["resourceVersion"].as_str()];
        let text = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
        Some((self.began.elapsed().as_millis() as f64 / 1000.0, text))
    }

    /// Everything until the end, or the first dozen events.
    async fn all(&self, mut lines: Lines) -> Vec<(f64, String)> {
        let mut all = Vec::new();
        while all.len() < 12
            && let Some(told) = self.told(&mut lines).await
        {
            all.push(told);
        }
        all
    }
}

async fn event(lines: &mut Lines) -> Option<Value> {
    let line = lines.next().await?.expect("the connection stands");
    Some(serde_json::from_slice(&line).expect("an event is JSON"))
}

fn at(seconds: f64, text: String) -> (f64, String) {
    (seconds, text)
}

#[test]
fn a_query_says_where_the_stream_starts_and_how_long_it_lives() {
    let state = |not_older_than, streaming| Start::State { not_older_than, streaming };
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let none = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let marked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let table = [
        ("", state(None, false), false, false, 1_800),
        ("resourceVersion=0", state(Some(0), false), false, false, 1_800),
        ("resourceVersion=7", Start::After(7), false, true, 1_800),
        ("resourceVersion=7&allowWatchBookmarks=true", Start::After(7), false, true, 1_800),
        ("allowWatchBookmarks=true", state(None, false), true, false, 1_800),
        (initial, state(None, true), false, false, 1_800),
        (marked, state(None, true), true, false, 1_800),
        (none, Start::Now, false, false, 1_800),
        ("timeoutSeconds=1", state(None, false), false, false, 1),
        ("timeoutSeconds=0", state(None, false), false, false, 1_800),
        ("timeoutSeconds=-5", state(None, false), false, false, 1_800),
        // A year.
        ("timeoutSeconds=9223372036854775807", state(None, false), false, false, 31_536_000),
    ];
    for (query, start, marker, resumes, seconds) in table {
        let options = Options::parse(&Query::parse(query)).expect(query);
        assert_eq!((options.start, options.marker, options.resumes()), (start, marker, resumes), "{query}");
        assert_eq!(options.timeout, Duration::from_secs(seconds), "{query}");
    }
}

#[test]
fn initial_events_and_the_match_are_asked_for_together_or_not_at_all() {
    const ALONE: &str = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    const UNMATCHED: &str = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    const UNKNOWN: &str = "Unsupported value";
    let table: [(&str, &[&str]); 6] = [
        ("", &[]),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", &[]),
        ("resourceVersionMatch=NotOlderThan", &[ALONE]),
        ("resourceVersionMatch=Exact", &[ALONE]),
        ("sendInitialEvents=true", &[UNMATCHED]),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", &[UNMATCHED, UNKNOWN]),
    ];
    for (query, causes) in table {
        let message = match Options::parse(&Query::parse(query)) {
            Ok(_) => String::new(),
            Err(error) => error.status.as_deref().map(Value::to_string).unwrap_or_default(),
        };
        for cause in [ALONE, UNMATCHED, UNKNOWN] {
            assert_eq!(message.contains(cause), causes.contains(&cause), "{query}: {message}");
        }
    }
}

#[test]
fn through_a_selector_an_object_enters_changes_and_leaves() {
    let rig = Rig::of("configmaps");
    for n in [1, 2, 2, 1] {
        rig.write("d/a", n);
    }
    let mut history = rig.source.store.lock();
    history.commit(rig.source.table, "d/a", None);
    let table = &history.tables[rig.source.table];
    let seen = |labels: &str| {
        let selector = Selector::parse(&table.resource, 0, labels, "").expect("a selector");
        table.since(0).map(|change| seen_as(change, &selector)).collect::<Vec<_>>()
    };
    use EventType::*;
    assert_eq!(seen(""), [Some(Added), Some(Modified), Some(Modified), Some(Modified), Some(Deleted)]);
    assert_eq!(seen("n=2"), [None, Some(Added), Some(Modified), Some(Deleted), None]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_2_s_before_the_end_with_the_revision_of_everything() {
    let rig = Rig::of("configmaps");
    rig.write("d/a", 1);
    let started = rig.tick();
    let quiet = rig.all(rig.watch(&format!("resourceVersion={started}&timeoutSeconds=150"))).await;
    assert_eq!(quiet, [], "nobody asked for any");

    let rig = Rig::of("configmaps");
    rig.write("d/a", 1);
    let started = rig.tick();
    let lines = rig.watch(&format!("resourceVersion={started}&timeoutSeconds=150&allowWatchBookmarks=true"));
    let latest = rig.tick();
    let bookmark = || format!("BOOKMARK {latest}");
    assert_eq!(rig.all(lines).await, [at(60.0, bookmark()), at(120.0, bookmark()), at(148.0, bookmark())]);
    assert_eq!(rig.began.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_the_present_has_its_first_bookmark_early_if_something_has_happened() {
    for happens in [false, true] {
        let rig = Rig::of("configmaps");
        let there = rig.write("d/a", 1);
        let mut lines = rig.watch("resourceVersion=0&timeoutSeconds=100&allowWatchBookmarks=true");
        assert_eq!(rig.told(&mut lines).await, Some(at(0.0, format!("ADDED a {there}"))));
        assert_eq!(rig.told(&mut lines).await, Some(at(0.0, format!("BOOKMARK {there}"))), "the state is complete");
        if happens {
            let changed = rig.write("d/a", 2);
            assert_eq!(rig.told(&mut lines).await, Some(at(0.0, format!("MODIFIED a {changed}"))));
            let latest = rig.tick();
            assert_eq!(rig.told(&mut lines).await, Some(at(0.5, format!("BOOKMARK {latest}"))));
        }
        let latest = rig.tick();
        assert_eq!(rig.told(&mut lines).await, Some(at(60.5, format!("BOOKMARK {latest}"))), "happens: {happens}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_has_nothing_but_its_revision_and_of_events_what_an_event_always_has() {
    const MARKED: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let partial = View { version: 0, metadata_only: true };
    for (plural, view, kind, members) in [
        ("configmaps", View::STORAGE, "ConfigMap", 3),
        ("configmaps", partial, "PartialObjectMetadata", 3),
        ("events", View::STORAGE, "Event", 10),
        ("events", partial, "PartialObjectMetadata", 3),
    ] {
        let rig = Rig::of(plural);
        let latest = rig.tick();
        let mut lines = rig.watch_by(MARKED, view, "", Box::new(Straight::default()));
        let bookmark = event(&mut lines).await.expect("the marker");
        let metadata =
            json!({"resourceVersion": latest.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}});
        assert_eq!(bookmark["object"]["metadata"], metadata, "{plural}");
        assert_eq!(bookmark["object"]["kind"], kind);
        assert_eq!(bookmark["object"].as_object().expect("an object").len(), members, "{plural} {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_behind_shows_what_it_has_and_then_what_arrives() {
    let rig = Rig::of("configmaps");
    let old = rig.write("d/a", 1);
    rig.source.caches.hold(&rig.source.store.lock());
    let new = rig.write("d/a", 2);
    let mut lines = rig.watch("resourceVersion=0&timeoutSeconds=200&allowWatchBookmarks=true");
    assert_eq!(rig.told(&mut lines).await, Some(at(0.0, format!("ADDED a {old}"))));
    assert_eq!(rig.told(&mut lines).await, Some(at(0.0, format!("BOOKMARK {old}"))), "complete as of what it has");
    assert_eq!(rig.told(&mut lines).await, Some(at(60.5, format!("BOOKMARK {old}"))), "not beyond what it has");
    rig.source.caches.go_on();
    assert_eq!(rig.told(&mut lines).await, Some(at(60.5, format!("MODIFIED a {new}"))));

    // A client has seen elsewhere what this server does not have yet.
    rig.source.caches.hold(&rig.source.store.lock());
    let elsewhere = rig.write("d/a", 3);
    rig.tick();
    let mut lines = rig.watch(&format!("resourceVersion={elsewhere}&timeoutSeconds=100&allowWatchBookmarks=true"));
    assert_eq!(rig.told(&mut lines).await, Some(at(120.5, format!("BOOKMARK {elsewhere}"))));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_the_latest_change_of_a_type_is_complete_up_to_the_present() {
    let rig = Rig::of("configmaps");
    let there = rig.write("d/a", 1);
    rig.source.caches.set_lag(&rig.source.store.lock(), Duration::ZERO);
    let latest = rig.tick();
    let lines = rig.watch("resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true");
    let expected = [at(0.0, format!("ADDED a {there}")), at(0.0, format!("BOOKMARK {latest}"))];
    assert_eq!(rig.all(lines).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_changes_arrive_late_tells_them_when_they_do_and_no_bookmark_before_its_time() {
    let rig = Rig::of("configmaps");
    rig.source.caches.set_lag(&rig.source.store.lock(), Duration::from_secs(2));
    let started = rig.tick();
    let lines = rig.watch(&format!("resourceVersion={started}&timeoutSeconds=70&allowWatchBookmarks=true"));
    let changed = rig.write("d/a", 1);
    let latest = rig.tick();
    let expected = [
        at(2.0, format!("ADDED a {changed}")),
        at(60.0, format!("BOOKMARK {latest}")),
        at(68.0, format!("BOOKMARK {latest}")),
    ];
    assert_eq!(rig.all(lines).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_asked_for_is_waited_for_3_s_and_by_events_not_at_all() {
    let rig = Rig::of("configmaps");
    let query = |from: u64| {
        format!("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={from}&timeoutSeconds=10")
    };
    let lines = rig.watch(&query(1_000));
    assert_eq!(rig.all(lines).await, [at(3.0, "ERROR Timeout".into())]);

    let rig = Rig::of("events");
    assert_eq!(rig.all(rig.watch(&query(1_000))).await, []);
    assert_eq!(rig.began.elapsed().as_secs(), 10, "it is open all its time");
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_gone_is_told_at_once_and_the_oldest_that_is_there_is_served() {
    for plural in ["configmaps", "events"] {
        let rig = Rig::of(plural);
        rig.write("d/a", 1);
        let oldest = {
            let mut history = rig.source.store.lock();
            history.close_window();
            let oldest = history.window();
            history.compact(oldest, true);
            oldest
        };
        let later = rig.write("d/a", 2);
        let from = |revision: u64| rig.watch(&format!("resourceVersion={revision}&timeoutSeconds=5"));
        assert_eq!(rig.all(from(oldest - 1)).await, [at(0.0, "ERROR Expired".into())], "{plural}");
        assert_eq!(rig.all(from(oldest)).await, [at(0.0, format!("MODIFIED a {later}"))], "{plural}");
        assert_eq!(rig.all(from(oldest + 1)).await, [], "{plural}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_shows_its_namespace_and_what_its_selector_matches() {
    let rig = Rig::of("configmaps");
    let (one, _) = (rig.write("d/a", 1), rig.write("d/b", 2));
    rig.write("e/a", 1);
    let lines = rig.watch_by("timeoutSeconds=1", View::STORAGE, "n=1", Box::new(Straight::default()));
    let (enters, _) = (rig.write("d/b", 1), rig.write("e/a", 1));
    let expected = [at(0.0, format!("ADDED a {one}")), at(0.0, format!("ADDED b {enters}"))];
    assert_eq!(rig.all(lines).await[..2], expected[..]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_too_much_unread_is_given_up_after_what_it_was_sent() {
    for (writes, ends) in [(2, 1.0), (3, 0.0)] {
        let mut rig = Rig::of("configmaps");
        rig.source.backlog = 2;
        let started = rig.tick();
        let mut lines = rig.watch(&format!("resourceVersion={started}&timeoutSeconds=1"));
        // The stream is open, and waits.
        let waits = tokio::time::timeout(Duration::ZERO, lines.next()).await;
        assert!(waits.is_err());
        for n in 0..writes {
            rig.write("d/a", n);
        }
        let told: Vec<String> = rig.all(lines).await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(told, [format!("ADDED a {}", started + 1), format!("MODIFIED a {}", started + 2)]);
        assert_eq!(rig.began.elapsed().as_secs_f64(), ends, "{writes} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_type_and_breaks_with_its_server() {
    let rig = Rig::of("configmaps");
    let rebuilt = rig.watch("");
    rig.source.store.lock().rebuild(rig.source.table);
    assert_eq!(rig.all(rebuilt).await, []);

    type End = fn(&Rig);
    let ends: [End; 2] =
        [|rig| rig.source.caches.stop(Stage::Dead), |rig| rig.source.caches.start(&mut rig.source.store.lock())];
    for end in ends {
        let rig = Rig::of("configmaps");
        let mut lines = rig.watch("timeoutSeconds=10");
        let waits = tokio::time::timeout(Duration::ZERO, lines.next()).await;
        assert!(waits.is_err());
        end(&rig);
        assert_eq!(lines.next().await, Some(Err(Lost)));
        assert_eq!(lines.next().await, None);
        assert_eq!(rig.began.elapsed(), Duration::ZERO);
    }
}

/// A pipe that tears its first event.
#[derive(Default)]
struct Tearing(VecDeque<WatchItem>);

impl WatchPipe for Tearing {
    fn send(&mut self, item: WatchItem) {
        self.0.push_back(item);
    }
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Handed> {
        self.0.pop_front().map_or(Poll::Pending, |item| Poll::Ready(Handed::Torn(item)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_torn_event_is_told_by_half_before_the_connection_breaks() {
    let rig = Rig::of("configmaps");
    rig.write("d/a", 1);
    let whole = rig.watch("").next().await.expect("an event").expect("the connection stands");
    let mut lines = rig.watch_by("", View::STORAGE, "", Box::new(Tearing::default()));
    let half = lines.next().await.expect("an event").expect("the connection stands");
    assert_eq!(half, whole[..whole.len() / 2]);
    assert_eq!(lines.next().await, Some(Err(Lost)));
    assert_eq!(lines.next().await, None);
}
