//! One run, in the process that a zygote forked for it: from the request to the report.
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::Duration;

use indexmap::IndexMap;
use photofinish_sim::choices::{Choices, Pins};
use photofinish_sim::gate::Gates;
use photofinish_sim::trace::Trace;
use photofinish_sim::tracing_layer;
use photofinish_sim::world::{World, WorldConfig};

use crate::outcome::{Judgement, Outcome, Request, RunReport, judge, of_judgement};
use crate::scenario::{self, Scenario};
use crate::scene::{Scene, StepError};
use crate::system::{BoxError, Setup, Stage, System};

/// How long a step waits in virtual time, unless it says so itself.
pub const AWAIT_LIMIT: Duration = Duration::from_secs(60);

/// The system that this process races: a run's body is a plain function and must find it.
static SYSTEM: OnceLock<&'static dyn System> = OnceLock::new();

/// Serves runs of this system, if this process is a zygote. Call it before anything else.
pub fn serve_if_zygote(system: &'static dyn System) {
    if photofinish_sim::zygote::inside() {
        SYSTEM.get_or_init(|| system);
        photofinish_sim::zygote::serve(body)
    }
}

fn body(request: &[u8], trace: Trace) -> Vec<u8> {
    let system = *SYSTEM.get().expect("serve_if_zygote has set it");
    let report = match serde_json::from_slice(request) {
        Ok(request) => run(system, &request, &trace),
        Err(e) => failed(&trace, format!("the request cannot be read: {e}")),
    };
    serde_json::to_vec(&report).expect("a report is plain data")
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
    }
}

/// How the script ended.
enum End {
    Script,
    Stuck(String),
    Failed(String),
}

fn run(system: &'static dyn System, request: &Request, trace: &Trace) -> RunReport {
    let scenarios = match scenario::read(system, &request.source.clone().into()) {
        Ok(scenarios) => scenarios,
        Err(e) => return failed(trace, e.to_string()),
    };
    let Some(scenario) = scenarios.into_iter().find(|s| s.name == request.name) else {
        return failed(trace, format!("{} has no scenario {}", request.source.path, request.name));
    };
    std::panic::set_hook(Box::new(record_panic));
    let _recording = tracing_layer::install(trace, system.filter());
    let setup = setup(system, &scenario, request);
    let choices = Choices::new(request.choices, setup.pins.clone(), trace.clone());
    let (world, end) = match play(system, &setup, &scenario, trace, &choices) {
        Ok(played) => played,
        Err(e) => return failed(trace, format!("the system could not be assembled: {e}")),
    };
    let virtual_ns = world.now().as_nanos() as u64;
    let (name, text) = match &end {
        End::Script => ("time", "the script is done".to_owned()),
        End::Stuck(why) => ("stuck", why.clone()),
        End::Failed(why) => ("failed", why.clone()),
    };
    trace.entry("end", name).host("world").text(text).record();
    let judgement = trace.with(|entries| judge(system, &scenario, entries));
    let report = report(judgement, &end, trace, &choices, virtual_ns);
    // The process ends here: tearing down runtimes would only cost time, and could hang in foreign destructors.
    world.abandon();
    report
}

fn report(judgement: Judgement, end: &End, trace: &Trace, choices: &Choices, virtual_ns: u64) -> RunReport {
    let outcome = match end {
        End::Script => of_judgement(&judgement),
        End::Stuck(_) => Outcome::Stuck,
        End::Failed(_) => Outcome::Failed,
    };
    let unused = choices.unused_pins().into_iter().map(|key| match choices.nearest_key(&key) {
        Some(near) if near != key => format!("nothing asked for the pinned choice `{key}`; did you mean `{near}`?"),
        _ => format!("nothing asked for the pinned choice `{key}`"),
    });
    RunReport {
        outcome,
        violations: judgement.violations,
        vacuous: judgement.vacuous,
        trace_hash: trace.hash(),
        virtual_ns,
        end: match end {
            End::Script => None,
            End::Stuck(why) | End::Failed(why) => Some(why.clone()),
        },
        wrong_pins: choices.problems().iter().map(ToString::to_string).collect(),
        unused_pins: unused.collect(),
    }
}

fn setup(system: &dyn System, scenario: &Scenario, request: &Request) -> Setup {
    Setup {
        scenario: scenario.name.clone(),
        cluster: scenario.cluster.clone(),
        switches: request.options.resolve(system.switches(), &scenario.reported_without),
        source: request.choices,
        pins: merge(&scenario.pins, &request.pins),
        engine: request.options.engine,
        env: scenario.env.clone(),
    }
}

/// The scenario's pins and the run id's; where both pin a choice, the run id says.
fn merge(scenario: &Pins, id: &Pins) -> Pins {
    let mut pins = scenario.clone();
    for (key, value) in id.iter() {
        pins.insert(key, value);
    }
    pins
}

fn play(
    system: &dyn System,
    setup: &Setup,
    scenario: &Scenario,
    trace: &Trace,
    choices: &Choices,
) -> Result<(World, End), BoxError> {
    let gates = Gates::new(trace.clone(), choices.clone());
    let mut config = WorldConfig { seed: setup.seed(), ..WorldConfig::default() };
    system.configure(setup, &mut config);
    let mut builder = World::builder(config, trace.clone(), choices.clone());
    let stage =
        &mut Stage { world: &mut builder, trace: trace.clone(), choices: choices.clone(), gates: gates.clone() };
    let mut live = system.assemble(setup, stage)?;
    let mut world = builder.build();
    world.start_all();
    let mut scene = Scene {
        world: &mut world,
        live: &mut *live,
        trace: trace.clone(),
        choices: choices.clone(),
        gates,
        holds: IndexMap::new(),
    };
    let end = script(scenario, &mut scene);
    // Handles into the world must not be dropped outside of it.
    std::mem::forget(live);
    Ok((world, end))
}

fn script(scenario: &Scenario, scene: &mut Scene<'_>) -> End {
    for step in &scenario.steps {
        let trace = scene.trace.clone();
        let begun =
            trace.entry("step", step.verb.clone()).host("world").text(&step.text).field("line", step.line).record();
        // What a step does to the world has the step as its cause.
        trace.set_ambient_cause(Some(begun));
        match step.action.act(scene) {
            Ok(()) => {}
            Err(StepError::Missed(why)) => {
                let text = format!("{}: {why}", step.text);
                trace.entry("step", "missed").host("world").text(text).field("line", step.line).cause(begun).record();
            }
            Err(StepError::Stuck(stuck)) => {
                let pending = scene.live.pending();
                let waits = if pending.is_empty() { String::new() } else { format!("; open: {}", pending.join(", ")) };
                return End::Stuck(format!("{stuck}{waits}"));
            }
            Err(StepError::Impossible(e)) => {
                return End::Failed(format!("line {}, `{}`: {e}", step.line, step.text));
            }
        }
        trace.set_ambient_cause(None);
    }
    End::Script
}

/// A panic is an entry of the trace, wherever it is caught later.
fn record_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a value that is no text");
    let place = info.location().map_or(String::new(), |l| format!("{}:{}", l.file(), l.line()));
    if let Some(trace) = photofinish_sim::trace::of_this_process() {
        let draft = trace.entry("panic", "panic").text(message).field("message", message).field("location", &place);
        draft.record();
    }
    eprintln!("panicked at {place}: {message}");
}
