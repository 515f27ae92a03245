//! Validation of values against a schema, in the words of a real server.
//!
//! An update is held against the old object: what did not change is not complained about ("CRD validation ratcheting",
//! always on since Kubernetes 1.33).

use serde_json::Value;

use super::{Kind, Limits, ListType, Path, Schema, formats};
use crate::error::Cause;

impl Schema {
    /// What is wrong with a whole object. `old` is the object before an update.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.check(object, old, &Path::Root, true, &mut causes);
        if !self.ruled {
            return causes;
        }
        const BLOCKING: [&str; 5] = [
            "FieldValueRequired",
            "FieldValueNotSupported",
            "FieldValueTypeInvalid",
            "FieldValueTooLong",
            "FieldValueTooMany",
        ];
        if causes.iter().any(|cause| BLOCKING.contains(&cause.reason)) {
            causes.push(Cause {
                reason: "FieldValueInvalid",
                message: "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation".into(),
                field: "<nil>".into(),
            });
        } else {
            self.check_rules(object, old, &Path::Root, &mut causes);
        }
        causes
    }

    /// What is wrong with a value at that place, rules aside.
    pub(super) fn validate_part(&self, value: &Value, place: &Path<'_>) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.check(value, None, place, false, &mut causes);
        causes
    }

    fn check(&self, value: &Value, old: Option<&Value>, path: &Path<'_>, whole: bool, causes: &mut Vec<Cause>) {
        if old == Some(value) || (value.is_null() && self.nullable) {
            return;
        }
        if !self.accepts(value) {
            let (expected, found) = (self.kind.as_str(), type_name(value));
            causes.push(wrong_type(path, found, format_args!("{path} in body must be of type {expected}: {found:?}")));
            return;
        }
        if let Some(limits) = &self.limits {
            limits.check(value, path, causes);
        }
        match value {
            Value::Object(map) => {
                for name in &self.required {
                    if !map.contains_key(name) {
                        causes.push(Cause::required(&path.member(name).to_string(), ""));
                    }
                }
                if self.properties.is_empty() && self.additional.is_none() {
                    return;
                }
                for (name, value) in map {
                    if whole && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                        continue;
                    }
                    if let Some(schema) = self.member(name) {
                        let old = old.and_then(|old| old.get(name));
                        schema.check(value, old, &path.member(name), false, causes);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for (at, value) in list.iter().enumerate() {
                    let old = old.and_then(|old| self.counterpart(value, old));
                    items.check(value, old, &path.element(at), false, causes);
                }
                self.check_twins(list, path, causes);
            }
            _ => {}
        }
    }

    fn accepts(&self, value: &Value) -> bool {
        match self.kind {
            Kind::Any => true,
            Kind::Object => value.is_object(),
            Kind::Array => value.is_array(),
            Kind::String => value.is_string(),
            Kind::Integer => is_integer(value),
            Kind::Number => value.is_number(),
            Kind::Boolean => value.is_boolean(),
            Kind::IntOrString => value.is_string() || is_integer(value),
        }
    }

    /// The element of the old list that is the same as this one, where elements have names.
    fn counterpart<'a>(&self, value: &Value, old: &'a Value) -> Option<&'a Value> {
        let ListType::Map(keys) = &self.list else { return None };
        old.as_array()?.iter().find(|old| keys.iter().all(|key| old.get(key) == value.get(key)))
    }

    /// Elements of sets and maps that are there twice.
    fn check_twins(&self, list: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
        let same = |a: &Value, b: &Value| match &self.list {
            ListType::Atomic => false,
            ListType::Set => a == b,
            ListType::Map(keys) => keys.iter().all(|key| a.get(key) == b.get(key)),
        };
        for (at, value) in list.iter().enumerate() {
            if list[..at].iter().any(|earlier| same(earlier, value)) {
                let shown = match &self.list {
                    ListType::Map(keys) => {
                        keys.iter().filter_map(|key| Some((key.clone(), value.get(key)?.clone()))).collect()
                    }
                    _ => value.clone(),
                };
                causes.push(Cause {
                    reason: "FieldValueDuplicate",
                    message: format!("Duplicate value: {shown}"),
                    field: path.element(at).to_string(),
                });
            }
        }
    }

    /// Evaluates the rules of this node and below. The object fits the schema.
    fn check_rules(&self, value: &Value, old: Option<&Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
        if !self.ruled || value.is_null() {
            return;
        }
        if let Some(rules) = &self.rules {
            rules.check(value, old, path, causes);
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let Some(schema) = self.member(name) {
                        let old = old.and_then(|old| old.get(name));
                        schema.check_rules(value, old, &path.member(name), causes);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for (at, value) in list.iter().enumerate() {
                    let old = old.and_then(|old| self.counterpart(value, old));
                    items.check_rules(value, old, &path.element(at), causes);
                }
            }
            _ => {}
        }
    }
}

