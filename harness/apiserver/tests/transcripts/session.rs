//! One recorded session: reading it, and playing it on tokio's paused clock.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tower::ServiceExt;

use crate::cluster::{self, Happening, What};
use crate::compare::Names;
use crate::others;

/// A field that differs.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) path: String,
    pub(crate) recorded: String,
    pub(crate) ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = |text: &str| text.chars().take(300).collect::<String>();
        write!(f, "{}: recorded {} but got {}", self.path, cut(&self.recorded), cut(&self.ours))
    }
}

pub(crate) type Results = BTreeMap<u64, Vec<Difference>>;

/// Plays a session. Returns its name, and the differences of each exchange.
pub(crate) fn replay(path: &Path) -> (String, Results) {
    let (name, exchanges) = read(path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let results = runtime.expect("a runtime").block_on(play(&name, &exchanges));
    (name, results)
}

/// A session's name and its exchanges.
pub(crate) fn read(path: &Path) -> (String, Vec<Value>) {
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("the session");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
    let name = lines[0]["file"].as_str().expect("a name").to_owned();
    let mut exchanges: Vec<Value> = lines.into_iter().filter(|line| line.get("seq").is_some()).collect();
    exchanges.sort_by_key(|exchange| exchange["seq"].as_u64());
    if others::is_derived(&name) {
        others::in_order(&mut exchanges);
    }
    (name, exchanges)
}

/// What comes next in a session.
enum Step<'a> {
    Exchange(&'a Value),
    Happening(Happening),
}

/// All that comes, in order.
fn script<'a>(name: &str, exchanges: &'a [Value]) -> Vec<Step<'a>> {
    if others::is_derived(name) {
        let text = std::fs::read_to_string(others::committed(name)).expect("the order of the requests");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a JSON line"));
        return lines
            .map(|line| match exchanges.iter().find(|exchange| exchange["seq"] == line["seq"]) {
                Some(exchange) => Step::Exchange(exchange),
                None => Step::Happening(Happening { at_ms: 0.0, what: What::Write(line) }),
            })
            .collect();
    }
    let mut steps = Vec::new();
    let mut happenings = cluster::during(name, exchanges).into_iter().peekable();
    for exchange in exchanges {
        let due = |h: &Happening| h.at_ms <= exchange["t_ms"].as_f64().unwrap_or(0.0);
        while let Some(happening) = happenings.next_if(due) {
            steps.push(Step::Happening(happening));
        }
        steps.push(Step::Exchange(exchange));
    }
    steps.extend(happenings.map(Step::Happening));
    steps
}

struct OpenWatch<'a> {
    recorded: &'a Value,
    lines: JoinHandle<(Vec<Value>, bool)>,
}

async fn play(name: &str, exchanges: &[Value]) -> Results {
    let server = cluster::server(name);
    prepare(&server, name).await;
    let mut names = Names::default();
    cluster::before(&server, name, exchanges, &mut names);
    let began = Instant::now();
    let mut tokens = Tokens::default();
    let mut results = Results::new();
    let mut watches: BTreeMap<u64, OpenWatch<'_>> = BTreeMap::new();
    let at = |ms: &Value| began + Duration::from_micros((ms.as_f64().unwrap_or(0.0) * 1000.0) as u64);
    for step in script(name, exchanges) {
        let exchange = match step {
            Step::Exchange(exchange) => exchange,
            Step::Happening(happening) => {
                sleep_until(at(&happening.at_ms.into())).await;
                cluster::happen(&server, &happening.what, &mut names).await;
                continue;
            }
        };
        let seq = exchange["seq"].as_u64().expect("a number");
        if name.starts_with("17") && seq == 9 {
            poll(&server, "/apis/toy.test/v1/namespaces/c/widgets").await;
        }
        sleep_until(at(&exchange["t_ms"])).await;
        // The other sessions depend on no order of generated names, and leave them to the server.
        let recorded = if name.starts_with("30") { named(exchange) } else { exchange["request"].clone() };
        let recorded = if name.starts_with("14") { tokens.fill(seq, recorded) } else { recorded };
        let request = request(&recorded, &names);
        let asked = cluster::server_of(&server, exchange);
        let response = asked.oneshot(request).await.expect("never fails");
        let mut found = headers(&exchange["response"], &response);
        let streams = http_body::Body::size_hint(response.body()).exact().is_none();
        if exchange["response"].get("stream").is_some() && streams {
            let end = at(&exchange["response"]["end_ms"]);
            let closed = exchange["response"]["end"] == "client-closed";
            let lines = tokio::spawn(read_lines(response, end, closed));
            watches.insert(seq, OpenWatch { recorded: exchange, lines });
        } else {
            let bytes = response.into_body().collect().await.expect("never fails").to_bytes();
            let recorded = &exchange["response"]["body"];
            tokens.take(seq, &bytes);
            found.extend(match (recorded, serde_json::from_slice::<Value>(&bytes)) {
                (Value::String(text), Err(_)) => same_text(&mut names, text, &bytes),
                // A stream on an object's path holds one object, and was recorded as the lines of a watch.
                (Value::Null, Ok(ours)) if exchange["response"]["stream"].is_array() => {
                    differences(names.compare(&exchange["response"]["stream"][0]["line"], &ours))
                }
                (Value::Null, _) if bytes.is_empty() => Vec::new(),
                (recorded, Ok(ours)) => differences(names.compare(recorded, &ours)),
                (recorded, Err(_)) => same_text(&mut names, &recorded.to_string(), &bytes),
            });
        }
        results.insert(seq, found);
    }
    for (seq, watch) in watches {
        let (mut lines, ended) = watch.lines.await.expect("reads");
        if name.starts_with("26") {
            // Of hundreds of lines the first few were kept.
            lines.truncate(watch.recorded["response"]["stream"].as_array().map_or(0, Vec::len));
        }
        let found = watch_differences(&mut names, watch.recorded, &lines, ended);
        results.entry(seq).or_default().extend(found);
    }
    results
}

