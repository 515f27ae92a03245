//! One process a run.
//!
//! A zygote is this executable, started again with fixed arguments, environment, folder and stack limit and without
//! address-space randomisation. It never runs a world itself: for each run it forks a child, which starts from the same
//! state every time and whose end, be it a return, a panic, an abort, an overflow or a hang, harms nobody. The zygote
//! takes no memory and keeps no state from run to run.
//!
//! ```no_run
//! use photofinish_sim::trace::Trace;
//! use photofinish_sim::zygote::{self, Exit, Zygote};
//! use std::time::Duration;
//!
//! fn run(request: &[u8], trace: Trace) -> Vec<u8> {
//!     trace.entry("log", "info").text("hello from a process of my own").record();
//!     request.to_ascii_uppercase()
//! }
//!
//! fn main() -> std::io::Result<()> {
//!     // First of all: before a thread, a runtime or an argument parser.
//!     if zygote::inside() {
//!         zygote::serve(run)
//!     }
//!     let mut zygote = Zygote::start(&[])?;
//!     let finished = zygote.run(b"abc", Duration::from_secs(10))?;
//!     assert_eq!(finished.exit, Exit::Done);
//!     assert_eq!(finished.report, b"ABC");
//!     assert_eq!(finished.trace().len(), 1);
//!     Ok(())
//! }
//! ```
//!
//! In a `#[test]`, the test itself is where the zygote comes out: `Zygote::start(&zygote::this_test())`.

mod checkpoint;
mod child;
mod descriptors;
mod serve;
mod text;
mod usage;

pub use checkpoint::Checkpoint;
pub use serve::{serve, serve_from_checkpoints};
pub use usage::processor_time;

use crate::memory::{self, Region, memfd};
use crate::trace::{Entry, hash_of_lines};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Set in a zygote and in its children.
const FLAG: &str = "PHOTOFINISH_ZYGOTE";
/// Main stack of a zygote, bytes: the kernel places mappings below it.
const STACK: libc::rlim_t = 8 << 20;
/// How long a program may take until it calls [`serve`], and a zygote until it notices that a run's limit is over.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this process is a zygote. Then call [`serve`], before anything starts a thread or a runtime.
pub fn inside() -> bool {
    std::env::var_os(FLAG).is_some()
}

/// Arguments that lead libtest back into the calling test, to start its zygote with.
///
/// # Panics
/// Outside a libtest test: its name is that of the thread that runs it.
pub fn this_test() -> Vec<String> {
    let thread = std::thread::current();
    let own: Vec<String> = std::env::args().skip(1).collect();
    let name = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        // Run on the main thread, as the only test of its process.
        _ if own.iter().any(|arg| arg == "--exact") => {
            own.into_iter().find(|arg| !arg.starts_with('-')).expect("`--exact` comes with a test's name")
        }
        _ => panic!("this_test() is for libtest tests: the calling thread bears no test's name"),
    };
    [&name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"].map(str::to_owned).into()
}

/// How a run's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The body returned its report.
    Done,
    /// The body panicked: message and place.
    Panicked(String),
    /// The process left by itself; [`exit::meaning`](crate::exit::meaning) knows some codes.
    Code(i32),
    /// A signal ended it: an abort, a stack overflow, a fault.
    Signal(i32),
    /// It was still running at the limit, and was killed.
    WallLimit,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Done => f.write_str("done"),
            Exit::Panicked(message) => write!(f, "panicked: {message}"),
            Exit::Code(code) => match crate::exit::meaning(*code) {
                Some(meaning) => f.write_str(meaning),
                None => write!(f, "the code under test ended the process with exit code {code}"),
            },
            Exit::Signal(libc::SIGABRT) => f.write_str("aborted (SIGABRT): an abort or a stack overflow"),
            Exit::Signal(libc::SIGSEGV) => f.write_str("segmentation fault (SIGSEGV)"),
            Exit::Signal(signal) => write!(f, "ended by signal {signal}"),
            Exit::WallLimit => f.write_str("still running at the wall-clock limit"),
        }
    }
}

/// What is left of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How its process ended.
    pub exit: Exit,
    /// What the body returned; empty unless [`Exit::Done`].
    pub report: Vec<u8>,
    /// What the process wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What the process wrote to its standard error.
    pub stderr: Vec<u8>,
    /// Real time that it took, fork and end included.
    pub wall: Duration,
    /// It was killed at its limit, and had a processor for less than half of that time: either the machine had other
    /// work, or the run waited for something that is not virtual. Given more time, it may end.
    pub starved: bool,
    lines: Vec<u8>,
}

