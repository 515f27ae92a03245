//! Writing rows: the store's compare-and-swap, with what must follow each commit whoever made it.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::{debug, info};

use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::Remedies;

use super::clock::Clock;
use super::notify::Notify;
use super::phases;
use super::record::Row;
use super::store::{Store, StoreError};
use super::{Profile, admission, deadline};

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
    /// What the driver answered when a snapshot of its watch was doubted.
    Live,
    /// The automatic restart of a main process.
    Restart,
    /// A supervisor session that came, went, or reported its configuration.
    Session,
    /// The report of an exited main process.
    Exit,
    /// The 60 s sweep.
    Sweep,
    /// The same sweep, of a row whose resource is gone.
    Missing,
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
            By::Live => "live",
            By::Restart => "restart",
            By::Session => "session",
            By::Exit => "exit",
            By::Sweep => "sweep",
            By::Missing => "missing",
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
    profile: Profile,
    remedies: Remedies,
    cached: Mutex<Option<Cached>>,
}

/// Rows as of a revision of the store.
type Cached = ((i64, u64), Arc<Vec<Sandbox>>);

impl Rows {
    pub(crate) fn new(store: Store, profile: Profile, remedies: Remedies) -> Self {
        Rows { store, clock: Clock::start(), notify: Notify::default(), profile, remedies, cached: Mutex::default() }
    }

    /// Notes which requests a row admits, and until when it is waited for: what a way out of it is judged by.
    fn note_exits(&self, row: &Sandbox) {
        let deadline_ms = row.status.as_ref().and_then(|s| s.provisioning.as_ref()).map_or(0, |p| p.deadline_ms);
        debug!(
            target: "photofinish_openshell::gateway::store", sandbox_id = %row.id(), sandbox_name = %row.name(),
            phase = %phases::phase_name(row.phase()), deadline_ms,
            admits = %admission::admitted(self.profile, self.remedies, row), "row exits"
        );
    }
    fn exits(&self, row: &Sandbox) -> (SandboxPhase, String, bool) {
        let armed = row.status.as_ref().and_then(|s| s.provisioning.as_ref()).is_some_and(|p| p.deadline_ms != 0);
        (row.phase(), admission::admitted(self.profile, self.remedies, row), armed)
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// All rows, oldest first; read again only if somebody has written since. For the loops, which look often.
    pub(crate) fn sandboxes(&self) -> Result<Arc<Vec<Sandbox>>, StoreError> {
        let revision = self.store.revision()?;
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, rows)) = &*cached
            && *of == revision
        {
            return Ok(rows.clone());
        }
        let rows = Arc::new(self.store.sandboxes()?);
        *cached = Some((revision, rows.clone()));
        Ok(rows)
    }

    pub(crate) fn get(&self, id: &str) -> Result<Option<Sandbox>, StoreError> {
        self.store.sandbox(id)
    }

    pub(crate) fn create(&self, row: Sandbox) -> Result<Sandbox, StoreError> {
        let row = self.store.create("create", row, self.now_ms())?;
        self.note_exits(&row);
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
            let before = row.phase();
            change(row);
            settle(row);
            deadline::rearm(row, before, self.remedies, self.now_ms());
        })?;
        committed(&written.new);
        let (old, new) = (written.old.phase(), written.new.phase());
        if old != new {
            info!(
                old_phase = %phases::phase_name(old), new_phase = %phases::phase_name(new), sandbox_id = %id,
                sandbox_name = %written.new.name(), by = %by.name(), "Sandbox phase changed"
            );
        }
        if self.exits(&written.old) != self.exits(&written.new) {
            self.note_exits(&written.new);
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
