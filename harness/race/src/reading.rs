//! What a system tells of its own trace, for whoever looks at a run: which host plays which part, what the entries are
//! about, what the programs believe beside what is true, and which entry rests on which.
//!
//! The harness draws all of it and knows none of it: a trace says that a log line was written, not that it is a phase.
use std::collections::BTreeMap;

use photofinish_sim::trace::EntryId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The part that a host plays, in the order in which reports show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Asks.
    Client,
    /// Answers clients, and keeps what it believes.
    Gateway,
    /// Carries out what the gateway wants, and watches what becomes of it.
    Driver,
    /// Keeps the truth: an API server.
    Server,
    /// A neighbour.
    Actor,
}

/// What the entries of one trace mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// What an entry is about: the name of a sandbox, say.
    pub subjects: BTreeMap<EntryId, String>,
    /// Few words instead of an entry's text.
    pub labels: BTreeMap<EntryId, String>,
    /// What somebody holds to be true, and what is, in the order of the entries.
    pub views: Vec<View>,
    /// Which entry rests on which, beyond causes: a snapshot on the event that it was made from.
    pub links: Vec<Link>,
}

/// From this entry on, somebody holds this to be the state of something; or it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Of what.
    pub subject: String,
    /// Who holds it; `None`: it is so.
    pub holder: Option<String>,
    /// Since this entry.
    pub at: EntryId,
    /// In a word or few; `None`: it is not there.
    pub state: Option<String>,
    /// The newest revision that this rests on.
    pub revision: Option<u64>,
}

/// One entry rests on another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The older one.
    pub from: EntryId,
    /// The one that rests on it.
    pub to: EntryId,
    /// In a few words, how.
    pub how: String,
}

/// An event came while what it is about was in a state: a sweep shows which of them met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// In a word.
    pub state: String,
    /// In a word or two.
    pub event: String,
}

/// The states and events that there are, in the order in which they are shown: those that never met are worth seeing, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// What the states are of: `row phase`, say.
    pub state: &'static str,
    /// The states.
    pub states: Vec<&'static str>,
    /// What the events are: `snapshot`, say.
    pub event: &'static str,
    /// The events.
    pub events: Vec<&'static str>,
}

/// The state of an object from a revision on, as an API server stored it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectState {
    /// The revision of the write.
    pub revision: u64,
    /// Plural name of the type.
    pub resource: String,
    /// Empty for types without.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object; `None`: the write removed it.
    pub object: Option<Value>,
}
