//! What somebody believes beside what is true: stretches of one state, each with how far it lags behind.
use std::collections::{BTreeMap, BTreeSet};

use photofinish_sim::trace::{Entry, EntryId};
use serde::Serialize;

use crate::reading::View;

/// What one holder believes of one subject, or what is true of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Belief {
    pub(super) subject: String,
    /// `None`: the truth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<String>,
    pub(super) stretches: Vec<Stretch>,
}

/// A time in which neither the belief nor the truth changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Stretch {
    /// The entry that began it.
    pub(super) from: EntryId,
    /// The entry of the belief itself, or of the write: what a reader wants to see.
    pub(super) at: EntryId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rv: Option<u64>,
    /// True revisions that it does not rest on yet.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) behind: usize,
    /// How old the oldest of these is at the beginning of the stretch, nanoseconds.
    #[serde(skip_serializing_if = "is_zero_ns")]
    pub(super) lag_ns: u64,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}
fn is_zero_ns(n: &u64) -> bool {
    *n == 0
}

/// All beliefs, by subject, each subject's truth last.
pub(super) fn beliefs(views: &[View], entries: &[Entry]) -> Vec<Belief> {
    let time = |id: EntryId| entries.get(id as usize).map_or(0, |e| e.at_ns);
    let mut subjects: BTreeMap<&str, BTreeMap<Option<&str>, Vec<&View>>> = BTreeMap::new();
    for view in views {
        let holders = subjects.entry(&view.subject).or_default();
        holders.entry(view.holder.as_deref()).or_default().push(view);
    }
    let mut all = Vec::new();
    for (subject, mut holders) in subjects {
        let truth = holders.remove(&None).unwrap_or_default();
        for (holder, views) in holders {
            let stretches = stretches(&views, &truth, time);
            all.push(Belief { subject: subject.to_owned(), holder: holder.map(str::to_owned), stretches });
        }
        if !truth.is_empty() {
            all.push(Belief { subject: subject.to_owned(), holder: None, stretches: stretches(&truth, &[], time) });
        }
    }
    all
}

fn stretches(views: &[&View], truth: &[&View], time: impl Fn(EntryId) -> u64) -> Vec<Stretch> {
    let mut moments: Vec<EntryId> = views.iter().chain(truth).map(|view| view.at).collect();
    moments.sort_unstable();
    moments.dedup();
    let mut all: Vec<Stretch> = Vec::new();
    let (mut believed, mut known) = (0, 0);
    for from in moments {
        believed += views[believed..].iter().take_while(|view| view.at <= from).count();
        known += truth[known..].iter().take_while(|view| view.at <= from).count();
        let Some(view) = believed.checked_sub(1).map(|at| views[at]) else { continue };
        // What rests on nothing has seen no revision: all that is true is news to it.
        let seen = view.revision.unwrap_or(0);
        let newer = |t: &&&View| t.revision.is_some_and(|rv| rv > seen);
        let missed: Vec<&&View> = truth[..known].iter().filter(newer).collect();
        // The truth may be told several times under one revision.
        let behind = missed.iter().filter_map(|t| t.revision).collect::<BTreeSet<_>>().len();
        let stretch = Stretch {
            from,
            at: view.at,
            state: view.state.clone(),
            rv: view.revision,
            behind,
            lag_ns: missed.first().map_or(0, |first| time(from).saturating_sub(time(first.at))),
        };
        let same =
            |other: &&Stretch| (&other.state, other.rv, other.behind) == (&stretch.state, stretch.rv, stretch.behind);
        if all.last().as_ref().is_none_or(|last| !same(last)) {
            all.push(stretch);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(holder: Option<&str>, at: u64, state: &str, revision: u64) -> View {
        View {
            subject: "demo".into(),
            holder: holder.map(str::to_owned),
            at,
            state: (state != "gone").then(|| state.to_owned()),
            revision: (revision > 0).then_some(revision),
        }
    }
    /// An entry a millisecond.
    fn entries(count: u64) -> Vec<Entry> {
        let entry = |id| Entry {
            id,
            at_ns: id * 1_000_000,
            host: "h".into(),
            kind: "log".into(),
            name: "info".into(),
            text: String::new(),
            fields: vec![],
            spans: vec![],
            cause: None,
        };
        (0..count).map(entry).collect()
    }

    #[test]
    fn a_belief_lags_by_the_true_revisions_that_it_does_not_rest_on() {
        let gateway = Some("gateway");
        let views = [
            view(gateway, 0, "Provisioning", 0),
            view(None, 1, "on", 12),
            view(gateway, 2, "Ready", 12),
            view(None, 3, "on", 13),
            view(None, 4, "on, again", 13),
            view(None, 5, "off", 14),
            view(gateway, 6, "Ready", 13),
            view(gateway, 7, "Stopped", 14),
            view(gateway, 9, "gone", 14),
        ];
        let all = beliefs(&views, &entries(10));
        let told: Vec<_> = all[0]
            .stretches
            .iter()
            .map(|s| (s.from, s.at, s.state.as_deref().unwrap_or("gone"), s.behind, s.lag_ns / 1_000_000))
            .collect();
        let expected = [
            (0, 0, "Provisioning", 0, 0),
            (1, 0, "Provisioning", 1, 0),
            (2, 2, "Ready", 0, 0),
            (3, 2, "Ready", 1, 0),
            (5, 2, "Ready", 2, 2),
            (6, 6, "Ready", 1, 1),
            (7, 7, "Stopped", 0, 0),
            (9, 9, "gone", 0, 0),
        ];
        assert_eq!(told, expected);
        let truth: Vec<_> = all[1].stretches.iter().map(|s| (s.from, s.state.as_deref(), s.rv, s.behind)).collect();
        let expected = [
            (1, Some("on"), Some(12), 0),
            (3, Some("on"), Some(13), 0),
            (4, Some("on, again"), Some(13), 0),
            (5, Some("off"), Some(14), 0),
        ];
        assert_eq!(truth, expected);
    }

    #[test]
    fn what_says_the_same_again_begins_no_stretch() {
        let views = [view(Some("g"), 1, "Ready", 5), view(Some("g"), 2, "Ready", 5), view(Some("g"), 3, "Ready", 6)];
        let from: Vec<u64> = beliefs(&views, &entries(5))[0].stretches.iter().map(|s| s.from).collect();
        assert_eq!(from, [1, 3]);
    }
}
