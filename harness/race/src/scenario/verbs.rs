//! The generic step verbs: time, held streams and links, faults of links and hosts, pinned choices.
use std::time::Duration;

use photofinish_sim::choices::{Pins, print_delay};
use photofinish_sim::gate::{GateError, Release};

use super::conditions::{self, EventCondition};
use super::yaml::Node;
use crate::mistake::Mistake;
use crate::scene::{Held, Scene, StepError};
use crate::system::{Action, Parsed, Scope, Verb};

/// The verb whose argument becomes pins of the whole run.
pub(crate) const PIN: &str = "pin";

/// The verbs that every system has.
pub static GENERIC: &[Verb] = &[
    Verb {
        name: "run",
        usage: "run: 200ms, or run: {until: 29.8s}",
        sentence: "Lets the world run for this much virtual time, or until this much has passed since its start.",
        parse: run,
    },
    Verb {
        name: "hold",
        usage: "hold: {watch: CLIENT/PLURAL, as: NAME}, or hold: {link: FROM->TO, as: NAME}",
        sentence: "Keeps back what passes a watch stream, or one direction of a link, from now on.",
        parse: hold,
    },
    Verb {
        name: "release",
        usage: "release: NAME, or release: {NAME: all | all-but-last | COUNT | {until: CONDITION}}",
        sentence: "Lets go what is held, in order; all of it ends the hold.",
        parse: release,
    },
    Verb {
        name: "cut",
        usage: "cut: [HOST, HOST]",
        sentence: "Holds both directions of a link up until it heals; nothing is lost.",
        parse: |node, scope| link(node, scope, LinkFault::Cut),
    },
    Verb {
        name: "heal",
        usage: "heal: [HOST, HOST]",
        sentence: "Ends a cut or a black hole.",
        parse: |node, scope| link(node, scope, LinkFault::Heal),
    },
    Verb {
        name: "reset",
        usage: "reset: [HOST, HOST]",
        sentence: "Resets all connections between two hosts.",
        parse: |node, scope| link(node, scope, LinkFault::Reset),
    },
    Verb {
        name: "blackhole",
        usage: "blackhole: [HOST, HOST]",
        sentence: "Drops everything between two hosts, without a word to either.",
        parse: |node, scope| link(node, scope, LinkFault::Blackhole),
    },
    Verb {
        name: "delay",
        usage: "delay: {link: FROM->TO, by: 2s}",
        sentence: "Adds to the latency of one direction of a link; `by: 0s` ends it.",
        parse: delay,
    },
    Verb {
        name: "slow",
        usage: "slow: {call: CLIENT/VERB/PLURAL, by: 2s}",
        sentence: "Delays every call that matches before it is served; `by: 0s` ends it.",
        parse: slow,
    },
    Verb {
        name: "crash",
        usage: "crash: HOST, or crash: [HOST, ...]",
        sentence: "Kills a host's process; its restart policy decides what follows.",
        parse: |node, scope| host(node, scope, HostFault::Crash),
    },
    Verb {
        name: "power-off",
        usage: "power-off: HOST, or power-off: [HOST, ...]",
        sentence: "As a crash, but nothing reaches the wire any more.",
        parse: |node, scope| host(node, scope, HostFault::PowerOff),
    },
    Verb {
        name: "pause",
        usage: "pause: HOST, or pause: [HOST, ...]",
        sentence: "Stops a host's process; its timers catch up when it resumes.",
        parse: |node, scope| host(node, scope, HostFault::Pause),
    },
    Verb {
        name: "resume",
        usage: "resume: HOST, or resume: [HOST, ...]",
        sentence: "Ends a pause.",
        parse: |node, scope| host(node, scope, HostFault::Resume),
    },
    Verb {
        name: "restart",
        usage: "restart: HOST, or restart: [HOST, ...]",
        sentence: "Starts a host that is down, or crashes and starts one that is up.",
        parse: |node, scope| host(node, scope, HostFault::Restart),
    },
    Verb {
        name: "skew",
        usage: "skew: {host: HOST, by: 2s}, or by: -500ms",
        sentence: "Sets how far a host's wall clock is ahead of the world's from now on; its timers do not notice.",
        parse: skew,
    },
    Verb {
        name: "crash-points",
        usage: "crash-points: {in: NAME, of: [HOST, ...]}, or crash-points: none",
        sentence: "From now on each durable write of these hosts is a point where a run may crash its process.",
        parse: crash_points,
    },
    Verb {
        name: "reported",
        usage: "reported: [STEP, ...]",
        sentence: "Steps of the code as reported: they are left out as soon as a proposed remedy is on.",
        parse: |node, scope| steps(node, scope, true),
    },
    Verb {
        name: "remedied",
        usage: "remedied: [STEP, ...]",
        sentence: "Steps of the code with a remedy: they are left out as reported.",
        parse: |node, scope| steps(node, scope, false),
    },
    Verb {
        name: PIN,
        usage: "pin: {KEY: VALUE}",
        sentence: "Fixes choices of this run, from its start on, by their keys.",
        parse: |node, _| pins(node, &mut Pins::default()).map(|()| Box::new(Pinned) as Box<dyn Action>),
    },
];

