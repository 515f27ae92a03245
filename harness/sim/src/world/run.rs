//! The loop: deliver what is due, step who is due, send, jump.
use super::World;
use crate::state::{self, Idle, NS, Trouble};
use crate::trace::Trace;
use futures::FutureExt;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Why a world cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// Steps go on and on without any time passing.
    #[error("livelock: {host} never gets idle, and no time passes")]
    Livelock {
        /// The host that ran last.
        host: String,
    },
    /// Hosts are at work all the time, over a whole minute of virtual time.
    #[error("never at rest: the hosts took {steps} steps within a minute, most of them {host}")]
    Busy {
        /// The host that took most of them.
        host: String,
        /// As many as [`WorldConfig::steps_a_minute`](super::WorldConfig::steps_a_minute) allows.
        steps: u32,
    },
    /// Nothing will ever happen again, and what was waited for has not.
    #[error("deadlock: no packet is under way, no timer is set, nothing will ever happen")]
    Deadlock,
    /// Code under test blocks the world's only thread for ever. It cannot be unwound there: the entry is recorded, and
    /// the process ends with [`exit::BLOCKED`](crate::exit::BLOCKED).
    #[error("{host} blocks its only thread for ever:\n{backtrace}")]
    Blocked {
        /// The host whose code waits.
        host: String,
        /// Where, innermost first.
        backtrace: String,
    },
    /// Code under test was about to start a thread in a world without foreign threads.
    #[error("{host} starts a thread, and this world has no foreign threads:\n{backtrace}")]
    ForeignThread {
        /// The host whose code would have started it.
        host: String,
        /// Where, innermost first.
        backtrace: String,
    },
}

fn record_stuck(trace: &Trace, stuck: &Stuck) {
    let (reason, host, backtrace) = match stuck {
        Stuck::Livelock { host } => ("livelock", Some(host), None),
        Stuck::Busy { host, .. } => ("busy", Some(host), None),
        Stuck::Deadlock => ("deadlock", None, None),
        Stuck::Blocked { host, backtrace } => ("blocked", Some(host), Some(backtrace)),
        Stuck::ForeignThread { host, backtrace } => ("foreign-thread", Some(host), Some(backtrace)),
    };
    let mut draft = trace.entry("end", "stuck").host("world").field("reason", reason);
    if let Some(host) = host {
        draft = draft.field("host", host);
    }
    if let Some(backtrace) = backtrace {
        draft = draft.field("backtrace", backtrace);
    }
    draft.text(stuck.to_string()).record();
}

/// When a runtime that would sleep `ms` at `at_ns` has its next timer. Not `at_ns + ms`: tokio counts whole milliseconds
/// since its runtime was built, and `at_ns` may lie between two.
fn timer_due(born_ns: u64, at_ns: u64, ms: i32) -> Option<u64> {
    (ms >= 0).then(|| born_ns + (at_ns.saturating_sub(born_ns) / MS + ms as u64) * MS)
}

impl World {
    /// Lets the world go on for `d`. Time passes in full, whether anything happens or not.
    ///
    /// # Errors
    /// It cannot go on: a livelock, or a foreign thread.
    pub fn run_for(&mut self, d: Duration) -> Result<(), Stuck> {
        let end = self.shared.now_ns().saturating_add(d.as_nanos() as u64);
        match self.advance(end, &mut |_| false) {
            Ok(_) => Ok(()),
            Err(Stuck::Deadlock) => {
                self.shared.advance_to(end);
                Ok(())
            }
            Err(stuck) => Err(self.stuck(stuck)),
        }
    }

    /// Lets the world go on until `until` is true, or for `limit`; tells which. `until` is asked after every instant: all
    /// that happens at one point of virtual time has happened then.
    ///
    /// # Errors
    /// It cannot go on: a livelock, a foreign thread, or a deadlock.
    pub fn run_until(&mut self, limit: Duration, mut until: impl FnMut(&mut World) -> bool) -> Result<bool, Stuck> {
        let end = self.shared.now_ns().saturating_add(limit.as_nanos() as u64);
        self.advance(end, &mut until).map_err(|stuck| self.stuck(stuck))
    }

    fn stuck(&mut self, stuck: Stuck) -> Stuck {
        record_stuck(&self.trace, &stuck);
        stuck
    }

    fn advance(&mut self, end: u64, until: &mut dyn FnMut(&mut World) -> bool) -> Result<bool, Stuck> {
        #[cfg(feature = "turmoil")]
        if self.ticks.is_some() {
            return self.advance_by_ticks(end, until);
        }
        loop {
            self.instant()?;
            if until(self) {
                return Ok(true);
            }
            let now = self.shared.now_ns();
            match self.next_event() {
                // What `until` did may be due at once.
                Some(at) if at <= now && now <= end => {}
                Some(at) if at <= end => self.shared.advance_to(at),
                Some(_) => {
                    self.shared.advance_to(end);
                    return Ok(false);
                }
                None => return Err(Stuck::Deadlock),
            }
        }
    }

