//! Scenarios: what a YAML file says, checked against the system it is for.
//!
//! ```yaml
//! scenario: reply-is-lost
//! reports: [owner/project#1]
//! summary: One sentence.
//! cluster: {mode: shared}
//! also: [{mode: managed}]                 # the same in other clusters; this one is named reply-is-lost@managed
//! draw: [mode]                            # options that each seed draws
//! env: {server: {LOG: debug}}             # environment of hosts
//! steps:
//!   - run: 200ms
//! check: [reply-comes]
//! except: {no-orphan: the outage outlasts it}    # a property of every run that this one is not judged by
//! reported-without: [some-merged-fix]     # merged remedies that the reported code did not have yet
//! fails-without:                          # red/green: without these remedies it fails with exactly these properties
//!   - {off: [retry], violates: [reply-comes]}     # off: proposed = all that are proposed, that is, as reported
//! closed-by: [retry, [a, b]]              # each of these, added to the code as reported, makes it hold
//! fails-with: {mutant: retry-for-ever, violates: [reply-comes]}    # guard
//!                                         # maps of fails-without, fails-with, failing-seeds: `of: [base]` names the clusters meant
//! failing-writes:                         # crash points: one more run for each; these fail as reported
//!   - {after: server/stop#3, violates: [reply-comes], closed-by: [retry]}
//! failing-seeds: [51, {seed: 102, violates: [reply-comes]}]        # flow: fails as reported for these seeds
//! ```
use std::fmt;
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use photofinish_sim::choices::Pins;
use xxhash_rust::xxh3::xxh3_64;

use crate::mistake::{BadInput, Mistake, position};
use crate::property::{Checked, NO_PANIC, Property, SCRIPT};
use crate::switch::{Switch, SwitchKind};
use crate::system::{Action, Cluster, ClusterOption, Scope, System};
use yaml::{Fields, Node};

pub mod conditions;
pub mod layout;
pub mod lint;
pub mod schema;
pub mod verbs;
pub mod yaml;

/// Where a scenario's text is from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Source {
    /// Path as the user gave it, or of the built-in in the repository.
    pub path: String,
    /// Content.
    pub text: String,
    /// Part of the program, found by name.
    pub builtin: bool,
}

impl Source {
    /// The first 12 hex digits of the content's xxh3-64: run ids of files carry it.
    pub fn hash(&self) -> String {
        format!("{:016x}", xxh3_64(self.text.as_bytes()))[..12].to_owned()
    }
}

/// A scenario in one of its clusters, ready to run.
#[derive(Debug)]
pub struct Scenario {
    /// Name; with `@variant` if it is one of `also`.
    pub name: String,
    /// The part behind the `@`: the values that differ, joined with `.`.
    pub variant: Option<String>,
    /// The text it was read from.
    pub source: Arc<Source>,
    /// Reports and issues it is about.
    pub reports: Vec<String>,
    /// One sentence.
    pub summary: String,
    /// How it is tested.
    pub kind: Kind,
    /// Cluster options, defaults filled in.
    pub cluster: Cluster,
    /// Cluster options that each seed draws.
    pub draw: Vec<String>,
    /// Environment of hosts.
    pub env: IndexMap<String, IndexMap<String, String>>,
    /// Choices that the script pins.
    pub pins: Pins,
    /// The script.
    pub steps: Vec<Step>,
    /// Properties to check, beside those that every run must have.
    pub check: Vec<String>,
    /// Properties of every run that are not checked in this one, each with its reason.
    pub except: IndexMap<String, String>,
    /// Merged remedies that the reported code did not have.
    pub reported_without: Vec<String>,
    /// Red sides: remedies off, properties violated.
    pub fails_without: Vec<FailsWithout>,
    /// Sets of remedies that each close the race.
    pub closed_by: Vec<Vec<String>>,
    /// Wrong fixes that it must catch.
    pub fails_with: Vec<FailsWith>,
    /// Seeds that fail as reported.
    pub failing_seeds: Vec<FailingSeed>,
    /// Is it run once more for each durable write that its crash points name?
    pub each_write: bool,
    /// Writes after which a crash fails as reported.
    pub failing_writes: Vec<FailingWrite>,
}

