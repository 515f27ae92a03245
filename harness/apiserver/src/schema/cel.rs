//! `x-kubernetes-validations`: rules in the Common Expression Language, evaluated by `kube-cel`.

use std::sync::OnceLock;

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, compile_schema, validate_compiled};
use serde_json::{Map, Value};

use super::Path;
use crate::error::Cause;

const KEYWORD: &str = "x-kubernetes-validations";

/// The members that the rules of a node look at, if they hold whenever those stay as they were: then they need not be
/// evaluated. Only the CRDs of this crate say so.
const LOOKS_AT: &str = "x-photofinish-validations-look-at";

/// The rules of one node.
pub(crate) struct Rules {
    /// The node with the rules of the nodes below taken out, since those are evaluated at their own nodes.
    node: Value,
    /// Compiled when first needed: most runs of a test change nothing that a rule looks at.
    compiled: OnceLock<CompiledSchema>,
    /// A rule compares with the old value, and may fail even if nothing changed.
    looks_back: bool,
    /// All rules compare with the old value: without one there is nothing to evaluate.
    only_back: bool,
    /// See [`LOOKS_AT`].
    looks_at: Option<Vec<String>>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rules").field(&self.node[KEYWORD]).finish()
    }
}

impl Rules {
    /// The rules of a node, if it has any.
    pub(super) fn of(node: &Map<String, Value>) -> Option<Rules> {
        let rules = node.get(KEYWORD)?.as_array().filter(|rules| !rules.is_empty())?;
        let looks_back = rules.iter().any(|rule| {
            ["rule", "messageExpression"].iter().any(|key| rule[*key].as_str().is_some_and(|t| t.contains("oldSelf")))
        });
        let mut stripped = node.clone();
        stripped.values_mut().for_each(without_rules);
        stripped.insert(KEYWORD.into(), node[KEYWORD].clone());
        let only_back = rules.iter().all(|rule| {
            rule["rule"].as_str().is_some_and(|t| t.contains("oldSelf")) && rule["optionalOldSelf"] != true
        });
        let names = node.get(LOOKS_AT).and_then(Value::as_array);
        let looks_at = names.map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        Some(Rules { node: Value::Object(stripped), compiled: OnceLock::new(), looks_back, only_back, looks_at })
    }

    fn compiled(&self) -> &CompiledSchema {
        self.compiled.get_or_init(|| compile_schema(&self.node))
    }

    /// Why rules do not compile.
    pub(super) fn mistakes(&self) -> Vec<String> {
        self.compiled().compilation_errors().iter().map(|error| format!("compilation failed: {error}")).collect()
    }

    /// Evaluates the rules. `old` is the value before an update; a rule about it is left out where there is none.
    pub(super) fn check(&self, value: &Value, old: Option<&Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let idle = match old {
            None => self.only_back,
            Some(old) => match &self.looks_at {
                Some(members) => members.iter().all(|member| old.get(member) == value.get(member)),
                None => !self.looks_back && old == value,
            },
        };
        if idle {
            return;
        }
        if let Err(errors) = validate_compiled(self.compiled(), value, old) {
            causes.extend(errors.into_iter().map(|error| cause(&error, path)));
        }
    }
}

fn without_rules(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // Only a list is the keyword: a member of that name has a schema.
            map.retain(|key, value| key != KEYWORD || !value.is_array());
            // Defaults were filled in before.
            map.values_mut().for_each(without_rules);
        }
        Value::Array(list) => list.iter_mut().for_each(without_rules),
        _ => {}
    }
}

fn cause(error: &ValidationError, path: &Path<'_>) -> Cause {
    let place = error.field_path.trim_start_matches('.');
    let field = match (place, path) {
        ("", _) => path.to_string(),
        (place, Path::Root) => place.to_owned(),
        (place, _) => format!("{path}.{place}"),
    };
    let said = &error.message;
    let reason = error.reason.as_deref().filter(|_| error.kind == ErrorKind::ValidationFailure);
    let (reason, message) = match reason {
        Some("FieldValueForbidden") => ("FieldValueForbidden", format!("Forbidden: {said}")),
        Some("FieldValueRequired") => ("FieldValueRequired", format!("Required value: {said}")),
        Some("FieldValueDuplicate") => ("FieldValueDuplicate", format!("Duplicate value: {said}")),
        _ => ("FieldValueInvalid", format!("Invalid value: {said}")),
    };
    Cause { reason, message, field }
}