/// What was there before the recording began.
async fn prepare(server: &ApiServer, name: &str) {
    if name.starts_with("16") || name.starts_with("22") {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        let request = Request::post("/api/v1/nodes").body(Full::new(Bytes::from(node.to_string()))).expect("a request");
        assert_eq!(server.clone().oneshot(request).await.expect("never fails").status(), 201);
    }
    if name.starts_with("01") {
        // The other types of the agent-sandbox project.
        for (plural, kind, short, scales) in [
            ("sandboxwarmpools", "SandboxWarmPool", "swp", true),
            ("sandboxclaims", "SandboxClaim", "sandboxclaim", false),
            ("sandboxtemplates", "SandboxTemplate", "sandboxtemplate", false),
        ] {
            server.install(extension(plural, kind, short, scales)).expect("is a CRD");
        }
    }
    if name.starts_with("18") {
        // The webhook is told of, and nothing listens there.
        let crds = server.store().get("customresourcedefinitions", "", "sandboxes.agents.x-k8s.io");
        let mut crd = Value::clone(&crds.expect("is installed"));
        let client = json!({"url": "https://127.0.0.1:9443/convert"});
        crd["spec"]["conversion"] =
            json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
        server.install(crd).expect("is a CRD");
    }
}

fn extension(plural: &str, kind: &str, short: &str, scales: bool) -> Value {
    let mut subresources = json!({});
    if kind != "SandboxTemplate" {
        subresources["status"] = json!({});
    }
    if scales {
        subresources["scale"] = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    }
    let version = |name: &str, storage: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema, "subresources": subresources})
    };
    let group = "extensions.agents.x-k8s.io";
    let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"), "shortNames": [short]});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": names,
            "versions": [version("v1alpha1", false), version("v1beta1", true)],
        },
    })
}

/// The tokens of session 14, which were taken out of the recording: which request's answer held the one that is sent.
#[derive(Default)]
struct Tokens(BTreeMap<u64, String>);

impl Tokens {
    const MADE_BY: [(u64, u64); 12] =
        [(12, 6), (13, 7), (14, 6), (15, 6), (16, 6), (17, 8), (20, 6), (22, 7), (23, 7), (25, 6), (26, 6), (27, 6)];

    fn fill(&self, seq: u64, mut recorded: Value) -> Value {
        let maker = Tokens::MADE_BY.iter().find(|(sent, _)| *sent == seq);
        if let (Some(token), Some("<jwt>")) =
            (maker.and_then(|(_, made)| self.0.get(made)), recorded.pointer("/body/spec/token").and_then(Value::as_str))
        {
            recorded["body"]["spec"]["token"] = token.as_str().into();
        }
        recorded
    }

    fn take(&mut self, seq: u64, bytes: &[u8]) {
        let token = serde_json::from_slice::<Value>(bytes).ok();
        let token = token.as_ref().and_then(|made| made["status"]["token"].as_str());
        self.0.extend(token.map(|token| (seq, token.to_owned())));
    }
}

