//! The JSON Schema of scenario files, for editors: made of the words that the parser itself asks for, that is, the keys
//! of a scenario, the steps, and the system's options, properties and remedies.
use serde_json::{Map, Value, json};

use super::{ALL_PROPOSED, verbs};
use crate::property::{Checked, always_checked};
use crate::switch::SwitchKind;
use crate::system::{Cluster, System};

/// The first line of a scenario file by which editors find the schema: `schema scenario` prints that.
pub const MODELINE: &str = "# yaml-language-server: $schema=scenario.schema.json";

/// One key of a scenario.
#[derive(Clone, Copy)]
pub struct Key {
    /// The word.
    pub name: &'static str,
    /// One sentence: what it says.
    pub sentence: &'static str,
    /// Must it be there?
    pub required: bool,
    shape: fn(&dyn System) -> Value,
}

/// The keys of a scenario, in the order in which files have them.
pub const KEYS: &[Key] = &[
    key("scenario", "Its name, that of the file.", |_| json!({"type": "string", "pattern": "^[a-z0-9-]+$"})).required(),
    key("reports", "Bug reports that it is about, as owner/project#1.", |_| one_or_more(json!({"type": "string"}))),
    key("summary", "One sentence: the race.", |_| json!({"type": "string"})).required(),
    key("cluster", "Options of the cluster, where they differ from the defaults.", |_| reference("cluster")),
    key("also", "The same scenario in other clusters.", |_| list(reference("cluster"))),
    key("draw", "Cluster options that each seed draws.", |system| {
        let options: Vec<(&str, &str)> = system.cluster_options().iter().map(|o| (o.name, o.sentence)).collect();
        one_or_more(words(&options))
    }),
    key("env", "Environment variables of hosts.", environment),
    key("steps", "What happens, in order.", |_| reference("steps")).required(),
    key("check", "Properties that must have something to judge, and hold.", |_| one_or_more(reference("property")))
        .required(),
    key("except", "Properties of every run that this one is not judged by, each with the reason.", exceptions),
    key("reported-without", "Merged fixes that the reported code did not have.", |_| one_or_more(reference("merged"))),
    key("fails-without", "Red/green: without these fixes, exactly these properties are violated.", |_| {
        one_or_more(side("off", one_or_more(reference("off"))))
    }),
    key("closed-by", "Sets of fixes that each, added to the code as reported, make it hold.", |_| closing()),
    key("fails-with", "Guard: a wrong fix that it catches.", |_| one_or_more(side("mutant", reference("mutant")))),
    key("failing-seeds", "Flow: seeds that fail as reported, and hold with the fixes.", |_| {
        let number = json!({"type": "integer", "minimum": 0});
        let mut seed = side("seed", number.clone());
        // Without `violates`, whichever of the checked properties.
        seed["required"] = json!(["seed"]);
        list(json!({"anyOf": [number, seed]}))
    }),
    key("failing-writes", "Crash points: writes after which a crash fails as reported.", |_| {
        let mut write = side("after", json!({"type": "string"}));
        write["properties"]["closed-by"] = closing();
        list(write)
    }),
];

const fn key(name: &'static str, sentence: &'static str, shape: fn(&dyn System) -> Value) -> Key {
    Key { name, sentence, required: false, shape }
}

impl Key {
    const fn required(self) -> Key {
        Key { required: true, ..self }
    }
}

/// The schema (draft 7, which editors know best) of this system's scenarios.
pub fn schema(system: &dyn System) -> Value {
    let mut properties = Map::new();
    for key in KEYS {
        let mut shape = (key.shape)(system);
        // Beside a reference, draft 7 reads nothing.
        if shape.get("$ref").is_some() {
            shape = json!({"allOf": [shape]});
        }
        shape["description"] = key.sentence.into();
        properties.insert(key.name.to_owned(), shape);
    }
    let required: Vec<&str> = KEYS.iter().filter(|k| k.required).map(|k| k.name).collect();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": format!("A scenario of the system {}", system.name()),
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
        "definitions": definitions(system),
    })
}

