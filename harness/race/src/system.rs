//! What a project implements to be raced: [`System`], and the parts it is made of.
//!
//! A system tells its names (hosts, watch streams, switches, options of its cluster), the verbs that its scenarios
//! use, the properties that must hold, and how to build its world. The harness does the rest: it parses scenarios,
//! runs each in a process of its own, judges properties, prints and replays failures.
//!
//! The order of a run: [`System::configure`], [`System::assemble`] (hosts are added, none runs yet), all hosts start and
//! have [a moment](crate::execute::BEGINNING) to get ready, in which every choice takes its default unless it is pinned; then the
//! scenario's steps act one after the other ([`Action::act`]), and the properties are judged over the trace. Runs of equal
//! [`Setup`] share their beginning: it is run once, and they are forked from it.
use std::any::Any;
use std::fmt;

use indexmap::{IndexMap, IndexSet};
use photofinish_sim::choices::{Choices, Pins};
use photofinish_sim::gate::Gates;
use photofinish_sim::trace::{Entry, EntryId, Trace};
use photofinish_sim::tracing_layer::Filter;
use photofinish_sim::world::{Builder, WorldConfig};

use crate::mistake::Mistake;
use crate::property::Property;
use crate::reading::{Grid, Meeting, ObjectState, Reading, Role};
use crate::scenario::Scenario;
use crate::scenario::yaml::Node;
use crate::scene::{Scene, StepError};
use crate::switch::Switch;

/// An error of any kind, as hosts and systems return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A system under test, plugged into the harness.
///
/// Implementations are static: a run happens in another process, which finds the system by calling the same `main`.
pub trait System: Sync + 'static {
    /// Its name, e.g. `openshell`.
    fn name(&self) -> &'static str;
    /// Its remedies and mutants, in the order in which `remedies` prints them.
    fn switches(&self) -> &'static [Switch] {
        &[]
    }
    /// Names of the switches that the code under test has looked at in this process, whatever it found; none if nobody keeps
    /// an account of that. It decides by what it looked at and by nothing else of the switches: `matrix` infers from a run
    /// what others would show that differ only in what this one never looked at.
    fn asked(&self) -> Option<Vec<&'static str>> {
        None
    }
    /// The keys of a scenario's `cluster:` map.
    fn cluster_options(&self) -> &'static [ClusterOption] {
        &[]
    }
    /// Hosts of the world for this cluster: `crash:`, `cut:`, `delay:` and others check names against them.
    fn hosts(&self, cluster: &Cluster) -> Vec<String>;
    /// The processes that a script means by this host's name: all of them, where it is replicated.
    fn processes(&self, _cluster: &Cluster, host: &str) -> Vec<String> {
        vec![host.to_owned()]
    }
    /// Watch streams that `hold:` may name, as `<client host>/<plural>`, e.g. `driver/sandboxes`.
    fn streams(&self, _cluster: &Cluster) -> Vec<String> {
        Vec::new()
    }
    /// The system's own step verbs, beside the generic ones of [`crate::scenario::verbs`].
    fn verbs(&self) -> &'static [Verb] {
        &[]
    }
    /// What must hold. A scenario names those it checks; [`crate::property::NO_PANIC`] and
    /// [`crate::property::SCRIPT`] are always checked.
    fn properties(&self) -> Vec<Property>;
    /// Scenarios that are part of the program, found by name from any directory.
    fn scenarios(&self) -> &'static [Builtin] {
        &[]
    }
    /// The scenario that `new` starts from; the first that fails without a remedy, say.
    fn template(&self) -> Option<&'static Builtin> {
        self.scenarios().first()
    }
    /// What a scenario does in vain by this system's rules, such as waiting for what nothing before it can bring about.
    fn lint(&self, _scenario: &Scenario, _root: &Node) -> Vec<Mistake> {
        Vec::new()
    }
    /// Recorded data that verbs refer to by name (`fixtures/<name>`).
    fn fixtures(&self) -> &'static [Builtin] {
        &[]
    }
    /// The host whose durable write this entry tells of, if it does: crashes may follow there, see `crash-points`.
    fn durable_write<'e>(&self, _entry: &'e Entry) -> Option<&'e str> {
        None
    }
    /// The part that a host plays, for reports.
    fn role(&self, _host: &str) -> Role {
        Role::Actor
    }
    /// What the entries of a trace mean, for reports. Not asked in a run.
    fn reading(&self, _entries: &[Entry]) -> Reading {
        Reading::default()
    }
    /// In which state each event was met that came to somebody who keeps a state, for the coverage of a sweep.
    fn meetings(&self, _entries: &[Entry]) -> Vec<Meeting> {
        Vec::new()
    }
    /// The states and events that [`System::meetings`] may tell of.
    fn grid(&self) -> Grid {
        Grid::default()
    }
    /// A unit test's skeleton for a violation that comes down to one input of one rule, given the trace and the entry that
    /// broke the property.
    fn unit_test(&self, _entries: &[Entry], _broke: EntryId) -> Option<String> {
        None
    }
    /// Whether there are such clusters: a scenario may have its cluster drawn, and not all values go together.
    fn fits(&self, _cluster: &Cluster) -> bool {
        true
    }
    /// A text that the code under test made up (an id), and the name that keys of choices call it by, if this entry tells
    /// of one.
    fn names<'e>(&self, _entry: &'e Entry) -> Option<(&'e str, &'e str)> {
        None
    }
    /// Whether this client of the API takes the refusals 429, 500, 503 and 504 alike, and a watch that breaks within a line
    /// as one that breaks between two: `exhaust` then runs one of each. Say so only of code that looks at no more.
    fn takes_failures_alike(&self, _client: &str) -> bool {
        false
    }
    /// The clusters that `matrix --profiles` compares, as options that differ from a scenario's own.
    fn profiles(&self) -> Vec<Vec<(&'static str, &'static str)>> {
        Vec::new()
    }
    /// Which of the hosts' tracing events and spans become entries of the trace.
    fn filter(&self) -> Filter {
        Filter::default()
    }
    /// Called once in a process that will fork runs, before the first one: tables and compiled patterns that every run
    /// would make anew. It must depend on nothing but the program, and must not begin a world or a thread.
    fn prepare(&self) {}
    /// Changes the world's configuration (latency, foreign threads ...) before it is built.
    fn configure(&self, _setup: &Setup, _config: &mut WorldConfig) {}
    /// Adds the hosts to the world and returns the system's live state, which verbs act on.
    ///
    /// Runs outside any host, at virtual time zero. An error is a failure of the harness (exit code 3), not a verdict.
    fn assemble(&self, setup: &Setup, stage: &mut Stage<'_>) -> Result<Box<dyn Live>, BoxError>;
}

