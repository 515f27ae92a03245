//! Runs that begin alike share their beginning: it is run once, and each of them is forked where it ends.
//!
//! A short run spends about a third of its time before its first step: a world, its hosts, their first lists and watches.
//! A fuzzer calls this a deferred fork server. Each run still has a process of its own, and is the same as if it had run
//! from its beginning: the process that waits at the checkpoint does not go on itself, and takes no memory between two
//! runs.

use super::descriptors::Received;
use super::serve::{Answer, Ask, BEGUN, Pid, fork, watch};
use super::{child, read_all};
use crate::{heap, state, trace};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Where the beginning ends; a body that was given one passes it once.
#[derive(Debug)]
pub struct Checkpoint {
    /// To the zygote, which passes questions on.
    pub(super) zygote: UnixStream,
    pub(super) files: &'static Received,
}

/// What the beginning has left in files that are reset before each run.
struct Written {
    trace: Vec<u8>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Checkpoint {
    /// The run's request. From here on every run has a process of its own, unless the beginning has left something that
    /// a fork does not copy (a thread, a folder): then say `alone`, and the next run begins anew.
    pub fn pass(self, alone: bool) -> Vec<u8> {
        let request = state::outside(|| if alone { self.go_on_alone() } else { self.fork_runs() });
        match request {
            Ok(request) => request,
            Err(e) => {
                // The zygote is gone, or has no use for this beginning any more.
                let expected = e.kind() == io::ErrorKind::UnexpectedEof;
                let code = if expected { 0 } else { child::fail(&e) };
                // SAFETY: ends the process; there is nothing that destructors would have to do.
                unsafe { libc::_exit(code) }
            }
        }
    }

    fn written(&self) -> io::Result<Written> {
        io::stdout().flush()?;
        let trace = trace::of_this_process().map(|t| t.written()).unwrap_or_default();
        Ok(Written { trace, stdout: read_all(&self.files.stdout)?, stderr: read_all(&self.files.stderr)? })
    }

    fn read_ask(&self) -> io::Result<Ask> {
        let mut ask = [0; Ask::SIZE];
        (&self.zygote).read_exact(&mut ask)?;
        Ok(Ask::from_bytes(ask))
    }

    fn request(&self) -> io::Result<Vec<u8>> {
        read_all(&self.files.request)
    }

    fn go_on_alone(self) -> io::Result<Vec<u8>> {
        self.read_ask()?;
        let request = self.request();
        // The zygote takes the end of the connection for that of the process.
        std::mem::forget(self);
        request
    }

    /// Forks a run whenever the zygote asks for one; returns in the runs only. Takes no memory.
    fn fork_runs(self) -> io::Result<Vec<u8>> {
        let written = self.written()?;
        let parent = std::process::id();
        loop {
            let ask = self.read_ask()?;
            (&self.zygote).write_all(&BEGUN)?;
            let answer = match fork() {
                Pid::Child => {
                    child::begin(parent, &self.zygote, ask)?;
                    heap::own();
                    if let Some(trace) = trace::of_this_process() {
                        trace.write_again(&written.trace);
                    }
                    // The first run's still hold it, the later ones' were reset.
                    self.files.stdout.set_len(0)?;
                    self.files.stderr.set_len(0)?;
                    io::stdout().write_all(&written.stdout).and_then(|()| io::stdout().flush())?;
                    io::stderr().write_all(&written.stderr)?;
                    // Closed already; its number may be another's soon.
                    let request = self.request();
                    std::mem::forget(self);
                    return request;
                }
                Pid::Parent(pid, start) => watch(pid, &self.zygote, start, ask.limit_ms)?,
                Pid::None(errno) => Answer::NoFork(errno),
            };
            (&self.zygote).write_all(&answer.to_bytes())?;
        }
    }
}

/// A beginning that waits for runs to be forked from it, as the zygote knows it.
pub(super) struct Stage {
    pub(super) beginning: u64,
    pub(super) pid: libc::pid_t,
    pub(super) pidfd: std::os::fd::OwnedFd,
    pub(super) socket: UnixStream,
}

impl Stage {
    /// Descriptors to wait for: its end, and its answer.
    pub(super) fn polled(&self) -> [libc::pollfd; 2] {
        [&self.pidfd.as_raw_fd(), &self.socket.as_raw_fd()].map(|fd| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: 0,
        })
    }
}
