//! A run's own process: its files, its trace, its panic hook and the thread that runs the world.

use super::checkpoint::Checkpoint;
use super::descriptors::Received;
use super::serve::Ask;
use super::{read_all, set_soft_limit};
use crate::memory::Region;
use crate::trace::{self, Trace};
use std::any::Any;
use std::backtrace::Backtrace;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Exit code of a run whose body panicked, as of any Rust program whose main thread did.
pub(super) const PANICKED: i32 = 101;
/// Stack of the world's thread, bytes.
const STACK: usize = 8 << 20;
/// What a run may write to one file, bytes: its standard output is in memory, and a hang may print.
const FILE_LIMIT: libc::rlim_t = 1 << 30;

/// Private memory that a run may ask for, bytes: code that never stops asking aborts, and leaves the machine alone.
const MEMORY_LIMIT: libc::rlim_t = 4 << 30;

/// What a run's process leaves in its report file: nothing, until it is complete.
#[derive(Debug, PartialEq)]
pub(super) enum Report {
    /// What the body returned.
    Done(Vec<u8>),
    /// Message and place of the panic that ended the body.
    Panicked(String),
}

impl Report {
    fn write(&self, file: &File) -> io::Result<()> {
        let (tag, bytes) = match self {
            Report::Done(bytes) => (b'd', bytes.as_slice()),
            Report::Panicked(message) => (b'p', message.as_bytes()),
        };
        file.write_all_at(bytes, 1)?;
        file.write_all_at(&[tag], 0)
    }

    /// `None` as long as the report is not complete.
    pub(super) fn read(file: &File) -> io::Result<Option<Report>> {
        let mut bytes = read_all(file)?;
        Ok(match bytes.first() {
            Some(b'd') => Some(Report::Done(bytes.split_off(1))),
            Some(b'p') => Some(Report::Panicked(String::from_utf8_lossy(&bytes[1..]).into_owned())),
            _ => None,
        })
    }
}

/// What a run's process does.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// With its request.
    Whole(fn(&[u8], Trace) -> Vec<u8>),
    /// With what its beginning depends on; it gets the request at the checkpoint.
    FromCheckpoint(fn(&[u8], Trace, Checkpoint) -> Vec<u8>),
}

/// What a forked child does instead of returning. `checkpoint` connects one that runs a beginning with its zygote.
pub(super) fn main(
    zygote: u32,
    socket: &UnixStream,
    checkpoint: Option<UnixStream>,
    files: &'static Received,
    ask: Ask,
    body: Body,
) -> ! {
    let begun = begin(zygote, socket, ask).and_then(|()| prepared(files)).and_then(|trace| {
        let work: Box<dyn FnOnce() -> Vec<u8> + Send> = match (body, checkpoint) {
            (Body::FromCheckpoint(body), Some(zygote)) => {
                let beginning = read_all(&files.beginning)?;
                Box::new(move || body(&beginning, trace, Checkpoint { zygote, files }))
            }
            (Body::Whole(body), _) => {
                let request = read_all(&files.request)?;
                Box::new(move || body(&request, trace))
            }
            (Body::FromCheckpoint(_), None) => return Err(io::Error::other("a beginning has a connection")),
        };
        run(work, files)
    });
    let code = match begun {
        Ok(never) => match never {},
        Err(e) => fail(&e),
    };
    // SAFETY: ends the process. Its exit handlers are the zygote's, and threads may still run.
    unsafe { libc::_exit(code) }
}

/// Says on standard error why the process cannot go on; the exit code for that.
pub(super) fn fail(e: &io::Error) -> i32 {
    eprintln!("photofinish: a run's process cannot work: {e}");
    crate::exit::HARNESS
}

/// What comes first in a process that was forked, by `parent`, which has `socket` for itself.
pub(super) fn begin(parent: u32, socket: &UnixStream, ask: Ask) -> io::Result<()> {
    BACKTRACES.store(ask.backtraces, Ordering::Relaxed);
    // SAFETY: plain system calls on our own process and on descriptors that are open.
    unsafe {
        // A group of its own, to be killed as one; and the parent's death ends the run.
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() as u32 != parent {
            libc::_exit(crate::exit::HARNESS);
        }
        // The parent's connection is not the run's.
        libc::close(socket.as_raw_fd());
    }
    Ok(())
}