fn definitions(system: &dyn System) -> Value {
    let switches = |keep: fn(&SwitchKind) -> bool| -> Vec<(&str, &str)> {
        system.switches().iter().filter(|s| keep(&s.kind)).map(|s| (s.name, s.sentence)).collect()
    };
    let remedies = switches(|k| !matches!(k, SwitchKind::Mutant));
    let off: Vec<(&str, &str)> =
        remedies.iter().copied().chain([(ALL_PROPOSED, "All that are on the table: the code as reported.")]).collect();
    let (properties, always) = (system.properties(), always_checked());
    let named: Vec<(&str, &str)> = properties.iter().map(|p| (p.name, p.sentence)).collect();
    let broken: Vec<(&str, &str)> = properties.iter().chain(&always).map(|p| (p.name, p.sentence)).collect();
    json!({
        "cluster": cluster(system),
        "steps": {"type": "array", "minItems": 1, "items": reference("step")},
        "step": step(system),
        "property": words(&named),
        "broken": words(&broken),
        "remedy": words(&remedies),
        "off": words(&off),
        "merged": words(&switches(|k| matches!(k, SwitchKind::Merged))),
        "mutant": words(&switches(|k| matches!(k, SwitchKind::Mutant))),
    })
}

/// One step: a map of one verb.
fn step(system: &dyn System) -> Value {
    let all = verbs::GENERIC.iter().chain(system.verbs());
    let verbs: Map<String, Value> = all
        .map(|verb| {
            let nested = matches!(verb.name, "reported" | "remedied");
            let mut shape = if nested { json!({"allOf": [reference("steps")]}) } else { json!({}) };
            shape["description"] = format!("{}\n\n{}", verb.sentence, verb.usage).into();
            (verb.name.to_owned(), shape)
        })
        .collect();
    json!({"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false, "properties": verbs})
}

fn cluster(system: &dyn System) -> Value {
    let options: Map<String, Value> = system
        .cluster_options()
        .iter()
        .map(|option| {
            let texts = option.values.iter().map(|v| json!(v));
            // `replicas: 2` is as good as `replicas: "2"`.
            let numbers = option.values.iter().filter_map(|v| v.parse::<i64>().ok()).map(|n| json!(n));
            let values: Vec<Value> = texts.chain(numbers).collect();
            let default = option.values.first();
            let shape = json!({"enum": values, "default": default, "description": option.sentence});
            (option.name.to_owned(), shape)
        })
        .collect();
    json!({"type": "object", "additionalProperties": false, "properties": options})
}

/// Hosts of any cluster, each with its variables.
fn environment(system: &dyn System) -> Value {
    let base = Cluster::new(system.cluster_options());
    let mut clusters = vec![base.clone()];
    for option in system.cluster_options() {
        clusters.extend(option.values.iter().map(|value| {
            let mut cluster = base.clone();
            cluster.set(option.name, value);
            cluster
        }));
    }
    let hosts = clusters.iter().flat_map(|cluster| system.hosts(cluster));
    let hosts: Map<String, Value> = hosts.map(|host| (host, json!({"type": "object"}))).collect();
    json!({"type": "object", "additionalProperties": false, "properties": hosts})
}

fn exceptions(system: &dyn System) -> Value {
    let properties = system.properties();
    let may = properties.iter().filter(|p| p.checked == Checked::Always);
    let names: Map<String, Value> =
        may.map(|p| (p.name.to_owned(), json!({"type": "string", "description": p.sentence}))).collect();
    json!({"type": "object", "additionalProperties": false, "properties": names})
}

/// `{NAME: .., violates: [properties], of: [clusters]}`
fn side(name: &str, shape: Value) -> Value {
    let mut properties = Map::new();
    properties.insert(name.to_owned(), shape);
    properties.insert("violates".to_owned(), one_or_more(reference("broken")));
    properties.insert("of".to_owned(), one_or_more(json!({"type": "string"})));
    json!({"type": "object", "additionalProperties": false, "required": [name, "violates"], "properties": properties})
}

fn closing() -> Value {
    list(one_or_more(reference("remedy")))
}

/// One of these words, each with its sentence.
fn words(words: &[(&str, &str)]) -> Value {
    // Nothing fits an empty `anyOf`, and validators disagree on whether it may be there.
    if words.is_empty() {
        return json!({"not": {}});
    }
    let word = |(name, sentence): &(&str, &str)| json!({"const": name, "description": sentence});
    json!({"type": "string", "anyOf": words.iter().map(word).collect::<Vec<_>>()})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn one_or_more(item: Value) -> Value {
    json!({"anyOf": [item.clone(), list(item)]})
}