#[derive(Debug)]
struct WatchWrites(Option<(String, Vec<String>)>);

fn crash_points(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    if !node.is_map() {
        node.word("section", ["none"])?;
        return Ok(Box::new(WatchWrites(None)));
    }
    let mut fields = node.fields("{in: NAME, of: [HOST, ...]}")?;
    let section = fields.required("in")?;
    let name = section.text("a name for this part of the script")?.to_owned();
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(section.expected("a name of a-z, 0-9 and `-`: it becomes part of the run's id"));
    }
    let hosts = fields.required("of")?.one_or_more().iter().map(|host| scope.known("host", host));
    let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
    let hosts = hosts.iter().flat_map(|host| scope.processes(host)).collect();
    fields.finish()?;
    Ok(Box::new(WatchWrites(Some((name, hosts)))))
}

impl Action for WatchWrites {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        scene.crash_points.watch(self.0.clone());
        Ok(())
    }
}

/// Steps of one side of the scenario.
#[derive(Debug)]
struct Side {
    reported: bool,
    steps: Vec<super::Step>,
}

fn steps(node: &Node, scope: &mut Scope<'_>, reported: bool) -> Parsed {
    let before: Vec<String> = scope.names(HELD).into_iter().map(str::to_owned).collect();
    let steps = node.list("a list of steps")?.iter().map(|node| super::step(node, scope));
    let steps = steps.collect::<Result<_, _>>()?;
    // Only what is held with these steps and without them is held for sure behind them.
    let after: Vec<String> = scope.names(HELD).into_iter().map(str::to_owned).collect();
    after.iter().filter(|name| !before.contains(name)).for_each(|name| scope.forget(HELD, name));
    Ok(Box::new(Side { reported, steps }))
}

impl Action for Side {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        match scene.reported.get() == self.reported {
            true => self.steps.iter().try_for_each(|step| scene.act(step)),
            false => Ok(()),
        }
    }
}

/// Adds the pins of a `pin` step.
pub(crate) fn pins(node: &Node, pins: &mut Pins) -> Result<(), Mistake> {
    for (key, value) in node.entries("{KEY: VALUE}")? {
        let text = format!("{}={}", key.text("a choice's key")?, value.text("a choice's value")?);
        let pin: Pins = text.parse().map_err(|e| Mistake::new(key.at, format!("{e}")).label("this pin"))?;
        for (key_text, value) in pin.iter() {
            if pins.insert(key_text, value).is_some() {
                return Err(
                    Mistake::new(key.at, format!("the choice `{key_text}` is pinned twice")).label("second time")
                );
            }
        }
    }
    Ok(())
}

#[derive(Debug)]
enum Run {
    For(Duration),
    Until(Duration),
}

fn run(node: &Node, _: &mut Scope<'_>) -> Parsed {
    if !node.is_map() {
        return Ok(Box::new(Run::For(node.duration()?)));
    }
    let mut fields = node.fields("{until: 29.8s}")?;
    let until = fields.required("until")?.duration()?;
    fields.finish()?;
    Ok(Box::new(Run::Until(until)))
}

impl Action for Run {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let span = match self {
            Run::For(span) => *span,
            // What came before took longer than the script reckons with: its race is not set up.
            Run::Until(at) => at
                .checked_sub(scene.now())
                .ok_or_else(|| StepError::Missed(format!("it is {:?} already, later than {at:?}", scene.now())))?,
        };
        Ok(scene.run_for(span)?)
    }
}

