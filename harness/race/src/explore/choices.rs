//! The points where a run could go another way, as plain data: they travel from a run's process to its parent.
use photofinish_sim::choices::Point;
use photofinish_sim::legality::Legality;
use serde::{Deserialize, Serialize};

/// A choice of a run, with what it could have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoicePoint {
    /// Its stable name: what a pin says before the `=`.
    pub key: String,
    /// What it takes if nothing is wrong.
    pub default: String,
    /// What it took.
    pub taken: String,
    /// What else it takes. Of delays: the shortest, two between, and the longest one.
    pub alternatives: Vec<String>,
    /// The kind of fault that an alternative is; none for a pick between equals.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
    /// Which clusters may do that: `always`, `ha`, `until 1.31`, `never`.
    pub legality: String,
    /// The sentence of the API contract on which it rests.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub contract: String,
    /// When it was asked: virtual time since the world's start, nanoseconds.
    pub at_ns: u64,
}

impl From<Point> for ChoicePoint {
    fn from(point: Point) -> ChoicePoint {
        let Point { key, taken, default, alternatives, fault, at_ns, pinned: _ } = point;
        ChoicePoint {
            key,
            default,
            taken,
            alternatives,
            fault: fault.map(|f| f.name.to_owned()),
            legality: fault.map_or(Legality::Always, |f| f.legality).to_string(),
            contract: fault.map_or("", |f| f.contract).to_owned(),
            at_ns,
        }
    }
}

impl ChoicePoint {
    /// Whether a cluster with these many faults allowed may leave the default here.
    pub fn permitted(&self, allowed: photofinish_sim::legality::Allowed) -> bool {
        match self.legality.as_str() {
            "always" => true,
            "ha" => allowed.ha,
            // Until a version: of clusters whose version nobody named.
            _ => allowed.never,
        }
    }
}
