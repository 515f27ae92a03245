//! What a script may wait for or expect of a sandbox: its row, its resource and the objects around it.
use super::rig::Rig;
use super::{SANDBOX, WORKSPACE, phase_named};
use crate::driver::names;
use crate::gateway::phases::phase_name;
use crate::gateway::record::{AUTH_EPOCH, GENERATION_ID, Row};
use crate::pb::openshell::SandboxPhase;
use photofinish::mistake::Mistake;
use photofinish::scenario::yaml::Node;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, Parsed, Scope};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

const USAGE: &str = "{phase: PHASE, marker: OPERATION/PHASE | none, switch: on | off, \
                     workload: there | runs | gone, supervisor: there | runs | gone, resource: there | gone, same: [WORD, ...], starts: N}";

/// One thing that may be true of a sandbox.
#[derive(Clone, Debug, PartialEq)]
enum Fact {
    /// The row's phase.
    Phase(&'static str),
    /// The row is gone.
    RowGone,
    /// The resource's bootstrap marker, as operation and phase; none: no marker.
    Marker(Option<String>),
    /// The resource's run switch.
    Switch(bool),
    /// Is this object there?
    Is(Object, Presence),
    /// It is what it was when it was noted.
    Same(Sameness),
    /// Starts accepted since it was noted, by the row's auth epoch.
    Starts(u64),
}

/// What may be said of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    There,
    /// A Pod in phase Running.
    Runs,
    Gone,
}

impl Presence {
    const WORDS: [(&'static str, Presence); 3] =
        [("there", Presence::There), ("runs", Presence::Runs), ("gone", Presence::Gone)];
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, presence)| *presence == self).expect("all are listed").0
    }
    fn of(object: Option<&Value>) -> Presence {
        match object {
            Some(object) if object["kind"] == "Pod" && object["status"]["phase"] == "Running" => Presence::Runs,
            Some(_) => Presence::There,
            None => Presence::Gone,
        }
    }
    /// What runs is there.
    fn fits(self, wanted: Presence) -> bool {
        self == wanted || (self, wanted) == (Presence::Runs, Presence::There)
    }
}

/// An object of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Workload,
    Supervisor,
    Service,
    Fence,
    Resource,
}

impl Object {
    pub(super) const WORDS: [(&'static str, Object); 5] = [
        ("workload", Object::Workload),
        ("supervisor", Object::Supervisor),
        ("service", Object::Service),
        ("fence", Object::Fence),
        ("resource", Object::Resource),
    ];
    pub(super) fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, object)| *object == self).expect("all are listed").0
    }
    /// The object as it is stored now.
    pub(super) fn of(self, rig: &Rig, sandbox: &str) -> Option<Value> {
        let resource = rig.resource(sandbox)?;
        let metadata = &resource["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, id) = (text(&metadata["namespace"]), text(&metadata["labels"][names::SANDBOX_ID]));
        let (plural, name) = match self {
            Object::Resource => return Some((*resource).clone()),
            Object::Workload => ("pods", text(&metadata["name"])),
            Object::Supervisor => ("pods", names::supervisor_pod(&id)),
            Object::Service => ("services", names::boundary_service(&id)),
            Object::Fence => ("networkpolicies", names::WORKLOAD_FENCE.to_owned()),
        };
        rig.api()?.store().get(plural, &namespace, &name).map(|object| (*object).clone())
    }
}

/// What stays what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sameness {
    Volume,
    Resource,
    Id,
    Generation,
    /// The resource as it was written: nobody has written it since.
    Version,
}

impl Sameness {
    const WORDS: [(&'static str, Sameness); 5] = [
        ("version", Sameness::Version),
        ("volume", Sameness::Volume),
        ("resource", Sameness::Resource),
        ("id", Sameness::Id),
        ("generation", Sameness::Generation),
    ];
}

/// What identifies a sandbox and all that belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    volume: String,
    resource: String,
    id: String,
    generation: String,
    version: String,
    epoch: u64,
}

impl Identity {
    fn of(rig: &Rig, sandbox: &str) -> Identity {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = |object: &Value| text(Some(&object["metadata"]["uid"]));
        let resource = rig.resource(sandbox);
        let owned = |claim: &Value| {
            let owner = &claim["metadata"]["ownerReferences"][0]["uid"];
            resource.as_ref().is_some_and(|r| r["metadata"]["uid"] == *owner)
        };
        let claims = rig.api().map(|api| api.store().list("persistentvolumeclaims", "")).unwrap_or_default();
        let row = rig.stored(sandbox);
        let annotation = |key| row.as_ref().map(|r| r.annotation(key).to_owned()).unwrap_or_default();
        Identity {
            volume: claims.iter().find(|c| owned(c)).map(|c| uid(c)).unwrap_or_default(),
            resource: resource.as_ref().map(|r| uid(r)).unwrap_or_default(),
            id: row.as_ref().map(|r| r.id().to_owned()).unwrap_or_default(),
            generation: annotation(GENERATION_ID),
            version: text(resource.as_ref().map(|r| &r["metadata"]["resourceVersion"])),
            epoch: annotation(AUTH_EPOCH).parse().unwrap_or_default(),
        }
    }
    fn part(&self, sameness: Sameness) -> &str {
        match sameness {
            Sameness::Volume => &self.volume,
            Sameness::Resource => &self.resource,
            Sameness::Id => &self.id,
            Sameness::Generation => &self.generation,
            Sameness::Version => &self.version,
        }
    }
}