/// `pin` acts before the run starts.
#[derive(Debug)]
struct Pinned;

impl Action for Pinned {
    fn act(&self, _: &mut Scene<'_>) -> Result<(), StepError> {
        Ok(())
    }
}

/// `gateway->driver`
fn direction(node: &Node, scope: &Scope<'_>) -> Result<(String, String), Mistake> {
    let text = node.text("a direction, such as gateway->driver")?;
    let (from, to) = text.split_once("->").ok_or_else(|| node.expected("a direction, such as gateway->driver"))?;
    let hosts = scope.names("host");
    for host in [from.trim(), to.trim()] {
        if !hosts.contains(&host) {
            return Err(Mistake::unknown(node.at, "host", host, hosts.iter().copied()));
        }
    }
    if from.trim() == to.trim() {
        return Err(node.expected("two hosts, not one twice"));
    }
    Ok((from.trim().to_owned(), to.trim().to_owned()))
}

/// `[gateway, driver]`
fn pair(node: &Node, scope: &Scope<'_>) -> Result<(String, String), Mistake> {
    match node.list("a pair of hosts, such as [gateway, driver]")? {
        [a, b] if a.as_text() != b.as_text() => Ok((scope.known("host", a)?, scope.known("host", b)?)),
        _ => Err(node.expected("two different hosts, such as [gateway, driver]")),
    }
}

/// The kind of name under which holds of links are known besides.
const LINK_HOLD: &str = "hold of a link";
/// The kind of name of what is held at this point of the script for sure.
const HELD: &str = "held now";

#[derive(Debug)]
struct Hold {
    what: Held,
    name: String,
}

fn hold(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let mut fields = node.fields("{watch: CLIENT/PLURAL, as: NAME}")?;
    let (watch, link, name) = (fields.optional("watch"), fields.optional("link"), fields.required("as")?);
    fields.finish()?;
    let what = match (watch, link) {
        (Some(stream), None) => Held::Stream(scope.known("stream", stream)?),
        (None, Some(link)) => {
            let (from, to) = direction(link, scope)?;
            Held::Links(scope.links(&from, &to))
        }
        _ => return Err(node.expected("either `watch` or `link`")),
    };
    if name.as_text().is_some_and(|name| scope.knows(HELD, name)) {
        return Err(Mistake::new(name.at, format!("`{}` is held already", name.as_text().unwrap_or_default()))
            .label("second hold of this name")
            .help("release it first, or give this hold another name"));
    }
    if matches!(what, Held::Links(_)) {
        scope.declare(LINK_HOLD, name)?;
    }
    scope.declare(HELD, name)?;
    Ok(Box::new(Hold { what, name: scope.declare("hold", name)? }))
}

impl Action for Hold {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        if scene.holds.contains_key(&self.name) {
            return Err(StepError::impossible(format!("`{}` is held already: release it first", self.name)));
        }
        match &self.what {
            Held::Stream(stream) => {
                scene.gates.hold(stream, &self.name).map_err(|e| StepError::Impossible(e.into()))?
            }
            Held::Links(links) => {
                for (from, to) in links {
                    scene.world.hold(from, to)?;
                }
            }
        }
        scene.holds.insert(self.name.clone(), self.what.clone());
        Ok(())
    }
}

#[derive(Debug)]
struct ReleaseHeld {
    name: String,
    what: What,
}

#[derive(Debug)]
enum What {
    All,
    AllButLast,
    Count(usize),
    Until(EventCondition),
}