    /// All that happens at this point of virtual time.
    fn instant(&mut self) -> Result<(), Stuck> {
        let (mut rounds, mut last) = (0, 0);
        loop {
            let now = self.shared.now_ns();
            let mut active = self.net.deliver_due(now);
            if self.shared.threads.any() {
                active |= self.shared.threads.wake_due(now);
            }
            for i in 0..self.hosts.len() {
                if self.hosts[i].restart_at.is_some_and(|at| at <= now) {
                    self.start_process(i);
                }
                if self.must_run(i, now) {
                    self.step(i)?;
                    (active, last) = (true, i);
                }
            }
            if !active {
                return Ok(());
            }
            self.net.send(self.shared.now_ns());
            // Code that holds the thread or spins on the clock makes progress in time.
            rounds = if self.shared.now_ns() == now { rounds + 1 } else { 0 };
            if rounds > self.config.rounds {
                return Err(Stuck::Livelock { host: self.hosts[last].name.to_string() });
            }
        }
    }

    fn must_run(&self, i: usize, now: u64) -> bool {
        let host = &self.hosts[i];
        // Packets, other hosts' tasks and foreign threads wake tasks from outside: those sit in the inject queue.
        !host.paused
            && host
                .process
                .as_ref()
                .is_some_and(|p| p.due_ns.is_some_and(|due| due <= now) || p.metrics.global_queue_depth() > 0)
    }

    fn next_event(&self) -> Option<u64> {
        let hosts = self.hosts.iter().flat_map(|h| {
            let timer = h.process.as_ref().and_then(|p| p.due_ns).filter(|_| !h.paused);
            [timer, h.restart_at].into_iter().flatten()
        });
        hosts.chain(self.net.next_event()).chain(self.shared.threads.next_deadline()).min()
    }

    /// One host runs until it is idle.
    fn step(&mut self, i: usize) -> Result<(), Stuck> {
        let host = &mut self.hosts[i];
        let process = host.process.as_mut().expect("only a running host steps");
        self.net.set_current(i);
        state::set_host(&host.name, host.spec.skew_ns);
        self.trace.set_ambient_cause(self.net.take_cause(i));
        let before = self.trace.len();
        let idle = state::run(&process.runtime);
        let after = self.trace.len();
        self.trace.set_ambient_cause(None);
        state::clear_host();
        self.steps += 1;
        if after > before {
            self.net.recorded(i, after as u64 - 1);
        }
        process.due_ns = match idle {
            Idle::Sleep { ms, at_ns } => timer_due(process.born_ns, at_ns, ms),
            // Tasks are left that would run now.
            Idle::Livelock | Idle::Interrupted => Some(self.shared.now_ns()),
        };
        let ended = process.main.is_finished();
        self.act_on_trouble()?;
        if idle == Idle::Livelock {
            return Err(Stuck::Livelock { host: self.hosts[i].name.to_string() });
        }
        self.serve_requests();
        if ended && self.hosts[i].process.is_some() {
            self.exit(i);
        }
        self.run_hooks();
        let steps = self.config.steps_a_minute;
        match self.busy.step(i, self.shared.now_ns(), steps) {
            Some(busiest) => Err(Stuck::Busy { host: self.hosts[busiest].name.to_string(), steps }),
            None => Ok(()),
        }
    }

    pub(super) fn act_on_trouble(&mut self) -> Result<(), Stuck> {
        match state::take_trouble() {
            None => Ok(()),
            Some((host, Trouble::ForeignThread { backtrace })) => {
                Err(Stuck::ForeignThread { host: host.to_string(), backtrace })
            }
            Some((host, Trouble::RealSocket { what })) => {
                if let Ok(i) = self.index(&host) {
                    self.record(i, "real-socket", "is refused a socket", Some(what));
                }
                Ok(())
            }
        }
    }

    pub(super) fn run_hooks(&mut self) {
        for hook in &mut self.hooks {
            hook();
        }
    }

    /// A host's main function has returned: its process ends.
    fn exit(&mut self, i: usize) {
        let process = self.hosts[i].process.as_mut().expect("it ran just now");
        let result = (&mut process.main).now_or_never().expect("main is finished");
        let error = match result {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(chain(&*e)),
            Err(e) => Some(match e.try_into_panic() {
                Ok(panic) => panic_text(&*panic),
                Err(e) => e.to_string(),
            }),
        };
        let failed = self.record_exit(i, error);
        self.end_process(i);
        self.follow_policy(i, failed);
    }
    /// True if it failed.
    pub(super) fn record_exit(&mut self, i: usize, error: Option<String>) -> bool {
        let failed = error.is_some();
        self.record(i, "exit", if failed { "fails" } else { "exits" }, error);
        failed
    }
}

/// An error and its sources, outermost first.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let message = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(s), _) => s,
        (_, Some(s)) => *s,
        _ => "without a text",
    };
    format!("panicked: {message}")
}

const _: () = assert!(NS == 1000 * MS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_lie_on_the_millisecond_grid_of_their_runtime() {
        for (born, at, ms, due) in [
            (0, 0, 10, Some(10 * MS)),
            (400_000, 400_000, 10, Some(10_400_000)),
            // a packet at 9.7 ms does not move the tick at 10 ms
            (400_000, 9_700_000, 1, Some(10_400_000)),
            (0, 9_700_000, 1, Some(10 * MS)),
            (0, 5, -1, None),
            (7, 7, 0, Some(7)),
        ] {
            assert_eq!(timer_due(born, at, ms), due, "born {born}, asked at {at}, sleeps {ms} ms");
        }
    }
}
