use serde_json::json;

use super::*;
use crate::resource::{SandboxVersions, registry};

fn history() -> (History, usize) {
    let history = History::new(registry(SandboxVersions::Both, true));
    let table = history.tables.iter().position(|t| t.resource.plural == "configmaps").expect("registered");
    (history, table)
}

fn names(state: &BTreeMap<String, Arc<Object>>) -> Vec<&str> {
    state.keys().map(String::as_str).collect()
}

#[test]
fn every_earlier_revision_can_be_read_again() {
    let (mut history, table) = history();
    let value = |n: i64| Some(json!({"metadata": {"name": "x"}, "data": {"n": n}}));
    let a = history.commit(table, "d/a", value(1)).revision;
    let b = history.commit(table, "d/b", value(1)).revision;
    let changed = history.commit(table, "d/a", value(2)).revision;
    let gone = history.commit(table, "d/b", None).revision;
    let t = &history.tables[table];
    assert_eq!(names(&t.at(a - 1)), Vec::<&str>::new());
    assert_eq!(names(&t.at(a)), ["d/a"]);
    assert_eq!(names(&t.at(b)), ["d/a", "d/b"]);
    assert_eq!(t.at(b)["d/a"].value()["data"]["n"], 1);
    assert_eq!(t.at(changed)["d/a"].value()["data"]["n"], 2);
    assert_eq!(names(&t.at(gone)), ["d/a"]);
}

#[test]
fn a_deletion_has_a_revision_of_its_own_and_the_last_state() {
    let (mut history, table) = history();
    let made = history.commit(table, "d/a", Some(json!({"metadata": {"name": "a"}, "data": {"k": "v"}})));
    let gone = history.commit(table, "d/a", None);
    assert_eq!(gone.revision, made.revision + 1);
    assert_eq!(gone.value()["metadata"]["resourceVersion"], gone.revision.to_string());
    assert_eq!(gone.value()["data"]["k"], "v");
}

#[test]
fn every_line_begins_with_the_name_of_its_event() {
    let all = [EventType::Added, EventType::Modified, EventType::Deleted, EventType::Bookmark, EventType::Error];
    for kind in all {
        assert_eq!(opening(kind), format!("{{\"type\":\"{}\",\"object\":", kind.as_str()));
    }
}

#[test]
fn a_watch_to_which_an_object_is_new_shares_its_line_with_others_to_which_it_is() {
    let (mut history, table) = history();
    let value = |n: i64| Some(json!({"metadata": {"name": "a"}, "data": {"n": n}}));
    history.commit(table, "d/a", value(1));
    let revision = history.commit(table, "d/a", value(2)).revision;
    let t = &history.tables[table];
    let change = t.since(revision - 1).next().expect("one change");
    let lines = |kind| [0; 2].map(|_| change.line(&t.resource, kind, View::STORAGE));
    for (kind, told) in
        [(EventType::Added, "ADDED"), (EventType::Modified, "MODIFIED"), (EventType::Deleted, "DELETED")]
    {
        let [one, two] = lines(kind);
        assert_eq!(one.as_ptr(), two.as_ptr(), "{told}");
        let event: Value = serde_json::from_slice(&one).expect("an event is JSON");
        assert_eq!(event["type"], told);
        assert_eq!(event["object"]["metadata"]["resourceVersion"], revision.to_string(), "{told}");
        assert_eq!(event["object"]["data"]["n"], if told == "DELETED" { 1 } else { 2 }, "{told}");
    }
}

#[test]
fn two_streams_share_the_bytes_of_an_event() {
    let (mut history, table) = history();
    history.commit(table, "d/a", Some(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}})));
    let t = &history.tables[table];
    let change = t.since(0).next().expect("one change");
    let one = change.line(&t.resource, EventType::Added, View::STORAGE);
    let two = change.line(&t.resource, EventType::Added, View::STORAGE);
    assert_eq!(one.as_ptr(), two.as_ptr());
    assert_eq!(
        one,
        r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"2"}}}
"#
    );
}

/// The state of this number, as a write that nobody minds.
fn state(n: usize) -> Option<Value> {
    Some(json!({"metadata": {"name": "x"}, "data": {"n": n}}))
}

#[test]
fn an_object_can_be_read_as_of_each_revision() {
    let (mut history, table) = history();
    let made = history.commit(table, "d/a", state(1)).revision;
    let other = history.commit(table, "d/b", state(7)).revision;
    let changed = history.commit(table, "d/a", state(2)).revision;
    let gone = history.commit(table, "d/a", None).revision;
    let t = &history.tables[table];
    let read = |revision| t.get_at("d/a", revision).map(|object| object.value()["data"]["n"].clone());
    let states = [made - 1, made, other, changed, gone].map(read);
    assert_eq!(states, [None, Some(1.into()), Some(1.into()), Some(2.into()), None]);
    assert_eq!(t.get_at("d/b", gone).expect("it is there").value()["data"]["n"], 7);
}

