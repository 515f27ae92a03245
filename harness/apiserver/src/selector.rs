//! Label and field selectors (API concepts: "Labels and selectors", "Field selectors").

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::resource::{FieldLabel, Resource};

/// What a list or watch shows of a collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldTerm {
    path: Cow<'static, str>,
    absent: &'static str,
    value: String,
    equal: bool,
}

impl Selector {
    /// Reads both query parameters; empty text selects everything.
    pub(crate) fn parse(resource: &Resource, version: usize, labels: &str, fields: &str) -> Result<Selector, ApiError> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(resource, version, fields)? })
    }

    /// Nothing is filtered out.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Adds `metadata.name=name`, as the deprecated watch paths mean it.
    pub(crate) fn and_name(mut self, name: &str) -> Selector {
        self.fields.push(FieldTerm { path: "metadata.name".into(), absent: "", value: name.to_owned(), equal: true });
        self
    }

    /// The only name that is selected, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.iter().find(|f| f.path == "metadata.name" && f.equal).map(|f| f.value.as_str())
    }

    /// Whether the object is in the selection.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object["metadata"]["labels"].as_object();
        self.labels.iter().all(|r| r.matches(labels)) && self.fields.iter().all(|f| f.matches(object))
    }
}

impl Requirement {
    fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|l| l.get(&self.key)).and_then(Value::as_str);
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::GreaterThan(than) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *than),
            Test::LessThan(than) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *than),
        }
    }
}

impl FieldTerm {
    fn matches(&self, object: &Value) -> bool {
        let field = self.path.split('.').try_fold(object, |value, step| value.get(step));
        let equal = match field {
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Bool(flag)) => self.value == if *flag { "true" } else { "false" },
            Some(Value::Number(number)) => number.to_string() == self.value,
            _ => self.value == self.absent,
        };
        equal == self.equal
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Sign(sign) => sign,
            Token::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SIGNS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            out.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!,()<>".contains(c)).unwrap_or(rest.len());
            out.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    out.push(Token::End);
    out
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn fail<T>(&self, found: &Token, expected: &str) -> Result<T, ApiError> {
        Err(ApiError::bad_request(format!(
            "unable to parse requirement: found '{}', expected: {expected}",
            found.text()
        )))
    }