/// One step of a script.
pub struct Step {
    /// Its verb.
    pub verb: String,
    /// The step as written, on one line.
    pub text: String,
    /// Line in the source, from 1.
    pub line: usize,
    /// What it does.
    pub action: Box<dyn Action>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.text, self.action)
    }
}

/// How a scenario shows that it can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fails without certain remedies.
    RedGreen,
    /// Fails with a wrong fix.
    Guard,
    /// Nothing held; fails as reported for certain seeds.
    Flow,
    /// Does not say how it can fail: may be run, but `check` and the test target refuse it.
    Unproven,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::RedGreen => "red/green",
            Kind::Guard => "guard",
            Kind::Flow => "flow",
            Kind::Unproven => "unproven",
        })
    }
}

/// `fails-without: {off: [..], violates: [..]}`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailsWithout {
    /// Switched off.
    pub off: Vec<String>,
    /// Exactly these properties are violated then.
    pub violates: Vec<String>,
}

/// `fails-with: {mutant: .., violates: [..]}`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailsWith {
    /// Switched on.
    pub mutant: String,
    /// Exactly these properties are violated then.
    pub violates: Vec<String>,
}

/// One of `failing-seeds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingSeed {
    /// The seed.
    pub seed: u64,
    /// Exactly these properties are violated; empty: whichever of the checked ones.
    pub violates: Vec<String>,
}

/// One of `failing-writes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingWrite {
    /// The write, as `gateway/stop#3`.
    pub after: String,
    /// Exactly these properties are violated as reported.
    pub violates: Vec<String>,
    /// Sets of remedies that each, added to the code as reported, make it hold.
    pub closed_by: Vec<Vec<String>>,
}

/// Reads a scenario's text: one scenario for each cluster it lists.
pub fn read(system: &dyn System, source: &Arc<Source>) -> Result<Vec<Scenario>, BadInput> {
    let read = || -> Result<Vec<Scenario>, Mistake> {
        let root = Node::read(&source.text)?;
        let clusters = clusters(system, &root)?;
        let variants: Vec<&str> = clusters.iter().map(|(variant, _)| variant.as_deref().unwrap_or(BASE)).collect();
        let read = |(variant, cluster): &(Option<String>, Cluster)| {
            scenario(system, source, &root, variant.clone(), cluster.clone(), &variants)
        };
        clusters.iter().map(read).collect()
    };
    read().map_err(|mistake| mistake.within(&source.path, &source.text))
}

/// What `of:` calls the cluster of `cluster:`.
const BASE: &str = "base";

/// Is the side that these fields tell meant for this variant? `of: [VARIANT, ...]`; without it, it is meant for all.
fn is_meant(fields: &mut Fields<'_>, variant: Option<&str>, variants: &[&str]) -> Result<bool, Mistake> {
    let Some(node) = fields.optional("of") else { return Ok(true) };
    let meant = words(node, "cluster of this scenario", variants)?;
    Ok(meant.iter().any(|name| name == variant.unwrap_or(BASE)))
}

/// The cluster of `cluster:`, and those of `also:` with their variants' names.
fn clusters(system: &dyn System, root: &Node) -> Result<Vec<(Option<String>, Cluster)>, Mistake> {
    let options = system.cluster_options();
    let mut fields = root.fields("a scenario, that is, a map")?;
    let mut base = Cluster::new(options);
    if let Some(node) = fields.optional("cluster") {
        choose(options, node, &mut base)?;
    }
    let mut all = vec![(None, base.clone())];
    if let Some(also) = fields.optional("also") {
        for node in also.list("a list of maps of cluster options")? {
            let mut cluster = base.clone();
            let variant = choose(options, node, &mut cluster)?.join(".");
            if cluster == base || all.iter().any(|(_, c)| *c == cluster) {
                return Err(node.expected("a cluster that differs from `cluster` and from the others"));
            }
            if all.iter().any(|(v, _)| v.as_ref() == Some(&variant)) {
                return Err(node.expected("values that no other of `also` has, since they name it"));
            }
            all.push((Some(variant), cluster));
        }
    }
    Ok(all)
}

