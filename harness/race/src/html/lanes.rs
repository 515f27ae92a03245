//! Which lane an entry lies in, how much it weighs there, and what is written beside it.
use indexmap::IndexMap;
use photofinish_sim::trace::Entry;
use serde::Serialize;

use crate::reading::Role;

/// One row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Lane {
    /// Unique.
    pub(crate) id: String,
    /// As the reader sees it.
    pub(crate) title: String,
    /// What it stands under: `script`, `client`, `gateway`, `driver`, `server`, `actors`.
    pub(crate) group: &'static str,
    /// Is it a watch stream, whose events wait?
    pub(crate) stream: bool,
}

/// How much an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// How something came about: reads, bookmarks, connections, ends of spans.
    Noise,
    /// What happened, in detail.
    Detail,
    /// What happened.
    Telling,
}

const SCRIPT: &str = "script";

fn group(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Gateway => "gateway",
        Role::Driver => "driver",
        Role::Server => "server",
        Role::Actor => "actors",
    }
}

/// The host that an entry is told of: a request of its client, an event of its stream's reader.
pub(crate) fn host_of(e: &Entry) -> &str {
    match &*e.kind {
        "http" => e.field("client").unwrap_or(&e.host),
        "watch" => e.field("stream").and_then(|s| s.split('/').next()).unwrap_or(&e.host),
        "host" => e.field("host").unwrap_or(&e.host),
        _ => &e.host,
    }
}

fn lane_of(e: &Entry, role: &dyn Fn(&str) -> Role) -> Lane {
    let plain = |id: &str, group| Lane { id: id.to_owned(), title: id.to_owned(), group, stream: false };
    // Holds and cuts are the script's doing, whoever carries them out.
    let script = matches!(&*e.kind, "step" | "choice" | "end" | "state") || e.host == "world" && e.kind != "host";
    if script {
        return match &*e.kind {
            "state" => plain("true state", group(Role::Server)),
            _ => plain(SCRIPT, SCRIPT),
        };
    }
    let host = host_of(e);
    let (role, group) = (role(host), group(role(host)));
    match (&*e.kind, role) {
        (_, Role::Actor) => plain(host, group),
        ("http", _) => Lane { title: format!("{host} calls"), ..plain(&format!("{host} calls"), group) },
        ("watch", _) => {
            let stream = e.field("stream").unwrap_or(host);
            match stream.splitn(3, '/').collect::<Vec<_>>()[..] {
                [_, what] => Lane {
                    title: format!("{host} watch {what}"),
                    stream: true,
                    ..plain(&format!("watch {stream}"), group)
                },
                // Watches of one object come and go: one lane for all of a host.
                _ => plain(&format!("{host} watch, one object"), group),
            }
        }
        _ => plain(host, group),
    }
}

/// All lanes in the order in which they are shown, and that of each entry.
pub(crate) fn lanes(entries: &[Entry], role: &dyn Fn(&str) -> Role) -> (Vec<Lane>, Vec<usize>) {
    let mut lanes: IndexMap<String, (u8, Role, Lane)> = IndexMap::new();
    let mut of: Vec<String> = Vec::with_capacity(entries.len());
    for e in entries {
        let lane = lane_of(e, role);
        of.push(lane.id.clone());
        let part = if lane.group == SCRIPT { Role::Client } else { role(host_of(e)) };
        let part = if e.kind == "state" { Role::Server } else { part };
        lanes.entry(lane.id.clone()).or_insert_with(|| {
            // Within a host: what it says, what it asks, what it watches.
            let place = match (lane.group == SCRIPT, lane.stream, &*e.kind) {
                (true, ..) => 0,
                (_, true, _) => 3,
                (_, _, "watch") => 4,
                (_, _, "http") => 2,
                _ => 1,
            };
            (place, part, lane)
        });
    }
    let mut order: Vec<(u8, Role, Lane)> = lanes.into_values().collect();
    let host = |lane: &Lane| lane.title.split(' ').next().unwrap_or_default().to_owned();
    order.sort_by_cached_key(|(place, part, lane)| (*part, lane.group != SCRIPT, host(lane), *place));
    let order: Vec<Lane> = order.into_iter().map(|(_, _, lane)| lane).collect();
    let at: IndexMap<&str, usize> = order.iter().enumerate().map(|(i, lane)| (lane.id.as_str(), i)).collect();
    let of = of.iter().map(|id| at.get(id.as_str()).copied().unwrap_or_default()).collect();
    (order, of)
}

