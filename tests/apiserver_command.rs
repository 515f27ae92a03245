//! `photofinish apiserver` as a user starts it: a socket, files, signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CRD: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.toy.test
spec:
  group: toy.test
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {size: {type: integer, default: 3}}}
            status: {type: object, properties: {ready: {type: boolean}}}
"#;

const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: toys}
---
apiVersion: toy.test/v1
kind: Widget
metadata: {name: w, namespace: toys, uid: not-this-one}
status: {ready: true}
"#;

struct Server {
    child: Child,
    address: String,
}

/// `PHOTOFINISH_BIN` puts another build of it to the test.
fn command() -> Command {
    let program = std::env::var_os("PHOTOFINISH_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_photofinish").into());
    let mut command = Command::new(program);
    command.arg("apiserver").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut child = command().args(["--listen", "127.0.0.1:0"]).args(arguments).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("serving on http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Server { child, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("connects")
    }

    /// One request on a connection that stays open. Returns the code and the body.
    fn ask(&self, connection: &mut TcpStream, method: &str, path: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        connection.write_all(format!("{head}{body}").as_bytes()).expect("writes");
        let mut reader = BufReader::new(connection);
        let (mut code, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header");
            let line = line.trim().to_ascii_lowercase();
            match line.split_once(": ") {
                _ if line.is_empty() => break,
                Some(("content-length", value)) => length = value.parse().expect("a number"),
                None => code = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line"),
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        (code, String::from_utf8(body).expect("text"))
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill(2) has no preconditions, and the child has not been waited for, so its number is its own.
        assert_eq!(unsafe { libc::kill(self.child.id().try_into().expect("a process number"), signal) }, 0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("photofinish-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("writes");
    path
}

#[test]
fn crds_and_objects_of_files_are_there_before_the_first_client() {
    let (crd, objects) = (file("there-crd.yaml", CRD), file("there-objects.yaml", OBJECTS));
    let files = [crd.to_str().expect("text"), objects.to_str().expect("text")];
    let server = Server::start(&["--crd", files[0], "--load", files[1]]);
    let mut connection = server.connect();
    let (code, body) = server.ask(&mut connection, "GET", "/apis/toy.test/v1/namespaces/toys/widgets/w", "");
    assert_eq!(code, 200, "{body}");
    let widget: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((&widget["spec"], &widget["status"]["ready"]), (&serde_json::Value::Null, &true.into()));
    assert_ne!(widget["metadata"]["uid"], "not-this-one");
    assert_eq!(server.ask(&mut connection, "GET", "/readyz", ""), (200, "ok".into()));
}

#[test]
fn a_server_whose_output_nobody_reads_serves_all_the_same() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    // Nobody can be told the port, so it is chosen here.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").to_string();
    let child = command().args(["--listen", &address]).stdout(writer).spawn().expect("starts");
    let mut server = Server { child, address };
    let mut connection = loop {
        match TcpStream::connect(&server.address) {
            Ok(connection) => break connection,
            Err(_) => assert_eq!(server.child.try_wait().expect("its state"), None, "it ended"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(server.ask(&mut connection, "GET", "/readyz", ""), (200, "ok".into()));
    server.signal(libc::SIGTERM);
    assert_eq!(server.child.wait().expect("ends").code(), Some(0));
}

#[test]
fn sigterm_ends_the_server_with_exit_code_0_though_a_watch_is_open() {
    let mut server = Server::start(&[]);
    let mut watch = server.connect();
    watch.write_all(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n").expect("writes");
    let mut first = [0; 12];
    watch.read_exact(&mut first).expect("headers come at once");
    assert_eq!(&first, b"HTTP/1.1 200");
    server.signal(libc::SIGTERM);
    assert_eq!(server.child.wait().expect("ends").code(), Some(0));
}

#[test]
fn a_file_that_makes_no_sense_is_refused_with_its_place() {
    for (name, text, expected) in [
        ("yaml", "kind: [\n", ".yaml:"),
        ("kind", "# first\n---\nkind: Nothing\napiVersion: v1\n", "no type has the kind \"Nothing\""),
        ("object", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n", "spec.containers: Required value"),
    ] {
        let path = file(&format!("bad-{name}.yaml"), text);
        let output = command().args(["--listen", "127.0.0.1:0", "--load"]).arg(&path).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(expected), "{expected:?} in {said}");
    }
}

#[test]
fn an_address_that_others_can_reach_is_served_with_a_warning() {
    let mut child = command().args(["--listen", "0.0.0.0:0"]).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
    let _ = child.kill();
    let _ = child.wait();
    assert!(line.contains("there is no authentication"), "{line}");
}

/// `PHOTOFINISH_LOAD=<creates>,<watches>` makes it larger: the end-to-end checks run 10 000 creates and 200 watches.
#[test]
fn many_watches_see_each_of_many_creates_and_sigterm_ends_them() {
    let load = std::env::var("PHOTOFINISH_LOAD").unwrap_or_else(|_| "300,20".into());
    let (creates, watches) = load.split_once(',').expect("two numbers");
    let (creates, watches): (usize, usize) = (creates.parse().expect("a number"), watches.parse().expect("a number"));
    let mut server = Server::start(&[]);
    let threads: Vec<_> = (0..watches)
        .map(|_| {
            let mut watch = server.connect();
            watch.write_all(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n").expect("writes");
            // Each create once, in their order: nothing is lost, and nothing comes twice.
            std::thread::spawn(move || {
                let mut lines = BufReader::with_capacity(1 << 16, watch).lines();
                let events = lines.by_ref().map_while(Result::ok).filter(|line| line.starts_with("{\"type\":"));
                let shows =
                    |line: &str, n| line.starts_with("{\"type\":\"ADDED\"") && line.contains(&format!("\"c{n}\""));
                let seen = events.take(creates).enumerate().take_while(|(n, line)| shows(line, *n)).count();
                (seen, lines)
            })
        })
        .collect();
    let mut connection = server.connect();
    for n in 0..creates {
        let body = format!("{{\"metadata\":{{\"name\":\"c{n}\"}},\"data\":{{\"n\":\"{n}\"}}}}");
        let (code, said) = server.ask(&mut connection, "POST", "/api/v1/namespaces/default/configmaps", &body);
        assert_eq!(code, 201, "{said}");
    }
    let mut open = Vec::new();
    for thread in threads {
        let (seen, watch) = thread.join().expect("reads");
        assert_eq!(seen, creates);
        open.push(watch);
    }
    server.signal(libc::SIGTERM);
    assert_eq!(server.child.wait().expect("ends").code(), Some(0), "with {} watches open", open.len());
}