fn release(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    if !node.is_map() {
        let name = scope.known("hold", node)?;
        scope.forget(HELD, &name);
        return Ok(Box::new(ReleaseHeld { name, what: What::All }));
    }
    let (name, what_node) = node.entry("the name of a hold, or {NAME: WHAT}")?;
    let name = scope.known("hold", name)?;
    let what = what_node;
    let what = if what.is_map() {
        let mut fields = what.fields("{until: CONDITION}")?;
        let until = fields.required("until")?;
        fields.finish()?;
        let condition = EventCondition::parse(until);
        What::Until(condition.map_err(|m| if m.help.is_none() { m.help(conditions::USAGE) } else { m })?)
    } else {
        match what.text("all, all-but-last, a count or {until: CONDITION}")? {
            "all" => What::All,
            "all-but-last" => What::AllButLast,
            _ => What::Count(what.number("all, all-but-last, a count or {until: CONDITION}")? as usize),
        }
    };
    if matches!(what, What::All) {
        scope.forget(HELD, &name);
    }
    if scope.knows(LINK_HOLD, &name) && !matches!(what, What::All) {
        return Err(what_node.expected("`all`, since packets of a link are no events that could be counted"));
    }
    Ok(Box::new(ReleaseHeld { name, what }))
}

impl ReleaseHeld {
    /// A script that releases less than it says does not set up its race: nobody would notice.
    fn enough(&self, held: usize) -> Result<(), StepError> {
        let needed = match self.what {
            What::All | What::Until(_) => 0,
            What::AllButLast => 1,
            What::Count(n) => n,
        };
        match held < needed {
            true => Err(StepError::Missed(format!("`{}` holds {held} events, expected at least {needed}", self.name))),
            false => Ok(()),
        }
    }
}