#[test]
fn changes_are_told_from_behind_a_revision_to_the_latest() {
    let (mut history, table) = history();
    let revisions = [0, 1, 2].map(|n| history.commit(table, "d/a", state(n)).revision);
    let t = &history.tables[table];
    let since = |revision| t.since(revision).map(|change| change.revision).collect::<Vec<_>>();
    assert_eq!(since(revisions[0] - 1), revisions);
    assert_eq!(since(revisions[0]), revisions[1..]);
    assert_eq!(since(revisions[1]), revisions[2..]);
    assert!(since(revisions[2]).is_empty());
    assert!(since(u64::MAX).is_empty());
    assert_eq!(t.latest(), revisions[2]);
}

#[test]
fn a_watch_cache_keeps_100_changes_and_whatever_is_not_older_than_75_s() {
    let (mut history, table) = history();
    let revisions: Vec<u64> = (0..103).map(|n| history.commit(table, "d/a", state(n)).revision).collect();
    let t = &mut history.tables[table];
    let (first, last) = (t.log[0].at, t.log[102].at);
    assert_eq!(t.outdated(first + WINDOW_AGE), 0, "it is not older, however many there are");
    assert!(t.outdated(first + WINDOW_AGE + Duration::from_nanos(1)) >= revisions[0], "one more than 100, and old");
    for _ in 0..2 {
        assert_eq!(t.outdated(last + WINDOW_AGE * 2), revisions[2], "100 stay, however old");
    }

    t.trim(revisions[1]);
    assert_eq!((t.log.len(), t.log[0].revision), (101, revisions[2]), "what is compacted has left the window");
    t.trim(u64::MAX);
    assert_eq!((t.log.len(), t.log[0].revision), (100, revisions[3]), "what is in the window stays");
    t.trim(u64::MAX);
    assert_eq!((t.log.len(), t.latest()), (100, revisions[102]));
}

#[test]
fn compaction_forgets_up_to_a_revision_that_there_is_and_servers_only_if_they_are_told() {
    let (mut history, table) = history();
    let made = history.commit(table, "d/a", state(1)).revision;
    history.compact(made - 1, false);
    assert_eq!((history.compacted(), history.told()), (made - 1, 0));
    history.compact(u64::MAX, true);
    assert_eq!((history.compacted(), history.told()), (made, made), "not beyond the present");
    history.compact(made - 1, true);
    assert_eq!((history.compacted(), history.told()), (made, made), "nothing comes back");
}

#[test]
fn what_a_server_writes_of_its_own_is_a_revision_too() {
    let (mut history, _) = history();
    let before = history.revision();
    assert_eq!((history.tick(), history.revision()), (before + 1, before + 1));
    history.close_window();
    assert_eq!((history.window(), history.revision()), (before + 2, before + 2));
}

#[test]
fn a_definition_ends_the_watches_of_those_before_it_at_once_or_when_it_is_said() {
    let (mut history, table) = history();
    let began = history.revision();
    history.commit(table, "d/a", state(1));
    let of = |history: &History| {
        let t = &history.tables[table];
        (t.epoch(), t.over(), t.rebuilt_at() - began)
    };
    history.rebuild(table);
    assert_eq!(of(&history), (1, 1, 2));
    let same = Resource::clone(&history.tables[table].resource);
    history.redefine(table, same);
    assert_eq!(of(&history), (2, 1, 3), "open watches go on");
    assert_eq!(history.tables[table].serving.cache, crd::Cache::Cold);
    assert_eq!(history.get(table, "d/a").expect("it stays").value()["data"]["n"], 1);

    let mut news = history.tables[table].subscribe();
    history.end_watches(table, 2);
    assert_eq!(of(&history), (2, 2, 3));
    assert!(news.has_changed().expect("the type is there"), "they are told");
    news.mark_unchanged();
    history.end_watches(table, 1);
    assert_eq!(of(&history), (2, 2, 3), "none comes back");
    history.retire(table);
    assert_eq!(of(&history), (3, 3, 4));
    assert!(history.tables[table].serving.retired && news.has_changed().expect("the type is there"));
}

#[test]
fn a_type_is_added_once_and_then_is_the_same_type_again() {
    let (mut history, table) = history();
    let types = history.tables.len();
    let like = Resource::clone(&history.tables[table].resource);
    let others = Resource { plural: "others".into(), ..like.clone() };
    let elsewhere = Resource { group: "example.com".into(), ..like };
    for (resource, at, epoch) in
        [(&others, types, 1), (&elsewhere, types + 1, 1), (&others, types, 2), (&elsewhere, types + 1, 2)]
    {
        history.install(resource.clone());
        let t = &history.tables[at];
        assert_eq!((&t.resource.group, &t.resource.plural), (&resource.group, &resource.plural));
        assert_eq!((t.epoch(), t.serving.cache), (epoch, crd::Cache::Cold));
        assert!(t.serving.established.is_some() && !t.serving.retired);
    }
    assert_eq!(history.tables.len(), types + 2);
    assert_eq!(history.tables[table].epoch(), 0, "the type that they are like is another");
}

#[test]
fn what_was_there_before_everything_else_has_no_revision_and_no_event() {
    let (mut history, table) = history();
    let before = history.revision();
    history.preload(table, "d/a", json!({"metadata": {"name": "a"}}));
    assert_eq!(history.revision(), before);
    let t = &history.tables[table];
    assert!(t.since(0).next().is_none());
    assert_eq!(names(&t.at(before)), ["d/a"]);
    assert_eq!(history.get(table, "d/a").expect("it is there").revision, before);
}
