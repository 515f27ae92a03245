use photofinish_sim::trace::Entry;
use serde_json::{Value, json};

use super::*;
use crate::outcome::{Broken, RunReport};
use crate::property::Violation;
use crate::reading::{Link, ObjectState, Reading, Role, View};

fn entry(id: u64, host: &'static str, kind: &'static str, text: &str) -> Entry {
    Entry {
        id,
        at_ns: id * 1_000_000,
        host: host.into(),
        kind: kind.into(),
        name: "info".into(),
        text: text.into(),
        fields: vec![("sandbox".into(), "demo".into())],
        spans: vec!["outer".into()],
        cause: id.checked_sub(1),
    }
}
fn report(outcome: Outcome, violations: Vec<Broken>) -> RunReport {
    RunReport {
        outcome,
        violations,
        vacuous: vec![],
        trace_hash: "0".into(),
        virtual_ns: 5_000_000,
        end: None,
        wrong_pins: vec![],
        unused_pins: vec![],
        crash_points: vec![],
    }
}
fn page(entries: &[Entry], report: &RunReport) -> String {
    let reading = Reading {
        subjects: entries.iter().map(|e| (e.id, "demo".to_owned())).collect(),
        labels: [(1, "short".to_owned())].into(),
        views: vec![View {
            subject: "demo".into(),
            holder: Some("gateway".into()),
            at: 1,
            state: Some("Ready".into()),
            revision: None,
        }],
        links: vec![Link { from: 0, to: 1, how: "rests on it".into() }],
    };
    let object = |revision, size: u64| ObjectState {
        revision,
        resource: "things".into(),
        namespace: "n".into(),
        name: "demo".into(),
        object: Some(json!({"size": size})),
    };
    let mut page = Page::new("a <title>");
    page.add(&Told {
        name: "demo".into(),
        run_id: "pf1:demo".into(),
        replay: "photofinish replay 'pf1:demo'".into(),
        report,
        entries,
        reading,
        role: &|host| if host == "gateway" { Role::Gateway } else { Role::Client },
        sentence: &|name| format!("{name} holds."),
        objects: &[object(1, 1), object(2, 2)],
        mark: Some((1, "here".into())),
    });
    page.finish()
}
/// The data in the element with this id.
fn data(page: &str, id: &str) -> Value {
    let start = format!("<script type=\"application/json\" id=\"{id}\">");
    let (_, rest) = page.split_once(&start).expect("the element");
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn a_page_holds_the_data_of_its_run() {
    let entries = [entry(0, "client", "op", "client: stop demo"), entry(1, "gateway", "log", "left")];
    let violation = Violation { entry: 1, why: "it left".into(), led: vec![0] };
    let report = report(Outcome::Violated, vec![Broken { property: "stable".into(), violation }]);
    let page = page(&entries, &report);
    let index = &data(&page, "index")["runs"];
    let listed = (&index[0]["outcome"], &index[0]["property"], &index[0]["section"]);
    assert_eq!(listed, (&json!("violated"), &json!("stable"), &json!(0)));
    let run = data(&page, "run-0");
    let violation =
        json!({"property": "stable", "sentence": "stable holds.", "entry": 1, "why": "it left", "led": [0]});
    assert_eq!(run["violations"], json!([violation]));
    assert_eq!(run["arrows"], json!([{"from": 0, "to": 1, "how": "rests on it", "story": [0]}]));
    assert_eq!(run["beliefs"][0]["stretches"][0], json!({"from": 1, "at": 1, "state": "Ready"}));
    assert_eq!(run["objects"][0]["states"][1], json!({"rv": 2, "patch": {"size": 2}}));
    assert_eq!(run["mark"], json!([1, "here"]));
    let column = |name: &str| run["entries"][name].as_array().expect("a column").clone();
    let string = |number: &Value| run["strings"][number.as_u64().expect("a number") as usize].clone();
    assert_eq!(column("label").iter().map(string).collect::<Vec<_>>(), ["stop demo", "short"]);
    assert_eq!((column("after_ns"), column("cause")), (vec![json!(0), json!(1_000_000)], vec![json!(0), json!(1)]));
}

#[test]
fn nothing_that_a_program_logs_ends_the_data_or_is_run() {
    let nasty = "</script><script>alert(1)</script><!-- {{data}} \u{2028}";
    let page = page(&[entry(0, "gateway", "log", nasty)], &report(Outcome::Holds, vec![]));
    assert!(!page.contains("<script>alert"), "the text of an entry stands as it is in the page");
    let run = data(&page, "run-0");
    let text = run["entries"]["text"][0].as_u64().expect("a number") as usize;
    assert_eq!(run["strings"][text], nasty);
    assert!(page.contains("<title>a &lt;title&gt;"), "the title is text");
}

#[test]
fn a_page_asks_for_nothing_from_elsewhere() {
    let page = page(&[entry(0, "gateway", "log", "x")], &report(Outcome::Holds, vec![]));
    for sign in ["http://", "https://", "src=", "@import", "url("] {
        // Patterns and arrow heads are parts of the page itself.
        let rest = page.replace("url(#", "");
        assert!(!rest.contains(sign), "{sign}");
    }
}

#[test]
fn what_was_not_drawn_is_listed() {
    let mut page = Page::new("many");
    let many: Vec<Entry> = (0..30_000).map(|id| entry(id, "gateway", "log", "x")).collect();
    let holds = report(Outcome::Holds, vec![]);
    for name in ["one", "two"] {
        page.add(&Told {
            name: name.into(),
            run_id: String::new(),
            replay: String::new(),
            report: &holds,
            entries: &many,
            reading: Reading::default(),
            role: &|_| Role::Actor,
            sentence: &|_| String::new(),
            objects: &[],
            mark: None,
        });
    }
    let page = page.finish();
    assert_eq!(
        (&data(&page, "index")["runs"][0]["section"], &data(&page, "index")["runs"][1]["section"]),
        (&json!(0), &Value::Null)
    );
    assert!(!page.contains("id=\"run-1\""));
}
