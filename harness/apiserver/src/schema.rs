//! Structural schemas: what a CRD says about the members of its objects.
//!
//! A schema is compiled once from the `openAPIV3Schema` of a CRD's version, and then prunes ([`Schema::prune`]), fills in
//! defaults ([`Schema::fill`]) and validates ([`Schema::validate`]) whatever clients write. Source: Kubernetes API docs,
//! "Custom resources: specifying a structural schema".

pub(crate) mod builtin;
mod cel;
mod compile;
mod fill;
mod formats;
mod path;
mod prune;
pub(crate) mod structural;
mod validate;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

pub(crate) use cel::Rules;
pub(crate) use path::Path;

/// One node of a schema, and all nodes below it.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// The declared type.
    pub(crate) kind: Kind,
    /// `null` is a value too.
    pub(crate) nullable: bool,
    /// Named members of an object.
    pub(crate) properties: BTreeMap<String, Schema>,
    /// All other members of an object.
    pub(crate) additional: Option<Box<Schema>>,
    /// Elements of an array.
    pub(crate) items: Option<Box<Schema>>,
    /// Members that no schema names are kept.
    pub(crate) preserve: bool,
    /// The value is an object of its own, with `apiVersion`, `kind` and `metadata`.
    pub(crate) embedded: bool,
    /// How elements of an array, or members of an object, are told apart.
    pub(crate) list: ListType,
    required: Vec<String>,
    default: Option<Value>,
    /// There are defaults in this node or below.
    fills: bool,
    /// There are rules in this node or below.
    ruled: bool,
    limits: Option<Box<Limits>>,
    rules: Option<Box<Rules>>,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// Nothing is declared.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
}

impl Kind {
    /// As schemas spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Any => "",
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::IntOrString => "string",
        }
    }
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects, told apart by these members.
    Map(Vec<String>),
}

/// Limits on values beyond their type.
#[derive(Debug, Default)]
struct Limits {
    one_of_values: Option<Vec<Value>>,
    minimum: Option<(f64, bool)>,
    maximum: Option<(f64, bool)>,
    multiple_of: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    pattern: Option<Pattern>,
    format: Option<String>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

/// A regular expression, compiled when it is first needed.
#[derive(Debug)]
struct Pattern {
    text: String,
    compiled: OnceLock<Option<Regex>>,
}

/// Go's expressions read `\d` and `\w` as ASCII, as the small engine does; only the large one knows Unicode classes.
#[derive(Debug)]
enum Regex {
    Small(regex_lite::Regex),
    Large(regex::Regex),
}

impl Pattern {
    fn new(text: &str) -> Pattern {
        Pattern { text: text.to_owned(), compiled: OnceLock::new() }
    }

    fn regex(&self) -> Option<&Regex> {
        let compile = || match regex_lite::Regex::new(&self.text) {
            Ok(small) => Some(Regex::Small(small)),
            Err(_) => regex::Regex::new(&self.text).ok().map(Regex::Large),
        };
        self.compiled.get_or_init(compile).as_ref()
    }

    /// Whether the text matches; an expression that does not compile was refused with its CRD and matches all.
    fn matches(&self, text: &str) -> bool {
        match self.regex() {
            Some(Regex::Small(regex)) => regex.is_match(text),
            Some(Regex::Large(regex)) => regex.is_match(text),
            None => true,
        }
    }
}

impl Schema {
    /// The schema of a named member, or of the members that are not named.
    pub(crate) fn member(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional.as_deref())
    }
}

#[cfg(test)]
mod tests;
