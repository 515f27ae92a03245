//! Which of its names a CRD gets: the condition `NamesAccepted` (Kubernetes docs: "Extend the Kubernetes API with
//! CustomResourceDefinitions").
//!
//! Within a group a name leads to one type. Plural, singular and short names share one space, kind and list kind
//! another; who had a name first keeps it. A CRD some of whose names are taken waits, until they are free or changed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// What became of the names that a CRD asks for.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    /// `status.acceptedNames`.
    pub(crate) names: Value,
    /// Reason and message of the last name that is taken.
    pub(crate) conflict: Option<(&'static str, String)>,
}

/// Names that other types of the group have.
#[derive(Debug, Default)]
struct Taken<'a> {
    resources: BTreeSet<&'a str>,
    kinds: BTreeSet<&'a str>,
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let many = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    value.as_str().into_iter().chain(many).filter(|text| !text.is_empty())
}

impl<'a> Taken<'a> {
    fn of(others: impl Iterator<Item = &'a Value>) -> Taken<'a> {
        let mut taken = Taken::default();
        for names in others.map(|crd| &crd["status"]["acceptedNames"]) {
            taken.resources.extend(["plural", "singular", "shortNames"].iter().flat_map(|key| texts(&names[key])));
            taken.kinds.extend(["kind", "listKind"].iter().flat_map(|key| texts(&names[key])));
        }
        taken
    }

    fn space(&self, key: &str) -> &BTreeSet<&'a str> {
        if matches!(key, "kind" | "listKind") { &self.kinds } else { &self.resources }
    }
}

/// Looks at the names of a CRD. `others`: all other CRDs of its group.
pub(crate) fn accept<'a>(crd: &'a Value, others: impl Iterator<Item = &'a Value>) -> Outcome {
    const KEYS: [(&str, &str); 5] = [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("shortNames", "ShortNamesConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ];
    let (wanted, had) = (&crd["spec"]["names"], &crd["status"]["acceptedNames"]);
    let taken = Taken::of(others);
    let mut names = wanted.clone();
    let mut conflict = None;
    for (key, reason) in KEYS {
        let own: BTreeSet<&str> = texts(&had[key]).collect();
        let refused: Vec<String> = texts(&wanted[key])
            .filter(|name| taken.space(key).contains(name) && !own.contains(name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        if refused.is_empty() {
            continue;
        }
        // What it has it keeps; of a new one these two are shown empty.
        match had.get(key) {
            Some(before) => names[key] = before.clone(),
            None if matches!(key, "plural" | "kind") => names[key] = json!(""),
            None => drop(names.as_object_mut().and_then(|names| names.remove(key))),
        }
        let message = if refused.len() == 1 { refused.concat() } else { format!("[{}]", refused.join(", ")) };
        conflict = Some((reason, message));
    }
    Outcome { names, conflict }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(names: Value, accepted: Value) -> Value {
        json!({"spec": {"names": names}, "status": {"acceptedNames": accepted}})
    }

    #[test]
    fn names_are_taken_within_their_space() {
        let there =
            json!({"plural": "cars", "singular": "car", "shortNames": ["c"], "kind": "Car", "listKind": "CarList"});
        let other = crd(there.clone(), there);
        let fresh = json!({"plural": "", "kind": ""});
        let table = [
            (json!({"plural": "bikes", "kind": "Bike", "listKind": "BikeList"}), None),
            (json!({"plural": "bikes", "kind": "car"}), None),
            (json!({"plural": "car", "kind": "Bike"}), Some(("PluralConflict", "\"car\" is already in use"))),
            (
                json!({"plural": "bikes", "singular": "c", "kind": "Bike"}),
                Some(("SingularConflict", "\"c\" is already in use")),
            ),
            (
                json!({"plural": "bikes", "shortNames": ["b", "c", "car"], "kind": "Bike"}),
                Some(("ShortNamesConflict", "[\"c\" is already in use, \"car\" is already in use]")),
            ),
            (json!({"plural": "bikes", "kind": "CarList"}), Some(("KindConflict", "\"CarList\" is already in use"))),
            (
                json!({"plural": "car", "kind": "Bike", "listKind": "Car"}),
                Some(("ListKindConflict", "\"Car\" is already in use")),
            ),
        ];
        for (wanted, expected) in table {
            let asks = crd(wanted.clone(), fresh.clone());
            let outcome = accept(&asks, [&other].into_iter());
            let conflict = outcome.conflict.as_ref().map(|(reason, message)| (*reason, message.as_str()));
            assert_eq!(conflict, expected, "{wanted}");
            assert_eq!(outcome.names == wanted, expected.is_none(), "{wanted}");
        }
    }

    #[test]
    fn a_type_keeps_the_names_that_it_has() {
        let names = json!({"plural": "cars", "shortNames": ["c"], "kind": "Car"});
        let other = crd(names.clone(), names.clone());
        assert_eq!(accept(&other, [&other].into_iter()), Outcome { names: names.clone(), conflict: None });
        let had = json!({"plural": "bikes", "shortNames": ["b"], "kind": "Bike"});
        let greedy = crd(json!({"plural": "bikes", "shortNames": ["c"], "kind": "Bike"}), had.clone());
        let outcome = accept(&greedy, [&other].into_iter());
        assert_eq!((outcome.names, outcome.conflict.is_some()), (had, true));
    }
}
