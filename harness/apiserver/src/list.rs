//! Lists: which snapshot a request reads, and how a page of it looks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cache::Caches;
use crate::defaults::from_base64;
use crate::error::{ApiError, Cause};
use crate::history::History;
use crate::object::{Object, View};
use crate::reads::uncached;
use crate::request::Query;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::store::prefix;

/// What a list asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) at: At,
    /// Items a page; 0 is all.
    pub(crate) limit: usize,
    /// Key (relative to the collection) at which the page starts.
    start: String,
}

/// The snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The latest state.
    Latest,
    /// Any state that is not older.
    NotOlderThan(u64),
    /// The state at that revision.
    Exact(u64),
}

impl Options {
    pub(crate) fn parse(query: &Query) -> Result<Options, ApiError> {
        let limit = query.integer("limit")?.unwrap_or(0);
        let asked = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        check(query, asked, matching)?;
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| ApiError::bad_request(format!("invalid resource version: {}", bad_revision(text))))
        };
        let token = query.text("continue");
        if !token.is_empty() {
            if !asked.is_empty() && asked != "0" {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            let (revision, start) = decode_token(token)?;
            let at = revision.map_or(At::Latest, At::Exact);
            return Ok(Options { at, limit: usize::try_from(limit).unwrap_or(0), start });
        }
        let revision = if asked.is_empty() { None } else { Some(number(asked)?) };
        let limit = if revision == Some(0) { 0 } else { usize::try_from(limit).unwrap_or(0) };
        let at = match (revision, matching) {
            (None, _) => At::Latest,
            (Some(revision), "Exact") => At::Exact(revision),
            // A page of a known revision was always exact, before `resourceVersionMatch` could say so.
            (Some(revision), "") if limit > 0 => At::Exact(revision),
            (Some(revision), _) => At::NotOlderThan(revision),
        };
        Ok(Options { at, limit, start: String::new() })
    }
}

/// The complaint about a `resourceVersion` that is no number.
pub(crate) fn bad_revision(text: &str) -> String {
    format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax")
}

