//! From a path to a type: which resource a request is about, and whether it is served now.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use crate::crd::{self, Conversion};
use crate::error::ApiError;
use crate::history::{History, Table};
use crate::request::{Place, Query, Verb};
use crate::resource::Resource;
use crate::reviews;

/// What a request is about.
pub(crate) struct Found {
    pub(crate) table: usize,
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: usize,
    /// The request has to wait that long first.
    pub(crate) wait: Option<Duration>,
}

/// A refusal, and the type that it is about if there is one.
pub(crate) struct Lost {
    pub(crate) error: ApiError,
    pub(crate) of: Option<(Arc<Resource>, usize)>,
}

impl From<ApiError> for Lost {
    fn from(error: ApiError) -> Lost {
        Lost { error, of: None }
    }
}

/// Finds the type behind a path, and asks whether its storage is ready.
pub(crate) fn find(history: &mut History, place: &Place<'_>, verb: Option<Verb>, query: &Query) -> Result<Found, Lost> {
    crd::settle(history);
    let known = |t: &Table| t.resource.plural == place.plural && t.resource.is_in(place.group) && !t.serving.retired;
    let Some(table) = history.tables.iter().position(known) else {
        return Err(unknown(history, place).into());
    };
    let resource = history.tables[table].resource.clone();
    let absent = || if resource.custom { ApiError::no_such_path() } else { ApiError::no_such_resource() };
    let Some(version) = resource.version_in(place.group, place.version) else { return Err(absent().into()) };
    if place.namespace.is_some() != resource.namespaced && (place.namespace.is_some() || place.name.is_some()) {
        return Err(absent().into());
    }
    let refused = |error| Lost { error, of: Some((resource.clone(), version)) };
    // A cache that is being filled passes single objects on to storage.
    let cached = matches!(verb, Some(Verb::List | Verb::Watch));
    if let Some(error) = unconvertible(history, table, &resource, version, place, verb) {
        return Err(refused(error));
    }
    let serving = &mut history.tables[table].serving;
    if serving.terminating && verb == Some(Verb::Create) {
        return Err(refused(ApiError::terminating(&resource)));
    }
    if !serving.touch() && cached && !exact(query) {
        return Err(refused(ApiError::initializing()));
    }
    let wait = if verb == Some(Verb::Create) { serving.settling() } else { None };
    Ok(Found { table, resource, version, wait })
}

/// Exact reads of the past do not need the cache.
fn exact(query: &Query) -> bool {
    query.text("resourceVersionMatch") == "Exact"
}

/// What becomes of a request in a version that only a webhook could convert, where none answers.
fn unconvertible(
    history: &History,
    table: usize,
    resource: &Resource,
    version: usize,
    place: &Place<'_>,
    verb: Option<Verb>,
) -> Option<ApiError> {
    let Some(Conversion::Unreachable { url, address }) = resource.definition.as_ref().map(|d| &d.conversion) else {
        return None;
    };
    if version == 0 {
        return None;
    }
    let failed = |from: usize| {
        format!(
            "conversion webhook for {}, Kind={} failed: Post \"{url}?timeout=30s\": dial tcp {address}: connect: connection refused",
            resource.api_version(from),
            resource.kind
        )
    };
    let key = resource.key(place.namespace.unwrap_or_default(), place.name.unwrap_or_default());
    match verb? {
        Verb::List | Verb::Watch if history.tables[table].live.is_empty() => None,
        Verb::List | Verb::Watch => {
            let what = format!("failed to list {}, Kind={}", resource.api_version(version), resource.kind);
            let message = format!("storage is (re)initializing: {what}: {}", failed(0));
            Some(ApiError::too_many_requests(&message, 1))
        }
        Verb::Create => Some(ApiError::internal(failed(version))),
        _ if history.get(table, &key).is_some() => Some(ApiError::internal(failed(0))),
        _ => None,
    }
}

/// A type that a real server has and this one lacks. It is refused as unsupported, so that nobody takes a gap of this
/// server for an empty cluster.
pub(crate) const MISSING: &str = "componentstatuses";

/// Whether a request makes a binding of its own, rather than through a pod's subresource.
pub(crate) fn binds(place: &Place<'_>, method: &Method) -> bool {
    is_core(place, "bindings") && place.namespace.is_some() && place.name.is_none() && method == Method::POST
}

fn is_core(place: &Place<'_>, plural: &str) -> bool {
    place.group.is_empty() && place.version == "v1" && place.plural == plural
}

fn unknown(history: &History, place: &Place<'_>) -> ApiError {
    if is_core(place, MISSING) {
        return ApiError::unsupported(format_args!("the resource {MISSING}"));
    }
    if is_core(place, "bindings") {
        return ApiError::method_not_allowed();
    }
    let serves = |t: &Table| t.resource.group == place.group && !t.resource.custom;
    let reviewed = reviews::ALL.iter().any(|of| of.group == place.group);
    let builtin = reviewed || history.tables.iter().any(serves);
    if builtin { ApiError::no_such_resource() } else { ApiError::no_such_path() }
}
