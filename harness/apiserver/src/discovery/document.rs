//! The aggregated discovery document, whose members stand in the order of its published type: its entity tag is a digest
//! of that text, and clients keep the document for as long as the tag is the same.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::verbs;
use crate::digest::sha512_hex;
use crate::resource::{Resource, Subresource};

#[derive(Serialize)]
pub(super) struct List<'a> {
    pub(super) metadata: Value,
    pub(super) items: Vec<Group<'a>>,
}

#[derive(Serialize)]
pub(super) struct Group<'a> {
    metadata: Named<'a>,
    versions: Vec<Version<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct Version<'a> {
    version: &'a str,
    resources: Vec<Type<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Type<'a> {
    resource: &'a str,
    response_kind: Kind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<Below<'a>>,
}

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Below<'a> {
    subresource: &'static str,
    response_kind: Kind<'a>,
    verbs: &'static [&'static str],
}

impl List<'_> {
    /// The document, and its entity tag: the digest of all but its own kind and version.
    pub(super) fn with_tag(&self) -> (String, String) {
        let inner = serde_json::to_string(self).unwrap_or_default();
        let tag = format!("\"{}\"", sha512_hex(inner.as_bytes()));
        let kind = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#;
        (format!("{kind}{}", inner.trim_start_matches('{')), tag)
    }
}

impl<'a> Group<'a> {
    pub(super) fn of(group: &super::Group<'a>) -> Group<'a> {
        let versions = group.versions.iter().map(|&version| {
            let types = group.types.iter().filter(|(_, of, _)| *of == version);
            let resources = types.map(|(resource, _, at)| Type::of(resource, *at, version)).collect();
            Version { version, resources, freshness: "Current" }
        });
        Group { metadata: Named { name: group.name }, versions: versions.collect() }
    }
}

impl<'a> Type<'a> {
    fn of(resource: &'a Resource, at: usize, version: &'a str) -> Type<'a> {
        // Built-in types leave their group and version to the place where they stand.
        let own = if resource.custom { (&*resource.group, version) } else { ("", "") };
        let kind = |(group, version): (&'a str, &'a str), kind| Kind { group, version, kind };
        let below = |Subresource { name, kind: of, group_version, verbs }| Below {
            subresource: name,
            response_kind: kind(group_version.unwrap_or(own), of),
            verbs,
        };
        Type {
            resource: &resource.plural,
            response_kind: kind(own, Cow::Borrowed(&*resource.kind)),
            scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
            singular_resource: &resource.names.singular,
            verbs: verbs(resource),
            short_names: &resource.names.short,
            categories: &resource.names.categories,
            subresources: resource.subresources(at).into_iter().map(below).collect(),
        }
    }
}
