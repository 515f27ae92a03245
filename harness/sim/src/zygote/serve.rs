//! The zygote's side: fork a child a run, watch it, kill it at its limit, say how it ended.
//!
//! The loop takes no memory and opens nothing that it does not close, so each child starts from the same state.

use super::checkpoint::{Checkpoint, Stage};
use super::child::Body;
use super::descriptors::{self, Received};
use super::{Exit, child, inside, text, usage};
use crate::trace::Trace;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a zygote says first: [`FIXED`] or [`RANDOM`].
pub(super) const HELLO: usize = 4;
/// The zygote's addresses are fixed.
pub(super) const FIXED: [u8; HELLO] = *b"pf1f";
/// The zygote's addresses are random.
const RANDOM: [u8; HELLO] = *b"pf1r";

/// What a process at a checkpoint says before it forks a run: its beginning is over.
pub(super) const BEGUN: [u8; Answer::SIZE] = [0xff; Answer::SIZE];

/// The parent asks for a run; the request itself is in its file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) limit_ms: u64,
    /// Which beginning the run has; equal numbers, equal beginnings.
    pub(super) beginning: u64,
    /// Panics show a backtrace, on the run's standard error.
    pub(super) backtraces: bool,
}

impl Ask {
    pub(super) const SIZE: usize = 17;

    pub(super) fn new(limit: Duration, beginning: u64, backtraces: bool) -> Ask {
        Ask { limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), beginning, backtraces }
    }

    pub(super) fn to_bytes(self) -> [u8; Ask::SIZE] {
        let mut bytes = [u8::from(self.backtraces); Ask::SIZE];
        bytes[..8].copy_from_slice(&self.limit_ms.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.beginning.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Ask::SIZE]) -> Ask {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Ask { limit_ms: number(0), beginning: number(8), backtraces: bytes[16] != 0 }
    }
}

/// The zygote's answer; what the run wrote is in its files.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// The status that `waitpid` gave.
    Ended(i32),
    /// Killed at its limit, having had a processor for so many milliseconds.
    WallLimit(i32),
    /// No process could be forked: `errno`.
    NoFork(i32),
}

impl Answer {
    pub(super) const SIZE: usize = 8;

    pub(super) fn to_bytes(self) -> [u8; Answer::SIZE] {
        let (tag, value) = match self {
            Answer::Ended(status) => (0, status),
            Answer::WallLimit(used_ms) => (1, used_ms),
            Answer::NoFork(errno) => (2, errno),
        };
        ((tag << 32) | u64::from(value as u32)).to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; Answer::SIZE]) -> Answer {
        let number = u64::from_le_bytes(bytes);
        let value = number as u32 as i32;
        match number >> 32 {
            0 => Answer::Ended(value),
            1 => Answer::WallLimit(value),
            _ => Answer::NoFork(value),
        }
    }

    /// Whether a run was killed at its limit that had no processor for half of that time: a machine with other work, or
    /// a run that waited for something that is not virtual.
    pub(super) fn starved(self, limit: Duration) -> bool {
        matches!(self, Answer::WallLimit(used_ms) if Duration::from_millis(used_ms.max(0) as u64) < limit / 2)
    }

    pub(super) fn exit(self) -> io::Result<Exit> {
        match self {
            Answer::Ended(status) if libc::WIFSIGNALED(status) => Ok(Exit::Signal(libc::WTERMSIG(status))),
            Answer::Ended(status) => Ok(Exit::Code(libc::WEXITSTATUS(status))),
            Answer::WallLimit(_) => Ok(Exit::WallLimit),
            Answer::NoFork(errno) => {
                let e = io::Error::from_raw_os_error(errno);
                Err(io::Error::new(e.kind(), format!("the zygote cannot start a run: {e}")))
            }
        }
    }
}

/// The run's files, which all processes that come of a zygote have.
static FILES: OnceLock<Received> = OnceLock::new();

