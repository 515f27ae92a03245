//! What can be done to a world from outside: hosts come and go, links break.
use super::{Engine, Process, Refused, World};
use crate::disk::Snapshot;
use crate::host::{HostCtx, Request};
use crate::state;
use crate::trace::EntryId;
use crate::wire::Wire;
use std::time::Duration;

/// Hosts.
impl World {
    /// Starts a host that is down; one that runs goes on.
    ///
    /// # Errors
    /// There is no such host, or the world's engine cannot do it. The same holds for all methods below.
    pub fn start(&mut self, host: &str) -> Result<(), Refused> {
        let i = self.index(host)?;
        self.start_process(i);
        Ok(())
    }
    /// Starts all hosts that are down, in the order in which they were added.
    pub fn start_all(&mut self) {
        for i in 0..self.hosts.len() {
            self.start_process(i);
        }
    }
    /// Kills a host's process. What it had written goes out, its connections are closed, its folder stays as it is. Its
    /// restart policy decides what comes then.
    pub fn crash(&mut self, host: &str) -> Result<(), Refused> {
        let i = self.index_to("crash", host)?;
        self.crash_process(i);
        Ok(())
    }
    /// The host's machine loses power: as a crash, but nobody is told; packets to it vanish. It stays down until it is
    /// started, and answers RST then for connections that sent it something meanwhile.
    pub fn power_off(&mut self, host: &str) -> Result<(), Refused> {
        let i = self.index_to("power-off", host)?;
        self.cut_power(i);
        Ok(())
    }
    /// Stops a host's process without ending it (SIGSTOP): its stack still acknowledges packets, they wait for it; its
    /// timers fire late.
    pub fn pause(&mut self, host: &str) -> Result<(), Refused> {
        let i = self.index_to("pause", host)?;
        if !std::mem::replace(&mut self.hosts[i].paused, true) {
            self.record(i, "pause", "is paused", None);
        }
        Ok(())
    }
    /// Lets a paused host go on.
    pub fn resume(&mut self, host: &str) -> Result<(), Refused> {
        let i = self.index_to("resume", host)?;
        if std::mem::replace(&mut self.hosts[i].paused, false) {
            self.record(i, "resume", "goes on", None);
        }
        Ok(())
    }
    /// Crashes a host if it runs, and starts it at once.
    pub fn restart(&mut self, host: &str) -> Result<(), Refused> {
        let i = self.index_to("restart", host)?;
        self.crash_process(i);
        self.start_process(i);
        Ok(())
    }
    /// Sets how far a host's wall clock is ahead of the world's, nanoseconds, as a time service that steps the clock does.
    /// Its monotonic clock and its timers do not notice.
    pub fn skew(&mut self, host: &str, ahead_ns: i64) -> Result<(), Refused> {
        let i = self.index_to("skew", host)?;
        self.hosts[i].spec.skew_ns = ahead_ns;
        self.record(i, "skew", &format!("has a wall clock {ahead_ns} ns ahead"), None);
        Ok(())
    }
    /// Does the host's process exist? A paused one does.
    pub fn is_up(&self, host: &str) -> Result<bool, Refused> {
        let i = self.index(host)?;
        #[cfg(feature = "turmoil")]
        if let Some(ticks) = &self.ticks {
            return Ok(ticks.is_up(i));
        }
        Ok(self.hosts[i].process.is_some())
    }

    /// The number of a host to which `what` is to be done.
    #[cfg_attr(not(feature = "turmoil"), expect(unused_variables, reason = "the only engine does everything"))]
    fn index_to(&self, what: &'static str, host: &str) -> Result<usize, Refused> {
        let i = self.index(host)?;
        match self.config.engine {
            Engine::Jump => Ok(i),
            #[cfg(feature = "turmoil")]
            Engine::Turmoil => Err(Refused::NotOnThisEngine { what }),
        }
    }

