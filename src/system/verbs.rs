//! The words of this system's scenarios: what clients ask, what is waited for, what is replayed.
use super::rig::{Rig, Writes};
use super::{LIMIT, SANDBOX, WORKSPACE, hands, idle, reach, script, state};
use crate::client::{Call, OpId, Reply, code_name, code_named};
use crate::cluster::replay::{Player, Recording, Target};
use crate::gateway::scripted_driver::Script;
use crate::pb::openshell::SandboxSpec;
use photofinish::mistake::Mistake;
use photofinish::scenario::yaml::Node;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, Scope, Verb};
use serde_json::Value;
use std::time::Duration;
use tonic::Code;

type Parsed = Result<Box<dyn Action>, Mistake>;

/// All verbs, in the order in which documents list them.
pub(super) const ALL: &[Verb] = &[
    Verb {
        name: "create",
        usage: "create: {NAME: {command: [WORD, ...], image: I, volume: 1Gi, env: {K: V}, restart: Always, wait: false, expect: CODE, within: 60s, retry: 2m}}",
        sentence: "CreateSandbox; waits for the reply, which must be OK or as expected, unless told not to.",
        parse: create,
    },
    Verb {
        name: "start",
        usage: "start: NAME, or start: {sandbox: NAME, wait: false, expect: CODE, message: TEXT, within: 60s, retry: 2m}",
        sentence: "StartSandbox; waits for the reply unless told not to.",
        parse: |node, scope| operation(node, scope, Call::Start),
    },
    Verb {
        name: "stop",
        usage: "stop: NAME, or stop: {sandbox: NAME, wait: false, expect: CODE, message: TEXT, within: 60s, retry: 2m}",
        sentence: "StopSandbox; waits for the reply unless told not to.",
        parse: |node, scope| operation(node, scope, Call::Stop),
    },
    Verb {
        name: "delete",
        usage: "delete: NAME, or delete: {sandbox: NAME, wait: false, expect: CODE, message: TEXT, within: 60s, retry: 2m}",
        sentence: "DeleteSandbox; waits for the reply unless told not to.",
        parse: |node, scope| operation(node, scope, Call::Delete),
    },
    Verb {
        name: "get",
        usage: "get: NAME, or get: {sandbox: NAME, expect: CODE}",
        sentence: "GetSandbox; what it says counts as reported to a client.",
        parse: |node, scope| operation(node, scope, Call::Get),
    },
    Verb {
        name: "list",
        usage: "list: all",
        sentence: "ListSandboxes of the workspace; each state it shows counts as seen by a client.",
        parse: |node, _| {
            node.word("which sandboxes", ["all"])?;
            Ok(Box::new(List))
        },
    },
    Verb {
        name: "watch",
        usage: "watch: NAME",
        sentence: "WatchSandbox, from now on until the sandbox is gone; each state it shows counts as seen by a client.",
        parse: |node, scope| Ok(Box::new(Watch(scope.known(SANDBOX, node)?))),
    },
    Verb {
        name: "relay",
        usage: "relay: {NAME: accepted | refused}",
        sentence: "Opens a session through the gateway to the sandbox, which must be taken, or must not.",
        parse: relay,
    },
    Verb {
        name: "exit",
        usage: "exit: {NAME: CODE}",
        sentence: "The sandbox's main process exits: its supervisor reports that, now or once it has a session.",
        parse: exit,
    },
    Verb {
        name: "await",
        usage: "await: {NAME: PHASE | gone | {phase: P, marker: M, switch: on, workload: gone, ...}, within: 60s}",
        sentence: "Waits until the gateway's row, the sandbox's resource and the objects around it are as said.",
        parse: state::awaited,
    },
    Verb {
        name: "expect",
        usage: "expect: {NAME: {phase: P, marker: M, switch: off, workload: gone, same: [volume], ...}, for: 3m}",
        sentence: "The same must be the case now, and stay so.",
        parse: state::expected,
    },
    Verb {
        name: "database",
        usage: "database: busy | free",
        sentence: "Somebody else writes into the gateway's database: what the gateway writes meanwhile is refused.",
        parse: hands::database,
    },
    Verb {
        name: "reach",
        usage: "reach: {NAME: Ready | Stopped | gone, or: delete, within: 10m}",
        sentence: "A client that does what clients can until the sandbox is there; no way there in time = `script` is violated.",
        parse: reach::reach,
    },
    Verb {
        name: "idle",
        usage: idle::USAGE,
        sentence: "Nobody asks for anything: no row changes its phase, writes an hour stay below these, and no queue grows.",
        parse: idle::idle,
    },
    Verb {
        name: "note",
        usage: "note: NAME",
        sentence: "Remembers what identifies the sandbox now, for `same` and `starts` of a later `expect`.",
        parse: state::note,
    },
    Verb {
        name: "kubectl",
        usage: hands::USAGE,
        sentence: "Somebody else deletes or changes an object of the sandbox; `fail` is its kubelet, after a reboot.",
        parse: hands::kubectl,
    },
    Verb {
        name: "set-phase",
        usage: "set-phase: {NAME: PHASE}",
        sentence: "Somebody writes a phase into the gateway's row, by hand.",
        parse: hands::set_phase,
    },
    Verb {
        name: "replay",
        usage: "replay: {sandbox: NAME, stream: FIXTURE, next: COUNT | all, annotations: {KEY: VALUE}, pace: recorded}",
        sentence: "Writes states of a recorded Sandbox watch stream over the sandbox's resource.",
        parse: replay,
    },
    Verb {
        name: "script",
        usage: script::USAGE,
        sentence: "Steps that a seed draws, each a choice: requests, exits, lost sessions and nodes, deleted objects.",
        parse: script::script,
    },
    Verb {
        name: "feed",
        usage: "feed: FIXTURE",
        sentence: "Gives the scripted driver its stream of snapshots and answers.",
        parse: feed,
    },
    Verb {
        name: "let",
        usage: "let: NAME",
        sentence: "Lets the scripted driver go on where its stream waits for this name.",
        parse: |node, scope| {
            with_driver(node, scope, "scripted")?;
            Ok(Box::new(Let(node.text("a name that the driver's stream waits for")?.to_owned())))
        },
    },
    Verb {
        name: "supervisor",
        usage: "supervisor: {NAME: runs | ends}",
        sentence: "With a scripted driver: the sandbox's supervisor comes up, or goes.",
        parse: supervisor,
    },
];

