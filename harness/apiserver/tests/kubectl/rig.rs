//! A server on a socket, and kubectl as its client.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::stream;
use photofinish_apiserver::{ApiServer, ConnInfo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A server of its own for each test, in a thread of its own.
pub(crate) struct Rig {
    address: String,
    home: PathBuf,
    input: RefCell<Option<String>>,
    env: RefCell<Option<(String, String)>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a kubectl came to.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Rig {
    /// `None`: there is no kubectl.
    pub(crate) fn start() -> Option<Rig> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Command::new("kubectl").args(["version", "--client"]).output().ok().filter(|out| out.status.success())?;
        let (told, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                told.send(listener.local_addr().expect("an address")).expect("somebody asks");
                let incoming = stream::unfold(listener, |listener| async move {
                    Some((listener.accept().await.map(|(stream, _)| stream), listener))
                });
                let server = ApiServer::builder().build();
                let client = |_: &TcpStream| ConnInfo { client: "kubectl".into(), connection: 0 };
                tokio::select! {
                    served = server.serve(incoming, client) => served.expect("serves"),
                    _ = stopped => {}
                }
            });
        });
        let address = format!("http://{}", address.recv().expect("the server listens"));
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("photofinish-kubectl-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&home).expect("a folder");
        Some(Rig {
            address,
            home,
            input: RefCell::default(),
            env: RefCell::default(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// What the next kubectl reads from its standard input.
    pub(crate) fn input(&self, text: &str) -> &Rig {
        *self.input.borrow_mut() = Some(text.to_owned());
        self
    }

    /// A variable that the next kubectl finds in its environment.
    pub(crate) fn env(&self, name: &str, value: &str) -> &Rig {
        *self.env.borrow_mut() = Some((name.to_owned(), value.to_owned()));
        self
    }

    /// The path of a new file.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.home.join(name);
        std::fs::write(&path, content).expect("writes");
        path.into_os_string().into_string().expect("text")
    }

    /// Arguments are separated by blanks; none of them holds one.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("KUBECONFIG", "/dev/null")
            .envs(self.env.borrow_mut().take())
            .args(["--server", &self.address])
            .args(arguments.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Done {
        let mut child = self.command(arguments).spawn().expect("kubectl starts");
        let input = self.input.borrow_mut().take().unwrap_or_default();
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("kubectl reads");
        let output = child.wait_with_output().expect("kubectl ends");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Done { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a kubectl that must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &str) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, 0, "kubectl {arguments}: {}", done.stderr);
        done.stdout
    }

    /// Runs a kubectl that must fail. Returns what it says.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &str) -> String {
        let done = self.run(arguments);
        assert_ne!(done.code, 0, "kubectl {arguments}: {}", done.stdout);
        done.stderr
    }

    /// Runs a kubectl that goes on for a while.
    pub(crate) fn background(&self, arguments: &str) -> Background {
        let mut child = self.command(arguments).spawn().expect("kubectl starts");
        let text = Arc::new(Mutex::new(String::new()));
        let mut stdout = child.stdout.take().expect("piped");
        let shared = text.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                shared.lock().expect("no panic").push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Background { child: RefCell::new(child), text, reader: Some(reader) }
    }

    /// Tries until it works; fails after `limit`.
    #[track_caller]
    pub(crate) fn eventually(&self, limit: Duration, mut works: impl FnMut() -> bool) {
        let end = Instant::now() + limit;
        while !works() {
            assert!(Instant::now() < end, "did not happen within {limit:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// A kubectl that runs.
pub(crate) struct Background {
    child: RefCell<Child>,
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Background {
    /// What it has written.
    pub(crate) fn text(&self) -> String {
        self.text.lock().expect("no panic").clone()
    }

    pub(crate) fn runs(&self) -> bool {
        self.child.borrow_mut().try_wait().expect("is a child").is_none()
    }

    /// Waits until it has written this.
    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.text().contains(part) {
            assert!(Instant::now() < end, "no {part:?} in {:?}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.borrow_mut().kill();
        let _ = self.child.borrow_mut().wait();
        let _ = self.reader.take().map(JoinHandle::join);
    }
}
