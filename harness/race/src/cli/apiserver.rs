//! `photofinish apiserver`: the simulated API server on a real socket, in real time.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use photofinish_apiserver::{ApiServer, ConnInfo};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

use super::output::note;
use crate::mistake::{BadInput, Mistake, Span};
use crate::scenario::yaml::Node;

#[derive(Args)]
pub(super) struct ApiServerArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8001")]
    listen: SocketAddr,
    /// Custom resource definitions to install, YAML or JSON.
    #[arg(long = "crd", value_name = "FILE")]
    crds: Vec<String>,
    /// Objects to create before the first client comes, YAML or JSON, in their order.
    #[arg(long, value_name = "FILE")]
    load: Vec<String>,
}

/// One object of a file.
struct Document {
    file: String,
    source: String,
    at: Span,
    value: Value,
}

impl Document {
    fn mistake(&self, message: impl std::fmt::Display) -> BadInput {
        Mistake::new(self.at, message.to_string()).label("this object").within(&self.file, &self.source)
    }
}

/// Serves until SIGTERM or SIGINT; then the exit code is 0.
pub(super) fn serve(args: &ApiServerArgs) -> Result<u8, BadInput> {
    let crds = read_all(&args.crds)?;
    let objects = read_all(&args.load)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| BadInput::new(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        let server = ApiServer::builder().build();
        for crd in &crds {
            server.install(crd.value.clone()).map_err(|error| crd.mistake(error))?;
        }
        for object in &objects {
            server.load(object.value.clone()).await.map_err(|error| object.mistake(error))?;
        }
        listen(args.listen, &server).await
    })?;
    Ok(0)
}

async fn listen(address: SocketAddr, server: &ApiServer) -> Result<(), BadInput> {
    let failed = |what: &str, error: std::io::Error| BadInput::new(format!("{what}: {error}"));
    let listener =
        TcpListener::bind(address).await.map_err(|error| failed(&format!("cannot listen on {address}"), error))?;
    let address = listener.local_addr().map_err(|error| failed("no address", error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed("no SIGTERM", error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed("no SIGINT", error))?;
    if !address.ip().is_loopback() {
        note(format!(
            "warning: {address} can be reached from elsewhere, and there is no authentication: everybody may do everything"
        ));
    }
    // In one piece, and whether or not anybody reads: who has read the first line may have closed the pipe.
    let hello = format!("serving on http://{address}\n  kubectl --server http://{address} get namespaces\n");
    let _ = std::io::stdout().write_all(hello.as_bytes()).and_then(|()| std::io::stdout().flush());
    let incoming = futures::stream::unfold(listener, |listener| async move {
        loop {
            // A connection that failed before it was accepted is its client's business.
            if let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                return Some((Ok::<TcpStream, std::io::Error>(stream), listener));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let counter = AtomicU64::new(1);
    let name = |stream: &TcpStream| {
        let connection = counter.fetch_add(1, Ordering::Relaxed);
        let client = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |peer| peer.to_string());
        ConnInfo { client, connection }
    };
    tokio::select! {
        served = server.serve(incoming, name) => served.map_err(|error| failed("serving failed", error)),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

fn read_all(files: &[String]) -> Result<Vec<Document>, BadInput> {
    let mut all = Vec::new();
    for file in files {
        let source =
            std::fs::read_to_string(file).map_err(|error| BadInput::new(format!("{file} cannot be read: {error}")))?;
        all.extend(documents(file, &source)?);
    }
    Ok(all)
}

/// The objects of a file. Documents are read one by one, each in a copy of the source where everything else is blank, so
/// that places are places of the file.
fn documents(file: &str, source: &str) -> Result<Vec<Document>, BadInput> {
    let mut all = Vec::new();
    for (start, end) in parts(source) {
        let blank = |text: &str| {
            text.chars().map(|c| if c == '\n' { "\n".into() } else { " ".repeat(c.len_utf8()) }).collect::<String>()
        };
        let text = format!("{}{}{}", blank(&source[..start]), &source[start..end], blank(&source[end..]));
        if source[start..end].lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            continue;
        }
        let node = Node::read(&text).map_err(|mistake| mistake.within(file, source))?;
        if !node.is_map() {
            return Err(node.expected("an object with apiVersion, kind and metadata").within(file, source));
        }
        all.push(Document { file: file.to_owned(), source: source.to_owned(), at: node.at, value: node.json() });
    }
    Ok(all)
}

/// Byte ranges between the lines that separate documents.
fn parts(source: &str) -> Vec<(usize, usize)> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    for line in source.split_inclusive('\n') {
        let end = at + line.len();
        if line.trim_end() == "---" || line.starts_with("--- ") {
            parts.push((start, at));
            start = end;
        }
        at = end;
    }
    parts.push((start, source.len()));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_hold_several_objects_and_mistakes_keep_their_line() {
        let source = "# a comment\n---\nkind: A\n---\nkind: B\nitems: [1]\n---\n";
        let all = documents("f.yaml", source).expect("reads");
        let kinds: Vec<&Value> = all.iter().map(|document| &document.value["kind"]).collect();
        assert_eq!(kinds, ["A", "B"]);
        let wrong = documents("f.yaml", "kind: A\n---\nkind: [\n").err().expect("is no YAML");
        assert!(format!("{wrong}").contains("f.yaml:"), "{wrong}");
        let list = documents("f.yaml", "kind: A\n---\n- 1\n").err().expect("is no object");
        assert!(format!("{list}").contains("f.yaml:3"), "{list}");
    }
}