#[derive(Debug)]
struct Operation {
    sandbox: String,
    call: Call,
    wait: bool,
    expect: Option<Code>,
    /// The reply's whole message.
    message: Option<String>,
    within: Duration,
    /// For how long it is asked again after an answer that leaves open what has happened.
    retry: Option<Duration>,
}

fn create(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let (name, spec) = node.entry("{NAME: {command: [WORD, ...]}}")?;
    let sandbox = scope.declare(SANDBOX, name)?;
    let mut fields = spec.fields("{command: [WORD, ...]}")?;
    let words = |n: &Node| -> Result<Vec<String>, Mistake> {
        n.list("a list of words")?.iter().map(|w| Ok(w.text("a word")?.to_owned())).collect()
    };
    let text = |n: Option<&Node>| n.map_or(Ok(String::new()), |n| n.text("a text").map(str::to_owned));
    let mut request = SandboxSpec {
        command: words(fields.required("command")?)?,
        image: text(fields.optional("image"))?,
        workspace_volume: text(fields.optional("volume"))?,
        restart_policy: fields.optional("restart").map_or(Ok(String::new()), restart_policy)?,
        ..SandboxSpec::default()
    };
    if let Some(env) = fields.optional("env") {
        for (key, value) in env.entries("{NAME: VALUE}")? {
            request.environment.insert(key.text("a name")?.to_owned(), value.text("a value")?.to_owned());
        }
    }
    let wait = fields.optional("wait").map_or(Ok(true), Node::truth)?;
    let expect = match fields.optional("expect") {
        Some(node) if node.as_text() == Some("any") => None,
        Some(node) => Some(code(node)?),
        None => Some(Code::Ok),
    };
    let within = fields.optional("within").map_or(Ok(LIMIT), Node::duration)?;
    let retry = fields.optional("retry");
    if let Some(at) = retry.filter(|_| !wait) {
        return Err(at.expected("no `retry` where `wait` is false: nothing waits for the reply"));
    }
    let retry = retry.map(Node::duration).transpose()?;
    fields.finish()?;
    Ok(Box::new(Operation { sandbox, call: Call::Create(request), wait, expect, message: None, within, retry }))
}

/// When a main process that has exited is run again.
fn restart_policy(node: &Node) -> Result<String, Mistake> {
    node.word("restart policy", ["Never", "OnFailure", "Always"]).map(|policy| policy.to_string())
}