impl Fact {
    /// What is the case instead, in words; none if it is true.
    fn contradicted(&self, rig: &mut Rig, sandbox: &str) -> Option<String> {
        let unless = |holds: bool, is: String| (!holds).then_some(is);
        match self {
            Fact::Phase(phase) => {
                let holds = rig.row(sandbox).is_some_and(|r| r.phase.as_deref() == Some(phase));
                unless(holds, rig.phase(sandbox).to_owned())
            }
            Fact::RowGone => {
                let holds = rig.row(sandbox).is_some_and(|r| r.phase.is_none());
                unless(holds, rig.phase(sandbox).to_owned())
            }
            Fact::Marker(wanted) => {
                let is = marker_of(rig, sandbox);
                unless(is == *wanted, format!("marker {}", is.as_deref().unwrap_or("none")))
            }
            Fact::Switch(on) => {
                let Some(resource) = rig.resource(sandbox) else { return Some("without a resource".to_owned()) };
                let spec = &resource["spec"];
                let is = spec["operatingMode"] != "Suspended" && spec["replicas"] != 0;
                unless(is == *on, format!("switched {}", switch(is)))
            }
            Fact::Is(object, wanted) => {
                let is = Presence::of(object.of(rig, sandbox).as_ref());
                unless(is.fits(*wanted), format!("{} {}", object.word(), is.word()))
            }
            Fact::Same(sameness) => {
                let noted = rig.noted.get(sandbox).cloned().unwrap_or_default();
                let now = Identity::of(rig, sandbox);
                let (then, now) = (noted.part(*sameness), now.part(*sameness));
                unless(then == now && !then.is_empty(), format!("{} {now:?}, it was {then:?}", word(*sameness)))
            }
            Fact::Starts(starts) => {
                let then = rig.noted.get(sandbox).map_or(0, |noted| noted.epoch);
                let now = Identity::of(rig, sandbox).epoch;
                unless(now == then + starts, format!("at epoch {now}, it was {then}"))
            }
        }
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn word(sameness: Sameness) -> &'static str {
    Sameness::WORDS.iter().find(|(_, s)| *s == sameness).expect("all are listed").0
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Phase(phase) => f.write_str(phase),
            Fact::RowGone => f.write_str("gone"),
            Fact::Marker(marker) => write!(f, "marker {}", marker.as_deref().unwrap_or("none")),
            Fact::Switch(on) => write!(f, "switched {}", switch(*on)),
            Fact::Is(object, presence) => write!(f, "{} {}", object.word(), presence.word()),
            Fact::Same(sameness) => write!(f, "same {}", word(*sameness)),
            Fact::Starts(starts) => write!(f, "{starts} starts later"),
        }
    }
}

