//! What a replica is at work on, noted in the store for the others: a lifecycle gate is known in its own process only.
//!
//! A note is advice, as the lease is. Nobody waits for one: a session that comes while its create runs is told to come
//! again, and the loops leave alone what somebody drives. Notes of a process that has ended count until they are old.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::warn;

use crate::remedy::Remedy;

use super::core::Gateway;
use super::store::StoreError;

/// Time between two signs of life.
const SIGN: Duration = Duration::from_secs(15);
/// How long a note is believed after the last of them, milliseconds.
const TTL_MS: i64 = 45_000;

impl Gateway {
    /// Does work on a sandbox whose gate is held, and tells the other replicas of it, if there are any (remedy
    /// `replicas-note-their-work`).
    pub(crate) async fn noting<T>(self: &Arc<Self>, id: &str, work: impl Future<Output = T>) -> T {
        if !(self.config.shared && self.config.remedies.has(Remedy::ReplicasNoteTheirWork)) {
            return work.await;
        }
        self.note_work(id);
        // Not left to a destructor: the work of a process that is killed is over for the others only when its note is old,
        // while that of a request whose client has gone away is over at once. A task of its own tells the two apart.
        let (at_work, over) = oneshot::channel::<()>();
        tokio::spawn(self.clone().keep_noted(id.to_owned(), over));
        let done = work.await;
        self.end_work(id);
        let _ = at_work.send(());
        done
    }

    /// Renews a note until its work is done, or is dropped without being done.
    async fn keep_noted(self: Arc<Self>, id: String, mut over: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                done = &mut over => {
                    if done.is_err() {
                        self.end_work(&id);
                    }
                    return;
                }
                () = tokio::time::sleep(SIGN) => self.note_work(&id),
            }
        }
    }

    fn note_work(&self, id: &str) {
        self.warn_unless(id, self.rows.store.note_work(id, &self.config.replica, self.rows.now_ms()));
    }

    fn end_work(&self, id: &str) {
        self.warn_unless(id, self.rows.store.end_work(id, &self.config.replica));
    }

    fn warn_unless(&self, id: &str, noted: Result<(), StoreError>) {
        if let Err(error) = noted {
            warn!(%error, sandbox_id = %id, "what this replica works on was not noted");
        }
    }

    /// Is another replica at work on this sandbox, as far as it has told?
    pub(crate) fn is_worked_on_elsewhere(&self, id: &str) -> Result<bool, StoreError> {
        let since_ms = self.rows.now_ms() - TTL_MS;
        Ok(self.config.shared
            && self.rows.store.is_worked_on(id, &self.config.replica, since_ms)?
            && self.config.remedies.has(Remedy::ReplicasNoteTheirWork))
    }
}
