//! Hosts: what one is made of, what its code gets, and what it may ask of the world.
use crate::choices::Choices;
use crate::disk::Folder;
use crate::state;
use crate::trace::Trace;
use crate::wire::Wire;
use indexmap::IndexMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Any error, as a host's main function returns it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What becomes of a host whose process ended: its main function returned or panicked, or it was crashed. Losing power is
/// no end of a process: nothing restarts then but [`World::restart`](crate::world::World::restart).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestartPolicy {
    /// It stays down.
    #[default]
    Never,
    /// It starts again `after` this long, however it ended.
    Always {
        /// From the end to the start.
        after: Duration,
    },
    /// It starts again unless its main function returned `Ok`.
    OnFailure {
        /// From the end to the start.
        after: Duration,
    },
}

impl RestartPolicy {
    /// How long after its end a host starts again, if it does.
    pub(crate) fn restarts_after(self, failed: bool) -> Option<Duration> {
        match self {
            RestartPolicy::Never => None,
            RestartPolicy::Always { after } => Some(after),
            RestartPolicy::OnFailure { after } => failed.then_some(after),
        }
    }
}

/// How a host is set up.
///
/// ```
/// use photofinish_sim::host::{HostSpec, RestartPolicy};
/// use std::time::Duration;
///
/// HostSpec::new()
///     .restart(RestartPolicy::Always { after: Duration::from_secs(2) })
///     .env("NAMESPACE", "demo")
///     .skew_ns(-5_000_000); // its wall clock is 5 ms late
/// ```
#[derive(Debug, Clone, Default)]
pub struct HostSpec {
    pub(crate) restart: RestartPolicy,
    pub(crate) env: IndexMap<String, String>,
    pub(crate) skew_ns: i64,
}

impl HostSpec {
    /// Never restarted, empty environment, exact clock.
    pub fn new() -> Self {
        Self::default()
    }
    /// What becomes of it when its process ends.
    pub fn restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = policy;
        self
    }
    /// One variable of its environment ([`HostCtx::env`]; the process's own environment is shared by all hosts).
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }
    /// By how much its wall clock is ahead (or behind), nanoseconds. Monotonic clocks are exact on all hosts.
    pub fn skew_ns(mut self, skew: i64) -> Self {
        self.skew_ns = skew;
        self
    }
}

/// What a host's main function is given.
#[derive(Clone)]
pub struct HostCtx {
    /// The host's name; others reach it by this name.
    pub name: Arc<str>,
    /// Its network.
    pub wire: Wire,
    /// Its environment.
    pub env: IndexMap<String, String>,
    /// The world's trace.
    pub trace: Trace,
    /// The world's choices.
    pub choices: Choices,
    /// What it may do to itself and to other hosts.
    pub control: Control,
    pub(crate) folder: Folder,
}

impl HostCtx {
    /// Its folder, made at the first call. What was in it at a crash is there after the restart.
    ///
    /// The path differs from run to run unless [`WorldConfig::disk`](crate::world::WorldConfig::disk) is set: do not let
    /// it reach the trace.
    pub fn disk(&self) -> &Path {
        self.folder.path()
    }
}

impl std::fmt::Debug for HostCtx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostCtx").field("name", &self.name).field("env", &self.env).finish_non_exhaustive()
    }
}

/// What code inside a step may ask the world to do to a host, itself included.
///
/// It takes effect as soon as the task that asks yields, before any other task of that host runs; until then nothing of
/// it reaches the wire any more. So "crash after the n-th durable write" loses the reply to that write.
#[derive(Clone)]
pub struct Control(Arc<Requests>);

#[derive(Default)]
struct Requests {
    any: AtomicBool,
    list: Mutex<Vec<Request>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Crash(Arc<str>),
    PowerOff(Arc<str>),
}

impl Control {
    pub(crate) fn new() -> Self {
        Control(Arc::default())
    }
    /// The host's process is killed. An unknown name is an entry in the trace.
    pub fn crash(&self, host: &str) {
        self.ask(host, Request::Crash)
    }
    /// The host's machine loses power. An unknown name is an entry in the trace.
    pub fn power_off(&self, host: &str) {
        self.ask(host, Request::PowerOff)
    }
    /// Crashes the host that awaits this; the future never resolves, so nothing behind it runs.
    pub async fn crash_here(&self) -> std::convert::Infallible {
        if let Some(host) = state::current_host() {
            self.crash(&host);
        }
        std::future::pending().await
    }
    fn ask(&self, host: &str, request: fn(Arc<str>) -> Request) {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).push(request(host.into()));
        self.0.any.store(true, Relaxed);
        if state::current_host().is_some_and(|current| *current == *host) {
            state::interrupt();
        }
    }
    pub(crate) fn take(&self) -> Vec<Request> {
        if !self.0.any.swap(false, Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut *self.0.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Control")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_policy_decides_by_how_the_process_ended() {
        let after = Duration::from_secs(1);
        for (policy, failed, expected) in [
            (RestartPolicy::Never, true, None),
            (RestartPolicy::Always { after }, false, Some(after)),
            (RestartPolicy::Always { after }, true, Some(after)),
            (RestartPolicy::OnFailure { after }, false, None),
            (RestartPolicy::OnFailure { after }, true, Some(after)),
        ] {
            assert_eq!(policy.restarts_after(failed), expected, "{policy:?}, failed: {failed}");
        }
    }
}