/// How much an entry says.
pub(crate) fn weight(e: &Entry) -> Weight {
    match (&*e.kind, &*e.name) {
        ("op" | "reply" | "step" | "choice" | "panic" | "end", _) => Weight::Telling,
        ("log", "debug" | "trace") => Weight::Detail,
        ("log", _) => Weight::Telling,
        ("net", "connect") | ("host", "start") | ("span-end", _) | ("watch", "BOOKMARK") => Weight::Noise,
        ("net" | "host", _) => Weight::Telling,
        ("http", "get" | "list" | "watch") => match e.field("status") {
            Some("200" | "404") => Weight::Noise,
            _ => Weight::Detail,
        },
        ("span", _) => Weight::Detail,
        _ => Weight::Detail,
    }
}

/// What is written beside an entry.
pub(crate) fn label(e: &Entry) -> String {
    let after = |text: &str, sign: &str| text.split_once(sign).map_or(text, |(_, rest)| rest).to_owned();
    match &*e.kind {
        "op" => after(&e.text, ": "),
        "reply" => match e.text.split_once(" -> ") {
            Some((_, answer)) => format!("→ {}", answer.split(": ").next().unwrap_or(answer)),
            None => e.text.clone(),
        },
        "http" => http(e),
        "watch" => {
            let object = e.field("object").unwrap_or_default();
            format!("{} {object} rv {}", e.name, e.field("rv").unwrap_or("?"))
        }
        "span" | "span-end" => e.name.to_string(),
        "log" => message(e).to_owned(),
        "step" => e.text.split(" # ").next().unwrap_or(&e.text).to_owned(),
        _ => e.text.clone(),
    }
}

/// `PATCH sandboxes/demo/status → rv 35`, or `→ 404`.
fn http(e: &Entry) -> String {
    let path = e.field("path").unwrap_or_default();
    // .../namespaces/NS/RESOURCE..., /api/v1/RESOURCE..., /apis/GROUP/VERSION/RESOURCE...
    let within = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/')).map(|(_, rest)| rest);
    let short = within.unwrap_or_else(|| {
        let skip = if path.starts_with("/apis/") { 4 } else { 3 };
        path.splitn(skip + 1, '/').nth(skip).unwrap_or(path)
    });
    let verb = e.name.to_uppercase();
    match (e.field("rv"), e.field("status")) {
        (Some(rv), _) => format!("{verb} {short} → rv {rv}"),
        (None, Some("200")) => format!("{verb} {short}"),
        (None, status) => format!("{verb} {short} → {}", status.unwrap_or("?")),
    }
}