fn operation(node: &Node, scope: &Scope<'_>, call: Call) -> Parsed {
    let (mut wait, mut expect, mut message, mut within, mut retry) = (true, None, None, LIMIT, None);
    let sandbox = if node.is_map() {
        let mut fields = node.fields("{sandbox: NAME}")?;
        let name = scope.known(SANDBOX, fields.required("sandbox")?)?;
        wait = fields.optional("wait").map_or(Ok(true), Node::truth)?;
        expect = fields.optional("expect").map(code).transpose()?;
        let text = fields.optional("message").map(|n| n.text("the reply's message").map(str::to_owned));
        message = text.transpose()?;
        within = fields.optional("within").map_or(Ok(LIMIT), Node::duration)?;
        retry = fields.optional("retry").map(Node::duration).transpose()?;
        let of_reply = ["expect", "message", "retry"].into_iter().find_map(|key| Some((key, fields.optional(key)?)));
        if let Some((key, at)) = of_reply.filter(|_| !wait) {
            return Err(at.expected(&format!("no `{key}` where `wait` is false: nothing waits for the reply")));
        }
        fields.finish()?;
        name
    } else {
        scope.known(SANDBOX, node)?
    };
    Ok(Box::new(Operation { sandbox, call, wait, expect, message, within, retry }))
}

fn code(node: &Node) -> Result<Code, Mistake> {
    let known: Vec<&str> = (0..17).map(|n| code_name(Code::from_i32(n))).collect();
    let name = node.word("gRPC code", known)?;
    Ok(code_named(name).expect("word() gives one of the names"))
}

impl Action for Operation {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        if let Call::Create(spec) = &self.call {
            scene.live::<Rig>().specs.insert(self.sandbox.clone(), spec.clone());
        }
        if !self.wait {
            scene.live::<Rig>().client().ask(&self.sandbox, WORKSPACE, self.call.clone());
            return Ok(());
        }
        let reply = match self.retry {
            Some(patience) => self.insist(scene, patience)?,
            None => request(scene, &self.sandbox, self.call.clone(), self.within)?,
        };
        match self.expect {
            Some(expected) if reply.code != expected => Err(StepError::Missed(format!(
                "expected {} {} to answer {}, it answered {}: {}",
                self.call.name(),
                self.sandbox,
                code_name(expected),
                code_name(reply.code),
                reply.message
            ))),
            _ => match &self.message {
                Some(expected) if reply.message != *expected => Err(StepError::Missed(format!(
                    "expected {} {} to answer {expected:?}, it answered {:?}",
                    self.call.name(),
                    self.sandbox,
                    reply.message
                ))),
                _ => Ok(()),
            },
        }
    }
}

/// Does this answer leave open whether the request was carried out, or only fail to carry it out now? Then a client asks
/// again. The rest are refusals: asking again would be answered the same.
fn leaves_open(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
    )
}

impl Operation {
    /// A client that asks until it is answered, or its patience ends; the last reply.
    ///
    /// Whoever asks again may find that the first request was carried out: a create that meets its own sandbox has
    /// succeeded, and so has a delete that finds none.
    fn insist(&self, scene: &mut Scene<'_>, patience: Duration) -> Result<Reply, StepError> {
        let deadline = scene.now() + patience;
        let mut asked_before = false;
        loop {
            let id = scene.live::<Rig>().client().ask(&self.sandbox, WORKSPACE, self.call.clone());
            scene.wait(self.within, |rig: &mut Rig| rig.client().reply(id).is_some())?;
            let mut reply = scene.live::<Rig>().client().reply(id);
            if asked_before && let Some(reply) = &mut reply {
                let done = match (&self.call, reply.code) {
                    // Of a sandbox, or of a resource that is still being taken back?
                    (Call::Create(_), Code::AlreadyExists) => {
                        let found = request(scene, &self.sandbox, Call::Get, self.within)?.code;
                        if found == Code::Ok { Code::Ok } else { Code::Unavailable }
                    }
                    (Call::Delete, Code::NotFound) => Code::Ok,
                    (_, code) => code,
                };
                reply.code = done;
            }
            match reply {
                Some(reply) if !leaves_open(reply.code) || scene.now() >= deadline => return Ok(reply),
                None if scene.now() >= deadline => {
                    let what = format!("{} {}", self.call.name(), self.sandbox);
                    return Err(StepError::Missed(format!(
                        "expected a reply to {what} within {patience:?}, none came"
                    )));
                }
                _ => {}
            }
            asked_before = true;
            scene.run_for(AGAIN)?;
        }
    }
}

/// How long a client waits before it asks again.
const AGAIN: Duration = Duration::from_secs(1);

