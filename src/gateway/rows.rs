//! Writing rows: the store's compare-and-swap, with what must follow each commit whoever made it.

use tracing::info;

use crate::pb::openshell::{Sandbox, SandboxPhase};

use super::clock::Clock;
use super::notify::Notify;
use super::phases;
use super::record::Row;
use super::store::{Store, StoreError};

/// Who writes a row; the field `by` of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A request, at its admission.
    Rpc,
    /// The worker of an admitted request.
    Worker,
    /// The recovery after a driver call whose result is unknown.
    Recovery,
    /// A snapshot from the driver's watch.
    Snapshot,
    /// A supervisor session that came, went, or reported its configuration.
    Session,
    /// The report of an exited main process.
    Exit,
    /// The 60 s sweep.
    Sweep,
    /// The provisioning deadline.
    Deadline,
    /// The recovery of what an earlier process left behind.
    Startup,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Rpc => "rpc",
            By::Worker => "worker",
            By::Recovery => "recovery",
            By::Snapshot => "snapshot",
            By::Session => "session",
            By::Exit => "exit",
            By::Sweep => "sweep",
            By::Deadline => "deadline",
            By::Startup => "startup",
        }
    }
}

/// What holds for every stored row: a sandbox that is Ready has no start left to settle.
pub(crate) fn settle(row: &mut Sandbox) {
    if row.phase() == SandboxPhase::Ready {
        row.start_attempt.clear();
    }
}

/// Logs that a lifecycle request was admitted: its intent is durable, or there was nothing to do.
pub(crate) fn accepted(op: &str, row: &Sandbox) {
    info!(op = %op, sandbox_name = %row.name(), sandbox_id = %row.id(), code = 0, detail = "", "request accepted");
}

/// The rows of the sandboxes.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) notify: Notify,
}

impl Rows {
    pub(crate) fn new(store: Store) -> Self {
        Rows { store, clock: Clock::start(), notify: Notify::default() }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    pub(crate) fn get(&self, id: &str) -> Result<Option<Sandbox>, StoreError> {
        self.store.sandbox(id)
    }

    pub(crate) fn create(&self, row: Sandbox) -> Result<Sandbox, StoreError> {
        let row = self.store.create("create", row, self.now_ms())?;
        self.notify.publish(&row);
        Ok(row)
    }

    /// One compare-and-swap; see [`Store::compare_and_swap`].
    pub(crate) fn update(
        &self,
        by: By,
        op: &str,
        id: &str,
        expected: u64,
        change: impl FnOnce(&mut Sandbox),
    ) -> Result<Sandbox, StoreError> {
        self.commit(by, op, id, expected, change, |_| {})
    }

    /// The write that admits a lifecycle request: the log says that the request is accepted before it tells what phase
    /// that brought.
    pub(crate) fn admit(
        &self,
        op: &str,
        id: &str,
        expected: u64,
        change: impl FnOnce(&mut Sandbox),
    ) -> Result<Sandbox, StoreError> {
        self.commit(By::Rpc, op, id, expected, change, |row| accepted(op, row))
    }

    fn commit(
        &self,
        by: By,
        op: &str,
        id: &str,
        expected: u64,
        change: impl FnOnce(&mut Sandbox),
        committed: impl FnOnce(&Sandbox),
    ) -> Result<Sandbox, StoreError> {
        let written = self.store.compare_and_swap(op, id, expected, self.now_ms(), |row| {
            change(row);
            settle(row);
        })?;
        committed(&written.new);
        let (old, new) = (written.old.phase(), written.new.phase());
        if old != new {
            info!(
                old_phase = %phases::phase_name(old), new_phase = %phases::phase_name(new), sandbox_id = %id,
                sandbox_name = %written.new.name(), by = %by.name(), "Sandbox phase changed"
            );
        }
        self.notify.publish(&written.new);
        Ok(written.new)
    }

    /// Removes a row whatever its version.
    pub(crate) fn delete(&self, op: &str, id: &str) -> Result<bool, StoreError> {
        let gone = self.store.delete(op, id)?;
        self.forget(id)?;
        Ok(gone)
    }

    /// Removes a row at exactly this version.
    pub(crate) fn delete_at(&self, op: &str, id: &str, version: u64) -> Result<(), StoreError> {
        self.store.delete_at(op, id, version)?;
        self.forget(id)
    }

    fn forget(&self, id: &str) -> Result<(), StoreError> {
        self.notify.removed(id);
        self.store.delete_owner(id)
    }
}