/// Serves runs until the parent is gone: `body` gets the request and the run's trace and returns the report, in a child
/// of its own, on a thread called `world` with a stack of 8 MiB.
///
/// # Panics
/// Outside a zygote: call it where [`inside`] is true, first in `main` or in the test that starts the zygote.
pub fn serve(body: fn(&[u8], Trace) -> Vec<u8>) -> ! {
    serve_any(Body::Whole(body))
}

/// As [`serve`], for runs of which many begin alike ([`Zygote::run_from`](super::Zygote::run_from)): `body` gets what their
/// beginning depends on, and [passes the checkpoint](Checkpoint::pass) where it ends, to get the request.
///
/// # Panics
/// As [`serve`].
pub fn serve_from_checkpoints(body: fn(&[u8], Trace, Checkpoint) -> Vec<u8>) -> ! {
    serve_any(Body::FromCheckpoint(body))
}

fn serve_any(body: Body) -> ! {
    assert!(inside(), "serve() is for zygotes: call it where zygote::inside() is true");
    let Err(e) = run_until_parent_is_gone(body);
    if e.kind() != io::ErrorKind::UnexpectedEof {
        eprintln!("photofinish: zygote: {e}");
    }
    // SAFETY: ends the process; there is nothing that destructors would have to do.
    unsafe { libc::_exit(i32::from(e.kind() != io::ErrorKind::UnexpectedEof)) }
}

fn run_until_parent_is_gone(body: Body) -> io::Result<std::convert::Infallible> {
    let mut socket = socket()?;
    let files = descriptors::receive(&socket)?;
    let files = FILES.get_or_init(|| files);
    // SAFETY: asks only, and changes nothing.
    let persona = unsafe { libc::personality(0xffff_ffff) };
    text::inherit();
    socket.write_all(if persona & libc::ADDR_NO_RANDOMIZE != 0 { &FIXED } else { &RANDOM })?;
    let mut stages = [None, None];
    let Err(e) = answer_asks(&mut socket, &mut stages, files, body);
    // They would end with this process anyway. Waited for, they count as its time, which benches ask for.
    stages.into_iter().flatten().for_each(|stage| _ = end(stage.pid));
    Err(e)
}

fn answer_asks(
    socket: &mut UnixStream,
    stages: &mut [Option<Stage>; 2],
    files: &'static Received,
    body: Body,
) -> io::Result<std::convert::Infallible> {
    loop {
        let mut ask = [0; Ask::SIZE];
        socket.read_exact(&mut ask)?;
        let ask = Ask::from_bytes(ask);
        let answer = match body {
            Body::Whole(_) => one_run(socket, files, ask, body)?,
            Body::FromCheckpoint(_) => one_run_from(stages, socket, files, ask, body)?,
        };
        socket.write_all(&answer.to_bytes())?;
    }
}

