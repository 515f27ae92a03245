//! A toy system with all that the harness must cope with: a client sets and reads one value of a server over the wire.
//! Replies may be lost; the remedy `retry` asks again, the mutant `stale-get` answers with the value before.
use std::sync::Arc;
use std::time::Duration;

use photofinish::mistake::Mistake;
use photofinish::property::Property;
use photofinish::scenario::yaml::Node;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, BoxError, Builtin, Cluster, ClusterOption, Live, Scope, Setup, Stage, System, Verb};
use photofinish::temporal::{after, always};
use photofinish::{Switch, SwitchKind};
use photofinish_sim::choices::DelaySpec;
use photofinish_sim::host::{HostCtx, HostSpec};
use photofinish_sim::legality::{Fault, Legality};
use photofinish_sim::trace::Entry;
use photofinish_sim::wire::Wire;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower_service::Service;

pub(crate) static TOY: Toy = Toy;

pub(crate) struct Toy;

static LOST_REPLY: Fault =
    Fault { name: "lost-reply", legality: Legality::Always, contract: "A connection may end before its reply." };

static LATE_REPLY: Fault =
    Fault { name: "late-reply", legality: Legality::Always, contract: "Nothing says how soon a reply comes." };

const SWITCHES: &[Switch] = &[
    Switch {
        name: "retry",
        kind: SwitchKind::Proposed { recommended: true },
        sentence: "The client asks again when a reply is lost.",
        from: "toy#1",
    },
    Switch {
        name: "patience",
        kind: SwitchKind::Proposed { recommended: false },
        sentence: "The client waits for longer than a connection lasts.",
        from: "toy#1",
    },
    Switch {
        name: "stale-get",
        kind: SwitchKind::Mutant,
        sentence: "A wrong fix: the server answers reads with the value before.",
        from: "toy#2",
    },
];

macro_rules! builtin {
    ($name:literal) => {
        Builtin {
            name: $name,
            path: concat!("tests/toy/scenarios/", $name, ".yaml"),
            text: include_str!(concat!("scenarios/", $name, ".yaml")),
        }
    };
}

impl System for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn switches(&self) -> &'static [Switch] {
        SWITCHES
    }
    fn cluster_options(&self) -> &'static [ClusterOption] {
        &[
            ClusterOption { name: "speed", values: &["fast", "slow"], sentence: "How long the server thinks." },
            ClusterOption {
                name: "change",
                values: &["none", "unrelated", "renamed", "slow-replies", "two-refusals"],
                sentence: "A later version.",
            },
        ]
    }
    fn hosts(&self, _: &Cluster) -> Vec<String> {
        vec!["client".into(), "server".into()]
    }
    // A lie, for an audit to see.
    fn takes_failures_alike(&self, client: &str) -> bool {
        client == "client"
    }
    fn verbs(&self) -> &'static [Verb] {
        VERBS
    }
    fn scenarios(&self) -> &'static [Builtin] {
        const { &[builtin!("lost-reply"), builtin!("fresh-read"), builtin!("lossy-line")] }
    }
    fn properties(&self) -> Vec<Property> {
        let code = |e: &Entry| (e.kind == "reply").then(|| e.field("code").map(str::to_owned));
        vec![
            Property::new(
                "set-succeeds",
                "Every set is answered without an error.",
                always(move |e| {
                    let code = code(e).filter(|_| e.name == "set")??;
                    Some(if code == "0" { Ok(()) } else { Err(format!("the set got code {code}")) })
                }),
            ),
            Property::new(
                "get-sees-set",
                "A read answers with the value that was set before it.",
                after(|e| (e.kind == "reply" && e.name == "set").then(|| e.field("value").unwrap_or("").to_owned()))
                    .until(|_, e| e.kind == "op" && e.name == "set")
                    .each(|set, e| {
                        let got = (e.kind == "reply" && e.name == "get").then(|| e.field("value").unwrap_or(""))?;
                        Some(if got == set { Ok(()) } else { Err(format!("it was set to {set}, and read as {got}")) })
                    }),
            ),
        ]
    }
    fn assemble(&self, setup: &Setup, stage: &mut Stage<'_>) -> Result<Box<dyn Live>, BoxError> {
        let think = Duration::from_millis(if setup.cluster.get("speed") == "slow" { 50 } else { 1 });
        let stale = setup.on("stale-get");
        let change = match setup.cluster.get("change") {
            "unrelated" => Change::Unrelated,
            "renamed" => Change::Renamed,
            "slow-replies" => Change::SlowReplies,
            "two-refusals" => Change::TwoRefusals,
            _ => Change::None,
        };
        stage.world.host("server", HostSpec::new(), move |ctx| server(ctx, think, stale, change));
        let (commands, inbox) = unbounded_channel();
        let inbox = Arc::new(tokio::sync::Mutex::new(inbox));
        let retry = setup.on("retry");
        stage.world.host("client", HostSpec::new(), move |ctx| client(ctx, inbox.clone(), retry));
        Ok(Box::new(ToyLive { commands }))
    }
}