    fn requirement(&mut self) -> Result<Requirement, ApiError> {
        let negated = *self.peek() == Token::Sign("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return self.fail(&other, "identifier"),
        };
        if negated {
            return Ok(Requirement { key, test: Test::Absent });
        }
        let test = match self.peek().clone() {
            Token::End | Token::Sign(",") => Test::Exists,
            Token::Sign("=" | "==") => {
                self.next();
                Test::In(vec![self.value()?])
            }
            Token::Sign("!=") => {
                self.next();
                Test::NotIn(vec![self.value()?])
            }
            Token::Sign(sign @ (">" | "<")) => {
                self.next();
                let text = self.value()?;
                let Ok(number) = text.parse::<i64>() else {
                    return Err(ApiError::bad_request(format!(
                        "unable to parse requirement: values[0][{key}]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    )));
                };
                if sign == ">" { Test::GreaterThan(number) } else { Test::LessThan(number) }
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                self.next();
                let values = self.values()?;
                if word == "in" { Test::In(values) } else { Test::NotIn(values) }
            }
            other => return self.fail(&other, "in, notin, =, ==, !=, gt, lt"),
        };
        Ok(Requirement { key, test })
    }

    /// The value of `=` may be left out, which means the empty value.
    fn value(&mut self) -> Result<String, ApiError> {
        match self.peek().clone() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            Token::End | Token::Sign(",") => Ok(String::new()),
            other => self.fail(&other, "identifier"),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, ApiError> {
        let open = self.next();
        if open != Token::Sign("(") {
            return self.fail(&open, "'('");
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => values.push(word),
                Token::Sign(")") if values.is_empty() => return Ok(vec![String::new()]),
                other => return self.fail(&other, "',', ')' or identifier"),
            }
            match self.next() {
                Token::Sign(",") => {}
                Token::Sign(")") => return Ok(values),
                other => return self.fail(&other, "',' or ')'"),
            }
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    if *parser.peek() == Token::End {
        return Ok(requirements);
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Sign(",") if *parser.peek() != Token::End => {}
            Token::Sign(",") => return Err(ApiError::bad_request("found '', expected: identifier after ','")),
            other => return parser.fail(&other, "',' or 'end of string'"),
        }
    }
}

fn parse_fields(resource: &Resource, version: usize, text: &str) -> Result<Vec<FieldTerm>, ApiError> {
    let mut terms = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (label, value, equal) = if let Some((label, value)) = term.split_once("!=") {
            (label, value, false)
        } else if let Some((label, value)) = term.split_once("==") {
            (label, value, true)
        } else if let Some((label, value)) = term.split_once('=') {
            (label, value, true)
        } else {
            return Err(ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'")));
        };
        let field = known_field(resource, version, label)?;
        terms.push(FieldTerm { path: field.label, absent: field.absent, value: value.to_owned(), equal });
    }
    Ok(terms)
}

fn known_field(resource: &Resource, version: usize, label: &str) -> Result<FieldLabel, ApiError> {
    const METADATA: [FieldLabel; 2] = [
        FieldLabel { label: Cow::Borrowed("metadata.name"), absent: "" },
        FieldLabel { label: Cow::Borrowed("metadata.namespace"), absent: "" },
    ];
    if let Some(field) = METADATA.iter().chain(resource.field_labels(version)).find(|f| f.label == label) {
        return Ok(field.clone());
    }
    Err(ApiError::bad_request(match (resource.custom, resource.fields.is_empty()) {
        (true, _) | (false, false) => format!("field label not supported: {label}"),
        (false, true) => {
            format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn resource(plural: &str) -> Resource {
        registry(SandboxVersions::Both, true).into_iter().find(|r| r.plural == plural).expect("registered")
    }

    #[test]
    fn label_selectors_match_as_the_table_says() {
        let labels = json!({"metadata": {"labels": {"app": "x", "n": "5", "empty": ""}}});
        let bare = json!({"metadata": {}});
        let table = [
            ("", true, true),
            ("app=x", true, false),
            ("app==x", true, false),
            ("app = x , n=5", true, false),
            ("app=y", false, false),
            ("app!=x", false, true),
            ("app!=y", true, true),
            ("app", true, false),
            ("!app", false, true),
            ("app in (x,y)", true, false),
            ("app notin (x,y)", false, true),
            ("app in (x), n notin (6)", true, false),
            ("n>4", true, false),
            ("n<5", false, false),
            ("empty=", true, false),
            ("app=x,missing", false, false),
        ];
        for (text, with, without) in table {
            let selector = Selector::parse(&resource("pods"), 0, text, "").expect(text);
            assert_eq!(selector.matches(&labels), with, "{text} on labelled");
            assert_eq!(selector.matches(&bare), without, "{text} on bare");
        }
    }

    #[test]
    fn field_selectors_match_as_the_table_says() {
        let pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {}, "status": {"phase": "Running"}});
        let table = [
            ("metadata.name=p", true),
            ("metadata.name=q", false),
            ("metadata.namespace==d,status.phase=Running", true),
            ("status.phase!=Running", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("spec.nodeName=n1", false),
            ("spec.hostNetwork=false", true),
        ];
        for (text, matches) in table {
            assert_eq!(Selector::parse(&resource("pods"), 0, "", text).expect(text).matches(&pod), matches, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_servers_words() {
        let table = [
            ("configmaps", "a in (b", "", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("configmaps", "", "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            (
                "configmaps",
                "",
                "spec.foo=bar",
                "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
            ("sandboxes", "", "spec.operatingMode=Running", "field label not supported: spec.operatingMode"),
        ];
        for (plural, labels, fields, message) in table {
            let error = Selector::parse(&resource(plural), 0, labels, fields).expect_err(message);
            assert_eq!((error.code, error.message()), (400, message));
        }
    }
}