impl Action for ReleaseHeld {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let Some(held) = scene.holds.get(&self.name).cloned() else {
            return Err(StepError::impossible(format!("`{}` is not held any more", self.name)));
        };
        match (held, &self.what) {
            (Held::Links(links), What::All) => {
                for (from, to) in links {
                    scene.world.release(&from, &to)?;
                }
            }
            (Held::Links(_), what) => {
                return Err(StepError::impossible(format!("`{}` holds a link: {what:?} is not for links", self.name)));
            }
            (Held::Stream(_), what) => {
                self.enough(scene.gates.backlog(&self.name).len())?;
                let what = match what {
                    What::All => Release::All,
                    What::AllButLast => Release::AllButLast,
                    What::Count(n) => Release::Count(*n),
                    What::Until(condition) => {
                        let condition = condition.clone();
                        Release::Until(Box::new(move |meta| condition.holds(meta)))
                    }
                };
                match scene.gates.release(&self.name, what) {
                    // The event that the script waits for has not come: that is about the system, not the script.
                    Err(e @ GateError::NoMatch { .. }) => return Err(StepError::Missed(e.to_string())),
                    Err(e) => return Err(StepError::Impossible(e.into())),
                    Ok(_) => {}
                }
            }
        }
        if matches!(self.what, What::All) {
            scene.holds.shift_remove(&self.name);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum LinkFault {
    Cut,
    Heal,
    Reset,
    Blackhole,
}

#[derive(Debug)]
struct OnLink {
    fault: LinkFault,
    links: Vec<(String, String)>,
}

fn link(node: &Node, scope: &mut Scope<'_>, fault: LinkFault) -> Parsed {
    let (a, b) = pair(node, scope)?;
    let link = if a < b { format!("{a} and {b}") } else { format!("{b} and {a}") };
    match fault {
        LinkFault::Cut | LinkFault::Blackhole => scope.note(BROKEN, link),
        LinkFault::Heal if !scope.knows(BROKEN, &link) => {
            let broken = scope.names(BROKEN);
            let help = match broken.is_empty() {
                true => "no step before this one cuts a link".to_owned(),
                false => format!("broken before this step: {}", broken.join(", ")),
            };
            return Err(Mistake::new(node.at, format!("the link of {link} was not cut"))
                .label("heals nothing")
                .help(help));
        }
        LinkFault::Heal | LinkFault::Reset => {}
    }
    Ok(Box::new(OnLink { fault, links: scope.links(&a, &b) }))
}

/// The kind of name of links that a step before this one cut.
const BROKEN: &str = "broken link";
/// The kind of name of hosts that a step before this one paused.
const PAUSED: &str = "paused host";

impl Action for OnLink {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        for (a, b) in &self.links {
            match self.fault {
                LinkFault::Cut => scene.world.cut(a, b)?,
                LinkFault::Heal => scene.world.heal(a, b)?,
                LinkFault::Reset => scene.world.reset(a, b)?,
                LinkFault::Blackhole => scene.world.blackhole(a, b)?,
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Delay {
    links: Vec<(String, String)>,
    by: Duration,
}

fn delay(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let mut fields = node.fields("{link: FROM->TO, by: 2s}")?;
    let ((from, to), by) = (direction(fields.required("link")?, scope)?, fields.required("by")?.duration()?);
    fields.finish()?;
    Ok(Box::new(Delay { links: scope.links(&from, &to), by }))
}

impl Action for Delay {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        for (from, to) in &self.links {
            scene.world.delay(from, to, self.by)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Slow {
    prefixes: Vec<String>,
    by: Duration,
}

/// Verbs of the Kubernetes API, as keys of calls have them.
const VERBS: [&str; 8] = ["GET", "LIST", "WATCH", "CREATE", "UPDATE", "PATCH", "DELETE", "DELETECOLLECTION"];

fn slow(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let mut fields = node.fields("{call: CLIENT/VERB/PLURAL, by: 2s}")?;
    let (call_node, by) = (fields.required("call")?, fields.required("by")?.duration()?);
    fields.finish()?;
    let call = call_node.text("a call, such as driver/GET/pods")?;
    let client = call.split('/').next().unwrap_or("");
    let hosts = scope.names("host");
    if !hosts.contains(&client) {
        return Err(Mistake::unknown(call_node.at, "host", client, hosts));
    }
    if let Some(verb) = call.split('/').nth(1)
        && !VERBS.contains(&verb)
    {
        let verbs = VERBS.join(", ");
        return Err(call_node.expected(&format!("an API verb behind the client, such as driver/GET/pods: {verbs}")));
    }
    let rest = call.strip_prefix(client).unwrap_or_default();
    let prefixes = scope.processes(client).iter().map(|client| format!("call/{client}{rest}")).collect();
    Ok(Box::new(Slow { prefixes, by }))
}

impl Action for Slow {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        for prefix in &self.prefixes {
            scene.choices.slow(prefix, self.by);
            scene.trace.entry("net", "slow").text(format!("slow {prefix} {}", print_delay(self.by))).record();
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum HostFault {
    Crash,
    PowerOff,
    Pause,
    Resume,
    Restart,
}

#[derive(Debug)]
struct OnHosts {
    fault: HostFault,
    hosts: Vec<String>,
}

/// `crash: driver`, `crash: [driver, gateway]`
fn host(node: &Node, scope: &mut Scope<'_>, fault: HostFault) -> Parsed {
    let mut hosts = Vec::new();
    for node in node.one_or_more() {
        let host = scope.known("host", node)?;
        match fault {
            HostFault::Pause => scope.note(PAUSED, host.clone()),
            HostFault::Resume if !scope.knows(PAUSED, &host) => {
                return Err(Mistake::new(node.at, format!("no step before this one pauses {host}"))
                    .label("resumes nothing")
                    .help(format!("`pause: {host}` stops it; `restart: {host}` starts a host that is down")));
            }
            _ => {}
        }
        hosts.extend(scope.processes(&host));
    }
    Ok(Box::new(OnHosts { fault, hosts }))
}

impl Action for OnHosts {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        for host in &self.hosts {
            match self.fault {
                HostFault::Crash => scene.world.crash(host)?,
                HostFault::PowerOff => scene.world.power_off(host)?,
                HostFault::Pause => scene.world.pause(host)?,
                HostFault::Resume => scene.world.resume(host)?,
                HostFault::Restart => scene.world.restart(host)?,
            }
        }
        Ok(())
    }
}

/// A clock further off than this is no clock that a cluster runs with.
const MOST_SKEW: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Skew {
    hosts: Vec<String>,
    by_ns: i64,
}

fn skew(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let mut fields = node.fields("{host: HOST, by: 2s}")?;
    let host = scope.known("host", fields.required("host")?)?;
    let by = fields.required("by")?;
    fields.finish()?;
    let span = by.signed_duration()?;
    if span.1 > MOST_SKEW {
        return Err(by.expected("at most an hour"));
    }
    let ns = span.1.as_nanos() as i64;
    Ok(Box::new(Skew { hosts: scope.processes(&host), by_ns: if span.0 { -ns } else { ns } }))
}

impl Action for Skew {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        for host in &self.hosts {
            scene.world.skew(host, self.by_ns)?;
        }
        Ok(())
    }
}