/// A log line without the fields behind it, which are told apart from it.
fn message(e: &Entry) -> &str {
    let first = e.fields.first().and_then(|(name, _)| e.text.find(&format!(" {name}=")));
    first.map_or(&e.text, |at| &e.text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn e(kind: &'static str, name: &'static str, text: &str, fields: &[(&'static str, &str)]) -> Entry {
        let host = if kind == "http" || kind == "watch" { "api" } else { "gateway" };
        Entry {
            id: 0,
            at_ns: 0,
            host: host.into(),
            kind: kind.into(),
            name: name.into(),
            text: text.into(),
            fields: fields.iter().map(|(k, v)| ((*k).into(), (*v).to_owned())).collect(),
            spans: vec![],
            cause: None,
        }
    }
    fn role(host: &str) -> Role {
        match host {
            "client" => Role::Client,
            "gateway" | "gateway-2" => Role::Gateway,
            "driver" => Role::Driver,
            "api" => Role::Server,
            _ => Role::Actor,
        }
    }

    #[test]
    fn labels_are_short() {
        let get = "/apis/x.io/v1/namespaces/n/things/demo";
        for (entry, expected) in [
            (e("op", "stop", "client: stop demo", &[]), "stop demo"),
            (e("reply", "stop", "client: stop demo -> NO: it is: so", &[]), "→ NO"),
            (e("http", "get", "", &[("path", get), ("status", "404")]), "GET things/demo → 404"),
            (e("http", "get", "", &[("path", "/api/v1/pods"), ("status", "200")]), "GET pods"),
            (e("http", "list", "", &[("path", "/apis/x.io/v1/things"), ("status", "200")]), "LIST things"),
            (e("http", "get", "", &[("path", "/api/v1/namespaces/n"), ("status", "200")]), "GET namespaces/n"),
            (e("http", "patch", "", &[("path", get), ("status", "200"), ("rv", "9")]), "PATCH things/demo → rv 9"),
            (e("watch", "ADDED", "", &[("stream", "a/b"), ("object", "demo"), ("rv", "9")]), "ADDED demo rv 9"),
            (e("log", "info", "all is well a=1 b=2", &[("a", "1"), ("b", "2")]), "all is well"),
            (e("log", "info", "all is well", &[]), "all is well"),
            (e("step", "run", "run: 2s # a while", &[]), "run: 2s"),
            (e("span", "work", "work{a=1}", &[("a", "1")]), "work"),
        ] {
            assert_eq!(label(&entry), expected);
        }
    }

    #[test]
    fn lanes_stand_in_the_order_of_parts_and_within_a_host_by_what_it_does() {
        let entries = [
            e("http", "get", "", &[("client", "gc")]),
            e("watch", "ADDED", "", &[("stream", "driver/things")]),
            e("http", "get", "", &[("client", "driver")]),
            Entry { host: "driver".into(), ..e("log", "info", "", &[]) },
            e("log", "info", "", &[]),
            Entry { host: "gateway-2".into(), ..e("log", "info", "", &[]) },
            Entry { host: "client".into(), ..e("op", "stop", "", &[]) },
            Entry { host: "world".into(), ..e("step", "stop", "", &[]) },
            Entry { host: "world".into(), ..e("net", "hold", "", &[]) },
            e("watch", "ADDED", "", &[("stream", "gc/things")]),
            e("watch", "ADDED", "", &[("stream", "driver/things/demo")]),
            Entry { host: "world".into(), ..e("state", "thing", "", &[]) },
        ];
        let (lanes, of) = lanes(&entries, &role);
        let titles: Vec<&str> = lanes.iter().map(|lane| lane.title.as_str()).collect();
        let expected = [
            "script",
            "client",
            "gateway",
            "gateway-2",
            "driver",
            "driver calls",
            "driver watch things",
            "driver watch, one object",
            "true state",
            "gc",
        ];
        assert_eq!(titles, expected);
        let of: Vec<&str> = of.iter().map(|at| titles[*at]).collect();
        let expected = [
            "gc",
            "driver watch things",
            "driver calls",
            "driver",
            "gateway",
            "gateway-2",
            "client",
            "script",
            "script",
            "gc",
            "driver watch, one object",
            "true state",
        ];
        assert_eq!(of, expected);
    }

    #[test]
    fn what_happened_weighs_more_than_how() {
        for (kind, name, status, expected) in [
            ("op", "stop", "", Weight::Telling),
            ("log", "info", "", Weight::Telling),
            ("log", "debug", "", Weight::Detail),
            ("net", "connect", "", Weight::Noise),
            ("net", "cut", "", Weight::Telling),
            ("host", "crash", "", Weight::Telling),
            ("http", "get", "200", Weight::Noise),
            ("http", "get", "404", Weight::Noise),
            ("http", "get", "500", Weight::Detail),
            ("http", "patch", "200", Weight::Detail),
            ("watch", "MODIFIED", "", Weight::Detail),
            ("watch", "BOOKMARK", "", Weight::Noise),
        ] {
            assert_eq!(weight(&e(kind, name, "", &[("status", status)])), expected, "{kind} {name} {status}");
        }
    }
}