    pub(super) fn start_process(&mut self, i: usize) {
        #[cfg(feature = "turmoil")]
        if self.ticks.is_some() {
            return self.start_on_ticks(i);
        }
        if self.hosts[i].process.is_some() {
            return;
        }
        let now = self.shared.now_ns();
        self.hosts[i].restart_at = None;
        self.hosts[i].paused = false;
        self.net.power_on(now, i);
        self.record(i, "start", "starts", None);
        let ctx = self.context(i);
        // Interval 1: the root future is polled after each task, so a crash asked for inside a step takes effect before
        // any other task runs; with the default up to 60 more run.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build();
        let runtime = runtime.expect("descriptors left: four a runtime");
        let host = &self.hosts[i];
        self.net.set_current(i);
        state::set_host(&host.name, host.spec.skew_ns);
        let main = {
            let _inside = runtime.enter();
            // A panic in the part that runs at once ends the process like any other panic of main.
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (host.main)(ctx))) {
                Ok(main) => runtime.spawn(main),
                Err(panic) => runtime.spawn(async move { std::panic::resume_unwind(panic) }),
            }
        };
        state::clear_host();
        let process = Process { metrics: runtime.metrics(), runtime, main, born_ns: now, due_ns: Some(now) };
        self.hosts[i].process = Some(process);
    }

    pub(super) fn context(&self, i: usize) -> HostCtx {
        let name = self.hosts[i].name.clone();
        HostCtx {
            wire: Wire::new(name.clone(), self.wires.clone()),
            env: self.hosts[i].spec.env.clone(),
            trace: self.trace.clone(),
            choices: self.choices.clone(),
            control: self.control.clone(),
            folder: self.disks.folder(&name),
            name,
        }
    }

    pub(super) fn crash_process(&mut self, i: usize) {
        if self.hosts[i].process.is_none() {
            return;
        }
        self.record(i, "crash", "crashes", None);
        self.end_process(i);
        self.follow_policy(i, true);
    }

    /// The process is gone: what it had written goes out first, then its sockets close, and its ports are free.
    pub(super) fn end_process(&mut self, i: usize) {
        let now = self.shared.now_ns();
        self.net.send(now);
        self.drop_process(i);
        self.net.send(now);
        self.net.free_sockets(i);
        self.net.send(now);
    }

    fn cut_power(&mut self, i: usize) {
        let now = self.shared.now_ns();
        self.record(i, "power-off", "loses power", None);
        self.net.power_off(i);
        self.hosts[i].restart_at = None;
        self.net.send_all_but(now, i);
        self.drop_process(i);
        self.net.free_sockets(i);
        self.net.send_all_but(now, i);
    }

    fn drop_process(&mut self, i: usize) {
        self.hosts[i].paused = false;
        let Some(process) = self.hosts[i].process.take() else { return };
        let host = &self.hosts[i];
        let folder = self.disks.known(&host.name);
        let needed = !self.over || self.disks.outlive_the_world();
        let snapshot = if needed { state::outside(|| Snapshot::take(folder)) } else { Ok(None) };
        self.net.set_current(i);
        state::set_host(&host.name, host.spec.skew_ns);
        // Dead code's destructors run, but nothing that they write reaches the wire or the kept folder.
        state::dying(|| {
            drop(process.main);
            process.runtime.shutdown_background(); // dropping it would wait for blocking tasks
        });
        state::clear_host();
        let restored = snapshot.and_then(|s| state::outside(|| s.map_or(Ok(()), Snapshot::restore)));
        if let Err(e) = restored {
            self.record(i, "disk", "could not keep its folder", Some(e.to_string()));
        }
    }

    pub(super) fn follow_policy(&mut self, i: usize, failed: bool) {
        let after = self.hosts[i].spec.restart.restarts_after(failed);
        self.hosts[i].restart_at = after.map(|after| self.shared.now_ns() + after.as_nanos() as u64);
    }

    /// Serves what hosts asked for in their steps.
    pub(super) fn serve_requests(&mut self) {
        for request in self.control.take() {
            let (Request::Crash(name) | Request::PowerOff(name)) = &request;
            match self.index_to("crash", name) {
                Ok(i) if matches!(request, Request::Crash(_)) => self.crash_process(i),
                Ok(i) => self.cut_power(i),
                Err(e) => {
                    self.trace
                        .entry("host", "crash")
                        .field("host", name)
                        .field("error", &e)
                        .text(e.to_string())
                        .record();
                }
            }
        }
    }

    pub(super) fn record(&mut self, i: usize, what: &'static str, says: &str, error: Option<String>) -> EntryId {
        let name = &self.hosts[i].name;
        let mut draft = self.trace.entry("host", what).host(name.to_string()).field("host", name);
        let mut text = format!("{name} {says}");
        if let Some(error) = error {
            text = format!("{text}: {error}");
            draft = draft.field("error", error);
        }
        let id = draft.text(text).record();
        self.net.recorded(i, id);
        id
    }
}

