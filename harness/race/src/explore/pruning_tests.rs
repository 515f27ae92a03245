use super::*;

fn point(key: &str, at_ms: u64, legality: &str, alternatives: &[&str]) -> ChoicePoint {
    let text = |t: &str| t.to_owned();
    ChoicePoint {
        key: text(key),
        default: text("d"),
        taken: text("d"),
        alternatives: alternatives.iter().map(|a| text(a)).collect(),
        fault: None,
        legality: text(legality),
        contract: String::new(),
        at_ns: at_ms * 1_000_000,
    }
}

fn entry(at_us: u64, host: &'static str, kind: &'static str, fields: &[(&'static str, &str)]) -> Entry {
    Entry {
        id: 0,
        at_ns: at_us * 1_000,
        host: host.into(),
        kind: kind.into(),
        name: "n".into(),
        text: String::new(),
        fields: fields.iter().map(|(k, v)| ((*k).into(), (*v).to_owned())).collect(),
        spans: vec![],
        cause: None,
    }
}

/// An answer of the API to this client.
fn http(at_us: u64, client: &str) -> Entry {
    entry(at_us, "api", "http", &[("client", client)])
}

/// An event on this stream.
fn event(at_us: u64, stream: &str) -> Entry {
    entry(at_us, "api", "watch", &[("stream", stream)])
}

fn planned(points: &[ChoicePoint], entries: &[Entry]) -> Plan {
    plan(points, entries, Allowed::default(), &"s=yes".parse().expect("pins"), &|client| client != "curious")
}

/// `key=value is like key=value: why`, of all that is not run.
fn pruned(plan: &Plan) -> Vec<String> {
    let like = |p: &Pruned| p.like.as_ref().map_or("nothing".to_owned(), Pins::to_string);
    plan.pruned.iter().map(|p| format!("{} is like {}: {}", p.pins(), like(p), p.why)).collect()
}

const DELAYS: [&str; 3] = ["+1ms", "+100ms", "+10s"];

#[test]
fn delays_that_nothing_tells_apart_are_run_once() {
    for (at, times, left) in [
        (0, &[][..], &[][..]),
        // Whoever gives up after some seconds is in no trace of a run in which he need not.
        (0, &[0, 50], &["+1ms", "+100ms", "+10s"]),
        (0, &[50, 60_000], &["+1ms", "+100ms", "+10s"]),
        (0, &[3_000], &["+10s"]),
        (5_000, &[0, 50], &[]),
    ] {
        let entries: Vec<Entry> = times.iter().map(|at_ms| entry(at_ms * 1_000, "h", "log", &[])).collect();
        let plan = planned(&[point("k", at, "always", &DELAYS)], &entries);
        let values: Vec<&str> = plan.points.iter().flat_map(|(_, v)| v.iter().map(String::as_str)).collect();
        assert_eq!(values, left, "{times:?}");
        assert_eq!(plan.pruned.len() + values.len(), 3);
        // Each is like the longest one before it that is run, or like the benign run.
        for p in &plan.pruned {
            let shorter = DELAYS.iter().take_while(|d| **d != p.value).filter(|d| values.contains(d)).last();
            assert_eq!(p.like, Some(shorter.map_or(Pins::default(), |d| pins("k", d))), "{times:?} {p:?}");
        }
    }
}

#[test]
fn a_late_event_whose_client_does_nothing_meanwhile_is_not_run() {
    let late = |client: &str, entries: &[Entry]| {
        let points = [point(&format!("watch/{client}/pods/a#1"), 0, "always", &DELAYS)];
        planned(&points, entries).points.into_iter().flat_map(|(_, values)| values).collect::<Vec<_>>().join(" ")
    };
    // Whatever happens to others, all the time: it is no quiet run.
    let with = |entries: &[Entry]| {
        let mut all: Vec<Entry> = (0..100).map(|n| http(n * 150_000, "other")).collect();
        all.extend_from_slice(entries);
        all.sort_by_key(|e| e.at_ns);
        all
    };
    let told = |at_us, host: &'static str, of: u64| Entry { cause: Some(of), ..entry(at_us, host, "log", &[]) };
    for (what, entries, left) in [
        ("it never does anything", with(&[event(0, "gc/pods")]), ""),
        ("it does something at 50 ms, of itself", with(&[http(50_000, "gc")]), "+1ms +100ms +10s"),
        ("at 3 s it does something for an event", with(&[event(3_000_000, "gc/nodes"), http(3_000_700, "gc")]), "+10s"),
        ("at 50 ms it hears more of this stream", with(&[event(50_000, "gc/pods")]), ""),
        ("at 50 ms it hears of something else", with(&[event(50_000, "gc/nodes")]), "+100ms +10s"),
        (
            "what it does at 400 ms, it does for an event then",
            with(&[event(400_000, "gc/nodes"), http(400_700, "gc")]),
            "+10s",
        ),
        (
            "it may be for the late event that it does something at 400 ms",
            with(&[http(400_700, "gc")]),
            "+1ms +100ms +10s",
        ),
        (
            "its own answer is nothing that it waited for",
            with(&[event(300_000, "gc/nodes"), http(400_700, "gc")]),
            "+1ms +100ms +10s",
        ),
        ("somebody records what it was sent", vec![event(0, "gc/pods"), told(600, "gateway", 0)], "+1ms +10s"),
    ] {
        assert_eq!(late("gc", &entries), left, "{what}");
    }
}

#[test]
fn a_late_answer_to_a_read_is_a_late_read_unless_somebody_writes_meanwhile() {
    let read = |key: &str, other: &str| {
        let points = [
            point(key, 0, "always", &["+10ms"]),
            point(&format!("{key}/reply"), 0, "always", &["+10ms"]),
            point(other, 5, "always", &["+20ms"]),
        ];
        let entries =
            [http(0, "driver"), http(4_000, "x"), http(5_000, "kubelet"), http(11_000, "x"), http(30_000, "x")];
        pruned(&planned(&points, &entries))
    };
    let same = |key: &str| vec![format!("{key}/reply=+10ms is like {key}=+10ms: {SAME_READ}")];
    for (key, other, expected) in [
        ("call/driver/GET/pods/a#1", "call/kubelet/PATCH/pods/b#1", true),
        ("call/driver/GET/pods/a#1", "call/kubelet/PATCH/nodes/a#1", true),
        ("call/driver/GET/pods/a#1", "call/kubelet/GET/pods/a#1", true),
        ("call/driver/GET/pods/a#1", "call/kubelet/PATCH/pods.status/a#1", false),
        ("call/driver/GET/pods/a#1", "call/kubelet/DELETE/pods/a#1", false),
        ("call/driver/GET/pods/a#1", "call/kubelet/DELETECOLLECTION/pods#1", false),
        ("call/driver/LIST/pods#1", "call/kubelet/PATCH/pods/b#1", false),
        ("call/driver/LIST/pods#1", "call/kubelet/PATCH/nodes/b#1", true),
        ("call/driver/PATCH/pods/a#1", "call/kubelet/PATCH/nodes/b#1", false),
    ] {
        assert_eq!(read(key, other), if expected { same(key) } else { vec![] }, "{key} {other}");
    }
    // An event of a change that no call tells of.
    let key = "call/driver/GET/pods/a#1";
    let points = [point(key, 0, "always", &["+10ms"]), point(&format!("{key}/reply"), 0, "always", &["+10ms"])];
    let entries = |stream| [http(0, "driver"), event(4_000, stream), http(11_000, "x")];
    assert_eq!(pruned(&planned(&points, &entries("gc/pods"))), Vec::<String>::new());
    assert_eq!(pruned(&planned(&points, &entries("gc/nodes"))), same(key));
}

#[test]
fn a_call_that_waits_for_the_answer_before_it_only_is_late_as_that_is() {
    let at = |key: &str, at_us: u64| ChoicePoint { at_ns: at_us * 1_000, ..point(key, 0, "always", &["+10ms"]) };
    let (one, two) = ("call/driver/PATCH/pods/a#1", "call/driver/PATCH/pods/a#2");
    let points =
        |apart| [at(one, 0), at(&format!("{one}/reply"), 0), at(two, apart), at("call/driver/GET/x/y#1", 9_000)];
    // Somebody does something all the time.
    let busy: Vec<Entry> = (1..20).map(|n| http(n * 1_500, "other")).collect();
    let with = |apart, more: &[Entry]| {
        let mut all = vec![http(0, "driver"), http(apart, "driver"), http(9_000, "driver")];
        all.extend(busy.iter().chain(more).cloned());
        all.sort_by_key(|e| e.at_ns);
        all
    };
    let chained = |apart, more: &[Entry]| {
        let told = pruned(&planned(&points(apart), &with(apart, more)));
        match told.as_slice() {
            [] => false,
            [only] => *only == format!("{two}=+10ms is like {one}/reply=+10ms: {NEXT_CALL}"),
            _ => panic!("{told:?}"),
        }
    };
    assert!(chained(700, &[]));
    for (what, apart, more) in [
        ("a call that comes later waits for something else", 1_200, vec![]),
        ("an event is heard between them", 700, vec![event(300, "driver/pods")]),
        ("it tells somebody something else as well", 700, vec![entry(350, "driver", "log", &[])]),
        ("somebody else may have told it", 700, vec![entry(350, "gateway", "log", &[])]),
        ("it makes two calls at once", 700, vec![http(720, "driver")]),
    ] {
        assert!(!chained(apart, &more), "{what}");
    }
    assert!(chained(700, &[event(300, "gc/pods"), entry(350, "world", "state", &[])]), "others hear, the oracle looks");
    // A third call at once, as a point.
    let mut three = points(700).to_vec();
    three.insert(3, at("call/driver/GET/pods/b#1", 710));
    assert_eq!(pruned(&planned(&three, &with(700, &[]))), Vec::<String>::new());
}

#[test]
fn what_is_like_something_that_is_not_run_is_like_what_that_is_like() {
    let at = |key: &str, at_us: u64| ChoicePoint { at_ns: at_us * 1_000, ..point(key, 0, "always", &["+10ms"]) };
    let (one, two) = ("call/driver/GET/pods/a#1", "call/driver/GET/pods/b#1");
    let points = [at(one, 0), at(&format!("{one}/reply"), 0), at(two, 700), at(&format!("{two}/reply"), 700)];
    let mut entries = vec![http(0, "driver"), http(700, "driver")];
    entries.extend((1..10).map(|n| http(n * 1_500, "other")));
    let plan = planned(&points, &entries);
    assert_eq!(plan.points, [(one.to_owned(), vec!["+10ms".to_owned()])]);
    let expected =
        [(format!("{one}/reply"), SAME_READ), (two.to_owned(), NEXT_CALL), (format!("{two}/reply"), SAME_READ)];
    let expected = expected.map(|(key, why)| format!("{key}=+10ms is like {one}=+10ms: {why}"));
    assert_eq!(pruned(&plan), expected);
}

#[test]
fn a_read_without_an_answer_in_time_is_run_once() {
    for (keys, pruned) in [
        (&["call/gc/GET/pods/a#1/504", "call/gc/GET/pods/a#1/timed-out"][..], 1),
        (&["call/gc/LIST/pods#1/504", "call/gc/LIST/pods#1/timed-out"], 1),
        (&["call/gc/GET/pods/a#2/504", "call/gc/GET/pods/a#1/timed-out"], 0),
        (&["call/gc/PATCH/pods/a#1/504", "call/gc/PATCH/pods/a#1/timed-out"], 0),
    ] {
        let points: Vec<_> = keys.iter().map(|key| point(key, 0, "always", &["yes"])).collect();
        let plan = planned(&points, &[]);
        assert_eq!((plan.points.len(), plan.pruned.len()), (2 - pruned, pruned), "{keys:?}");
    }
}

#[test]
fn failures_that_a_client_does_not_tell_apart_are_run_once() {
    let all = |client: &str| {
        let call = ["429", "500", "503", "504", "lost"].map(|what| format!("call/{client}/PATCH/pods/a#1/{what}"));
        let watch = ["end", "reset", "torn"].map(|what| format!("watch/{client}/pods/a#1/{what}"));
        let points: Vec<_> = call.iter().chain(&watch).map(|key| point(key, 0, "always", &["yes"])).collect();
        pruned(&planned(&points, &[]))
    };
    let like = |what: &str, stands: &str| format!("{what}=yes is like {stands}=yes: {TAKEN_ALIKE}");
    let call = |what: &str| format!("call/gc/PATCH/pods/a#1/{what}");
    let mut expected = ["429", "500", "503"].map(|what| like(&call(what), &call("504"))).to_vec();
    expected.push(like("watch/gc/pods/a#1/torn", "watch/gc/pods/a#1/reset"));
    assert_eq!(all("gc"), expected);
    assert_eq!(all("curious"), Vec::<String>::new());
}

#[test]
fn what_is_not_legal_or_decided_by_the_script_is_not_run() {
    let points = [
        point("a", 0, "always", &["yes"]),
        point("b", 0, "ha", &["yes"]),
        point("c", 0, "never", &["yes", "more"]),
        point("s", 0, "always", &["yes"]),
        ChoicePoint { taken: "x".into(), ..point("t", 0, "always", &["yes"]) },
        // What it would stand for is not legal, so it is run.
        point("call/gc/GET/pods/a#1/504", 0, "never", &["yes"]),
        point("call/gc/GET/pods/a#1/timed-out", 0, "always", &["yes"]),
    ];
    let plan = planned(&points, &[]);
    let left: Vec<&str> = plan.points.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(left, ["a", "call/gc/GET/pods/a#1/timed-out"]);
    assert_eq!(plan.pruned_why(), [(NOT_LEGAL, 4)].into());
    assert!(plan.pruned.iter().all(|p| p.like.is_none()));
}
