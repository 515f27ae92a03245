//! A world that turmoil moves.
use super::{Stuck, World};
use crate::state;

impl World {
    pub(super) fn start_on_ticks(&mut self, i: usize) {
        let ctx = self.context(i);
        let (skew_ns, main) = (self.hosts[i].spec.skew_ns, self.hosts[i].main.clone());
        let Some(ticks) = self.ticks.as_mut().filter(|ticks| !ticks.is_up(i)) else { return };
        self.hosts[i].restart_at = None;
        let name = &self.hosts[i].name;
        self.trace
            .entry("host", "start")
            .host(name.to_string())
            .field("host", name)
            .text(format!("{name} starts"))
            .record();
        ticks.start(i, ctx, skew_ns, main);
    }

    pub(super) fn advance_by_ticks(
        &mut self,
        end: u64,
        until: &mut dyn FnMut(&mut World) -> bool,
    ) -> Result<bool, Stuck> {
        loop {
            if until(self) {
                return Ok(true);
            }
            let now = self.shared.now_ns();
            if now >= end {
                return Ok(false);
            }
            for i in 0..self.hosts.len() {
                if self.hosts[i].restart_at.is_some_and(|at| at <= now) {
                    self.start_process(i);
                }
            }
            // Its packets carry no causes: better none than that of the step, which is not.
            self.trace.set_ambient_cause(None);
            let ticks = self.ticks.as_mut().expect("this is the world of another engine");
            state::forget_reads();
            let ended = ticks.tick();
            let elapsed = ticks.elapsed();
            self.steps += 1;
            self.act_on_trouble()?;
            for (i, error) in ended {
                let failed = self.record_exit(i, error);
                self.follow_policy(i, failed);
            }
            self.serve_requests();
            self.run_hooks();
            self.shared.advance_to(elapsed.as_nanos() as u64);
        }
    }
}