impl Finished {
    /// The run's trace, up to its end, whatever the end was. Parses it: call it once.
    pub fn trace(&self) -> Vec<Entry> {
        let lines = serde_json::Deserializer::from_slice(&self.lines).into_iter();
        lines.map(|entry| entry.expect("a trace's memory holds whole entries")).collect()
    }

    /// The trace as it was written: one JSON object a line.
    pub fn trace_lines(&self) -> &[u8] {
        &self.lines
    }

    /// [`Trace::hash`](crate::trace::Trace::hash) of the run's trace.
    pub fn trace_hash(&self) -> String {
        hash_of_lines(&self.lines)
    }
}

/// A process that forks one child a run. Runs go one at a time; for several cores start several zygotes.
#[derive(Debug)]
pub struct Zygote {
    process: Child,
    socket: UnixStream,
    files: Files,
    addresses_are_fixed: bool,
}

/// Memory shared with the zygote and its children, used again for each run.
struct Files {
    trace: Region,
    beginning: File,
    request: File,
    report: File,
    stdout: File,
    stderr: File,
}

impl Zygote {
    /// Starts this executable again, with `args`, and waits until it calls [`serve`].
    ///
    /// # Errors
    /// If the process cannot be started, or ends without calling [`serve`], and inside a zygote.
    pub fn start(args: &[String]) -> io::Result<Zygote> {
        Zygote::start_with_memory(args, memory::TRACE_BYTES)
    }

    /// As [`Zygote::start`], with memory for traces of up to about `trace_bytes`; what comes later is not recorded.
    pub fn start_with_memory(args: &[String], trace_bytes: usize) -> io::Result<Zygote> {
        if inside() {
            return Err(io::Error::other(
                "a zygote starts no zygotes: call zygote::serve where zygote::inside() is true",
            ));
        }
        let files = Files::create(trace_bytes)?;
        let (socket, theirs) = UnixStream::pair()?;
        descriptors::send(&socket, files.descriptors())?;
        let process = command(args, theirs.into()).spawn()?;
        let mut zygote = Zygote { process, socket, files, addresses_are_fixed: false };
        zygote.socket.set_read_timeout(Some(PATIENCE))?;
        let mut hello = [0; serve::HELLO];
        match zygote.socket.read_exact(&mut hello) {
            Ok(()) => zygote.addresses_are_fixed = hello == serve::FIXED,
            Err(e) => return Err(zygote.did_not_serve(args, e)),
        }
        if !zygote.addresses_are_fixed {
            say_once_that_addresses_are_random();
        }
        Ok(zygote)
    }

    /// Runs the body on `request` in a child of its own, for at most `limit` of real time.
    ///
    /// # Errors
    /// If the zygote is gone or no process can be forked. Whatever becomes of the run itself is an [`Exit`].
    pub fn run(&mut self, request: &[u8], limit: Duration) -> io::Result<Finished> {
        self.run_from(&[], request, limit)
    }

    /// As [`Zygote::run`], where the process serves [from checkpoints](serve_from_checkpoints): runs with the same
    /// `beginning`, one after the other, share it. It is all that the body knows until it passes the checkpoint.
    ///
    /// # Errors
    /// As [`Zygote::run`].
    pub fn run_from(&mut self, beginning: &[u8], request: &[u8], limit: Duration) -> io::Result<Finished> {
        let start = Instant::now();
        self.files.reset(beginning, request)?;
        let beginning = xxhash_rust::xxh3::xxh3_64(beginning);
        let answer = self.ask(beginning, limit).inspect_err(|_| {
            // Out of step with its zygote, this value is of no more use; neither is the zygote.
            let _ = self.process.kill();
        })?;
        let starved = answer.starved(limit);
        Ok(Finished { starved, ..self.files.finished(answer.exit()?, start)? })
    }

    fn ask(&mut self, beginning: u64, limit: Duration) -> io::Result<serve::Answer> {
        let backtraces = std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0");
        // For a run, and before it for a beginning.
        self.socket.set_read_timeout(Some(limit.saturating_mul(2).saturating_add(PATIENCE)))?;
        self.socket.write_all(&serve::Ask::new(limit, beginning, backtraces).to_bytes())?;
        let mut answer = [0; serve::Answer::SIZE];
        self.socket
            .read_exact(&mut answer)
            .map_err(|e| io::Error::new(e.kind(), format!("the zygote is gone: {e}")))?;
        Ok(serve::Answer::from_bytes(answer))
    }

    /// Whether addresses are the same in every zygote of this executable. If not, only runs of one zygote agree in all.
    pub fn addresses_are_fixed(&self) -> bool {
        self.addresses_are_fixed
    }

