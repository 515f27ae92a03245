//! What holds for any interleaving of writers, readers and watchers, on two servers over one history, of which one may
//! lag and both may restart:
//!
//! - a watch shows exactly the changes of the history after its revision, through its selector, once and in order;
//! - a list and the watch from its revision give the full state;
//! - a watch that goes on from the last revision that was seen misses nothing and doubles nothing, or says 410;
//! - the pages of a list are one snapshot, or 410.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::{ApiServer, Body};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SELECTOR: &str = "labelSelector=in%3Dyes";

/// One step of somebody.
#[derive(Clone, Debug)]
enum Step {
    /// Creates or changes the object of this number, inside or outside of the selection.
    Put(u8, bool),
    Delete(u8),
    /// Begins to watch: on the second server or the first, the selection or all, with a streaming list or a plain one.
    Watch {
        second: bool,
        selected: bool,
        streaming: bool,
    },
    /// A watcher reads what there is.
    Read(u8),
    /// A watcher's connection breaks, and it goes on on a server.
    Resume(u8, bool),
    /// Begins to read pages of so many.
    Page(u8),
    /// Reads the next page of every list that has one.
    NextPages,
    /// The second server falls behind, or catches up.
    Hold(bool),
    /// A server is restarted.
    Restart(bool),
    /// The history is compacted to the present.
    Compact,
    /// Seconds pass.
    Pass(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..5u8, any::<bool>()).prop_map(|(n, selected)| Step::Put(n, selected)),
        5 => (0..5u8).prop_map(Step::Delete),
        3 => any::<(bool, bool, bool)>()
            .prop_map(|(second, selected, streaming)| Step::Watch { second, selected, streaming }),
        6 => any::<u8>().prop_map(Step::Read),
        4 => any::<(u8, bool)>().prop_map(|(which, second)| Step::Resume(which, second)),
        2 => (1..4u8).prop_map(Step::Page),
        3 => Just(Step::NextPages),
        2 => any::<bool>().prop_map(Step::Hold),
        1 => any::<bool>().prop_map(Step::Restart),
        1 => Just(Step::Compact),
        2 => (1..90u8).prop_map(Step::Pass),
    ]
}

/// A write, as its writer saw it: whether the object was there and selected before and after.
struct Write {
    revision: u64,
    name: String,
    before: Option<bool>,
    after: Option<bool>,
}

type Seen = (u64, &'static str, String);

struct Watcher {
    selected: bool,
    /// `None`: the connection is gone.
    body: Option<Body>,
    /// The state that follows from what was listed and seen.
    state: BTreeMap<String, u64>,
    /// Revision of the list.
    listed: u64,
    /// Events since, with their revisions.
    seen: Vec<Seen>,
    last: u64,
}

struct Pages {
    limit: u8,
    revision: u64,
    next: String,
    items: Vec<(String, u64)>,
}

struct Play {
    servers: [ApiServer; 2],
    writes: Vec<Write>,
    selected: BTreeMap<String, bool>,
    watchers: Vec<Watcher>,
    pages: Vec<Pages>,
    compacted: bool,
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok()).expect("a revision")
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().expect("a name").to_owned()
}

async fn send(server: &ApiServer, method: &str, uri: &str, body: &Value) -> http::Response<Body> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(uri).header("content-type", kind);
    server.clone().oneshot(request.body(Full::new(Bytes::from(body))).expect("a request")).await.expect("an answer")
}

async fn json_of(response: http::Response<Body>) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("whole").to_bytes();
    (status, serde_json::from_slice(&bytes).expect("JSON"))
}

async fn get(server: &ApiServer, query: &str) -> (u16, Value) {
    json_of(send(server, "GET", &format!("{MAPS}?{query}"), &Value::Null).await).await
}

fn selection(selected: bool) -> &'static str {
    if selected { SELECTOR } else { "labelSelector=" }
}

/// What a watch shows of the writes after a revision, up to another.
fn shown(writes: &[Write], after: u64, upto: u64, selected: bool) -> Vec<Seen> {
    let inside = |state: Option<bool>| state.is_some_and(|is| is || !selected);
    let new = writes.iter().filter(|write| write.revision > after && write.revision <= upto);
    new.filter_map(|write| {
        let kind = match (inside(write.before), inside(write.after)) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        Some((write.revision, kind, write.name.clone()))
    })
    .collect()
}

/// The objects at a revision, with their own revisions.
fn state_at(writes: &[Write], revision: u64, selected: bool) -> BTreeMap<String, u64> {
    let mut state = BTreeMap::new();
    for (revision, kind, name) in shown(writes, 0, revision, selected) {
        match kind {
            "DELETED" => drop(state.remove(&name)),
            _ => drop(state.insert(name, revision)),
        }
    }
    state
}

impl Play {
    fn new() -> Play {
        let front = ApiServer::builder().servers(&["a", "b"]).build();
        let server = |name| front.server(name).expect("named");
        Play {
            servers: [server("a"), server("b")],
            writes: Vec::new(),
            selected: BTreeMap::new(),
            watchers: Vec::new(),
            pages: Vec::new(),
            compacted: false,
        }
    }

