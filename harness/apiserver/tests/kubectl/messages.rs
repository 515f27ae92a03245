//! Field numbers and marks of the protobuf table, judged by kubectl, which is made of Kubernetes' own Go types.
//!
//! `kubectl create job --from=cronjob/NAME` writes the template of a CronJob as a Job in protobuf: what comes through
//! unchanged had the right numbers. What becomes of zeros on the way depends on which fields are pointers in Go;
//! `kubectl set image --local` says so too, of the same template in JSON alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::rig::Rig;

/// Types and their fields, as the crate knows them.
static FIELDS: &str = include_str!("../../src/typed/fields.txt");

/// Values for all fields of a type.
struct Filler {
    types: BTreeMap<&'static str, &'static str>,
    zero: bool,
    count: u64,
}

impl Filler {
    fn new(zero: bool) -> Filler {
        Filler { types: FIELDS.lines().filter_map(|line| line.split_once(' ')).collect(), zero, count: 0 }
    }

    fn object(&mut self, of: &str) -> Value {
        let fields = self.types.get(of).copied().unwrap_or_else(|| panic!("{of} is a type"));
        let mut object = Map::new();
        for (name, kind) in fields.split(' ').filter_map(|field| field.split_once(':')) {
            object.extend(self.value(kind).map(|value| (name.to_owned(), value)));
        }
        object.into()
    }

    fn value(&mut self, kind: &str) -> Option<Value> {
        if let Some(of) = kind.strip_prefix('[') {
            return Some(json!([self.value(of)?]));
        }
        if let Some(of) = kind.strip_prefix('{') {
            return Some(json!({"key": self.value(of)?}));
        }
        self.count += 1;
        let count = self.count;
        Some(match (kind, self.zero) {
            ("s", false) => format!("text-{count}").into(),
            ("i" | "l", false) => count.into(),
            ("b", false) => true.into(),
            ("n", false) => 1.5.into(),
            ("y", false) => "YQ==".into(),
            ("t", false) => format!("2026-01-02T03:04:{:02}Z", count % 60).into(),
            ("x", false) if count.is_multiple_of(2) => count.into(),
            ("x", false) => format!("{count}%").into(),
            ("q", false) => count.to_string().into(),
            ("s" | "y", true) => "".into(),
            ("i" | "l" | "n" | "x", true) => 0.into(),
            ("b", true) => false.into(),
            ("q", true) => "0".into(),
            // What nobody sends, or what is no text when it is zero.
            ("m" | "o" | "ManagedFieldsEntry", _) | ("t", true) => return None,
            (name, _) => self.object(name),
        })
    }
}

/// A CronJob whose template has a value in every field of every type below it.
fn cron_job(zero: bool) -> Value {
    let mut spec = Filler::new(zero).object("CronJobSpec");
    spec["schedule"] = "@daily".into();
    // Otherwise each job gets labels of its own.
    spec["jobTemplate"]["spec"]["manualSelector"] = true.into();
    let template = &mut spec["jobTemplate"]["spec"]["template"];
    // Clients write this in any case, and servers never do.
    template["metadata"].as_object_mut().expect("an object").remove("creationTimestamp");
    for list in ["containers", "initContainers"] {
        template["spec"][list][0]["image"] = "before".into();
    }
    // `set image` looks for what it changed by the keys of lists, and this one may be absent.
    template["spec"]["imagePullSecrets"][0]["name"] = "secret".into();
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec})
}

/// The specification of the job, without what depends on when it was made.
fn job(rig: &Rig, name: &str) -> Value {
    let job: Value = serde_json::from_str(&rig.ok(&format!("get job {name} -o json"))).expect("JSON");
    job["spec"].clone()
}

/// Where two values differ.
fn differences(path: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let none = Value::Null;
                differences(&format!("{path}.{key}"), a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().for_each(|(at, (a, b))| differences(&format!("{path}[{at}]"), a, b, found));
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: {a} and {b}")),
    }
}

fn leaves(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.values().map(leaves).sum(),
        Value::Array(list) => list.iter().map(leaves).sum(),
        _ => 1,
    }
}

/// The job that kubectl makes of a CronJob as a message, and the one that it makes in JSON alone.
fn both_ways(zero: bool) -> Option<(Value, Value)> {
    let rig = Rig::start()?;
    let sent = cron_job(zero);
    rig.input(&sent.to_string()).ok("create -f - --validate=false");
    let made = rig.run("create job by-messages --from=cronjob/c -v=8");
    assert_eq!(made.code, 0, "{}", made.stderr);
    let protobuf = "Content-Type: application/vnd.kubernetes.protobuf";
    assert!(made.stderr.contains(protobuf), "it was written as a message: {}", made.stderr);
    let file = rig.file("cron.json", sent.to_string().as_bytes());
    let in_go = rig.ok(&format!("set image -f {file} *=after --local -o json")).replace("\"after\"", "\"before\"");
    let in_go: Value = serde_json::from_str(&in_go).expect("JSON");
    let mut job_in_go = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "by-text"}});
    job_in_go["spec"] = in_go["spec"]["jobTemplate"]["spec"].clone();
    rig.input(&job_in_go.to_string()).ok("create -f - --validate=false");
    Some((job(&rig, "by-messages"), job(&rig, "by-text")))
}

#[test]
fn every_field_of_a_pod_template_comes_through_protobuf_unchanged() {
    let Some((by_messages, by_text)) = both_ways(false) else { return eprintln!("kubectl is not installed here") };
    let mut found = Vec::new();
    differences("", &by_messages, &by_text, &mut found);
    assert!(found.is_empty(), "by messages, and by text:\n{}", found.join("\n"));
    assert!(leaves(&by_text) > 500, "{} fields were compared", leaves(&by_text));
}

#[test]
fn a_zero_comes_through_protobuf_where_go_tells_it_from_nothing() {
    let Some((by_messages, by_text)) = both_ways(true) else { return eprintln!("kubectl is not installed here") };
    let mut found = Vec::new();
    differences("", &by_messages, &by_text, &mut found);
    // It may be absent by now, and kubectl's types are older than the table.
    found.retain(|path| !path.starts_with(".podFailurePolicy.rules[0].onPodConditions[0].status:"));
    assert!(found.is_empty(), "by messages, and by text:\n{}", found.join("\n"));
    assert!(leaves(&by_text) > 200, "{} fields were compared", leaves(&by_text));
}
