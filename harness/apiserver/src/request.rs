//! What a request asks for: path, query and method, read without touching the store.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::error::ApiError;

/// Decoded query parameters, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Query {
        let decode = |part: &str| match part.contains(['%', '+']) {
            true => percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned(),
            false => part.to_owned(),
        };
        Query(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The parameter's text, empty when it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Go's idea of a boolean parameter: present and not false.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value, "0" | "f" | "F" | "false" | "False" | "FALSE"))
    }

    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target<'a> {
    /// Objects of one type.
    Objects(Place<'a>),
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `/api`, `/apis` and what they list.
    Discovery,
    /// Nothing that is served under any group.
    Nowhere,
}

/// A collection, an object or one of its subresources.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    /// The deprecated `/watch/` paths.
    pub(crate) watch: bool,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) plural: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) subresource: Option<&'a str>,
}

/// Reads a path.
pub(crate) fn target(path: &str) -> Target<'_> {
    // No rule looks beyond the ninth part, `/apis/GROUP/VERSION/watch/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE`.
    let (mut parts, mut count) = ([""; 9], 0);
    for part in path.split('/').filter(|part| !part.is_empty()).take(parts.len()) {
        parts[count] = part;
        count += 1;
    }
    let (group, version, rest) = match &parts[..count] {
        ["version"] => return Target::Version,
        ["healthz" | "livez" | "readyz", ..] => return Target::Health,
        [] | ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] | ["openapi", ..] => {
            return Target::Discovery;
        }
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Target::Nowhere,
    };
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        _ => (false, rest),
    };
    let place = |namespace, plural, name, subresource| {
        Target::Objects(Place { group, version, watch, namespace, plural, name, subresource })
    };
    match rest {
        // Namespaces are objects too: their own subresources look like a collection inside of them.
        ["namespaces", name, subresource @ ("status" | "finalize")] => {
            place(None, "namespaces", Some(*name), Some(*subresource))
        }
        ["namespaces", namespace, plural, tail @ ..] => match tail {
            [] => place(Some(*namespace), plural, None, None),
            [name] => place(Some(*namespace), plural, Some(*name), None),
            [name, subresource, ..] => place(Some(*namespace), plural, Some(*name), Some(*subresource)),
        },
        [plural] => place(None, plural, None, None),
        [plural, name] => place(None, plural, Some(*name), None),
        [plural, name, subresource, ..] => place(None, plural, Some(*name), Some(*subresource)),
        [] => Target::Discovery,
    }
}

/// What is to be done, in the words of audit logs and RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// `get`, `list`, ... as traces name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// The verb of a method on a collection or object; `None` is 405.
    pub(crate) fn of(method: &Method, place: &Place<'_>, query: &Query) -> Option<Verb> {
        let one = place.name.is_some();
        match *method {
            Method::GET if place.watch => Some(Verb::Watch),
            Method::GET if one => Some(Verb::Get),
            Method::GET if query.flag("watch") => Some(Verb::Watch),
            Method::GET => Some(Verb::List),
            Method::POST => Some(Verb::Create),
            Method::PUT if one => Some(Verb::Update),
            Method::PATCH if one => Some(Verb::Patch),
            Method::DELETE if one => Some(Verb::Delete),
            Method::DELETE => Some(Verb::DeleteCollection),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_the_table_says() {
        let place = |group, version, namespace, plural, name, subresource| {
            Target::Objects(Place { group, version, watch: false, namespace, plural, name, subresource })
        };
        let table = [
            ("/api/v1/pods", place("", "v1", None, "pods", None, None)),
            ("/api/v1/namespaces/d/pods", place("", "v1", Some("d"), "pods", None, None)),
            ("/api/v1/namespaces/d/pods/p", place("", "v1", Some("d"), "pods", Some("p"), None)),
            ("/api/v1/namespaces/d/pods/p/status", place("", "v1", Some("d"), "pods", Some("p"), Some("status"))),
            ("/api/v1/namespaces", place("", "v1", None, "namespaces", None, None)),
            ("/api/v1/namespaces/d", place("", "v1", None, "namespaces", Some("d"), None)),
            ("/api/v1/namespaces/d/finalize", place("", "v1", None, "namespaces", Some("d"), Some("finalize"))),
            ("/apis/g.io/v2/namespaces/d/xs/x", place("g.io", "v2", Some("d"), "xs", Some("x"), None)),
            ("/apis/g.io/v2/xs", place("g.io", "v2", None, "xs", None, None)),
            ("/version", Target::Version),
            ("/readyz", Target::Health),
            ("/apis/g.io", Target::Discovery),
            ("/apis/g.io/v2", Target::Discovery),
            ("/metrics", Target::Nowhere),
            ("/", Target::Discovery),
        ];
        for (path, expected) in table {
            assert_eq!(target(path), expected, "{path}");
        }
        let Target::Objects(watched) = target("/api/v1/watch/namespaces/w/configmaps/a") else { panic!("objects") };
        assert!(watched.watch);
        assert_eq!((watched.namespace, watched.plural, watched.name), (Some("w"), "configmaps", Some("a")));
    }

    #[test]
    fn query_parameters_are_decoded() {
        let query = Query::parse("labelSelector=app%3Dx%2Cb+in+%28c%29&watch&limit=5&x=");
        assert_eq!(query.get("labelSelector"), Some("app=x,b in (c)"));
        assert!(query.flag("watch"));
        assert!(!Query::parse("watch=0").flag("watch"));
        assert_eq!(query.integer("limit"), Ok(Some(5)));
        assert_eq!(query.integer("x"), Ok(None));
        assert_eq!(
            Query::parse("limit=abc").integer("limit").expect_err("not a number").message(),
            "strconv.ParseInt: parsing \"abc\": invalid syntax"
        );
    }
}
