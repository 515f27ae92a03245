//! What a replica is at work on, noted in the store for the others: a lifecycle gate is known in its own process only.
//!
//! A note is advice, as the lease is. Nobody waits for one: a session that comes while its create runs is told to come
//! again, and the loops leave alone what somebody drives. Notes of a process that has ended count until they are old.

use std::pin::pin;
use std::time::Duration;

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
    pub(crate) async fn noting<T>(&self, id: &str, work: impl Future<Output = T>) -> T {
        if !(self.config.shared && self.config.remedies.has(Remedy::ReplicasNoteTheirWork)) {
            return work.await;
        }
        let mut work = pin!(work);
        let done = loop {
            self.warn_unless(id, self.rows.store.note_work(id, &self.config.replica, self.rows.now_ms()));
            tokio::select! {
                biased;
                done = &mut work => break done,
                () = tokio::time::sleep(SIGN) => {}
            }
        };
        // Not left to a destructor: the work of a process that is killed is over for the others only when its note is old.
        self.warn_unless(id, self.rows.store.end_work(id, &self.config.replica));
        done
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
