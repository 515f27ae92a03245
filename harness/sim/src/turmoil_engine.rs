//! The second engine: the same hosts on turmoil, in fixed ticks.
//!
//! turmoil pauses tokio's clock and moves it tick by tick; std's clocks would stand still there. Ours follow: the world's
//! clock is set before every tick. Which host runs is found by its runtime, since turmoil does not tell.
use crate::host::HostCtx;
use crate::net::index_of;
use crate::state;
use crate::world::run::{chain, panic_text};
use crate::world::{Main, WorldConfig};
use futures::FutureExt;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) const TICK: Duration = Duration::from_millis(1);

/// A turmoil simulation of a world's hosts.
pub(crate) struct Ticks {
    sim: turmoil::Sim<'static>,
    hosts: Vec<State>,
    ended: Ended,
}

/// Hosts whose main function returned in the last tick, with the error if there was one.
type Ended = Rc<RefCell<Vec<(usize, Option<String>)>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    NeverStarted,
    Up,
    Down,
}

impl Ticks {
    pub(crate) fn new(names: &[Arc<str>], config: &WorldConfig) -> Self {
        const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
        let sim = turmoil::Builder::new()
            .tick_duration(TICK)
            .simulation_duration(FOR_EVER)
            .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(config.epoch_s))
            .min_message_latency(config.latency)
            .max_message_latency(config.latency)
            .tcp_capacity(1 << 16)
            .rng_seed(config.seed)
            .build();
        for (i, name) in names.iter().enumerate() {
            assert_eq!(index_of(sim.lookup(&**name)), Some(i), "addresses are handed out in order");
        }
        Ticks { sim, hosts: vec![State::NeverStarted; names.len()], ended: Ended::default() }
    }
    pub(crate) fn is_up(&self, i: usize) -> bool {
        self.hosts[i] == State::Up
    }
    /// Starts a host, for the first time or again.
    pub(crate) fn start(&mut self, i: usize, ctx: HostCtx, skew_ns: i64, main: Main) {
        let name = ctx.name.clone();
        if std::mem::replace(&mut self.hosts[i], State::Up) != State::NeverStarted {
            return self.sim.bounce(&*name);
        }
        let ended = self.ended.clone();
        self.sim.host(&*name, move || {
            let (ctx, main, ended) = (ctx.clone(), main.clone(), ended.clone());
            async move {
                state::set_host_of_runtime(tokio::runtime::Handle::current().id(), &ctx.name, skew_ns);
                // An error or a panic would end turmoil's simulation; here it ends the host.
                let error = match AssertUnwindSafe(async { main(ctx).await }).catch_unwind().await {
                    Ok(Ok(())) => None,
                    Ok(Err(e)) => Some(chain(&*e)),
                    Err(panic) => Some(panic_text(&*panic)),
                };
                ended.borrow_mut().push((i, error));
                Ok(())
            }
        });
    }
    pub(crate) fn elapsed(&self) -> Duration {
        self.sim.elapsed()
    }
    /// One tick of all hosts. Those that ended in it, with their errors.
    pub(crate) fn tick(&mut self) -> Vec<(usize, Option<String>)> {
        self.sim.step().expect("hosts end without an error as far as turmoil sees");
        let ended = self.ended.take();
        for (i, _) in &ended {
            self.hosts[*i] = State::Down;
        }
        ended
    }
}