    async fn act(&mut self, step: &Step) {
        match *step {
            Step::Put(n, selected) => self.put(format!("m{n}"), selected).await,
            Step::Delete(n) => self.delete(format!("m{n}")).await,
            Step::Watch { second, selected, streaming } => {
                let watcher = self.begin(usize::from(second), selected, streaming).await;
                self.watchers.extend(watcher);
            }
            Step::Read(which) if !self.watchers.is_empty() => {
                let at = usize::from(which) % self.watchers.len();
                self.read(at);
            }
            Step::Resume(which, second) if !self.watchers.is_empty() => {
                let at = usize::from(which) % self.watchers.len();
                self.resume(at, usize::from(second)).await;
            }
            Step::Read(_) | Step::Resume(..) => {}
            Step::Page(limit) => self.page(limit).await,
            Step::NextPages => self.next_pages().await,
            Step::Hold(true) => self.servers[1].fall_behind(),
            Step::Hold(false) => self.servers[1].catch_up(),
            Step::Restart(second) => self.servers[usize::from(second)].restart(),
            Step::Compact => {
                let store = self.servers[0].store();
                store.compact(store.revision());
                self.compacted = true;
            }
            Step::Pass(seconds) => tokio::time::advance(std::time::Duration::from_secs(seconds.into())).await,
        }
    }

    async fn put(&mut self, name: String, selected: bool) {
        let before = self.selected.get(&name).copied();
        let label = if selected { "yes" } else { "no" };
        let n = self.writes.len().to_string();
        let map = json!({"metadata": {"name": name, "labels": {"in": label}}, "data": {"n": n}});
        let (status, object) = match before {
            None => json_of(send(&self.servers[0], "POST", MAPS, &map).await).await,
            Some(_) => json_of(send(&self.servers[0], "PATCH", &format!("{MAPS}/{name}"), &map).await).await,
        };
        assert!(status < 300, "{object}");
        self.selected.insert(name.clone(), selected);
        self.writes.push(Write { revision: revision(&object), name, before, after: Some(selected) });
    }

    async fn delete(&mut self, name: String) {
        let Some(before) = self.selected.remove(&name) else { return };
        let (status, _) =
            json_of(send(&self.servers[0], "DELETE", &format!("{MAPS}/{name}"), &Value::Null).await).await;
        assert_eq!(status, 200);
        let revision = self.servers[0].store().revision();
        self.writes.push(Write { revision, name, before: Some(before), after: None });
    }

    /// Lists, plainly or in the stream, and watches from there. `None`: the server's cache is too far behind.
    async fn begin(&self, server: usize, selected: bool, streaming: bool) -> Option<Watcher> {
        let server = &self.servers[server];
        if !streaming {
            let (status, list) = get(server, &format!("resourceVersion=0&{}", selection(selected))).await;
            assert_eq!(status, 200, "{list}");
            let listed = revision(&list);
            let items = list["items"].as_array().expect("a list");
            let state = items.iter().map(|item| (name(item), revision(item))).collect();
            let body = self.watch(server, listed, selected).await;
            let seen = Vec::new();
            return Some(Watcher { selected, body: Some(body), state, listed, seen, last: listed });
        }
        let query = format!(
            "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&{}",
            selection(selected)
        );
        let mut body = send(server, "GET", &query, &Value::Null).await.into_body();
        let mut state = BTreeMap::new();
        loop {
            let frame = body.frame().await.expect("no end").expect("no break");
            let event: Value = serde_json::from_slice(&frame.into_data().expect("data")).expect("JSON");
            match event["type"].as_str() {
                Some("ADDED") => drop(state.insert(name(&event["object"]), revision(&event["object"]))),
                Some("BOOKMARK") => {
                    let listed = revision(&event["object"]);
                    let seen = Vec::new();
                    return Some(Watcher { selected, body: Some(body), state, listed, seen, last: listed });
                }
                // A held cache does not reach the present.
                _ => {
                    assert_eq!(event["object"]["code"], 504, "{event}");
                    return None;
                }
            }
        }
    }

    async fn watch(&self, server: &ApiServer, from: u64, selected: bool) -> Body {
        let uri = format!("{MAPS}?watch=1&resourceVersion={from}&{}", selection(selected));
        let response = send(server, "GET", &uri, &Value::Null).await;
        assert_eq!(response.status(), 200, "watches are refused in the stream, if at all");
        response.into_body()
    }

