//! Supervisor Pods of another run than their resource's, as the reconciler has come across them.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// By sandbox id the uid of the Pod that was found last. Nothing is lost with it: a driver that begins anew waits a round more.
#[derive(Debug, Default)]
pub(in crate::driver) struct Strangers(Mutex<BTreeMap<String, String>>);

impl Strangers {
    /// Has an earlier round found this Pod, too? It is known from now on.
    pub(in crate::driver) fn seen_again(&self, sandbox_id: &str, pod_uid: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(sandbox_id.into(), pod_uid.into()).is_some_and(|before| before == pod_uid)
    }

    /// Forgets what was found of other sandboxes than these.
    pub(in crate::driver) fn keep(&self, sandbox: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| sandbox(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_pod_is_seen_again() {
        let strangers = Strangers::default();
        for (sandbox, pod, again) in [
            ("a", "u1", false),
            ("a", "u1", true),
            ("a", "u2", false),
            ("b", "u2", false),
            ("a", "u2", true),
            ("b", "u2", true),
        ] {
            assert_eq!(strangers.seen_again(sandbox, pod), again, "{pod} of {sandbox}");
        }
        strangers.keep(|id| id == "b");
        assert!(!strangers.seen_again("a", "u2"), "it is forgotten");
        assert!(strangers.seen_again("b", "u2"));
    }
}