struct ToyLive {
    commands: UnboundedSender<Command>,
}

impl Live for ToyLive {
    fn pending(&self) -> Vec<String> {
        vec!["a toy".into()]
    }
}

#[derive(Clone, Debug)]
enum Command {
    Set(u64),
    Get,
    Misbehave(&'static str),
}

const VERBS: &[Verb] = &[
    Verb {
        name: "set",
        usage: "set: NUMBER",
        sentence: "The client sets the value.",
        parse: |node, _| Ok(Box::new(Ask(Command::Set(node.number("a number")?)))),
    },
    Verb {
        name: "get",
        usage: "get: value",
        sentence: "The client reads the value.",
        parse: |node, _| node.word("thing to read", ["value"]).map(|_| Box::new(Ask(Command::Get)) as Box<dyn Action>),
    },
    Verb {
        name: "await",
        usage: "await: {reply: set|get, within: 5s}",
        sentence: "Waits for the next reply.",
        parse: parse_await,
    },
    Verb {
        name: "misbehave",
        usage: "misbehave: HOW",
        sentence: "The client's code goes wrong.",
        parse: |node, _| {
            let how = node.word("way to misbehave", HOW.iter().copied())?;
            Ok(Box::new(Ask(Command::Misbehave(HOW.iter().find(|h| **h == how).expect("one of them")))))
        },
    },
];

/// See [`misbehave`].
const HOW: [&str; 10] = [
    "panic",
    "abort",
    "overflow",
    "exit",
    "spin",
    "hold-the-thread",
    "livelock",
    "differ",
    "panic-in-the-world",
    "ask-too-much",
];

#[derive(Debug)]
struct Ask(Command);

impl Action for Ask {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        match self.0 {
            Command::Misbehave("panic-in-the-world") => panic!("the harness's own code is wrong"),
            Command::Misbehave("ask-too-much") => return Err(StepError::impossible("there is no such thing")),
            _ => {}
        }
        scene.live::<ToyLive>().commands.send(self.0.clone()).map_err(|_| StepError::impossible("the client is gone"))
    }
}

#[derive(Debug)]
struct Await {
    reply: &'static str,
    within: Duration,
}

fn parse_await(node: &Node, _: &mut Scope<'_>) -> Result<Box<dyn Action>, Mistake> {
    let mut fields = node.fields("{reply: set|get, within: 5s}")?;
    let reply = fields.required("reply")?.word("reply", ["set", "get"])?;
    let within = fields.optional("within").map_or(Ok(photofinish::execute::AWAIT_LIMIT), Node::duration)?;
    fields.finish()?;
    Ok(Box::new(Await { reply: if reply == "set" { "set" } else { "get" }, within }))
}

impl Action for Await {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let from = scene.trace().len() as u64;
        match scene.wait_for_entry(from, self.within, |e| e.kind == "reply" && e.name == self.reply)? {
            Some(_) => Ok(()),
            None => Err(StepError::Missed(format!("no reply to {} within {:?}", self.reply, self.within))),
        }
    }
}

/// What a later version of the server does otherwise.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    None,
    /// It has one more task, and asks for one more choice before each reply.
    Unrelated,
    /// Its choices have other names.
    Renamed,
    /// Its replies may be late.
    SlowReplies,
    /// It may refuse in two ways, and of only one of them the client hears.
    TwoRefusals,
}

