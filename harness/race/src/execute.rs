//! One run, in the process that a zygote forked for it: from the request to the report.
use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indexmap::IndexMap;
use photofinish_sim::choices::{Choices, Pins, Source as ChoiceSource};
use photofinish_sim::exit;
use photofinish_sim::gate::Gates;
use photofinish_sim::trace::Trace;
use photofinish_sim::tracing_layer;
use photofinish_sim::world::{self, World, WorldConfig};
use photofinish_sim::zygote::Checkpoint;
use serde::{Deserialize, Serialize};

use crate::coverage::Tried;
use crate::crash_points::{self, CrashPoints};
use crate::explore::choices::ChoicePoint;
use crate::options::Options;
use crate::outcome::{Answer, Judgement, Outcome, Request, RunReport, judge, of_judgement};
use crate::reading::ObjectState;
use crate::scenario::{self, Scenario};
use crate::scene::{Scene, StepError};
use crate::switch::{Reported, SwitchKind};
use crate::system::{BoxError, Engine, Live, Setup, Stage, System};

/// How long a step waits in virtual time, unless it says so itself.
pub const AWAIT_LIMIT: Duration = Duration::from_secs(60);

/// How long hosts have before a script begins, in virtual time: they connect, list and watch. What comes up then takes
/// its default, unless it is pinned.
pub const BEGINNING: Duration = Duration::from_millis(100);

/// The system that this process races: a run's body is a plain function and must find it.
static SYSTEM: OnceLock<&'static dyn System> = OnceLock::new();

/// Serves runs of this system, if this process is a zygote. Call it before anything else.
pub fn serve_if_zygote(system: &'static dyn System) {
    if photofinish_sim::zygote::inside() {
        SYSTEM.get_or_init(|| system);
        // The order of hash maps that are made now is part of every run.
        photofinish_sim::state::prepare_thread();
        system.prepare();
        photofinish_sim::zygote::serve_from_checkpoints(body)
    }
}

/// What is told of a run beside its report, to those who ask.
#[derive(Default)]
struct Told {
    points: Vec<ChoicePoint>,
    objects: Vec<ObjectState>,
    tried: Option<Tried>,
    /// Switches that the script looked at.
    looked_at: Vec<String>,
}

/// What runs that are forked from one process have in common.
#[derive(Serialize, Deserialize)]
pub(crate) struct Beginning {
    setup: Setup,
    /// Choices of the beginning that do not take their default.
    pins: Pins,
    /// It goes on with the script.
    on: Option<GoesOn>,
}

/// A beginning that goes on with a benign run, until a choice is to be taken that some of its runs take otherwise.
#[derive(Serialize, Deserialize)]
pub(crate) struct GoesOn {
    /// The request of the benign run, as text: it is read where that of other runs is, and not before. Each map that is
    /// made changes the order of those that come later.
    pub(crate) run: String,
    /// The choice: the runs are forked when it is asked for the first time.
    pub(crate) until: String,
}

impl Beginning {
    /// That of a run whose pins are those of its scenario and its id together.
    pub(crate) fn new(
        system: &dyn System,
        scenario: &Scenario,
        options: &Options,
        pins: Pins,
        on: Option<GoesOn>,
    ) -> Beginning {
        let setup = Setup {
            cluster: options.cluster_of(scenario),
            switches: options.resolve(system.switches(), &scenario.reported_without),
            engine: options.engine,
            env: scenario.env.clone(),
        };
        Beginning { setup, pins, on }
    }
}

fn body(beginning: &[u8], trace: Trace, checkpoint: Checkpoint) -> Vec<u8> {
    let system = *SYSTEM.get().expect("serve_if_zygote has set it");
    let mut told = Told::default();
    let report = match serde_json::from_slice(beginning) {
        Ok(beginning) => run(system, &beginning, &trace, checkpoint, &mut told),
        Err(e) => failed(&trace, format!("the beginning cannot be read: {e}")),
    };
    let Told { points, objects, tried, looked_at } = told;
    let by_code = |asked: Vec<&str>| asked.into_iter().map(str::to_owned).chain(looked_at).collect();
    let asked = system.asked().map(by_code);
    serde_json::to_vec(&Answer { report, points, objects, tried, asked }).expect("an answer is plain data")
}

fn failed(trace: &Trace, end: String) -> RunReport {
    RunReport {
        outcome: Outcome::Failed,
        violations: Vec::new(),
        vacuous: Vec::new(),
        trace_hash: trace.hash(),
        virtual_ns: trace.with(|entries| entries.last().map_or(0, |e| e.at_ns)),
        end: Some(end),
        wrong_pins: Vec::new(),
        unused_pins: Vec::new(),
        crash_points: Vec::new(),
    }
}

/// How the script ended.
enum End {
    Script,
    Stuck(String),
    Refused(String),
    Failed(String),
}

