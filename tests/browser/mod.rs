//! A headless Chromium, driven over the DevTools protocol through two pipes: nothing is needed but the browser.
//!
//! Messages are JSON, each ended by a zero byte (`--remote-debugging-pipe`: the browser reads descriptor 3, writes 4).
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// Where distributions put it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The browser's program, if there is one: `PHOTOFINISH_BROWSER`, or the first of its usual names in the path.
pub(crate) fn installed() -> Option<String> {
    if let Ok(named) = std::env::var("PHOTOFINISH_BROWSER") {
        return Some(named).filter(|name| !name.is_empty());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let found = NAMES.into_iter().find(|name| folders.iter().any(|folder| folder.join(name).is_file()))?;
    Some(found.to_owned())
}

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    to: PipeWriter,
    from: BufReader<PipeReader>,
    session: String,
    asked: u64,
    /// What came while an answer was awaited.
    events: VecDeque<Value>,
    _profile: tempdir::Folder,
}

impl Browser {
    /// Starts it with an empty profile, and one blank page that tells what it does.
    pub(crate) fn start(program: &str) -> Browser {
        let (theirs_in, to) = std::io::pipe().expect("a pipe");
        let (from, theirs_out) = std::io::pipe().expect("a pipe");
        let profile = tempdir::Folder::new("browser");
        let (input, output) = (theirs_in.as_raw_fd(), theirs_out.as_raw_fd());
        let mut command = Command::new(program);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"])
            .args(["--remote-debugging-pipe", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: between fork and exec only dup and dup2 are called, which may be; the descriptors are open, for the
        // pipes live until the child has been started. Both are moved out of the way first: they may be 3 and 4.
        unsafe {
            command.pre_exec(move || {
                let (input, output) = (libc::dup(input), libc::dup(output));
                let moved = libc::fcntl(output, libc::F_DUPFD, 10);
                match input < 0 || moved < 0 || libc::dup2(input, 3) < 0 || libc::dup2(moved, 4) < 0 {
                    true => Err(std::io::Error::last_os_error()),
                    false => Ok(()),
                }
            });
        }
        let process = command.spawn().expect("the browser starts");
        // Only the browser holds them now: when it ends, so does what is read from it.
        drop((theirs_in, theirs_out));
        let mut browser = Browser {
            process,
            to,
            from: BufReader::new(from),
            session: String::new(),
            asked: 0,
            events: VecDeque::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.ask("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its result.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(message.to_string().as_bytes()).and_then(|()| self.to.write_all(&[0])).expect("it reads");
        loop {
            let message = self.receive();
            if message["id"] == self.asked {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).expect("it writes");
        assert_eq!(message.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&message).expect("its messages are JSON")
    }

    /// Everything of these methods that the page told since the last look.
    pub(crate) fn told(&mut self, methods: &[&str]) -> Vec<Value> {
        // Whatever was sent before this answer has come.
        self.evaluate("0");
        let (told, rest) = self.events.drain(..).partition(|e| methods.iter().any(|m| e["method"] == *m));
        self.events = rest;
        Vec::from(told as VecDeque<Value>)
    }

    /// The size of the window, and whether the reader likes it dark.
    pub(crate) fn look(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"media": "screen", "features": features}));
    }

    /// Opens a file, and waits until the page says that it is drawn.
    pub(crate) fn open(&mut self, file: &Path) {
        let file = file.canonicalize().expect("the page is there");
        self.ask("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        self.wait("document.documentElement?.dataset.ready === 'true'");
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let wait = format!(
            "new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        assert_eq!(self.evaluate(&wait), json!(true), "{expression}");
    }

    /// The value of an expression in the page, as JSON; promises are awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Presses and releases a key, named as in `KeyboardEvent.key`.
    pub(crate) fn key(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        self.ask("Input.dispatchKeyEvent", json!({"type": down, "key": key, "text": text}));
        self.ask("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
    }

    /// Clicks in the middle of the first element that a selector finds.
    pub(crate) fn click(&mut self, selector: &str) {
        let script = format!(
            "(() => {{ const e = document.querySelector({selector:?}); if (!e) return null; \
             e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        );
        let at = self.evaluate(&script);
        assert!(at.is_array(), "nothing to click on: {selector}");
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", params);
        }
    }

    /// Prints the page as PDF into a file, on the paper that it asks for. Returns the file's content.
    pub(crate) fn pdf(&mut self, file: &Path) -> Vec<u8> {
        // What `look` said of the medium would hold on paper, too.
        self.ask("Emulation.setEmulatedMedia", json!({"media": ""}));
        let answer = self.ask("Page.printToPDF", json!({"preferCSSPageSize": true, "printBackground": true}));
        let pdf = base64(answer["data"].as_str().expect("a document"));
        assert!(pdf.starts_with(b"%PDF"), "it is no PDF");
        std::fs::write(file, &pdf).expect("the document is written");
        pdf
    }

    /// Writes a picture of the window as PNG.
    pub(crate) fn screenshot(&mut self, file: &Path) {
        let answer = self.ask("Page.captureScreenshot", json!({"format": "png"}));
        let png = base64(answer["data"].as_str().expect("a picture"));
        assert!(png.starts_with(b"\x89PNG"), "it is no PNG");
        std::fs::write(file, png).expect("the picture is written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends with its test, whatever the test saw.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What stands in standard Base64; other characters count for nothing.
fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for six in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}

/// A folder that goes with its owner.
pub(crate) mod tempdir {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Folders of this process so far.
    static MADE: AtomicU32 = AtomicU32::new(0);

    /// It is empty at first.
    pub(crate) struct Folder(PathBuf);

    impl Folder {
        pub(crate) fn new(what: &str) -> Folder {
            let n = MADE.fetch_add(1, Ordering::Relaxed);
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{what}-{}-{n}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder for the test");
            Folder(path)
        }
        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // Left-overs of a test are nobody's loss.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
