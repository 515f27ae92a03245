use std::future::poll_fn;
use std::task::Poll;

use futures::FutureExt;
use photofinish_sim::choices::Source;
use serde_json::json;

use super::*;
use crate::hooks::{ConnInfo, Handed, WatchItem};
use crate::request::Verb;
use crate::{EventType, history};

fn call(verb: Verb, name: &str, subresource: &str) -> Call {
    Call {
        conn: ConnInfo { client: "driver".into(), connection: 3 },
        verb,
        path: "/api/v1/namespaces/d/pods".into(),
        resource: "pods".into(),
        name: name.into(),
        subresource: subresource.into(),
        continues: false,
    }
}

fn hooks(source: Source, pins: &str, enabled: Enabled) -> (Arc<SimHooks>, Choices) {
    let trace = Trace::new();
    let choices = Choices::new(source, pins.parse().expect("pins"), trace.clone());
    (SimHooks::with_faults(trace.clone(), choices.clone(), Gates::new(trace, choices.clone()), enabled), choices)
}

#[test]
fn a_call_is_named_by_client_verb_resource_and_object() {
    let table = [
        (call(Verb::Get, "demo", ""), "call/driver/GET/pods/demo"),
        (call(Verb::List, "", ""), "call/driver/LIST/pods"),
        (call(Verb::Patch, "demo", "status"), "call/driver/PATCH/pods.status/demo"),
    ];
    for (call, key) in table {
        assert_eq!(call_key(&call), key);
    }
}

#[test]
fn the_same_call_twice_asks_two_choices_and_is_delayed_by_a_pin() {
    let (hooks, _) = hooks(Source::Benign, "call/driver/GET/pods/demo#2=+1s", Enabled::usual());
    let get = call(Verb::Get, "demo", "");
    assert_eq!(hooks.request(&get), Treatment::default());
    assert_eq!(hooks.request(&get), Treatment { before: Duration::from_secs(1), ..Treatment::default() });
}

#[test]
fn a_pinned_fault_happens_though_its_kind_is_not_enabled_and_no_other_point_is_asked() {
    let (hooks, choices) = hooks(Source::Seed(1), "call/driver/GET/pods/demo#2/lost=yes", Enabled::none());
    let get = call(Verb::Get, "demo", "");
    assert_eq!(hooks.request(&get).reply, Reply::Sent);
    assert_eq!(hooks.request(&get).reply, Reply::Lost);
    let keys: Vec<String> = choices.points().into_iter().map(|point| point.key).collect();
    assert_eq!(
        keys,
        ["call/driver/GET/pods/demo#1", "call/driver/GET/pods/demo#2", "call/driver/GET/pods/demo#2/lost"]
    );
}

#[test]
fn an_enabled_kind_is_drawn_with_its_odds() {
    let always = |name: &str| Enabled::none().with_odds(name, 1.0).expect("known");
    let table = [
        ("refused-429", Treatment { refused: Some(Refusal::TooManyRequests), ..Treatment::default() }),
        ("refused-504", Treatment { refused: Some(Refusal::Timeout), ..Treatment::default() }),
        ("timed-out", Treatment { reply: Reply::TimedOut, ..Treatment::default() }),
        ("page-expired", Treatment::default()),
    ];
    for (name, treatment) in table {
        let (hooks, _) = hooks(Source::Seed(7), "", always(name));
        assert_eq!(hooks.request(&call(Verb::List, "", "")), treatment, "{name}");
    }
    let (hooks, _) = hooks(Source::Seed(7), "", always("page-expired"));
    let next_page = Call { continues: true, ..call(Verb::List, "", "") };
    assert_eq!(hooks.request(&next_page).refused, Some(Refusal::Expired));
}

#[test]
fn an_answer_is_an_entry_of_the_trace() {
    let (hooks, _) = hooks(Source::Benign, "", Enabled::usual());
    hooks.answered(&call(Verb::Create, "demo", ""), 201, Some(7));
    hooks.trace.with(|entries| {
        let entry = &entries[0];
        assert_eq!((&*entry.kind, &*entry.name), ("http", "create"));
        assert_eq!(entry.text, "driver: create /api/v1/namespaces/d/pods -> 201 at rv 7");
        let fields = ["client", "status", "rv", "connection"].map(|f| entry.field(f).unwrap_or("none").to_owned());
        assert_eq!(fields, ["driver", "201", "7", "3"]);
    });
}

/// Sends three events of one object, and tells what comes out of the pipe.
fn through(pin: &str) -> String {
    let (hooks, _) = hooks(Source::Benign, pin, Enabled::usual());
    let mut pipe = hooks.watch_stream(Stream { client: "driver", resource: "pods", name: None });
    for revision in 1..=3 {
        let line = history::event_line(EventType::Modified, b"{}");
        let (object, value) = ("demo".to_owned(), json!({}).into());
        pipe.send(WatchItem { kind: EventType::Modified, object, revision, value, line });
    }
    let mut out = String::new();
    while let Some(handed) = poll_fn(|cx| match pipe.poll_next(cx) {
        Poll::Ready(handed) => Poll::Ready(Some(handed)),
        Poll::Pending => Poll::Ready(None),
    })
    .now_or_never()
    .flatten()
    {
        match handed {
            Handed::Item(item) => out.push_str(&format!("{} ", item.revision)),
            Handed::End => return out + "end",
            Handed::Reset => return out + "reset",
            Handed::Torn(item) => return out + &format!("half of {}", item.revision),
        }
    }
    out.trim_end().to_owned()
}

#[tokio::test]
async fn an_event_meets_the_fault_that_is_pinned_at_its_number() {
    let table = [
        ("", "1 2 3"),
        ("watch/driver/pods/demo#2/end=yes", "1 end"),
        ("watch/driver/pods/demo#1/reset=yes", "reset"),
        ("watch/driver/pods/demo#3/torn=yes", "1 2 half of 3"),
        ("watch/driver/pods/demo#2/drop=yes", "1 3"),
        ("watch/driver/pods/demo#2/duplicate=yes", "1 2 2 3"),
        ("watch/driver/pods/demo#1/swap=yes", "2 1 3"),
    ];
    for (pin, out) in table {
        assert_eq!(through(pin), out, "{pin}");
    }
}

#[test]
fn the_second_watch_from_a_revision_expires_where_that_is_pinned() {
    let (hooks, _) = hooks(Source::Benign, "watch/driver/pods#2/expired=yes", Enabled::none());
    let stream = Stream { client: "driver", resource: "pods", name: None };
    assert_eq!([hooks.expires(stream), hooks.expires(stream), hooks.expires(stream)], [false, true, false]);
}

#[test]
fn a_connection_moves_to_another_server_only_where_there_are_several() {
    let (hooks, _) = hooks(Source::Benign, "server/driver#2=yes", Enabled::none());
    assert_eq!([hooks.balance("driver", 2), hooks.balance("driver", 2), hooks.balance("driver", 2)], [0, 1, 0]);
}

#[test]
fn caches_lag_only_in_runs_that_can_tell() {
    assert!(!hooks(Source::Seed(1), "", Enabled::usual()).0.caches_lag());
    assert!(hooks(Source::Seed(1), "", Enabled::all()).0.caches_lag());
    let (pinned, _) = hooks(Source::Benign, "cache/api/pods/demo#2=+2s", Enabled::usual());
    assert!(pinned.caches_lag());
    assert_eq!(pinned.cache_delay("api", "pods", "demo"), Duration::ZERO);
    assert_eq!(pinned.cache_delay("api", "pods", "demo"), Duration::from_secs(2));
}