/// Sets the options of a map, and tells their values in its order.
fn choose<'n>(options: &[ClusterOption], node: &'n Node, cluster: &mut Cluster) -> Result<Vec<&'n str>, Mistake> {
    let mut values = Vec::new();
    for (key, value) in node.entries("a map of cluster options")? {
        let name = key.word("cluster option", options.iter().map(|o| o.name))?;
        let option = options.iter().find(|o| o.name == name).expect("word() returns one of the names");
        value.word(&format!("value of {name}"), option.values.iter().copied())?;
        let value = value.text("a value")?;
        cluster.set(name, value);
        values.push(value);
    }
    Ok(values)
}

fn scenario(
    system: &dyn System,
    source: &Arc<Source>,
    root: &Node,
    variant: Option<String>,
    cluster: Cluster,
    variants: &[&str],
) -> Result<Scenario, Mistake> {
    let mut fields = root.fields("a scenario, that is, a map")?;
    let base = fields.required("scenario")?;
    let name = base.text("the scenario's name")?;
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(base.expected("a name of a-z, 0-9 and `-`"));
    }
    let stem = source.path.rsplit('/').next().and_then(|f| f.strip_suffix(".yaml"));
    if stem.is_some_and(|stem| stem != name) && source.builtin {
        return Err(base.expected(&format!("the file's name, `{}`", stem.unwrap_or(""))));
    }
    let reports = match fields.optional("reports") {
        Some(node) => texts(node, "a report, such as owner/project#1")?,
        None => Vec::new(),
    };
    let summary = fields.required("summary")?.text("one sentence")?.trim().to_owned();
    // Read already, by `clusters`.
    fields.optional("cluster");
    fields.optional("also");
    let draw = match fields.optional("draw") {
        Some(node) => {
            words(node, "cluster option", &system.cluster_options().iter().map(|o| o.name).collect::<Vec<_>>())?
        }
        None => Vec::new(),
    };
    let mut scope = Scope::new(system, &cluster, &source.text);
    let env = match fields.optional("env") {
        Some(node) => environment(node, &scope)?,
        None => IndexMap::new(),
    };
    let steps_node = fields.required("steps")?;
    let steps = steps_node.list("a list of steps")?.iter().map(|node| step(node, &mut scope));
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    let pins = scope.pins;
    if steps.is_empty() {
        return Err(steps_node.expected("at least one step").help("the steps: `photofinish new NAME` writes them all"));
    }
    let all = system.properties();
    let properties: Vec<&str> = all.iter().map(|p| p.name).collect();
    let check_node = fields.required("check")?;
    let check = words(check_node, "property", &properties)?;
    if check.is_empty() {
        return Err(check_node.expected("at least one property to check"));
    }
    let mut scenario = Scenario {
        name: variant.as_ref().map_or(name.to_owned(), |v| format!("{name}@{v}")),
        variant,
        source: source.clone(),
        reports,
        summary,
        kind: Kind::Unproven,
        draw,
        env,
        pins,
        steps,
        check,
        except: IndexMap::new(),
        reported_without: Vec::new(),
        fails_without: Vec::new(),
        closed_by: Vec::new(),
        fails_with: Vec::new(),
        failing_seeds: Vec::new(),
        each_write: false,
        failing_writes: Vec::new(),
        cluster: cluster.clone(),
    };
    if let Some(node) = fields.optional("except") {
        scenario.except = exceptions(node, &all)?;
    }
    sides(&mut scenario, &mut fields, system.switches(), &all, variants)?;
    fields.finish()?;
    Ok(scenario)
}

/// In `off:`, all remedies on the table: the code as reported, however many there are.
const ALL_PROPOSED: &str = "proposed";

