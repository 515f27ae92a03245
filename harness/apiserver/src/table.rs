//! Tables: answers as rows and columns for people, which `kubectl get` asks for (API concepts: "Receiving resources as
//! Tables").

mod age;
mod cells;
mod columns;
mod jsonpath;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::clock;
use crate::request::Query;
use crate::resource::Resource;
use crate::response::Body;

/// What a row carries of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Include {
    None,
    Metadata,
    Object,
}

/// An answer that a client wants as a table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    resource: Arc<Resource>,
    version: usize,
    include: Include,
    api_version: &'static str,
}

/// One column: its definition, and how it is read from an object at a time (seconds since 1970).
pub(crate) struct Column<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) format: &'a str,
    pub(crate) description: &'a str,
    pub(crate) priority: i64,
    pub(crate) cell: Cell<'a>,
}

/// Reads a cell from an object, at a time.
type Cell<'a> = Box<dyn Fn(&Value, u64) -> Value + 'a>;

/// Whether a media type asks for a table.
pub(crate) fn asked(media: &str) -> bool {
    media.contains("as=Table") && media.contains("g=meta.k8s.io")
}

impl Table {
    /// The table that a request wants, if the first media type that this server has is one.
    pub(crate) fn wanted(accept: &str, query: &Query, resource: &Arc<Resource>, version: usize) -> Option<Table> {
        if !accept.contains("as=Table") {
            return None;
        }
        let media = accept.split(',').map(str::trim).find(|media| asked(media) || !media.contains("as="))?;
        let include = match query.text("includeObject") {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        };
        let api_version = if media.contains("v=v1beta1") { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" };
        asked(media).then(|| Table { resource: resource.clone(), version, include, api_version })
    }

    /// The body of an answer, as a table: of a list, of an object, or of each event of a watch.
    pub(crate) fn body(self, body: Body) -> Body {
        let mut first = true;
        let event = self.clone();
        body.map(
            move |whole| self.whole(&whole).unwrap_or(whole),
            move |line| {
                let table = event.event(&line, first);
                first = false;
                table.unwrap_or(line)
            },
        )
    }

    fn whole(&self, bytes: &[u8]) -> Option<Bytes> {
        let mut answer: Value = serde_json::from_slice(bytes).ok()?;
        if answer["kind"] == "Status" {
            return None;
        }
        let items = match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => vec![answer.clone()],
        };
        let mut metadata = Map::new();
        for member in ["resourceVersion", "continue", "remainingItemCount"] {
            if let Some(value) = answer["metadata"].get(member).filter(|value| **value != "") {
                metadata.insert(member.into(), value.clone());
            }
        }
        Some(self.table(metadata.into(), &items, true).to_string().into())
    }

    fn event(&self, line: &[u8], first: bool) -> Option<Bytes> {
        let mut event: Value = serde_json::from_slice(line).ok()?;
        let object = event.get_mut("object").map(Value::take)?;
        if event["type"] == "ERROR" {
            return None;
        }
        let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        let marker = event["type"] == "BOOKMARK";
        let rows = if marker { Vec::new() } else { vec![object] };
        event["object"] = self.table(metadata, &rows, first);
        Some(format!("{event}\n").into())
    }

    fn table(&self, metadata: Value, objects: &[Value], defined: bool) -> Value {
        let columns = columns::of(&self.resource, self.version);
        let now = clock::now();
        let definition = |column: &Column<'_>| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        };
        let definitions: Value = if defined { columns.iter().map(definition).collect() } else { Value::Null };
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let cells: Vec<Value> = columns.iter().map(|column| (column.cell)(object, now)).collect();
                json!({"cells": cells, "object": self.included(object)})
            })
            .collect();
        json!({
            "kind": "Table", "apiVersion": self.api_version, "metadata": metadata,
            "columnDefinitions": definitions, "rows": rows,
        })
    }

    fn included(&self, object: &Value) -> Value {
        match self.include {
            Include::None => Value::Null,
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": self.api_version, "metadata": object["metadata"],
            }),
            Include::Object => {
                let mut object = object.clone();
                object["kind"] = (&*self.resource.kind).into();
                object["apiVersion"] = self.resource.api_version(self.version).into();
                object
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn table(plural: &str, accept: &str, query: &str) -> Option<Table> {
        let all = registry(SandboxVersions::Both, true);
        let resource = Arc::new(all.into_iter().find(|r| r.plural == plural).expect("registered"));
        Table::wanted(accept, &Query::parse(query), &resource, 0)
    }

    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    #[test]
    fn the_first_known_media_type_decides_whether_the_answer_is_a_table() {
        for (accept, is) in [
            (KUBECTL, true),
            ("application/json", false),
            ("application/json,application/json;as=Table;v=v1;g=meta.k8s.io", false),
        ] {
            assert_eq!(table("pods", accept, "").is_some(), is, "{accept}");
        }
    }

    #[test]
    fn a_list_becomes_rows_with_as_much_of_each_object_as_was_asked_for() {
        let list = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},
            "items":[{"metadata":{"name":"a"},"data":{"k":"v","l":"w"}}]}"#;
        let cells = |query: &str| -> Value {
            let bytes = table("configmaps", KUBECTL, query).expect("a table").whole(list).expect("a list");
            serde_json::from_slice(&bytes).expect("JSON")
        };
        let table = cells("");
        let names: Vec<&Value> =
            table["columnDefinitions"].as_array().into_iter().flatten().map(|c| &c["name"]).collect();
        assert_eq!(names, ["Name", "Data", "Age"]);
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(table["rows"][0]["cells"], json!(["a", 2, "<unknown>"]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(cells("includeObject=None")["rows"][0]["object"], Value::Null);
        assert_eq!(cells("includeObject=Object")["rows"][0]["object"]["data"]["k"], "v");
    }

    #[test]
    fn events_are_tables_of_one_row_and_only_the_first_defines_the_columns() {
        let table = table("sandboxes", KUBECTL, "").expect("a table");
        let line = br#"{"type":"ADDED","object":{"kind":"Sandbox","metadata":{"name":"s","resourceVersion":"5"},
            "status":{"conditions":[{"type":"Ready","status":"True"}]}}}"#;
        let event =
            |first| -> Value { serde_json::from_slice(&table.event(line, first).expect("an event")).expect("JSON") };
        let one = event(true);
        assert_eq!(one["object"]["rows"][0]["cells"], json!(["s", "True", null, null]));
        assert_eq!(one["object"]["metadata"]["resourceVersion"], "5");
        assert!(one["object"]["columnDefinitions"].is_array());
        assert!(event(false)["object"]["columnDefinitions"].is_null());
    }
}