fn run(
    system: &'static dyn System,
    beginning: &Beginning,
    trace: &Trace,
    checkpoint: Checkpoint,
    told: &mut Told,
) -> RunReport {
    let _recording = tracing_layer::install(trace, system.filter());
    let choices = Choices::of_a_beginning(beginning.pins.clone(), trace.clone());
    let mut begun = match begin(system, &beginning.setup, trace, &choices) {
        Ok(begun) => begun,
        Err(e) => return failed(trace, format!("the system could not be assembled: {e}")),
    };
    let (request, ahead) = match &beginning.on {
        // What did not come so far is asked for once more, as a run that begins like others.
        Some(_) if begun.stuck.is_some() => begin_otherwise(),
        Some(on) => (on.run.clone().into_bytes(), Some(checkpoint)),
        None => (checkpoint.pass(begun.stuck.is_some() || !begun.world.is_in_memory()), None),
    };
    let request = match serde_json::from_slice::<Request>(&request) {
        Ok(request) => request,
        Err(e) => return failed(trace, format!("the request cannot be read: {e}")),
    };
    let scenarios = match scenario::read(system, &request.source.clone().into()) {
        Ok(scenarios) => scenarios,
        Err(e) => return failed(trace, e.to_string()),
    };
    let Some(scenario) = scenarios.into_iter().find(|s| s.name == request.name) else {
        return failed(trace, format!("{} has no scenario {}", request.source.path, request.name));
    };
    let pins = merge(&scenario.pins, &request.pins);
    // A run that others are to be forked from asks for all that could be pinned, as their common beginning does.
    let too_late = choices.go_on(request.choices, pins, request.learn || beginning.on.is_some());
    // Where the beginning knew the pins, the points that do not take them have said so.
    if !too_late.is_empty() && beginning.pins.is_empty() {
        begin_otherwise();
    }
    begun.world.reseed(request.choices.seed());
    let forked = Arc::new(OnceLock::new());
    if let (Some(checkpoint), Some(on)) = (ahead, &beginning.on) {
        let (in_memory, scenario_pins, forked) = (begun.world.memory_check(), scenario.pins.clone(), forked.clone());
        choices.before(&on.until, move |choices| {
            let request = checkpoint.pass(!in_memory());
            let run: Forked = serde_json::from_slice(&request).unwrap_or_else(|e| unread(&e));
            let mut pins = scenario_pins;
            pins.insert_all(&run.pins).unwrap_or_else(|e| unread(&e));
            if !choices.go_on(ChoiceSource::Benign, pins, run.learn).is_empty() {
                begin_otherwise();
            }
            _ = forked.set(run);
        });
    }
    let end = match begun.stuck.take() {
        Some(stuck) => End::Stuck(stuck),
        None => play(system, &beginning.setup, &scenario, trace, &choices, &mut begun, &mut told.looked_at),
    };
    choices.nobody_asked();
    let request = match forked.get() {
        Some(Forked { pins, learn, objects, cover }) => {
            let pins = pins.parse().unwrap_or_else(|e| unread(&e));
            Request { pins, learn: *learn, objects: *objects, cover: *cover, ..request }
        }
        None => request,
    };
    let Begun { live, mut world, .. } = begun;
    let virtual_ns = world.now().as_nanos() as u64;
    match &end {
        End::Script => world.finish(),
        // The world has recorded why it is stuck.
        End::Stuck(_) => {}
        End::Refused(why) => _ = trace.entry("end", "refused").host("world").text(why).record(),
        End::Failed(why) => _ = trace.entry("end", "failed").host("world").text(why).record(),
    }
    let judgement = match end {
        // What was not played to its end for want of an engine is not judged.
        End::Refused(_) => Judgement::default(),
        _ => trace.with(|entries| judge(system, &scenario, entries)),
    };
    // A built-in scenario may pin the same for each of its clusters, of which one asks.
    let is_meant = |key: &String| !scenario.source.builtin || request.pins.get(key).is_some();
    let unused = choices.unused_pins().into_iter().filter(is_meant);
    let unused_pins = unused.map(|key| unasked(&key, &choices)).collect();
    let report = RunReport { unused_pins, ..report(judgement, &end, trace, &choices, virtual_ns) };
    if request.learn {
        told.points.extend(choices.points().into_iter().map(ChoicePoint::from));
    }
    if request.cover {
        told.tried = Some(trace.with(|entries| Tried::of(system, entries)));
    }
    if request.objects {
        told.objects = live.objects();
    }
    // The verdict stands, and the process ends: what destructors would do now is no part of the run.
    std::mem::forget(live);
    world.abandon();
    report
}

/// What is read of a request in the middle of a run: without any map, whose making would change the order of all later
/// ones.
#[derive(Deserialize)]
struct Forked {
    pins: String,
    learn: bool,
    objects: bool,
    cover: bool,
}

fn unread(e: &dyn Display) -> ! {
    exit::leave(exit::HARNESS, "no-request", &format!("the request cannot be read: {e}"))
}

/// Ends a run that needs a beginning of its own.
fn begin_otherwise() -> ! {
    exit::leave(exit::ANOTHER_BEGINNING, "another-beginning", "a pin is for what came up in the beginning")
}