impl Limits {
    fn check(&self, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
        if let Some(values) = self.one_of_values.as_ref().filter(|values| !values.contains(value)) {
            let names: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            causes.push(Cause::unsupported(&path.to_string(), value, &names));
        }
        match value {
            Value::Number(_) => self.check_number(value, path, causes),
            Value::String(text) => self.check_text(value, text, path, causes),
            Value::Array(list) => {
                let count = list.len() as u64;
                if let Some(least) = self.min_items.filter(|least| count < *least) {
                    causes.push(self.wrong(path, value, format_args!("should have at least {least} items")));
                }
                too_many(self.max_items, count, path, causes);
            }
            Value::Object(map) => {
                let count = map.len() as u64;
                if let Some(least) = self.min_properties.filter(|least| count < *least) {
                    causes.push(self.wrong(path, value, format_args!("should have at least {least} properties")));
                }
                too_many(self.max_properties, count, path, causes);
            }
            _ => {}
        }
        self.check_branches(value, path, causes);
    }

    fn wrong(&self, path: &Path<'_>, value: &Value, what: std::fmt::Arguments<'_>) -> Cause {
        let field = path.to_string();
        Cause::invalid(&field, value, format_args!("{field} in body {what}"))
    }

    fn check_number(&self, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let number = value.as_f64().unwrap_or_default();
        if let Some((least, exclusive)) = self.minimum
            && (number < least || (exclusive && number == least))
        {
            let than = if exclusive { "greater than" } else { "greater than or equal to" };
            causes.push(self.wrong(path, value, format_args!("should be {than} {least}")));
        }
        if let Some((most, exclusive)) = self.maximum
            && (number > most || (exclusive && number == most))
        {
            let than = if exclusive { "less than" } else { "less than or equal to" };
            causes.push(self.wrong(path, value, format_args!("should be {than} {most}")));
        }
        if let Some(unit) = self.multiple_of.filter(|unit| *unit > 0.0 && number % unit != 0.0) {
            causes.push(self.wrong(path, value, format_args!("should be a multiple of {unit}")));
        }
    }

    fn check_text(&self, value: &Value, text: &str, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let length = text.chars().count() as u64;
        if let Some(most) = self.max_length.filter(|most| length > *most) {
            causes.push(Cause {
                reason: "FieldValueTooLong",
                message: format!("Too long: may not be more than {most} bytes"),
                field: path.to_string(),
            });
        }
        if let Some(least) = self.min_length.filter(|least| length < *least) {
            causes.push(self.wrong(path, value, format_args!("should be at least {least} chars long")));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
            causes.push(self.wrong(path, value, format_args!("should match '{}'", pattern.text)));
        }
        if let Some(format) = self.format.as_ref().filter(|format| !formats::fits(format, text)) {
            causes.push(wrong_type(path, text, format_args!("{path} in body must be of type {format}: {text:?}")));
        }
    }

    fn check_branches(&self, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let fits = |schema: &&Schema| {
            let mut found = Vec::new();
            schema.check(value, None, path, false, &mut found);
            found.is_empty()
        };
        let mut say = |what: &str| {
            let field = path.to_string();
            causes.push(Cause::invalid(&field, value, format_args!("{field:?} {what}")));
        };
        if !self.any_of.is_empty() && !self.any_of.iter().any(|schema| fits(&schema)) {
            say("must validate at least one schema (anyOf)");
        }
        if !self.one_of.is_empty() {
            match self.one_of.iter().filter(fits).count() {
                1 => {}
                0 => say("must validate one and only one schema (oneOf). Found none valid"),
                n => say(&format!("must validate one and only one schema (oneOf). Found {n} valid alternatives")),
            }
        }
        if self.not.as_ref().is_some_and(|schema| fits(&&**schema)) {
            say("must not validate the schema (not)");
        }
        for schema in &self.all_of {
            schema.check(value, None, path, false, causes);
        }
    }
}

fn too_many(most: Option<u64>, count: u64, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(most) = most.filter(|most| count > *most) {
        causes.push(Cause {
            reason: "FieldValueTooMany",
            message: format!("Too many: {count}: must have at most {most} items"),
            field: path.to_string(),
        });
    }
}

fn wrong_type(path: &Path<'_>, found: &str, what: std::fmt::Arguments<'_>) -> Cause {
    Cause {
        reason: "FieldValueTypeInvalid",
        message: format!("Invalid value: {found:?}: {what}"),
        field: path.to_string(),
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