/// The socket came as standard input; the children get an empty one.
fn socket() -> io::Result<UnixStream> {
    // SAFETY: a plain system call; standard input is open, since the parent made it so.
    let fd = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let null = File::open("/dev/null")?;
    // SAFETY: standard input is replaced by another open descriptor.
    if unsafe { libc::dup2(null.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { UnixStream::from_raw_fd(fd) })
}

/// What a fork gives.
pub(super) enum Pid {
    Child,
    /// The child's number, and when it was born.
    Parent(libc::pid_t, Instant),
    /// `errno`.
    None(i32),
}

/// Forks this process: no other thread of it may hold a lock.
pub(super) fn fork() -> Pid {
    let start = Instant::now();
    // SAFETY: the child goes on with what its callers do, on the only thread that it has. The others that this process may
    // have hold no lock: libtest's main thread waits for us, and so does a child's main thread for that of its world.
    match unsafe { libc::fork() } {
        0 => Pid::Child,
        -1 => Pid::None(errno()),
        pid => Pid::Parent(pid, start),
    }
}

/// Waits for a run's end, or ends it at its limit.
pub(super) fn watch(pid: libc::pid_t, parent: &UnixStream, start: Instant, limit_ms: u64) -> io::Result<Answer> {
    // SAFETY: as the child does for itself, so that its group exists whoever comes first.
    unsafe { libc::setpgid(pid, pid) };
    let pidfd = match pidfd(pid) {
        Ok(pidfd) => pidfd,
        Err(e) => {
            end(pid);
            return Ok(Answer::NoFork(e.raw_os_error().unwrap_or(libc::ENOSYS)));
        }
    };
    let ended = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let wake = wait(&mut [ended], parent, start, limit_ms);
    // Whatever the run has left behind in its group ends with it. It is no more than a zombie until it is waited for, so
    // the group is still its own.
    let Ended { status, used_ms } = end(pid);
    match wake? {
        Wake::Ready => Ok(Answer::Ended(status)),
        Wake::WallLimit => Ok(Answer::WallLimit(used_ms)),
        Wake::ParentGone => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn one_run(socket: &UnixStream, files: &'static Received, ask: Ask, body: Body) -> io::Result<Answer> {
    let zygote = std::process::id();
    match fork() {
        Pid::Child => child::main(zygote, socket, None, files, ask, body),
        Pid::Parent(pid, start) => watch(pid, socket, start, ask.limit_ms),
        Pid::None(errno) => Ok(Answer::NoFork(errno)),
    }
}

/// How much later than a run's own limit the process that forks it is ended: it ends the run itself.
const GRACE_MS: u64 = 1000;

/// One run from a beginning, which is run first unless it waits already. Two wait, the one used last first: a run that is
/// to begin otherwise than its neighbours comes back to theirs.
fn one_run_from(
    stages: &mut [Option<Stage>; 2],
    socket: &UnixStream,
    files: &'static Received,
    ask: Ask,
    body: Body,
) -> io::Result<Answer> {
    let start = Instant::now();
    let is_other = |stage: &mut Stage| stage.beginning != ask.beginning;
    if stages[0].as_mut().is_none_or(is_other) {
        stages.swap(0, 1);
    }
    let stage = &mut stages[0];
    if let Some(other) = stage.take_if(is_other) {
        end(other.pid);
    }
    if stage.is_none() {
        let (ours, theirs) = UnixStream::pair()?;
        let zygote = std::process::id();
        let pid = match fork() {
            Pid::Child => {
                drop(ours);
                child::main(zygote, socket, Some(theirs), files, ask, body)
            }
            Pid::Parent(pid, _) => pid,
            Pid::None(errno) => return Ok(Answer::NoFork(errno)),
        };
        // SAFETY: as in `watch`.
        unsafe { libc::setpgid(pid, pid) };
        match pidfd(pid) {
            Ok(pidfd) => *stage = Some(Stage { beginning: ask.beginning, pid, pidfd, socket: ours }),
            Err(e) => {
                end(pid);
                return Ok(Answer::NoFork(e.raw_os_error().unwrap_or(libc::ENOSYS)));
            }
        }
    }
    let Some(waiting) = stage.as_mut() else { unreachable!("it was made just now") };
    let mut answer = [0; Answer::SIZE];
    // A beginning that has ended meanwhile does not take the question; its end is seen below.
    let _ = waiting.socket.write_all(&ask.to_bytes());
    let limit_ms = ask.limit_ms.saturating_add(GRACE_MS);
    // The limit is that of a run; its beginning, which others share, has as much again.
    let mut since = start;
    let wake = loop {
        let wake = wait(&mut waiting.polled(), socket, since, limit_ms)?;
        if !matches!(wake, Wake::Ready) {
            break wake;
        }
        match waiting.socket.read_exact(&mut answer) {
            Ok(()) if answer == BEGUN => since = Instant::now(),
            Ok(()) => return Ok(Answer::from_bytes(answer)),
            // The end of the connection comes before that of the process, which has its report to write.
            Err(_) => break wait(&mut waiting.polled()[..1], socket, since, limit_ms)?,
        }
    };
    let Ended { status, used_ms } = end(waiting.pid);
    *stage = None;
    match wake {
        // It ended before its checkpoint, or was a run itself.
        Wake::Ready => Ok(Answer::Ended(status)),
        Wake::WallLimit => Ok(Answer::WallLimit(used_ms)),
        Wake::ParentGone => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

enum Wake {
    /// One of those that were waited for.
    Ready,
    WallLimit,
    ParentGone,
}

/// Waits for one of `awaited`, at most two.
fn wait(awaited: &mut [libc::pollfd], parent: &UnixStream, start: Instant, limit_ms: u64) -> io::Result<Wake> {
    // Only the end of the connection, which is always told.
    let gone = libc::pollfd { fd: parent.as_raw_fd(), events: 0, revents: 0 };
    loop {
        let left = limit_ms.saturating_sub(start.elapsed().as_millis() as u64);
        let mut polled = [gone; 3];
        polled[1..=awaited.len()].copy_from_slice(awaited);
        // SAFETY: `polled` is valid for reads and writes.
        let n = unsafe { libc::poll(polled.as_mut_ptr(), 1 + awaited.len() as u64, left.min(i32::MAX as u64) as i32) };
        if n < 0 && errno() != libc::EINTR {
            return Err(io::Error::last_os_error());
        }
        if n > 0 && polled[1..].iter().any(|p| p.revents != 0) {
            return Ok(Wake::Ready);
        }
        if n > 0 && polled[0].revents != 0 {
            return Ok(Wake::ParentGone);
        }
        if n == 0 && left <= i32::MAX as u64 {
            return Ok(Wake::WallLimit);
        }
    }
}

/// How a process ended.
struct Ended {
    /// As `waitpid` gives it.
    status: i32,
    /// Milliseconds for which it had a processor.
    used_ms: i32,
}

/// Kills a run's process and its group, and says how the process ended, which it may have before.
fn end(pid: libc::pid_t) -> Ended {
    let mut status = 0;
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: our own child, not waited for yet, so its id and that of its group are its own; the pointers are valid.
    unsafe {
        libc::kill(-pid, libc::SIGKILL);
        libc::kill(pid, libc::SIGKILL);
        while libc::wait4(pid, &mut status, 0, &mut used) < 0 && errno() == libc::EINTR {}
    }
    let used_ms = i32::try_from(usage::used(&used).as_millis()).unwrap_or(i32::MAX);
    Ended { status, used_ms }
}

fn pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call (Linux 5.3).
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_travel_as_bytes() {
        for (answer, exit) in [
            (Answer::Ended(0), Some(Exit::Code(0))),
            (Answer::Ended(70 << 8), Some(Exit::Code(70))),
            (Answer::Ended(libc::SIGABRT), Some(Exit::Signal(libc::SIGABRT))),
            (Answer::WallLimit(7), Some(Exit::WallLimit)),
            (Answer::NoFork(libc::EAGAIN), None),
        ] {
            assert_eq!(Answer::from_bytes(answer.to_bytes()).exit().ok(), exit);
        }
    }

    #[test]
    fn a_run_is_starved_that_had_no_processor_for_half_of_its_limit() {
        let limit = Duration::from_secs(10);
        for (answer, starved) in [
            (Answer::WallLimit(0), true),
            (Answer::WallLimit(4_999), true),
            (Answer::WallLimit(5_000), false),
            (Answer::WallLimit(i32::MAX), false),
            (Answer::Ended(0), false),
        ] {
            assert_eq!(Answer::from_bytes(answer.to_bytes()).starved(limit), starved);
        }
    }

    #[test]
    fn questions_travel_as_bytes_and_a_limit_beyond_all_bounds_is_the_longest_one() {
        assert_eq!(Ask::new(Duration::MAX, 0, false).limit_ms, u64::MAX);
        for ask in [Ask::new(Duration::MAX, 7, true), Ask::new(Duration::from_millis(250), u64::MAX, false)] {
            assert_eq!(Ask::from_bytes(ask.to_bytes()), ask);
        }
    }
}