/// The system's state inside a running world: client handles, the API server's store, open questions.
///
/// Verbs reach it by type: [`Scene::live`].
pub trait Live: Any {
    /// Oracle hook: called after each step of a host, outside any host. What it sees it records into the trace, where
    /// properties find it; it must not change what hosts see.
    fn oracle(&mut self) -> Option<Box<dyn FnMut()>> {
        None
    }
    /// Every state of every object, by revision, for reports: asked once, after the last step, and only if somebody
    /// wants to see them.
    fn objects(&self) -> Vec<ObjectState> {
        Vec::new()
    }
    /// What is still expected, in words, if the world falls silent: makes a deadlock's message. Empty = nothing.
    fn pending(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One key of a scenario's `cluster:` map.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOption {
    /// Key, e.g. `controller`.
    pub name: &'static str,
    /// Allowed values; the first is the default.
    pub values: &'static [&'static str],
    /// One sentence: what it decides.
    pub sentence: &'static str,
}

/// The cluster options of one run: every key of [`System::cluster_options`] with a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cluster(IndexMap<String, String>);

impl Cluster {
    /// All defaults.
    pub fn new(options: &[ClusterOption]) -> Cluster {
        Cluster(
            options.iter().map(|o| (o.name.to_owned(), o.values.first().copied().unwrap_or("").to_owned())).collect(),
        )
    }
    /// Sets an option; names and values are checked where they are parsed.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }
    /// The value of an option.
    ///
    /// # Panics
    /// If the system did not declare it.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("the system declares no cluster option `{name}`"))
    }
    /// All options in declared order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// A text that is part of the program: a scenario or a fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// Name without folder and ending.
    pub name: &'static str,
    /// Path in the repository, for messages: `scenarios/<name>.yaml`.
    pub path: &'static str,
    /// Content, from `include_str!`.
    pub text: &'static str,
}

/// What a run's world is built from. What comes after its beginning (steps, source of choices, pins) is no part of it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Setup {
    /// Cluster options, defaults filled in.
    pub cluster: Cluster,
    /// Names of the switches that are on.
    pub switches: IndexSet<String>,
    /// What runs the hosts.
    pub engine: Engine,
    /// Environment variables of hosts, from the scenario's `env: {host: {NAME: value}}`; for [`HostSpec::env`].
    ///
    /// [`HostSpec::env`]: photofinish_sim::host::HostSpec
    pub env: IndexMap<String, IndexMap<String, String>>,
}

impl Setup {
    /// Is this switch on?
    pub fn on(&self, switch: &str) -> bool {
        self.switches.contains(switch)
    }
    /// The environment of one host.
    pub fn env(&self, host: &str) -> IndexMap<String, String> {
        self.env.get(host).cloned().unwrap_or_default()
    }
}

/// What runs the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// This project's: jumps from event to event.
    #[default]
    Jump,
    /// turmoil with fixed ticks, as an independent check; knows fewer faults.
    Turmoil,
}