/// The red sides: how the scenario shows that it can fail.
fn sides(
    scenario: &mut Scenario,
    fields: &mut Fields<'_>,
    switches: &[Switch],
    properties: &[Property],
    variants: &[&str],
) -> Result<(), Mistake> {
    let named = |keep: fn(&SwitchKind) -> bool| -> Vec<&str> {
        switches.iter().filter(|s| keep(&s.kind)).map(|s| s.name).collect()
    };
    let merged = named(|k| matches!(k, SwitchKind::Merged));
    let remedies = named(|k| !matches!(k, SwitchKind::Mutant));
    let mutants = named(|k| matches!(k, SwitchKind::Mutant));
    if let Some(node) = fields.optional("reported-without") {
        scenario.reported_without = words(node, "merged remedy", &merged)?;
    }
    let violates = |fields: &mut Fields<'_>| {
        let of_every_run = properties.iter().filter(|p| p.checked != Checked::WhenNamed).map(|p| p.name);
        let of_every_run = of_every_run.filter(|name| !scenario.except.contains_key(*name));
        let named = scenario.check.iter().map(String::as_str);
        let judged: IndexSet<&str> = named.chain(of_every_run).chain([NO_PANIC, SCRIPT]).collect();
        let judged = Vec::from_iter(judged);
        let node = fields.required("violates")?;
        match words(node, "checked property", &judged)? {
            names if names.is_empty() => Err(node.expected("at least one property")),
            names => Ok(names),
        }
    };
    if let Some(node) = fields.optional("fails-without") {
        for node in node.one_or_more() {
            let mut fields = node.fields("{off: [remedies], violates: [properties]}")?;
            let off_node = fields.required("off")?;
            let known: Vec<&str> = remedies.iter().copied().chain([ALL_PROPOSED]).collect();
            let off = words(off_node, "remedy", &known)?;
            if off.is_empty() {
                return Err(off_node.expected("at least one remedy to switch off"));
            }
            let proposed = named(|k| matches!(k, SwitchKind::Proposed { .. }));
            let off: IndexSet<String> = off
                .iter()
                .flat_map(|name| if name == ALL_PROPOSED { proposed.clone() } else { vec![name.as_str()] })
                .map(str::to_owned)
                .collect();
            let side = FailsWithout { off: Vec::from_iter(off), violates: violates(&mut fields)? };
            if is_meant(&mut fields, scenario.variant.as_deref(), variants)? {
                scenario.fails_without.push(side);
            }
            fields.finish()?;
        }
    }
    if let Some(node) = fields.optional("closed-by") {
        // Where it holds as reported, there is nothing to be closed.
        let fails = variants.len() == 1 || !scenario.fails_without.is_empty();
        for node in node.list("a list of remedies, or of lists of remedies")? {
            let closing = words(node, "remedy", &remedies)?;
            if fails {
                scenario.closed_by.push(closing);
            }
        }
    }
    if let Some(node) = fields.optional("fails-with") {
        for node in node.one_or_more() {
            let mut fields = node.fields("{mutant: NAME, violates: [properties]}")?;
            let mutant = fields.required("mutant")?.word("mutant", mutants.iter().copied())?.to_owned();
            let side = FailsWith { mutant, violates: violates(&mut fields)? };
            if is_meant(&mut fields, scenario.variant.as_deref(), variants)? {
                scenario.fails_with.push(side);
            }
            fields.finish()?;
        }
    }
    if let Some(node) = fields.optional("failing-seeds") {
        for node in node.list("a list of seeds")? {
            if !node.is_map() {
                let seed = node.number("a seed, that is, a whole number")?;
                scenario.failing_seeds.push(FailingSeed { seed, violates: Vec::new() });
                continue;
            }
            let mut fields = node.fields("{seed: N, violates: [properties]}")?;
            let seed = fields.required("seed")?.number("a seed, that is, a whole number")?;
            let exactly = fields.optional("violates").is_some();
            let violates = if exactly { violates(&mut fields)? } else { Vec::new() };
            let seed = FailingSeed { seed, violates };
            if is_meant(&mut fields, scenario.variant.as_deref(), variants)? {
                scenario.failing_seeds.push(seed);
            }
            fields.finish()?;
        }
    }
    if let Some(node) = fields.optional("failing-writes") {
        scenario.each_write = true;
        for node in node.list("a list of {after: HOST/SECTION#N, violates: [properties]}")? {
            let mut fields = node.fields("{after: HOST/SECTION#N, violates: [properties], closed-by: [remedies]}")?;
            let after_node = fields.required("after")?;
            let after = after_node.text("a write, such as gateway/stop#3")?.to_owned();
            if crate::crash_points::key(&after).is_none() {
                return Err(after_node.expected("a write, such as gateway/stop#3"));
            }
            let mut closed_by = Vec::new();
            if let Some(node) = fields.optional("closed-by") {
                for node in node.list("a list of remedies, or of lists of remedies")? {
                    closed_by.push(words(node, "remedy", &remedies)?);
                }
            }
            let violates = violates(&mut fields)?;
            fields.finish()?;
            scenario.failing_writes.push(FailingWrite { after, violates, closed_by });
        }
    }
    scenario.kind = match scenario {
        Scenario { failing_writes, .. } if !failing_writes.is_empty() => Kind::RedGreen,
        Scenario { failing_seeds, .. } if !failing_seeds.is_empty() => Kind::Flow,
        Scenario { fails_without, .. } if !fails_without.is_empty() => Kind::RedGreen,
        Scenario { fails_with, .. } if !fails_with.is_empty() => Kind::Guard,
        _ => Kind::Unproven,
    };
    Ok(())
}