/// Asks, and waits for the reply.
pub(super) fn request(scene: &mut Scene<'_>, sandbox: &str, call: Call, within: Duration) -> Result<Reply, StepError> {
    let what = format!("{} {sandbox}", call.name());
    let id = scene.live::<Rig>().client().ask(sandbox, WORKSPACE, call);
    answer(scene, id, within, &what)
}

fn answer(scene: &mut Scene<'_>, id: OpId, within: Duration, what: &str) -> Result<Reply, StepError> {
    scene.wait(within, |rig: &mut Rig| rig.client().reply(id).is_some())?;
    let reply = scene.live::<Rig>().client().reply(id);
    reply.ok_or_else(|| StepError::Missed(format!("expected a reply to {what} within {within:?}, none came")))
}

#[derive(Debug)]
struct Exit {
    sandbox: String,
    code: i32,
}

fn exit(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let (name, code) = node.entry("{NAME: CODE}")?;
    let sandbox = scope.known(SANDBOX, name)?;
    let what = "an exit code from 0 to 255";
    let code = u8::try_from(code.number(what)?).map_err(|_| code.expected(what))?.into();
    Ok(Box::new(Exit { sandbox, code }))
}

impl Action for Exit {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let rig = scene.live::<Rig>();
        let id = rig.row(&self.sandbox).map(|row| row.id.clone());
        let id = id.ok_or_else(|| StepError::Missed(format!("the gateway has no row of {}", self.sandbox)))?;
        rig.exits().report(&id, self.code);
        Ok(())
    }
}

#[derive(Debug)]
struct List;

impl Action for List {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        request(scene, "all", Call::List, LIMIT).map(drop)
    }
}

/// Of a sandbox that is not there yet a client learns that it is not there.
#[derive(Debug)]
struct Watch(String);

impl Action for Watch {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let reply = request(scene, &self.0, Call::Watch, LIMIT)?;
        match reply.code {
            Code::Ok => Ok(()),
            code => Err(StepError::Missed(format!(
                "expected a watch of {}, it was answered {}: {}",
                self.0,
                code_name(code),
                reply.message
            ))),
        }
    }
}

#[derive(Debug)]
struct Relay {
    sandbox: String,
    accepted: bool,
}

fn relay(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let (name, how) = node.entry("{NAME: accepted | refused}")?;
    let sandbox = scope.known(SANDBOX, name)?;
    let accepted = how.word("answer", ["accepted", "refused"])? == "accepted";
    Ok(Box::new(Relay { sandbox, accepted }))
}

impl Action for Relay {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let id = scene.live::<Rig>().client().ask(&self.sandbox, WORKSPACE, Call::Relay);
        let reply = answer(scene, id, LIMIT, &format!("a session relayed to {}", self.sandbox))?;
        if (reply.code == Code::Ok) == self.accepted {
            return Ok(());
        }
        Err(StepError::Missed(format!(
            "expected a session relayed to {} to be {}, it got {}: {}",
            self.sandbox,
            if self.accepted { "accepted" } else { "refused" },
            code_name(reply.code),
            reply.message
        )))
    }
}

#[derive(Debug)]
struct Replay {
    sandbox: String,
    /// A new recording to play from its beginning; none: the one that is being played goes on.
    recording: Option<Recording>,
    /// How many states; none: all that are left.
    count: Option<usize>,
    annotations: Vec<(String, Value)>,
    recorded_pace: bool,
}

fn replay(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    with_driver(node, scope, "real")?;
    let mut fields = node.fields("{sandbox: NAME, stream: FIXTURE}")?;
    let sandbox = scope.known(SANDBOX, fields.required("sandbox")?)?;
    let recording = match fields.optional("stream") {
        None => None,
        Some(stream) => {
            let fixture = scope.fixture(stream)?;
            let parsed = Recording::parse(fixture.path, fixture.text);
            Some(parsed.map_err(|e| Mistake::new(stream.at, e.to_string()).label("this recording"))?)
        }
    };
    let count = match fields.optional("next") {
        None => None,
        Some(n) if n.as_text() == Some("all") => None,
        Some(n) => {
            let count = n.number("how many states, or all")? as usize;
            if let Some(all) = recording.as_ref().map(|r| r.states().len()).filter(|all| count > *all) {
                return Err(n.expected(&format!("at most {all}: the recording has no more states")));
            }
            Some(count)
        }
    };
    let mut annotations = Vec::new();
    for (key, value) in fields.optional("annotations").map_or(Ok(&[][..]), |n| n.entries("{KEY: VALUE}"))? {
        let value = match value.json() {
            Value::Null => Value::Null,
            _ => Value::String(value.text("a text, or null to take the annotation away")?.to_owned()),
        };
        annotations.push((annotation(key.text("an annotation's key")?), value));
    }
    let recorded_pace = match fields.optional("pace") {
        None => false,
        Some(pace) => pace.word("pace", ["recorded", "at-once"])? == "recorded",
    };
    fields.finish()?;
    Ok(Box::new(Replay { sandbox, recording, count, annotations, recorded_pace }))
}