/// Links. A pair means both directions.
impl World {
    /// Packets from one host to another take this much longer from now on. Order is kept.
    pub fn delay(&mut self, from: &str, to: &str, extra: Duration) -> Result<(), Refused> {
        let (f, t) = self.record_link("delay", from, to, format!("{from} to {to}: {extra:?} slower"))?;
        self.net.set_extra(f, t, extra);
        Ok(())
    }
    /// Nothing travels between two hosts until [`heal`](Self::heal). Nothing is lost either: senders of a real TCP would
    /// send again, so packets are held and delivered in order. A connection with unacknowledged data dies after 15 min.
    pub fn cut(&mut self, a: &str, b: &str) -> Result<(), Refused> {
        let (i, j) = self.record_link("cut", a, b, format!("{a} and {b} are cut off from each other"))?;
        self.net.cut(self.shared.now_ns(), i, j);
        Ok(())
    }
    /// Undoes [`cut`](Self::cut) and [`blackhole`](Self::blackhole) of a link.
    pub fn heal(&mut self, a: &str, b: &str) -> Result<(), Refused> {
        let (i, j) = self.record_link("heal", a, b, format!("{a} and {b} reach each other again"))?;
        self.net.heal(self.shared.now_ns(), i, j);
        Ok(())
    }
    /// All connections between two hosts are reset, at both ends, now.
    pub fn reset(&mut self, a: &str, b: &str) -> Result<(), Refused> {
        let (i, j) = self.record_link("reset", a, b, format!("connections between {a} and {b} are reset"))?;
        self.net.reset(i, j);
        Ok(())
    }
    /// What travels between two hosts vanishes until [`heal`](Self::heal), as behind a firewall that forgets: connections
    /// that lost something are reset at the heal, or after 15 min. SYNs are sent again, as Linux does.
    pub fn blackhole(&mut self, a: &str, b: &str) -> Result<(), Refused> {
        let (i, j) = self.record_link("blackhole", a, b, format!("what {a} and {b} send each other vanishes"))?;
        self.net.blackhole(self.shared.now_ns(), i, j);
        Ok(())
    }
    /// Holds what one host sends to another until [`release`](Self::release). Order is kept.
    pub fn hold(&mut self, from: &str, to: &str) -> Result<(), Refused> {
        let (f, t) = self.record_link("hold", from, to, format!("what {from} sends to {to} is held"))?;
        self.net.hold(self.shared.now_ns(), f, t);
        Ok(())
    }
    /// Lets what was held travel on.
    pub fn release(&mut self, from: &str, to: &str) -> Result<(), Refused> {
        let (f, t) = self.record_link("release", from, to, format!("what {from} sent to {to} travels on"))?;
        self.net.release(self.shared.now_ns(), f, t);
        Ok(())
    }

    fn record_link(
        &mut self,
        what: &'static str,
        from: &str,
        to: &str,
        text: String,
    ) -> Result<(usize, usize), Refused> {
        let pair = (self.index_to(what, from)?, self.index_to(what, to)?);
        // What stacks hold ready was sent before this.
        self.net.send(self.shared.now_ns());
        self.trace.entry("net", what).host("world").field("from", from).field("to", to).text(text).record();
        Ok(pair)
    }
}