async fn server(ctx: HostCtx, think: Duration, stale: bool, change: Change) -> Result<(), BoxError> {
    use futures::StreamExt;
    if change == Change::Unrelated {
        tokio::spawn(async { tokio::time::sleep(Duration::from_secs(1)).await });
    }
    let mut incoming = std::pin::pin!(ctx.wire.listen(7).await?);
    let (mut value, mut before, mut n) = (0u64, 0, 0);
    while let Some(connection) = incoming.next().await {
        let mut io = BufReader::new(connection?);
        let mut line = String::new();
        if io.read_line(&mut line).await.is_err() {
            continue;
        }
        tokio::time::sleep(think).await;
        n += 1;
        let answer = match line.trim().split_once(' ') {
            Some(("set", new)) => {
                (before, value) = (value, new.parse()?);
                value
            }
            _ if stale => before,
            _ => value,
        };
        if change == Change::Unrelated {
            ctx.choices.flip(&format!("another/server/thing#{n}"), &LOST_REPLY, 0.5);
        }
        if change == Change::SlowReplies {
            let (min, max) = (Duration::from_millis(1), Duration::from_secs(5));
            let spec = DelaySpec { fault: &LATE_REPLY, odds: 0.2, min, max };
            let late = ctx.choices.delay(&format!("late/server/reply#{n}"), &spec);
            tokio::time::sleep(late).await;
        }
        if change == Change::TwoRefusals {
            let refused = |how: &str| ctx.choices.flip(&format!("call/client/GET/value#{n}/{how}"), &LOST_REPLY, 0.2);
            let (told, silent) = (refused("500"), refused("504"));
            if silent {
                continue;
            }
            if told {
                let _ = io.get_mut().write_all(b"refused\n").await;
                continue;
            }
        }
        let name = if change == Change::Renamed { "answer" } else { "reply" };
        let lost = ctx.choices.flip(&format!("lose/server/{name}#{n}"), &LOST_REPLY, 0.2);
        if !lost {
            // The client may be gone: then it asks again, or not.
            let _ = io.get_mut().write_all(format!("{answer}\n").as_bytes()).await;
        }
    }
    Ok(())
}

async fn ask(wire: &Wire, line: &str) -> std::io::Result<String> {
    let io = wire.connector().call("http://server:7".parse().expect("a uri")).await?;
    let mut io = BufReader::new(io.into_inner());
    io.get_mut().write_all(line.as_bytes()).await?;
    let mut answer = String::new();
    match io.read_line(&mut answer).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer.trim().to_owned()),
    }
}

async fn client(
    ctx: HostCtx,
    inbox: Arc<tokio::sync::Mutex<UnboundedReceiver<Command>>>,
    retry: bool,
) -> Result<(), BoxError> {
    let mut inbox = inbox.lock().await;
    while let Some(command) = inbox.recv().await {
        let (name, line) = match command {
            Command::Set(value) => ("set", format!("set {value}\n")),
            Command::Get => ("get", "get\n".to_owned()),
            Command::Misbehave(how) => {
                misbehave(&ctx, how).await;
                continue;
            }
        };
        let op = ctx.trace.entry("op", name).text(line.trim()).record();
        let mut answer = ask(&ctx.wire, &line).await;
        for _ in 0..if retry { 20 } else { 0 } {
            if answer.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            answer = ask(&ctx.wire, &line).await;
        }
        let draft = ctx.trace.entry("reply", name).cause(op);
        match answer {
            Ok(value) => draft.field("code", 0).field("value", &value).text(format!("{name}: {value}")).record(),
            Err(e) => draft.field("code", 14).text(format!("{name}: {}", e.kind())).record(),
        };
    }
    Ok(())
}

async fn misbehave(ctx: &HostCtx, how: &str) {
    match how {
        "panic" => drop(tokio::spawn(async { panic!("the toy is broken") }).await),
        "abort" => std::process::abort(),
        "overflow" => _ = overflow(0),
        "exit" => std::process::exit(7),
        "spin" => loop {
            std::hint::spin_loop();
        },
        "hold-the-thread" => std::thread::sleep(Duration::from_secs(3)),
        "livelock" => loop {
            tokio::task::yield_now().await;
        },
        // Something that the world does not control.
        "differ" => _ = ctx.trace.entry("log", "info").text(format!("process {}", std::process::id())).record(),
        how => unreachable!("{how}"),
    }
}

#[expect(unconditional_recursion, reason = "that is the point")]
fn overflow(n: u64) -> u64 {
    std::hint::black_box(overflow(std::hint::black_box(n + 1)) + 1)
}