/// Asks until there is an answer, as the recording did without writing it down.
async fn poll(server: &ApiServer, path: &str) {
    loop {
        let request = Request::get(path).body(Full::<Bytes>::default()).expect("a request");
        if server.clone().oneshot(request).await.expect("never fails").status() == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A recorded exchange's request; a create with `generateName` asks for the name that the real server made, since the
/// order of lists and the borders of pages follow from it.
fn named(exchange: &Value) -> Value {
    let mut request = exchange["request"].clone();
    let metadata = &request["body"]["metadata"];
    let made = &exchange["response"]["body"]["metadata"]["name"];
    let generated = metadata.get("generateName").is_some() && metadata.get("name").is_none() && made.is_string();
    if generated {
        request["body"]["metadata"]["name"] = made.clone();
    }
    request
}

pub(crate) fn request(recorded: &Value, names: &Names) -> Request<Full<Bytes>> {
    let path: Vec<String> =
        recorded["path"].as_str().expect("a path").split('/').map(|part| names.translate(part)).collect();
    let encode =
        |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    let query: Vec<String> = recorded["query"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{}={}", encode(key), encode(&names.translate(value.as_str().unwrap_or_default()))))
        .collect();
    let uri = if query.is_empty() { path.join("/") } else { format!("{}?{}", path.join("/"), query.join("&")) };
    let mut builder = Request::builder().method(recorded["method"].as_str().expect("a method")).uri(uri);
    builder = builder.header("User-Agent", "recorder/1.0").header("Host", "127.0.0.1:16443");
    for header in ["Accept", "Content-Type", "If-None-Match"] {
        if let Some(value) = recorded["headers"][header].as_str() {
            builder = builder.header(header, value);
        }
    }
    let body = match (&recorded["body"], &recorded["raw_body"]) {
        (Value::Null, Value::String(raw)) => raw.clone(),
        (Value::Null, _) => String::new(),
        (body, _) => spaced(&names.translate_body(body)),
    };
    builder.body(Full::new(Bytes::from(body))).expect("a request")
}

/// JSON with the spaces that the recording client put, which some error messages quote.
fn spaced(value: &Value) -> String {
    struct Spaces;
    impl serde_json::ser::Formatter for Spaces {
        fn begin_array_value<W: ?Sized + std::io::Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> std::io::Result<()> {
            if first { Ok(()) } else { writer.write_all(b", ") }
        }

        fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { writer.write_all(b", ") }
        }

        fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
            writer.write_all(b": ")
        }
    }
    let mut out = Vec::new();
    serde::Serialize::serialize(value, &mut serde_json::Serializer::with_formatter(&mut out, Spaces)).expect("encodes");
    String::from_utf8(out).expect("text")
}

fn headers<B>(recorded: &Value, ours: &http::Response<B>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut same = |path: &str, recorded: String, ours: String| {
        if recorded != ours {
            found.push(Difference { path: path.into(), recorded, ours });
        }
    };
    same("status", recorded["status"].to_string(), ours.status().as_u16().to_string());
    for header in ["Content-Type", "Warning", "Retry-After", "Cache-Control", "Etag", "Vary", "Allow", "Location"] {
        let theirs = recorded["headers"][header].as_str().unwrap_or_default();
        let mine = ours.headers().get(header).map(|value| value.to_str().expect("text")).unwrap_or_default();
        same(header, theirs.into(), mine.into());
    }
    found
}

fn same_text(names: &mut Names, recorded: &str, ours: &[u8]) -> Vec<Difference> {
    let ours = String::from_utf8_lossy(ours).into_owned();
    if names.same_words(recorded, &ours) {
        return Vec::new();
    }
    vec![Difference { path: "body".into(), recorded: recorded.into(), ours }]
}

fn differences(found: Vec<crate::compare::Found>) -> Vec<Difference> {
    found.into_iter().map(|(path, recorded, ours)| Difference { path, recorded, ours }).collect()
}

/// The lines until the server ends the stream, or the client did.
async fn read_lines(
    response: http::Response<photofinish_apiserver::Body>,
    end: Instant,
    closed: bool,
) -> (Vec<Value>, bool) {
    let mut body = response.into_body();
    let mut lines = Vec::new();
    // The recording client saw the end a little after the server made it.
    let patience = if closed { Duration::ZERO } else { Duration::from_secs(1) };
    loop {
        match timeout_at(end + patience, body.frame()).await {
            Err(_) => return (lines, false),
            Ok(None) => return (lines, true),
            Ok(Some(frame)) => {
                let chunk = frame.expect("never fails").into_data().expect("data");
                assert!(chunk.ends_with(b"\n"), "an event ends with a newline");
                lines.push(serde_json::from_slice(&chunk).expect("one event a chunk"));
            }
        }
    }
}

fn watch_differences(names: &mut Names, exchange: &Value, ours: &[Value], ended: bool) -> Vec<Difference> {
    let mut found = Vec::new();
    let marked = |line: &&Value| line["type"] != "BOOKMARK" || line["object"]["metadata"].get("annotations").is_some();
    let recorded: Vec<&Value> = exchange["response"]["stream"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|line| &line["line"])
        .filter(marked)
        .collect();
    let ours: Vec<&Value> = ours.iter().filter(marked).collect();
    for (at, (a, b)) in recorded.iter().zip(&ours).enumerate() {
        let mut lines = differences(names.compare(a, b));
        lines.iter_mut().for_each(|d| d.path = format!("line {at} {}", d.path));
        found.extend(lines);
    }
    if recorded.len() != ours.len() {
        let show = |lines: &[&Value]| {
            let short: Vec<String> = lines
                .iter()
                .map(|l| {
                    format!(
                        "{} {}@{}",
                        l["type"].as_str().unwrap_or_default(),
                        l["object"]["metadata"]["name"].as_str().unwrap_or_default(),
                        l["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default()
                    )
                })
                .collect();
            short.join(", ")
        };
        found.push(Difference { path: "lines".into(), recorded: show(&recorded), ours: show(&ours) });
    }
    if (exchange["response"]["end"] == "server-end") != ended {
        found.push(Difference {
            path: "end".into(),
            recorded: exchange["response"]["end"].to_string(),
            ours: format!("ended by the server: {ended}"),
        });
    }
    found
}