fn prepared(files: &Received) -> io::Result<Trace> {
    // SAFETY: plain system calls on our own process and on descriptors that are open.
    unsafe {
        if libc::dup2(files.stdout.as_raw_fd(), 1) < 0 || libc::dup2(files.stderr.as_raw_fd(), 2) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::umask(0o022);
    }
    set_soft_limit(libc::RLIMIT_FSIZE, FILE_LIMIT);
    set_soft_limit(libc::RLIMIT_DATA, MEMORY_LIMIT);
    let trace = Trace::shared(Region::map(files.trace.try_clone()?)?);
    trace::set_of_this_process(trace.clone());
    std::panic::set_hook(Box::new(on_panic));
    Ok(trace)
}

/// Does the work on a thread of its own (the same stack in a program and in a test, at an address that no argument moves),
/// and ends the process there: a run that was forked at a checkpoint has no other thread.
fn run(work: Box<dyn FnOnce() -> Vec<u8> + Send>, files: &'static Received) -> io::Result<std::convert::Infallible> {
    let world = std::thread::Builder::new().name("world".to_owned()).stack_size(STACK);
    let world = world.spawn(move || {
        // Also what the body does before its world begins must be the same every time.
        crate::state::prepare_thread();
        crate::heap::enter();
        let report = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
            Ok(report) => Report::Done(report),
            Err(payload) => Report::Panicked(describe(&*payload)),
        };
        let code = match report.write(&files.report) {
            Ok(()) => {
                if matches!(report, Report::Done(_)) {
                    0
                } else {
                    PANICKED
                }
            }
            Err(e) => fail(&e),
        };
        // What the body printed without ending its line.
        let _ = io::stdout().flush();
        // SAFETY: ends the process. Its exit handlers are the zygote's, and threads may still run.
        unsafe { libc::_exit(code) }
    })?;
    let _ = world.join();
    Err(io::Error::other("the world's thread ends the process, but it has ended alone"))
}

/// Whether a panic shows its backtrace: the parent's `RUST_BACKTRACE`, since a run sees nothing of its environment.
static BACKTRACES: AtomicBool = AtomicBool::new(false);

/// The last panic, with its place, for the report of a body that it ended.
static LAST: Mutex<Option<(String, String)>> = Mutex::new(None);

fn describe(payload: &(dyn Any + Send)) -> String {
    let message = message(payload);
    match LAST.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some((last, place)) if last == message => format!("{message} ({place})"),
        _ => message,
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".to_owned())
}

/// A panic anywhere in the run is an entry of its trace, whoever catches it.
fn on_panic(info: &PanicHookInfo<'_>) {
    let message = message(info.payload());
    let place = info.location().map(|l| format!("{}:{}:{}", l.file(), l.line(), l.column())).unwrap_or_default();
    if let Some(trace) = trace::of_this_process() {
        let host = crate::state::current_host();
        let host = host.as_deref().unwrap_or("world");
        let draft = trace.entry("panic", "panic").text(format!("panicked: {message} ({place})"));
        draft.field("message", &message).field("location", &place).field("host", host).record_even_if_busy();
        // Not the standard hook: it prints the thread's number, which differs from run to run.
        eprintln!("{host}: panicked at {place}:\n{message}");
        if BACKTRACES.load(Ordering::Relaxed) {
            eprintln!("{}", Backtrace::force_capture());
        }
    }
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some((message, place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::memfd;

    #[test]
    fn a_report_reads_as_it_was_written() {
        for report in [Report::Done(Vec::new()), Report::Done(vec![0, 255, b'p']), Report::Panicked("boom".to_owned())]
        {
            let file = File::from(memfd(c"test").unwrap());
            report.write(&file).unwrap();
            assert_eq!(Report::read(&file).unwrap(), Some(report));
        }
    }

    #[test]
    fn a_report_without_its_first_byte_is_not_complete() {
        let file = File::from(memfd(c"test").unwrap());
        assert_eq!(Report::read(&file).unwrap(), None);
        file.write_all_at(b"half of a repor", 1).unwrap();
        assert_eq!(Report::read(&file).unwrap(), None);
    }
}