/// The driver's own annotations may be written short: `bootstrap-operation`.
fn annotation(key: &str) -> String {
    if key.contains('/') { key.to_owned() } else { format!("openshell.ai/sandbox-runtime-{key}") }
}

impl Action for Replay {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let impossible = |e: &dyn std::fmt::Display| StepError::impossible(e.to_string());
        if let Some(recording) = &self.recording {
            let rig = scene.live::<Rig>();
            let stored = rig.resource(&self.sandbox).ok_or_else(|| {
                StepError::impossible(format!("there is no resource of {} to play a recording over", self.sandbox))
            })?;
            let api = rig.api().ok_or_else(|| StepError::impossible("replay needs a cluster: driver: real"))?;
            let target = Target::of(&stored, &recording.states()[0].object).map_err(|e| impossible(&e))?;
            let player = Player::new(recording.clone(), target, Writes(api.as_writer("replay")));
            rig.players.insert(self.sandbox.clone(), player);
        }
        let player = |scene: &mut Scene<'_>, act: &mut dyn FnMut(&mut Player<Writes>) -> Result<(), StepError>| {
            let found = scene.live::<Rig>().players.get_mut(&self.sandbox);
            act(found.ok_or_else(|| StepError::impossible(format!("no recording is played over {}", self.sandbox)))?)
        };
        let mut left = 0;
        player(scene, &mut |p| {
            p.lay_over(self.annotations.iter().cloned());
            left = self.count.unwrap_or(p.remaining());
            Ok(())
        })?;
        for _ in 0..left {
            let mut pause = Duration::ZERO;
            player(scene, &mut |p| {
                pause = p.until_next().unwrap_or_default();
                Ok(())
            })?;
            if self.recorded_pace && !pause.is_zero() {
                scene.run_for(pause)?;
            }
            player(scene, &mut |p| p.next().map(drop).map_err(|e| impossible(&e)))?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Feed(Script);

/// A step for the other kind of driver would fail in every run.
fn with_driver(node: &Node, scope: &Scope<'_>, kind: &str) -> Result<(), Mistake> {
    match (scope.cluster.get("driver") == "scripted") == (kind == "scripted") {
        true => Ok(()),
        false => Err(Mistake::new(node.at, format!("this step needs `cluster: {{driver: {kind}}}`"))
            .label(format!("but the driver is {}", scope.cluster.get("driver")))),
    }
}

fn feed(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    with_driver(node, scope, "scripted")?;
    let fixture = scope.fixture(node)?;
    let script = Script::parse(fixture.text);
    let script = script.map_err(|e| Mistake::new(node.at, format!("{}: {e}", fixture.path)).label("this stream"))?;
    Ok(Box::new(Feed(script)))
}

impl Action for Feed {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        scripted(scene)?.feed(self.0.clone());
        Ok(())
    }
}

fn scripted<'s>(scene: &'s mut Scene<'_>) -> Result<&'s crate::gateway::ScriptedDriver, StepError> {
    let driver = scene.live::<Rig>().driver();
    driver.ok_or_else(|| StepError::impossible("this step needs `cluster: {driver: scripted}`"))
}

#[derive(Debug)]
struct Let(String);

impl Action for Let {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        scripted(scene)?.release(&self.0);
        Ok(())
    }
}

#[derive(Debug)]
struct Supervisor {
    sandbox: String,
    runs: bool,
}

fn supervisor(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    with_driver(node, scope, "scripted")?;
    let (name, how) = node.entry("{NAME: runs | ends}")?;
    let sandbox = scope.known(SANDBOX, name)?;
    let runs = how.word("state", ["runs", "ends"])? == "runs";
    Ok(Box::new(Supervisor { sandbox, runs }))
}

impl Action for Supervisor {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        scripted(scene)?;
        let rig = scene.live::<Rig>();
        let id = rig.row(&self.sandbox).map(|row| row.id.clone());
        let id = id.ok_or_else(|| StepError::Missed(format!("the gateway has no row of {}", self.sandbox)))?;
        rig.supervisors().run(&id, self.runs);
        Ok(())
    }
}