/// `except: {PROPERTY: reason}`: properties of every run, except those that no scenario may opt out of.
fn exceptions(node: &Node, properties: &[Property]) -> Result<IndexMap<String, String>, Mistake> {
    let may: Vec<&str> = properties.iter().filter(|p| p.checked == Checked::Always).map(|p| p.name).collect();
    let mut except = IndexMap::new();
    for (name, reason) in node.entries("{property of every run: reason}")? {
        let name = name.word("property that a scenario may opt out of", may.iter().copied())?;
        let reason = reason.text("the reason, one sentence")?;
        except.insert(name.to_owned(), reason.to_owned());
    }
    Ok(except)
}

fn step(node: &Node, scope: &mut Scope<'_>) -> Result<Step, Mistake> {
    let (verb_node, argument) = node.entry("a step, such as `- run: 200ms`")?;
    let all = || verbs::GENERIC.iter().chain(scope.system.verbs());
    let name = verb_node.word("step", all().map(|v| v.name))?;
    let verb = *all().find(|v| v.name == name).expect("word() returns one of the names");
    let action = (verb.parse)(argument, scope).map_err(|m| match m.help {
        Some(_) => m,
        None => m.help(format!("a step is written `{}`", verb.usage)),
    })?;
    if verb.name == verbs::PIN {
        verbs::pins(argument, &mut scope.pins)?;
    }
    let source = scope.text;
    let text = source[node.at.start..node.at.end].split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Step { verb: name.to_owned(), text, line: position(source, node.at.start).0, action })
}

fn environment(node: &Node, scope: &Scope<'_>) -> Result<IndexMap<String, IndexMap<String, String>>, Mistake> {
    let mut env = IndexMap::new();
    for (host, variables) in node.entries("{host: {NAME: value}}")? {
        let mut of_host = IndexMap::new();
        for (name, value) in variables.entries("{NAME: value}")? {
            of_host.insert(name.text("a name")?.to_owned(), value.as_text().unwrap_or("").to_owned());
        }
        env.insert(scope.known("host", host)?, of_host);
    }
    Ok(env)
}

fn texts(node: &Node, what: &str) -> Result<Vec<String>, Mistake> {
    node.one_or_more().iter().map(|n| n.text(what).map(str::to_owned)).collect()
}

/// Known words, each once.
fn words(node: &Node, kind: &str, known: &[&str]) -> Result<Vec<String>, Mistake> {
    let mut words = IndexSet::new();
    for node in node.one_or_more() {
        if !words.insert(node.word(kind, known.iter().copied())?.to_owned()) {
            return Err(Mistake::new(node.at, format!("the {kind} `{}` is named twice", node.as_text().unwrap_or("")))
                .label("second time"));
        }
    }
    Ok(words.into_iter().collect())
}
