//! Lifecycle gates: one mutex a sandbox, within this process only.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Held for a whole create, start, stop or delete; the reconciler tries it and skips a busy sandbox.
///
/// First come, first served. Two processes do not see each other's gates.
#[derive(Default)]
pub(super) struct LifecycleGates(Mutex<BTreeMap<String, Weak<AsyncMutex<()>>>>);

/// The gate, until dropped.
pub(super) type GateGuard = OwnedMutexGuard<()>;

impl LifecycleGates {
    /// Waits for the gate of this sandbox id.
    pub(super) async fn enter(&self, id: &str) -> GateGuard {
        self.gate(id).lock_owned().await
    }
    /// The gate of this sandbox id, if nobody holds or awaits it.
    pub(super) fn try_enter(&self, id: &str) -> Option<GateGuard> {
        self.gate(id).try_lock_owned().ok()
    }
    fn gate(&self, id: &str) -> Arc<AsyncMutex<()>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(id).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0); // so that the table holds only what is in use
        let gate = Arc::new(AsyncMutex::new(()));
        gates.insert(id.to_owned(), Arc::downgrade(&gate));
        gate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_holder_a_sandbox_and_no_more() {
        let gates = LifecycleGates::default();
        let held = gates.enter("a").await;
        assert!(gates.try_enter("a").is_none());
        assert!(gates.try_enter("b").is_some(), "another sandbox has a gate of its own");
        drop(held);
        assert!(gates.try_enter("a").is_some());
    }

    #[tokio::test]
    async fn those_who_wait_enter_in_the_order_in_which_they_came() {
        let gates = Arc::new(LifecycleGates::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let held = gates.enter("a").await;
        let mut waiting = Vec::new();
        for n in 0..5 {
            let (gates, order) = (gates.clone(), order.clone());
            waiting.push(tokio::spawn(async move {
                let _gate = gates.enter("a").await;
                order.lock().expect("no panic").push(n);
            }));
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in waiting {
            task.await.expect("no panic");
        }
        assert_eq!(*order.lock().expect("no panic"), [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn gates_that_nobody_uses_are_forgotten() {
        let gates = LifecycleGates::default();
        for n in 0..100 {
            drop(gates.enter(&n.to_string()).await);
        }
        assert_eq!(gates.0.lock().expect("no panic").len(), 1);
    }
}
