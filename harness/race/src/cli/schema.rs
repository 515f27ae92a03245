//! `schema`: what the `--json` lines and the scenario files look like, as JSON Schema.
use clap::Args;
use serde_json::{Value, json};

use super::output::Output;
use crate::outcome::Outcome;
use crate::scenario;
use crate::system::System;

#[derive(Args)]
pub(super) struct SchemaArgs {
    /// `runs`: a line of `run --json` and `replay --json`; `scenario`: a scenario file.
    #[arg(value_name = "WHAT", default_value = "runs", value_parser = ["runs", "scenario"])]
    what: String,
}

pub(super) fn print(system: &dyn System, args: &SchemaArgs, output: &mut Output) -> u8 {
    let schema = match args.what.as_str() {
        "scenario" => scenario::schema::schema(system),
        _ => runs(),
    };
    output.line(format!("{schema:#}"));
    0
}

/// Version 1: fields may be added, none is removed or changes its meaning.
fn runs() -> Value {
    let text = json!({"type": "string"});
    let maybe = |kind: &str| json!({"type": [kind, "null"]});
    let violation = json!({
        "type": "object",
        "required": ["property", "entry", "why", "led"],
        "properties": {
            "property": text,
            "entry": {"type": "integer", "description": "Number of the entry that broke it, from 0."},
            "why": {"type": "string", "description": "What must not be, or what did not come."},
            "led": {"type": "array", "items": {"type": "integer"}, "description": "Entries that led there, by number."},
        },
    });
    let entry = json!({
        "type": "object",
        "required": ["id", "at_ns", "host", "kind", "name", "text"],
        "properties": {
            "id": {"type": "integer", "description": "Its number in the trace, from 0."},
            "at_ns": {"type": "integer", "description": "Virtual time since the run's start, nanoseconds."},
            "host": text,
            "kind": {"type": "string", "description": "log, op, reply, http, watch, net, host, choice, step ..."},
            "name": text,
            "text": text,
            "fields": {"type": "array", "items": {"type": "array", "items": text}},
            "spans": {"type": "array", "items": text},
            "cause": maybe("integer"),
        },
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A run, as --json prints it",
        "type": "object",
        "required": [
            "v", "scenario", "run_id", "seed", "outcome", "property", "violations", "vacuous", "end", "trace_hash",
            "virtual_ms", "wall_ms"
        ],
        "properties": {
            "v": {"const": 1, "description": "Version: fields may be added, none is removed or changes its meaning."},
            "scenario": text,
            "run_id": {"type": "string", "pattern": "^pf1:"},
            "seed": maybe("integer"),
            "outcome": {"enum": Outcome::ALL.map(Outcome::name)},
            "property": {"type": ["string", "null"], "description": "The first violated one, or the first vacuous one."},
            "violations": {"type": "array", "items": violation},
            "vacuous": {"type": "array", "items": text},
            "fingerprint": {"type": "string", "description": "What a failing run is known by."},
            "closed_by": {
                "type": "array",
                "items": {"type": "array", "items": text},
                "description": "After a crash that its scenario lists: the sets of remedies that each make it hold.",
            },
            "end": {"type": ["string", "null"], "description": "Why the run ended before its script did."},
            "trace_hash": {"type": "string", "description": "Equal hashes, equal runs."},
            "virtual_ms": {"type": "number"},
            "wall_ms": {"type": "number"},
            "trace": {"type": "array", "items": entry, "description": "With --trace."},
        },
    })
}