    /// The zygote's process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The zygote's resident memory, bytes. A fork takes the longer the more it is, huge pages of copied code aside: keep the
    /// rest below 20 MiB.
    pub fn resident(&self) -> io::Result<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.pid()))?;
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        // SAFETY: asks for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        Ok(pages.ok_or_else(|| io::Error::other("/proc/<pid>/statm has no second number"))? * page)
    }

    fn did_not_serve(&mut self, args: &[String], e: io::Error) -> io::Error {
        let how = match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => match self.process.wait() {
                Ok(status) => format!("it ended with {status}"),
                Err(e) => e.to_string(),
            },
            _ => e.to_string(),
        };
        let _ = self.process.kill();
        io::Error::other(format!(
            "this executable, started again with arguments {args:?}, did not call zygote::serve: {how}. \
             Call it where zygote::inside() is true: first in `main`, or in the test that the arguments name"
        ))
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // The end of the connection ends the zygote and the run that it may have. No PR_SET_PDEATHSIG on the zygote: that
        // fires when the *thread* that started it ends.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.process.wait();
    }
}

/// All that could move the zygote's stack or maps is fixed: hash functions that mix in addresses must agree between two.
fn command(args: &[String], socket: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("photofinish").args(args).env_clear().env(FLAG, "1").env("TZ", "UTC0").current_dir("/");
    command.stdin(socket).stdout(Stdio::null()).process_group(0);
    // SAFETY: only system calls between fork and exec; nothing is allocated, no lock is taken.
    unsafe {
        command.pre_exec(|| {
            // Refused by some sandboxes: then runs of one zygote still agree. The zygote tells whether it worked.
            let persona = libc::personality(0xffff_ffff);
            libc::personality(persona as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            set_soft_limit(libc::RLIMIT_STACK, STACK);
            set_soft_limit(libc::RLIMIT_CORE, 0);
            // Whatever else is open here is not the zygote's, and would shift the numbers of its descriptors.
            libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
            Ok(())
        })
    };
    command
}

/// Sets a resource limit, or the hard limit where that is lower.
fn set_soft_limit(resource: libc::__rlimit_resource_t, value: libc::rlim_t) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for reads and writes.
    unsafe {
        if libc::getrlimit(resource, &mut limit) == 0 {
            limit.rlim_cur = value.min(limit.rlim_max);
            libc::setrlimit(resource, &limit);
        }
    }
}

fn say_once_that_addresses_are_random() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        eprintln!(
            "photofinish: address-space randomisation cannot be switched off here (personality is refused): runs of one \
             zygote agree, but hash orders that depend on addresses may differ between two"
        )
    });
}

impl Files {
    fn create(trace_bytes: usize) -> io::Result<Files> {
        let output = |name| {
            let file = memfd(name)?;
            // Whoever writes, however often it was duplicated or cut to nothing, writes at the end.
            // SAFETY: a plain system call on a descriptor that we own.
            if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(File::from(file))
        };
        Ok(Files {
            trace: Region::create(trace_bytes)?,
            beginning: memfd(c"photofinish-beginning")?.into(),
            request: memfd(c"photofinish-request")?.into(),
            report: memfd(c"photofinish-report")?.into(),
            stdout: output(c"photofinish-stdout")?,
            stderr: output(c"photofinish-stderr")?,
        })
    }

    /// In the order in which `descriptors::Received` takes them.
    fn descriptors(&self) -> [std::os::fd::BorrowedFd<'_>; descriptors::COUNT] {
        let [beginning, request, report] = [&self.beginning, &self.request, &self.report].map(File::as_fd);
        [self.trace.as_fd(), beginning, request, report, self.stdout.as_fd(), self.stderr.as_fd()]
    }

    fn reset(&mut self, beginning: &[u8], request: &[u8]) -> io::Result<()> {
        self.trace.reset();
        for file in [&self.beginning, &self.request, &self.report, &self.stdout, &self.stderr] {
            file.set_len(0)?;
        }
        self.beginning.write_all_at(beginning, 0)?;
        self.request.write_all_at(request, 0)
    }

    fn finished(&self, exit: Exit, start: Instant) -> io::Result<Finished> {
        let report = child::Report::read(&self.report)?;
        let (exit, report) = match (exit, report) {
            (Exit::Code(0), Some(child::Report::Done(report))) => (Exit::Done, report),
            (Exit::Code(child::PANICKED), Some(child::Report::Panicked(message))) => {
                (Exit::Panicked(message), Vec::new())
            }
            (exit, _) => (exit, Vec::new()),
        };
        let (stdout, stderr) = (read_all(&self.stdout)?, read_all(&self.stderr)?);
        let lines = self.trace.lines().to_vec();
        Ok(Finished { exit, report, stdout, stderr, lines, wall: start.elapsed(), starved: false })
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files")
    }
}

/// A whole file, from its beginning; the descriptor's position is shared between processes and left alone.
fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
