//! Owners and dependents, and what is to be done about an object.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;

/// What the collector knows of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Node {
    /// Position of its type.
    pub(super) kind: usize,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) owners: Vec<OwnerReference>,
    finalizers: Vec<String>,
    deleting: bool,
}

impl Node {
    pub(super) fn new(kind: usize, metadata: &ObjectMeta) -> Node {
        Node {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            owners: metadata.owner_references.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }

    /// Waits for its dependents to be gone.
    fn waits(&self) -> bool {
        self.deleting && self.finalizers.iter().any(|f| f == "foregroundDeletion")
    }

    fn orphans(&self) -> bool {
        self.deleting && self.finalizers.iter().any(|f| f == "orphan")
    }
}

/// What is to be done about an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    None,
    /// All its owners are gone, or going.
    Delete(PropagationPolicy),
    /// Some owners are gone, others are not: drop the references.
    Disown(Vec<String>),
    /// Nobody is left to wait for: remove the finalizer.
    Finish(&'static str),
    /// It waits for these dependents: look at them.
    LookAt(Vec<String>),
    OrphanDependents(Vec<String>),
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<String, Node>,
    /// Dependents by the uid of an owner, whether or not the owner was seen.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Uids of objects that were seen to go.
    gone: BTreeSet<String>,
    /// When an object was first seen, as a number: the order in which dependents are dealt with.
    arrivals: BTreeMap<String, u64>,
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    pub(super) fn saw_go(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// Whether the owner is there, and can own this object: owners are cluster-wide or of the same namespace.
    pub(super) fn holds(&self, owner: &str, dependent: &Node) -> bool {
        let owner = self.nodes.get(owner);
        owner.is_some_and(|owner| owner.namespace.is_empty() || owner.namespace == dependent.namespace)
    }

    /// Takes in a new state. Returns what to look at.
    pub(super) fn apply(&mut self, node: Node) -> Vec<String> {
        let before = self.nodes.get(&node.uid);
        if before == Some(&node) {
            return Vec::new();
        }
        for owner in before.map(|before| before.owners.clone()).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&node.uid);
            }
        }
        let mut look = Vec::new();
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(node.uid.clone());
            // A dependent that comes, goes or is disowned can be what its owner waits for.
            if self.nodes.get(&owner.uid).is_some_and(|owner| owner.waits() || owner.orphans()) {
                look.push(owner.uid.clone());
            }
        }
        // Whoever has owners may have dangling ones; whoever terminates may have to wait for dependents.
        if !node.owners.is_empty() || node.deleting {
            look.push(node.uid.clone());
        }
        let next = self.arrivals.len() as u64;
        self.arrivals.entry(node.uid.clone()).or_insert(next);
        self.nodes.insert(node.uid.clone(), node);
        look
    }

    /// Dependents of an owner, the first seen first.
    fn dependents_of(&self, owner: &str) -> Vec<String> {
        let mut all: Vec<String> = self.dependents.get(owner).into_iter().flatten().cloned().collect();
        all.sort_by_key(|uid| self.arrivals.get(uid));
        all
    }

    /// Takes in that an object is gone. Returns what to look at.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<String> {
        let mut look = self.dependents_of(uid);
        if let Some(node) = self.nodes.remove(uid) {
            for owner in node.owners {
                if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                    dependents.remove(uid);
                }
                if self.nodes.get(&owner.uid).is_some_and(Node::waits) {
                    look.push(owner.uid);
                }
            }
        }
        self.gone.insert(uid.to_owned());
        look
    }

    /// Takes in a complete list of a type: whatever is not in it is gone.
    pub(super) fn keep(&mut self, kind: usize, listed: &BTreeSet<String>) -> Vec<String> {
        let missing: Vec<String> =
            self.nodes.values().filter(|n| n.kind == kind && !listed.contains(&n.uid)).map(|n| n.uid.clone()).collect();
        missing.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// What to do about an object, when those of its owners in `absent` do not exist.
    pub(super) fn action(&self, node: &Node, absent: &BTreeSet<String>) -> Action {
        let dependents = || -> Vec<&Node> {
            let uids = self.dependents_of(&node.uid).into_iter();
            uids.filter_map(|uid| self.nodes.get(&uid)).filter(|d| self.holds(&node.uid, d)).collect()
        };
        if node.orphans() {
            return Action::OrphanDependents(dependents().iter().map(|d| d.uid.clone()).collect());
        }
        if node.waits() {
            let blocks = |d: &&Node| d.owners.iter().any(|o| o.uid == node.uid && o.block_owner_deletion == Some(true));
            let blocking: Vec<&Node> = dependents().into_iter().filter(blocks).collect();
            let living: Vec<String> = blocking.iter().filter(|d| !d.deleting).map(|d| d.uid.clone()).collect();
            return match (living.is_empty(), blocking.is_empty()) {
                (false, _) => Action::LookAt(living),
                (true, false) => Action::None,
                (true, true) => Action::Finish("foregroundDeletion"),
            };
        }
        if node.deleting || node.owners.is_empty() {
            return Action::None;
        }
        let waiting = |owner: &OwnerReference| self.nodes.get(&owner.uid).is_some_and(Node::waits);
        let solid = node.owners.iter().any(|owner| !absent.contains(&owner.uid) && !waiting(owner));
        let dangling: Vec<String> =
            node.owners.iter().filter(|o| absent.contains(&o.uid) || waiting(o)).map(|o| o.uid.clone()).collect();
        match (dangling.is_empty(), solid) {
            (true, _) => Action::None,
            (false, true) => Action::Disown(dangling),
            (false, false) => Action::Delete(PropagationPolicy::Background),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str, block: bool) -> OwnerReference {
        OwnerReference { uid: uid.into(), block_owner_deletion: Some(block), ..OwnerReference::default() }
    }

    fn node(uid: &str, owners: &[&str]) -> Node {
        let owners = owners.iter().map(|uid| owner(uid, true)).collect();
        Node { uid: uid.into(), namespace: "d".into(), owners, ..Node::default() }
    }

    fn dying(uid: &str, finalizer: &str) -> Node {
        Node { deleting: true, finalizers: vec![finalizer.into()], ..node(uid, &[]) }
    }

    fn absent(uids: &[&str]) -> BTreeSet<String> {
        uids.iter().map(|uid| (*uid).to_owned()).collect()
    }

    #[test]
    fn an_object_goes_when_all_its_owners_have_gone_and_is_disowned_when_some_have() {
        let graph = Graph::default();
        let one = node("p", &["a"]);
        let two = node("p", &["a", "b"]);
        assert_eq!(graph.action(&one, &absent(&[])), Action::None);
        assert_eq!(graph.action(&one, &absent(&["a"])), Action::Delete(PropagationPolicy::Background));
        assert_eq!(graph.action(&two, &absent(&["a"])), Action::Disown(vec!["a".into()]));
        assert_eq!(graph.action(&two, &absent(&["a", "b"])), Action::Delete(PropagationPolicy::Background));
    }

    #[test]
    fn a_foreground_deletion_ends_when_the_last_blocking_dependent_is_gone() {
        let mut graph = Graph::default();
        graph.apply(node("a", &[]));
        graph.apply(node("p", &["a"]));
        let owner = dying("a", "foregroundDeletion");
        assert_eq!(graph.apply(owner.clone()), ["a"]);
        assert_eq!(graph.action(&owner, &absent(&[])), Action::LookAt(vec!["p".into()]));
        let going = Node { deleting: true, ..node("p", &["a"]) };
        assert_eq!(graph.apply(going), ["a", "p"]);
        assert_eq!(graph.action(&owner, &absent(&[])), Action::None);
        assert_eq!(graph.remove("p"), ["a"]);
        assert_eq!(graph.action(&owner, &absent(&[])), Action::Finish("foregroundDeletion"));
    }

    #[test]
    fn an_orphaning_deletion_frees_the_dependents_first() {
        let mut graph = Graph::default();
        graph.apply(node("p", &["a"]));
        let owner = dying("a", "orphan");
        graph.apply(owner.clone());
        assert_eq!(graph.action(&owner, &absent(&[])), Action::OrphanDependents(vec!["p".into()]));
    }

    #[test]
    fn a_list_tells_what_went_while_nobody_watched() {
        let mut graph = Graph::default();
        graph.apply(node("a", &[]));
        graph.apply(node("p", &["a"]));
        assert_eq!(graph.keep(0, &absent(&["p"])), ["p"]);
        assert!(graph.saw_go("a"));
    }

    #[test]
    fn an_owner_in_another_namespace_does_not_count() {
        let mut graph = Graph::default();
        graph.apply(Node { namespace: "elsewhere".into(), ..node("a", &[]) });
        assert!(!graph.holds("a", &node("p", &["a"])));
        graph.apply(Node { namespace: String::new(), ..node("c", &[]) });
        assert!(graph.holds("c", &node("p", &["c"])), "a cluster-wide owner does");
    }
}