impl Engine {
    /// All engines, the default first.
    pub const ALL: [Engine; 2] = [Engine::Jump, Engine::Turmoil];
    /// As command lines and run ids write it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Jump => "jump",
            Engine::Turmoil => "turmoil",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What [`System::assemble`] builds on.
pub struct Stage<'a> {
    /// Takes the hosts.
    pub world: &'a mut Builder,
    /// The run's trace.
    pub trace: Trace,
    /// The run's choices.
    pub choices: Choices,
    /// The run's held streams; hand it to the simulated API server's hooks.
    pub gates: Gates,
}

/// A step's word and how its argument is read.
#[derive(Clone, Copy)]
pub struct Verb {
    /// The word, e.g. `await`.
    pub name: &'static str,
    /// How it is written, e.g. `await: {NAME: PHASE}`; shown when the argument is wrong.
    pub usage: &'static str,
    /// One sentence: what it does.
    pub sentence: &'static str,
    /// Reads the argument. Names are looked up and declared in the scope.
    pub parse: fn(&Node, &mut Scope<'_>) -> Parsed,
}

/// What reading a step's argument gives.
pub type Parsed = Result<Box<dyn Action>, Mistake>;

impl fmt::Debug for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verb").field("name", &self.name).field("usage", &self.usage).finish_non_exhaustive()
    }
}

/// A parsed step, ready to act.
pub trait Action: fmt::Debug + Send + Sync {
    /// Acts on the world at the present instant; may let it run ([`Scene::run_for`], [`Scene::wait`]).
    ///
    /// [`StepError::Missed`] is a violation of the property `script`; the run goes on with the next step.
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError>;
}

/// What a step's parser knows: the system, the cluster, and the names that earlier steps made.
pub struct Scope<'a> {
    /// The system under test.
    pub system: &'a dyn System,
    /// The cluster options of this scenario.
    pub cluster: &'a Cluster,
    /// The scenario's text.
    pub(crate) text: &'a str,
    /// What its steps pin.
    pub(crate) pins: Pins,
    /// By kind ("sandbox", "hold", "host", "stream"), the names known so far.
    names: IndexMap<&'static str, IndexSet<String>>,
}

impl<'a> Scope<'a> {
    /// A scope of the scenario with this text, that knows the system's hosts and streams.
    pub fn new(system: &'a dyn System, cluster: &'a Cluster, text: &'a str) -> Scope<'a> {
        let mut names = IndexMap::new();
        names.insert("host", system.hosts(cluster).into_iter().collect());
        names.insert("stream", system.streams(cluster).into_iter().collect());
        Scope { system, cluster, text, pins: Pins::default(), names }
    }
    /// A name that this step makes; the same name may be made again (a sandbox that is created, deleted, created).
    pub fn declare(&mut self, kind: &'static str, node: &Node) -> Result<String, Mistake> {
        let name = node.text(&format!("a name for the {kind}"))?.to_owned();
        self.names.entry(kind).or_default().insert(name.clone());
        Ok(name)
    }
    /// A name that must be known by now: `host`, `stream`, or what an earlier step declared.
    pub fn known(&self, kind: &'static str, node: &Node) -> Result<String, Mistake> {
        let names = self.names.get(kind);
        node.word(kind, names.into_iter().flatten().map(String::as_str)).map(str::to_owned)
    }
    /// The processes that a host's name stands for.
    pub(crate) fn processes(&self, host: &str) -> Vec<String> {
        self.system.processes(self.cluster, host)
    }
    /// The links that two hosts' names stand for: from each process of the one to each of the other.
    pub(crate) fn links(&self, from: &str, to: &str) -> Vec<(String, String)> {
        let to = self.processes(to);
        let all = self.processes(from).into_iter();
        all.flat_map(|from| to.iter().map(move |to| (from.clone(), to.clone())).collect::<Vec<_>>()).collect()
    }
    /// Makes a name that no step wrote.
    pub(crate) fn note(&mut self, kind: &'static str, name: String) {
        self.names.entry(kind).or_default().insert(name);
    }
    /// This name is no more: what comes later cannot mean it.
    pub fn forget(&mut self, kind: &'static str, name: &str) {
        if let Some(names) = self.names.get_mut(kind) {
            names.shift_remove(name);
        }
    }
    /// All names of a kind.
    pub fn names(&self, kind: &str) -> Vec<&str> {
        self.names.get(kind).into_iter().flatten().map(String::as_str).collect()
    }
    /// Is this name known?
    pub fn knows(&self, kind: &str, name: &str) -> bool {
        self.names.get(kind).is_some_and(|names| names.contains(name))
    }
    /// A fixture of the system by name.
    pub fn fixture(&self, node: &Node) -> Result<&'static Builtin, Mistake> {
        let fixtures = self.system.fixtures();
        let name = node.word("fixture", fixtures.iter().map(|f| f.name))?;
        Ok(fixtures.iter().find(|f| f.name == name).expect("word() returns one of the names"))
    }
}