fn check(query: &Query, asked: &str, matching: &str) -> Result<(), ApiError> {
    const FIELD: &str = "resourceVersionMatch";
    let mut causes = Vec::new();
    if !matching.is_empty() {
        if asked.is_empty() {
            causes
                .push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(Cause::unsupported(FIELD, format_args!("{matching:?}"), &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && asked == "0" {
            causes
                .push(Cause::forbidden(FIELD, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if query.get("sendInitialEvents").is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid_options("ListOptions", &causes)) }
}

/// `{"v":"meta.k8s.io/v1","rv":N,"start":"/name\0"}` in URL-safe base64.
fn encode_token(revision: i64, start: &str) -> String {
    let token = format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":{revision},\"start\":{}}}", json!(format!("{start}\0")));
    let text = crate::defaults::base64(token.as_bytes());
    text.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// What Go's JSON says of bytes that do not even begin like JSON.
fn unreadable(bytes: &[u8]) -> Option<String> {
    let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) else {
        return Some("unexpected end of JSON input".into());
    };
    let shown = match first {
        b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => return None,
        b'\'' => "\\'".into(),
        b'\\' => "\\\\".into(),
        0..=0x1f | 0x7f => format!("\\x{first:02x}"),
        0x80..=0xa0 | 0xad => format!("\\u{first:04x}"),
        other => char::from(*other).to_string(),
    };
    Some(format!("invalid character '{shown}' looking for beginning of value"))
}

/// The revision (`None` for an inconsistent continuation) and the relative key after which the page starts.
fn decode_token(token: &str) -> Result<(Option<u64>, String), ApiError> {
    let invalid =
        |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = from_base64(token).ok_or_else(|| invalid("illegal base64 data".into()))?;
    let complaint = |error: serde_json::Error| invalid(unreadable(&bytes).unwrap_or_else(|| error.to_string()));
    let value: Value = serde_json::from_slice(&bytes).map_err(complaint)?;
    if value["v"] != "meta.k8s.io/v1" {
        return Err(invalid(format!("server does not recognize this encoded version {}", value["v"])));
    }
    let revision = match value["rv"].as_i64() {
        Some(-1) => None,
        Some(revision) if revision > 0 => Some(revision.unsigned_abs()),
        _ => return Err(invalid("incorrect encoded start resourceVersion".into())),
    };
    let start = value["start"].as_str().unwrap_or_default().trim_start_matches('/');
    Ok((revision, start.to_owned()))
}

/// One page.
pub(crate) struct Page {
    items: Vec<Arc<Object>>,
    revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

/// Reads a page. The revision has been reached.
pub(crate) fn page(
    history: &History,
    table: usize,
    caches: &Caches,
    namespace: &str,
    selector: &Selector,
    options: &Options,
) -> Result<Page, ApiError> {
    let t = &history.tables[table];
    let cached = !uncached(&t.resource);
    let cut = |state: &_, revision| cut(state, &t.resource, namespace, selector, options, revision);
    match options.at {
        At::Exact(revision) if revision < history.revision() => {
            let held = cached && caches.holds(history, table, revision);
            if revision < history.compacted() && !held {
                return Err(too_old(options));
            }
            Ok(cut(&t.at(revision), revision))
        }
        At::NotOlderThan(asked) if cached && caches.ready(history, table) => {
            let upto = caches.seen(history, table).upto;
            let revision = caches.revision(history, table, upto).max(asked);
            if upto < t.latest() { Ok(cut(&t.at(upto), revision)) } else { Ok(cut(&t.live, revision)) }
        }
        _ => {
            caches.confirm(history, table);
            Ok(cut(&t.live, history.revision()))
        }
    }
}

fn too_old(options: &Options) -> ApiError {
    if options.start.is_empty() {
        return ApiError::expired("The resourceVersion for the provided list is too old.");
    }
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    if let Some(status) = error.status.as_mut() {
        status["metadata"]["continue"] = encode_token(-1, options.start.trim_end_matches('\0')).into();
    }
    error
}

fn cut(
    state: &BTreeMap<String, Arc<Object>>,
    resource: &Resource,
    namespace: &str,
    selector: &Selector,
    options: &Options,
    revision: u64,
) -> Page {
    let prefix = prefix(resource, namespace);
    let from = format!("{prefix}{}", options.start);
    let mut rest = state
        .range(from..)
        .take_while(|(key, _)| key.starts_with(&prefix))
        .filter(|(_, object)| selector.is_empty() || selector.matches(object.value()));
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    let mut items = Vec::new();
    let mut last = "";
    for (key, object) in rest.by_ref().take(limit) {
        items.push(object.clone());
        last = key;
    }
    let remaining = rest.count();
    // Watch caches keep the slash between the collection and the rest of the key, storage does not.
    let slash = if uncached(resource) { "" } else { "/" };
    let next =
        (remaining > 0).then(|| encode_token(revision.cast_signed(), &format!("{slash}{}", &last[prefix.len()..])));
    Page { items, revision, next, remaining: (remaining > 0 && selector.is_empty()).then_some(remaining) }
}

impl Page {
    /// The list as JSON.
    pub(crate) fn json(&self, resource: &Resource, view: View) -> Vec<u8> {
        let mut metadata = format!("{{\"resourceVersion\":\"{}\"", self.revision);
        match (&self.next, resource.custom && !view.metadata_only) {
            (Some(token), _) => {
                let _ = write!(metadata, ",\"continue\":\"{token}\"");
            }
            (None, true) => metadata.push_str(",\"continue\":\"\""),
            (None, false) => {}
        }
        if let Some(remaining) = self.remaining {
            let _ = write!(metadata, ",\"remainingItemCount\":{remaining}");
        }
        metadata.push('}');
        let mut out = Vec::with_capacity(256 + self.items.len() * 1024);
        let (kind, api_version) = match view.metadata_only {
            true => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
            false => (&*resource.names.list, resource.api_version(view.version)),
        };
        let head =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
        out.extend_from_slice(head.as_bytes());
        for (at, object) in self.items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let form = object.form(resource, view);
            if resource.custom || view.metadata_only {
                out.extend_from_slice(form.json());
            } else {
                out.push(b'{');
                out.extend_from_slice(form.members());
            }
        }
        out.extend_from_slice(b"]}");
        out
    }

    /// The objects of the page.
    pub(crate) fn items(&self) -> &[Arc<Object>] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshot_follows_version_match_and_limit_as_the_table_says() {
        let table = [
            ("", At::Latest, 0),
            ("limit=2", At::Latest, 2),
            ("limit=-1", At::Latest, 0),
            ("resourceVersion=0", At::NotOlderThan(0), 0),
            ("resourceVersion=0&limit=2", At::NotOlderThan(0), 0),
            ("resourceVersion=5", At::NotOlderThan(5), 0),
            ("resourceVersion=5&limit=2", At::Exact(5), 2),
            ("resourceVersion=5&limit=2&resourceVersionMatch=NotOlderThan", At::NotOlderThan(5), 2),
            ("resourceVersion=5&resourceVersionMatch=Exact", At::Exact(5), 0),
        ];
        for (query, at, limit) in table {
            let options = Options::parse(&Query::parse(query)).expect(query);
            assert_eq!((options.at, options.limit), (at, limit), "{query}");
        }
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let table = [
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=1&resourceVersionMatch=Huh", 422),
            ("sendInitialEvents=true", 422),
            ("resourceVersion=abc", 400),
            ("continue=abc", 400),
        ];
        for (query, code) in table {
            assert_eq!(Options::parse(&Query::parse(query)).map_err(|e| e.code), Err(code), "{query}");
        }
        let token = encode_token(5, "/c1");
        let both = Query::parse(&format!("continue={token}&resourceVersion=5"));
        assert_eq!(Options::parse(&both).map_err(|e| e.code), Err(400));
    }

    #[test]
    fn a_token_that_holds_no_json_is_refused_in_the_words_of_a_real_server() {
        let table: [(&[u8], Option<&str>); 6] = [
            (b"\x81\xaa", Some("invalid character '\\u0081' looking for beginning of value")),
            (b"\xe9", Some("invalid character '\u{e9}' looking for beginning of value")),
            (b"\x00", Some("invalid character '\\x00' looking for beginning of value")),
            (b"x", Some("invalid character 'x' looking for beginning of value")),
            (b"", Some("unexpected end of JSON input")),
            (b"{", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(unreadable(bytes).as_deref(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn tokens_are_those_of_a_real_server() {
        let token = encode_token(379, "/c1");
        assert_eq!(token, "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Mzc5LCJzdGFydCI6Ii9jMVx1MDAwMCJ9");
        assert_eq!(decode_token(&token), Ok((Some(379), "c1\0".into())));
    }
}