fn marker_of(rig: &Rig, sandbox: &str) -> Option<String> {
    let resource = rig.resource(sandbox)?;
    let annotation = |key: &str| resource["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
    (annotation(names::BOOTSTRAPPING) == "true")
        .then(|| format!("{}/{}", annotation(names::BOOTSTRAP_OPERATION), annotation(names::BOOTSTRAP_PHASE)))
}

/// A phase word, `gone`, or a map of facts.
fn facts(node: &Node) -> Result<Vec<Fact>, Mistake> {
    if !node.is_map() {
        return Ok(vec![phase(node)?]);
    }
    let mut fields = node.fields(USAGE)?;
    let mut facts = Vec::new();
    if let Some(node) = fields.optional("phase") {
        facts.push(phase(node)?);
    }
    if let Some(node) = fields.optional("marker") {
        facts.push(Fact::Marker(marker(node)?));
    }
    if let Some(node) = fields.optional("switch") {
        facts.push(Fact::Switch(node.word("switch", ["on", "off"])? == "on"));
    }
    for (word, object) in Object::WORDS {
        if let Some(node) = fields.optional(word) {
            let is_pod = matches!(object, Object::Workload | Object::Supervisor);
            let known = Presence::WORDS.iter().filter(|(_, p)| is_pod || *p != Presence::Runs);
            let word = node.word("state", known.map(|(word, _)| *word))?;
            facts.extend(Presence::WORDS.iter().find(|(w, _)| *w == word).map(|(_, p)| Fact::Is(object, *p)));
        }
    }
    if let Some(node) = fields.optional("same") {
        for node in node.list("a list of what is the same as when it was noted")? {
            let word = node.word("part", Sameness::WORDS.map(|(word, _)| word))?;
            facts.extend(Sameness::WORDS.iter().find(|(w, _)| *w == word).map(|(_, s)| Fact::Same(*s)));
        }
    }
    if let Some(node) = fields.optional("starts") {
        facts.push(Fact::Starts(node.number("how many starts since it was noted")?));
    }
    fields.finish()?;
    match facts.is_empty() {
        true => Err(node.expected(USAGE)),
        false => Ok(facts),
    }
}

fn phase(node: &Node) -> Result<Fact, Mistake> {
    let phases: Vec<&'static str> = (1..10).filter_map(|n| SandboxPhase::try_from(n).ok()).map(phase_name).collect();
    Ok(match node.word("phase", phases.iter().copied().chain(["gone"]))? {
        "gone" => Fact::RowGone,
        phase => Fact::Phase(phase_name(phase_named(phase).expect("one of the words"))),
    })
}

fn marker(node: &Node) -> Result<Option<String>, Mistake> {
    let usage = "OPERATION/PHASE, such as stop/suspending, or none";
    match node.text(usage)? {
        "none" => Ok(None),
        text if text.contains('/') => Ok(Some(text.to_owned())),
        _ => Err(node.expected(usage)),
    }
}

/// The sandbox and what is said of it, and one duration beside.
fn said(
    node: &Node,
    scope: &Scope<'_>,
    usage: &str,
    beside: &str,
) -> Result<(String, Vec<Fact>, Option<Duration>), Mistake> {
    let (mut what, mut span) = (None, None);
    for (key, value) in node.entries(usage)? {
        if key.as_text() == Some(beside) {
            span = Some(value.duration()?);
        } else if what.is_none() {
            what = Some((scope.known(SANDBOX, key)?, facts(value)?));
        } else {
            return Err(key.expected(&format!("{usage}, with one sandbox only")));
        }
    }
    let (sandbox, facts) = what.ok_or_else(|| node.expected(usage))?;
    Ok((sandbox, facts, span))
}

#[derive(Debug)]
struct Await {
    sandbox: String,
    facts: Vec<Fact>,
    within: Duration,
}

/// `await: {demo: Stopped, within: 10s}`
pub(super) fn awaited(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let (sandbox, facts, within) = said(node, scope, "{NAME: PHASE, within: 60s}", "within")?;
    Ok(Box::new(Await { sandbox, facts, within: within.unwrap_or(super::LIMIT) }))
}

fn contradictions(facts: &[Fact], rig: &mut Rig, sandbox: &str) -> Vec<String> {
    facts.iter().filter_map(|fact| fact.contradicted(rig, sandbox)).collect()
}

fn words(facts: &[Fact]) -> String {
    facts.iter().map(Fact::to_string).collect::<Vec<_>>().join(", ")
}

impl Action for Await {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let Await { sandbox, facts, within } = self;
        let holds = |rig: &mut Rig| facts.iter().all(|fact| fact.contradicted(rig, sandbox).is_none());
        // What the trace has already counts.
        if holds(scene.live()) || scene.wait(*within, holds)? {
            return Ok(());
        }
        let is = contradictions(facts, scene.live(), sandbox).join(", ");
        Err(StepError::Missed(format!("expected {sandbox} {} within {within:?}, it is {is}", words(facts))))
    }
}

#[derive(Debug)]
struct Expect {
    sandbox: String,
    facts: Vec<Fact>,
    stays: Duration,
}

/// `expect: {demo: {phase: Provisioning, switch: off}, for: 3m}`
pub(super) fn expected(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let (sandbox, facts, stays) = said(node, scope, "{NAME: {phase: PHASE, ...}, for: 3m}", "for")?;
    Ok(Box::new(Expect { sandbox, facts, stays: stays.unwrap_or_default() }))
}

impl Action for Expect {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let Expect { sandbox, facts, stays } = self;
        let began = scene.now();
        let mut is = contradictions(facts, scene.live(), sandbox);
        if is.is_empty() && !stays.is_zero() {
            scene.wait(*stays, |rig: &mut Rig| {
                is = contradictions(facts, rig, sandbox);
                !is.is_empty()
            })?;
        }
        if is.is_empty() {
            return Ok(());
        }
        let when = match scene.now() - began {
            Duration::ZERO => String::new(),
            later => format!(" for {stays:?}, after {later:?}"),
        };
        Err(StepError::Missed(format!("expected {sandbox} {}{when}; it is {}", words(facts), is.join(", "))))
    }
}

/// `note: demo`
#[derive(Debug)]
struct Note(String);

pub(super) fn note(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    Ok(Box::new(Note(scope.known(SANDBOX, node)?)))
}

impl Action for Note {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let rig = scene.live::<Rig>();
        let identity = Identity::of(rig, &self.0);
        if identity.id.is_empty() {
            return Err(StepError::Missed(format!("the gateway has no row of {} in workspace {WORKSPACE}", self.0)));
        }
        rig.noted.insert(self.0.clone(), identity);
        Ok(())
    }
}