    /// Reads what there is. True: the revision has expired.
    fn read(&mut self, at: usize) -> bool {
        let watcher = &mut self.watchers[at];
        while let Some(frame) = watcher.body.as_mut().and_then(|body| body.frame().now_or_never()) {
            let Some(Ok(frame)) = frame else {
                watcher.body = None;
                return false;
            };
            let event: Value = serde_json::from_slice(&frame.into_data().expect("data")).expect("JSON");
            let object = &event["object"];
            let kind = match event["type"].as_str().expect("a type") {
                "ADDED" => "ADDED",
                "MODIFIED" => "MODIFIED",
                "DELETED" => "DELETED",
                "BOOKMARK" => {
                    assert!(revision(object) >= watcher.last, "bookmarks do not go back");
                    watcher.last = revision(object);
                    continue;
                }
                _ => {
                    assert_eq!(object["code"], 410, "{event}");
                    watcher.body = None;
                    return true;
                }
            };
            let (name, revision) = (name(object), revision(object));
            match kind {
                "DELETED" => assert!(watcher.state.remove(&name).is_some(), "only what was there goes"),
                "ADDED" => assert!(watcher.state.insert(name.clone(), revision).is_none(), "{name} came twice"),
                _ => {
                    assert!(watcher.state.insert(name.clone(), revision).is_some(), "{name} changes, but was not there")
                }
            }
            watcher.seen.push((revision, kind, name));
            watcher.last = revision;
        }
        false
    }

    async fn resume(&mut self, at: usize, server: usize) {
        let (last, selected) = (self.watchers[at].last, self.watchers[at].selected);
        let body = self.watch(&self.servers[server], last, selected).await;
        self.watchers[at].body = Some(body);
        if self.read(at)
            && let Some(again) = self.begin(server, selected, false).await
        {
            self.check(at);
            self.watchers[at] = again;
        }
    }

    async fn page(&mut self, limit: u8) {
        let (status, list) = get(&self.servers[0], &format!("limit={limit}")).await;
        assert_eq!(status, 200);
        self.pages.push(Pages { limit, revision: revision(&list), next: String::new(), items: Vec::new() });
        let last = self.pages.len() - 1;
        self.take_page(last, &list);
    }

    fn take_page(&mut self, at: usize, list: &Value) {
        let pages = &mut self.pages[at];
        assert_eq!(revision(list), pages.revision, "all pages are of one revision");
        let items = list["items"].as_array().expect("a list");
        assert!(items.len() <= usize::from(pages.limit));
        pages.items.extend(items.iter().map(|item| (name(item), revision(item))));
        pages.next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if pages.next.is_empty() {
            let whole: Vec<_> = state_at(&self.writes, pages.revision, false).into_iter().collect();
            assert_eq!(pages.items, whole, "the pages are the snapshot of revision {}", pages.revision);
        }
    }

    async fn next_pages(&mut self) {
        for at in 0..self.pages.len() {
            let Pages { limit, next, .. } = &self.pages[at];
            if next.is_empty() {
                continue;
            }
            let query = format!("limit={limit}&continue={next}");
            match get(&self.servers[at % 2], &query).await {
                (200, list) => self.take_page(at, &list),
                (410, _) => {
                    assert!(self.compacted, "only compaction expires a page");
                    self.pages[at].next.clear();
                }
                (status, answer) => panic!("{status}: {answer}"),
            }
        }
    }

    /// Everything that was seen was right, and nothing was left out before the last of it.
    fn check(&self, at: usize) {
        let watcher = &self.watchers[at];
        let expected = shown(&self.writes, watcher.listed, watcher.last, watcher.selected);
        assert_eq!(watcher.seen, expected, "watch from {} on", watcher.listed);
        assert_eq!(watcher.state, state_at(&self.writes, watcher.last, watcher.selected));
    }

    async fn end(mut self) {
        self.servers[1].catch_up();
        self.next_pages().await;
        for at in 0..self.watchers.len() {
            self.read(at);
            self.check(at);
            if self.watchers[at].body.is_none() {
                self.resume(at, at % 2).await;
                self.check(at);
            }
            // An open watch of a server that has caught up has shown everything.
            let newest = self.servers[0].store().revision();
            let selected = self.watchers[at].selected;
            assert_eq!(self.watchers[at].state, state_at(&self.writes, newest, selected));
        }
    }
}

fn play(steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut play = Play::new();
        for step in steps {
            play.act(step).await;
        }
        play.end().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_watch_is_the_history_and_every_list_a_snapshot_of_it(steps in prop::collection::vec(step(), 1..60)) {
        play(&steps);
    }
}

#[test]
fn the_properties_notice_a_watcher_that_missed_an_event() {
    let writes = [
        Write { revision: 5, name: "m".into(), before: None, after: Some(true) },
        Write { revision: 7, name: "m".into(), before: Some(true), after: Some(false) },
    ];
    assert_eq!(shown(&writes, 0, 9, true), [(5, "ADDED", "m".into()), (7, "DELETED", "m".into())]);
    assert_eq!(shown(&writes, 5, 9, false), [(7, "MODIFIED", "m".into())]);
    assert_eq!(state_at(&writes, 6, true), BTreeMap::from([("m".into(), 5)]));
    assert_eq!(state_at(&writes, 7, true), BTreeMap::new());
}
