//! Locks by sandbox id, made when first asked for and forgotten when nobody holds them.
//!
//! Two registries guard a sandbox, always taken in this order: the lifecycle gate (held over a whole driver call) and
//! the mutation lock (held over one read-modify-write of the row, never over a driver call).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::timeout;
use tracing::warn;

/// Nobody should have to wait so long for a row.
const LONG: Duration = Duration::from_secs(3);

/// Proof that a lock is held; dropping it lets the next in line go on.
pub(crate) type Held = OwnedMutexGuard<()>;

/// First come, first served, one line a sandbox.
#[derive(Debug, Default)]
pub(crate) struct KeyedLocks {
    locks: Mutex<BTreeMap<String, Weak<AsyncMutex<()>>>>,
    one_for_all: bool,
    /// They guard rows, so none is held for long.
    of_rows: bool,
}

impl KeyedLocks {
    /// Locks of rows; `one_for_all` is one line for all sandboxes, as it was before each had a lock of its own.
    pub(crate) fn of_rows(one_for_all: bool) -> Self {
        KeyedLocks { one_for_all, of_rows: true, ..KeyedLocks::default() }
    }
    fn of(&self, id: &str) -> Arc<AsyncMutex<()>> {
        let id = if self.one_for_all { "" } else { id };
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(AsyncMutex::new(()));
        locks.insert(id.into(), Arc::downgrade(&lock));
        lock
    }
    /// Waits in line for this sandbox's lock.
    pub(crate) async fn lock(&self, id: &str) -> Held {
        let waiting = self.of(id).lock_owned();
        if !self.of_rows {
            return waiting.await;
        }
        tokio::pin!(waiting);
        match timeout(LONG, &mut waiting).await {
            Ok(held) => held,
            // Told now: whoever waits may give up before it is served.
            Err(_) => {
                warn!(sandbox_id = %id, waited_ms = LONG.as_millis() as u64, "a row's lock is waited for");
                waiting.await
            }
        }
    }
    /// Takes the lock if nobody holds it or waits for it.
    pub(crate) fn try_lock(&self, id: &str) -> Option<Held> {
        self.of(id).try_lock_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_sandbox_waits_and_another_does_not() {
        let gates = KeyedLocks::default();
        let held = gates.lock("a").await;
        assert!(gates.try_lock("a").is_none());
        assert!(gates.try_lock("b").is_some());
        drop(held);
        assert!(gates.try_lock("a").is_some());
    }

    #[tokio::test]
    async fn one_lock_for_all_makes_every_sandbox_wait() {
        let gates = KeyedLocks::of_rows(true);
        let held = gates.lock("a").await;
        assert!(gates.try_lock("b").is_none());
        drop(held);
        assert!(gates.try_lock("b").is_some());
    }

    #[tokio::test]
    async fn those_who_wait_are_served_in_order_and_idle_locks_are_forgotten() {
        let gates = Arc::new(KeyedLocks::default());
        let order = Arc::new(Mutex::new(vec![]));
        let held = gates.lock("a").await;
        let waiting: Vec<_> = (0..3)
            .map(|n| {
                let (gates, order) = (gates.clone(), order.clone());
                tokio::spawn(async move {
                    let _held = gates.lock("a").await;
                    order.lock().unwrap().push(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(held);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
        drop(gates.lock("b").await);
        assert_eq!(gates.locks.lock().unwrap().len(), 1);
    }
}