/// A world whose hosts are ready, with what lives in it.
struct Begun {
    live: Box<dyn Live>,
    world: World,
    gates: Gates,
    crash_points: CrashPoints,
    /// It did not even come to the script.
    stuck: Option<String>,
}

/// What is said of a pin that nothing has asked for.
fn unasked(key: &str, choices: &Choices) -> String {
    match choices.nearest_key(key) {
        Some(near) if near != key => format!("nothing asked for the pinned choice `{key}`; did you mean `{near}`?"),
        _ => format!("nothing asked for the pinned choice `{key}`"),
    }
}

fn report(judgement: Judgement, end: &End, trace: &Trace, choices: &Choices, virtual_ns: u64) -> RunReport {
    let wrong_pins: Vec<String> = choices.problems().iter().map(ToString::to_string).collect();
    let outcome = match end {
        // Not the run that its id names: no verdict about that one.
        _ if !wrong_pins.is_empty() => Outcome::Refused,
        End::Script => of_judgement(&judgement),
        End::Stuck(_) => Outcome::Stuck,
        End::Refused(_) => Outcome::Refused,
        End::Failed(_) => Outcome::Failed,
    };
    RunReport {
        outcome,
        violations: judgement.violations,
        vacuous: judgement.vacuous,
        trace_hash: trace.hash(),
        virtual_ns,
        end: match end {
            _ if !wrong_pins.is_empty() => Some(wrong_pins.join("; ")),
            End::Script => None,
            End::Stuck(why) | End::Refused(why) | End::Failed(why) => Some(why.clone()),
        },
        wrong_pins,
        unused_pins: Vec::new(),
        crash_points: choices.keys().iter().filter_map(|key| crash_points::label(key)).collect(),
    }
}

/// The scenario's pins and the run id's; where both pin a choice, the run id says.
pub(crate) fn merge(scenario: &Pins, id: &Pins) -> Pins {
    let mut pins = scenario.clone();
    for (key, value) in id.iter() {
        pins.insert(key, value);
    }
    pins
}

fn begin(system: &'static dyn System, setup: &Setup, trace: &Trace, choices: &Choices) -> Result<Begun, BoxError> {
    let gates = Gates::new(trace.clone(), choices.clone());
    let mut config = WorldConfig::default();
    system.configure(setup, &mut config);
    config.engine = match setup.engine {
        Engine::Jump => world::Engine::Jump,
        Engine::Turmoil => world::Engine::Turmoil,
    };
    let mut builder = World::builder(config, trace.clone(), choices.clone());
    let stage =
        &mut Stage { world: &mut builder, trace: trace.clone(), choices: choices.clone(), gates: gates.clone() };
    let mut live = system.assemble(setup, stage)?;
    let mut world = builder.build();
    let crash_points = CrashPoints::default();
    let (crashes, naming) = (crash_points.observer(system, choices.clone(), world.control()), choices.clone());
    trace.observe(
        |entry| system.durable_write(entry).is_some() || system.names(entry).is_some(),
        move |entry| {
            if let Some((generated, name)) = system.names(entry) {
                naming.call(generated, name);
            }
            crashes(entry);
        },
    );
    if let Some(oracle) = live.oracle() {
        world.on_step(oracle);
    }
    world.start_all();
    let stuck = world.run_for(BEGINNING).err().map(|stuck| stuck.to_string());
    Ok(Begun { live, world, gates, crash_points, stuck })
}

fn play(
    system: &'static dyn System,
    setup: &Setup,
    scenario: &Scenario,
    trace: &Trace,
    choices: &Choices,
    begun: &mut Begun,
    looked_at: &mut Vec<String>,
) -> End {
    let proposed = system.switches().iter().filter(|s| matches!(s.kind, SwitchKind::Proposed { .. }));
    let mut scene = Scene {
        world: &mut begun.world,
        live: &mut *begun.live,
        trace: trace.clone(),
        choices: choices.clone(),
        gates: begun.gates.clone(),
        holds: IndexMap::new(),
        crash_points: begun.crash_points.clone(),
        reported: Reported::of(proposed.map(|s| (s.name, setup.on(s.name)))),
        astray: false,
    };
    let end = script(scenario, setup.engine, &mut scene);
    *looked_at = scene.reported.looked_at();
    end
}

fn script(scenario: &Scenario, engine: Engine, scene: &mut Scene<'_>) -> End {
    for step in &scenario.steps {
        match scene.act(step) {
            Ok(()) => {}
            Err(StepError::Stuck(stuck)) => {
                let pending = scene.live.pending();
                let waits = if pending.is_empty() { String::new() } else { format!("; open: {}", pending.join(", ")) };
                return End::Stuck(format!("{stuck}{waits}"));
            }
            Err(e @ StepError::NotOnThisEngine) => {
                return End::Refused(format!("{e} ({engine}): line {}, `{}`", step.line, step.text));
            }
            Err(e) => {
                return End::Failed(format!("line {}, `{}`: {e}", step.line, step.text));
            }
        }
    }
    End::Script
}
