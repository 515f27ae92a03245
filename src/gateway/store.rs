//! The durable rows: one `objects` table in SQLite, protobuf blobs, compare-and-swap on a row version.
//!
//! Every call is one short statement that runs to its end before it returns, so no transaction is ever held over an
//! await. A busy database is an error at once (`busy_timeout` 0): with one connection a process there is nobody to wait
//! for, and replicas on one database retry by reading again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use tracing::debug;

use crate::pb::openshell::{ReconcilerLease, Sandbox, SupervisorOwner, WorkNote};

use super::phases;
use super::record::Row;

const SANDBOX: &str = "sandbox";
const OWNER: &str = "supervisor_owner";
const LEASE: &str = "reconciler_lease";
const WORK: &str = "work";
/// Id of the one row of type [`LEASE`].
const SINGLETON: &str = "singleton";

/// Why a store call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No row has this id.
    #[error("no sandbox row with id {id}")]
    NotFound {
        /// The id asked for.
        id: String,
    },
    /// The workspace already holds a row of this name.
    #[error("sandbox {name} already exists in workspace {workspace}")]
    AlreadyExists {
        /// The name asked for.
        name: String,
        /// Its workspace.
        workspace: String,
    },
    /// The row is at another version than the writer expected.
    #[error("row {id} is at resource version {current}, not at {expected}")]
    Conflict {
        /// The row's id.
        id: String,
        /// The version that the writer had read.
        expected: u64,
        /// The version that the row has now; 0 if it is gone.
        current: u64,
    },
    /// A stored blob is not the message that its type promises.
    #[error("row {id} does not decode: {source}")]
    Decode {
        /// The row's id.
        id: String,
        /// What the decoder met.
        source: prost::DecodeError,
    },
    /// SQLite refused.
    #[error("database: {0}")]
    Database(#[from] rusqlite::Error),
}

/// A row before and after a write.
#[derive(Clone, Debug)]
pub struct Written {
    /// The row that the change was applied to.
    pub old: Sandbox,
    /// The row as it is stored now.
    pub new: Sandbox,
}

/// The store of one gateway process.
#[derive(Debug)]
pub struct Store {
    connection: Mutex<Connection>,
}

impl Store {
    /// Opens a database, a path or a `file:` URI (`file:/gateway?vfs=memdb` lives as long as any connection to it), and
    /// makes its table if it is new.
    ///
    /// # Errors
    /// If SQLite cannot open it or its schema cannot be made.
    pub fn open(database: &str) -> Result<Store, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(database, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        // `seq` is the order in which rows came to be: the order in which they are listed and swept.
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS objects (
                 seq INTEGER PRIMARY KEY,
                 object_type TEXT NOT NULL,
                 id TEXT NOT NULL,
                 workspace TEXT NOT NULL,
                 name TEXT NOT NULL,
                 resource_version INTEGER NOT NULL,
                 created_at_ms INTEGER NOT NULL,
                 updated_at_ms INTEGER NOT NULL,
                 payload BLOB NOT NULL,
                 UNIQUE (object_type, id),
                 UNIQUE (object_type, workspace, name)
             );",
        )?;
        // All at once, not each where it is needed first: the first of many writes is not slower than the others.
        connection.set_prepared_statement_cache_capacity(sql::ALL.len());
        for statement in sql::ALL {
            connection.prepare_cached(statement)?;
        }
        Ok(Store { connection: Mutex::new(connection) })
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        // A statement that panicked has left nothing half-done: each is atomic by itself.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox with this id.
    pub fn sandbox(&self, id: &str) -> Result<Option<Sandbox>, StoreError> {
        self.db().prepare_cached(sql::ONE)?.query_row(params![SANDBOX, id], raw).optional()?.map(decode).transpose()
    }

    /// The sandbox with this name in this workspace.
    pub fn sandbox_named(&self, workspace: &str, name: &str) -> Result<Option<Sandbox>, StoreError> {
        self.db()
            .prepare_cached(sql::NAMED)?
            .query_row(params![SANDBOX, workspace, name], raw)
            .optional()?
            .map(decode)
            .transpose()
    }

    /// All sandboxes, oldest row first.
    pub fn sandboxes(&self) -> Result<Vec<Sandbox>, StoreError> {
        let db = self.db();
        let mut statement = db.prepare_cached(sql::EACH)?;
        let rows = statement.query_map(params![SANDBOX], raw)?;
        rows.map(|row| decode(row?)).collect()
    }

    /// Puts a row that must not exist yet, at version 1. `op` names the writer in the log.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] if the workspace holds a row of this name.
    pub fn create(&self, op: &str, mut sandbox: Sandbox, now_ms: i64) -> Result<Sandbox, StoreError> {
        let meta = sandbox.meta_mut();
        (meta.resource_version, meta.created_at_ms, meta.updated_at_ms) = (1, now_ms, now_ms);
        let (id, workspace, name) = (meta.id.clone(), meta.workspace.clone(), meta.name.clone());
        let put = self.db().prepare_cached(sql::PUT)?.execute(params![
            SANDBOX,
            id,
            workspace,
            name,
            now_ms,
            sandbox.encode_to_vec()
        ]);
        match put {
            Ok(_) => {
                committed(op, &sandbox);
                Ok(sandbox)
            }
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Err(StoreError::AlreadyExists { name, workspace })
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Reads the row, applies `change`, and writes it if nobody else has written since: `expected` is the version that
    /// the writer's decision rests on, 0 for "whatever is current".
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a row; [`StoreError::Conflict`] if it is at another version.
    pub fn compare_and_swap(
        &self,
        op: &str,
        id: &str,
        expected: u64,
        now_ms: i64,
        change: impl FnOnce(&mut Sandbox),
    ) -> Result<Written, StoreError> {
        let old = self.sandbox(id)?.ok_or_else(|| StoreError::NotFound { id: id.into() })?;
        let current = old.version();
        if expected != 0 && expected != current {
            return Err(StoreError::Conflict { id: id.into(), expected, current });
        }
        let mut new = old.clone();
        change(&mut new);
        let meta = new.meta_mut();
        (meta.resource_version, meta.updated_at_ms) = (current + 1, now_ms);
        let changed = self.db().prepare_cached(sql::SWAP)?.execute(params![
            meta.workspace.clone(),
            meta.name.clone(),
            version(current + 1),
            now_ms,
            new.encode_to_vec(),
            SANDBOX,
            id,
            version(current)
        ])?;
        if changed == 0 {
            return Err(self.conflict(id, current)?);
        }
        committed(op, &new);
        Ok(Written { old, new })
    }

    /// Removes the row whatever its version; true if there was one.
    pub fn delete(&self, op: &str, id: &str) -> Result<bool, StoreError> {
        let gone = self.db().prepare_cached(sql::DELETE)?.execute(params![SANDBOX, id])? > 0;
        if gone {
            removed(op, id, 0);
        }
        Ok(gone)
    }

    /// Removes the row at exactly this version.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is at another version or gone.
    pub fn delete_at(&self, op: &str, id: &str, expected: u64) -> Result<(), StoreError> {
        if self.db().prepare_cached(sql::DELETE_AT)?.execute(params![SANDBOX, id, version(expected)])? == 0 {
            return Err(self.conflict(id, expected)?);
        }
        removed(op, id, expected);
        Ok(())
    }

    fn conflict(&self, id: &str, expected: u64) -> Result<StoreError, StoreError> {
        let current = self.sandbox(id)?.map_or(0, |row| row.version());
        Ok(StoreError::Conflict { id: id.into(), expected, current })
    }

    /// Who serves the supervisor session of this sandbox, whether fresh or not.
    pub fn owner(&self, sandbox_id: &str) -> Result<Option<SupervisorOwner>, StoreError> {
        let blob = self
            .db()
            .prepare_cached(sql::PAYLOAD)?
            .query_row(params![OWNER, sandbox_id], |row| row.get::<_, Vec<u8>>(0))
            .optional()?;
        let decode = |blob: Vec<u8>| SupervisorOwner::decode(blob.as_slice());
        blob.map(decode).transpose().map_err(|source| StoreError::Decode { id: sandbox_id.into(), source })
    }

    /// Writes the owner row of a session: the newest session wins.
    pub fn put_owner(&self, sandbox_id: &str, owner: &SupervisorOwner) -> Result<(), StoreError> {
        self.db().prepare_cached(sql::PUT_OWNER)?.execute(params![
            OWNER,
            sandbox_id,
            owner.seen_ms,
            owner.encode_to_vec()
        ])?;
        debug!(id = %sandbox_id, session = %owner.session_id, "owner commit");
        Ok(())
    }

    /// Takes the lease of the loops for `holder`, if it is free, `holder`'s already, or was not renewed for `ttl_ms`; true
    /// if `holder` has it now. One statement decides, so of two that try only one gets it.
    pub fn lease(&self, holder: &str, now_ms: i64, ttl_ms: i64) -> Result<bool, StoreError> {
        let lease = ReconcilerLease { holder: holder.into(), renewed_ms: now_ms };
        // The name column tells the holder.
        let taken = self.db().prepare_cached(sql::LEASE)?.execute(params![
            LEASE,
            SINGLETON,
            holder,
            now_ms,
            lease.encode_to_vec(),
            ttl_ms
        ])?;
        Ok(taken > 0)
    }

    /// Notes that a replica works on a sandbox, or that it still does.
    pub fn note_work(&self, sandbox_id: &str, replica: &str, now_ms: i64) -> Result<(), StoreError> {
        let note = WorkNote { replica: replica.into(), seen_ms: now_ms };
        self.db().prepare_cached(sql::PUT_WORK)?.execute(params![
            WORK,
            work_id(sandbox_id, replica),
            sandbox_id,
            replica,
            now_ms,
            note.encode_to_vec()
        ])?;
        debug!(id = %sandbox_id, replica = %replica, works = true, "work commit");
        Ok(())
    }

    /// The replica works on the sandbox no longer.
    pub fn end_work(&self, sandbox_id: &str, replica: &str) -> Result<(), StoreError> {
        if self.db().prepare_cached(sql::DELETE)?.execute(params![WORK, work_id(sandbox_id, replica)])? > 0 {
            debug!(id = %sandbox_id, replica = %replica, works = false, "work commit");
        }
        Ok(())
    }

    /// Removes all notes of a replica: a process that begins is at nothing yet.
    pub fn end_all_work(&self, replica: &str) -> Result<(), StoreError> {
        self.db().prepare_cached(sql::END_WORK)?.execute(params![WORK, replica])?;
        Ok(())
    }

    /// Has any other replica noted since then that it works on the sandbox?
    pub fn is_worked_on(&self, sandbox_id: &str, replica: &str, since_ms: i64) -> Result<bool, StoreError> {
        let asked = params![WORK, sandbox_id, replica, since_ms];
        Ok(self.db().prepare_cached(sql::WORKED_ON)?.query_row(asked, |row| row.get(0))?)
    }

    /// A number that differs from an earlier one if any commit of any connection came in between.
    pub fn revision(&self) -> Result<(i64, u64), StoreError> {
        let db = self.db();
        let others = db.prepare_cached(sql::REVISION)?.query_row([], |row| row.get(0))?;
        Ok((others, db.total_changes()))
    }

    /// Removes the owner row, whoever's it is.
    pub fn delete_owner(&self, sandbox_id: &str) -> Result<(), StoreError> {
        if self.db().prepare_cached(sql::DELETE)?.execute(params![OWNER, sandbox_id])? > 0 {
            debug!(id = %sandbox_id, session = "", "owner commit");
        }
        Ok(())
    }
}

/// One note a replica and sandbox.
fn work_id(sandbox_id: &str, replica: &str) -> String {
    format!("{sandbox_id}/{replica}")
}

/// All statements.
mod sql {
    /// The columns of a row that `raw` reads, and where they are.
    macro_rules! select {
        ($rest:literal) => {
            concat!("SELECT id, resource_version, created_at_ms, updated_at_ms, payload FROM objects ", $rest)
        };
    }
    macro_rules! insert {
        ($rest:literal) => {
            concat!(
                "INSERT INTO objects (object_type, id, workspace, name, resource_version, created_at_ms, updated_at_ms, payload) ",
                $rest
            )
        };
    }
    pub(super) const ONE: &str = select!("WHERE object_type = ?1 AND id = ?2");
    pub(super) const NAMED: &str = select!("WHERE object_type = ?1 AND workspace = ?2 AND name = ?3");
    pub(super) const EACH: &str = select!("WHERE object_type = ?1 ORDER BY seq");
    pub(super) const PAYLOAD: &str = "SELECT payload FROM objects WHERE object_type = ?1 AND id = ?2";
    pub(super) const PUT: &str = insert!("VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5, ?6)");
    pub(super) const SWAP: &str =
        "UPDATE objects SET workspace = ?1, name = ?2, resource_version = ?3, updated_at_ms = ?4, payload = ?5
         WHERE object_type = ?6 AND id = ?7 AND resource_version = ?8";
    pub(super) const DELETE: &str = "DELETE FROM objects WHERE object_type = ?1 AND id = ?2";
    pub(super) const DELETE_AT: &str =
        "DELETE FROM objects WHERE object_type = ?1 AND id = ?2 AND resource_version = ?3";
    pub(super) const PUT_OWNER: &str = insert!(
        "VALUES (?1, ?2, '', ?2, 1, ?3, ?3, ?4)
         ON CONFLICT (object_type, id) DO UPDATE
         SET resource_version = resource_version + 1, updated_at_ms = ?3, payload = ?4"
    );
    pub(super) const LEASE: &str = insert!(
        "VALUES (?1, ?2, '', ?3, 1, ?4, ?4, ?5)
         ON CONFLICT (object_type, id) DO UPDATE
         SET name = ?3, resource_version = resource_version + 1, updated_at_ms = ?4, payload = ?5
         WHERE name = ?3 OR updated_at_ms < ?4 - ?6"
    );
    pub(super) const PUT_WORK: &str = insert!(
        "VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5, ?6)
         ON CONFLICT (object_type, id) DO UPDATE
         SET resource_version = resource_version + 1, updated_at_ms = ?5, payload = ?6"
    );
    pub(super) const END_WORK: &str = "DELETE FROM objects WHERE object_type = ?1 AND name = ?2";
    pub(super) const WORKED_ON: &str = "SELECT EXISTS (SELECT 1 FROM objects
         WHERE object_type = ?1 AND workspace = ?2 AND name <> ?3 AND updated_at_ms > ?4)";
    pub(super) const REVISION: &str = "PRAGMA data_version";
    pub(super) const ALL: &[&str] = &[
        ONE, NAMED, EACH, PAYLOAD, PUT, SWAP, DELETE, DELETE_AT, PUT_OWNER, LEASE, PUT_WORK, END_WORK, WORKED_ON,
        REVISION,
    ];
}

struct Raw {
    id: String,
    resource_version: i64,
    created_at_ms: i64,
    updated_at_ms: i64,
    payload: Vec<u8>,
}

fn raw(row: &rusqlite::Row<'_>) -> rusqlite::Result<Raw> {
    Ok(Raw {
        id: row.get(0)?,
        resource_version: row.get(1)?,
        created_at_ms: row.get(2)?,
        updated_at_ms: row.get(3)?,
        payload: row.get(4)?,
    })
}

/// The columns are the truth about version and times; the blob only repeats them.
fn decode(raw: Raw) -> Result<Sandbox, StoreError> {
    let mut sandbox =
        Sandbox::decode(raw.payload.as_slice()).map_err(|source| StoreError::Decode { id: raw.id.clone(), source })?;
    let meta = sandbox.meta_mut();
    meta.resource_version = u64::try_from(raw.resource_version).unwrap_or(0);
    (meta.created_at_ms, meta.updated_at_ms) = (raw.created_at_ms, raw.updated_at_ms);
    sandbox.status_mut();
    Ok(sandbox)
}

/// SQLite's integers are signed; a version that does not fit would take 292 years at a write a nanosecond.
fn version(v: u64) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}

fn committed(op: &str, row: &Sandbox) {
    debug!(
        op = %op, id = %row.id(), resource_version = row.version(), phase = %phases::phase_name(row.phase()),
        start_attempt = %row.start_attempt, "store commit"
    );
}

fn removed(op: &str, id: &str, version: u64) {
    debug!(op = %op, id = %id, resource_version = version, phase = "", start_attempt = "", "store commit");
}

#[cfg(test)]
mod tests {
    use crate::pb::openshell::{ObjectMeta, SandboxPhase};

    use super::*;

    fn store() -> Store {
        // A name of its own for each test: memdb databases of one name are one within a process.
        Store::open(&format!("file:/{}?vfs=memdb", uuid::Uuid::new_v4())).unwrap()
    }
    fn sandbox(id: &str, name: &str) -> Sandbox {
        let metadata =
            ObjectMeta { id: id.into(), name: name.into(), workspace: "default".into(), ..Default::default() };
        let mut row = Sandbox { metadata: Some(metadata), ..Default::default() };
        row.status_mut().set_phase(SandboxPhase::Provisioning);
        row
    }

    #[test]
    fn every_write_moves_the_version_by_one_and_the_time_to_now() {
        let store = store();
        assert_eq!(store.create("create", sandbox("a", "demo"), 10).unwrap().version(), 1);
        let written = store
            .compare_and_swap("x", "a", 1, 20, |row| row.set_phase(SandboxPhase::Ready, "True", "Up", "", 20))
            .unwrap();
        assert_eq!((written.old.phase(), written.old.version()), (SandboxPhase::Provisioning, 1));
        let read = store.sandbox("a").unwrap().unwrap();
        assert_eq!(read, written.new);
        let meta = read.metadata.as_ref().unwrap();
        assert_eq!((meta.resource_version, meta.created_at_ms, meta.updated_at_ms), (2, 10, 20));
        assert_eq!(store.sandbox_named("default", "demo").unwrap().unwrap(), read);
        assert_eq!(store.sandbox_named("other", "demo").unwrap(), None);
    }

    #[test]
    fn a_writer_that_read_an_older_version_is_refused_and_told_the_present_one() {
        let store = store();
        store.create("create", sandbox("a", "demo"), 0).unwrap();
        store.compare_and_swap("x", "a", 1, 0, |_| {}).unwrap();
        let stale = store.compare_and_swap("x", "a", 1, 0, |_| panic!("must not be asked"));
        assert!(matches!(stale, Err(StoreError::Conflict { expected: 1, current: 2, .. })), "{stale:?}");
        assert_eq!(store.compare_and_swap("x", "a", 0, 0, |_| {}).unwrap().new.version(), 3);
        assert!(matches!(store.delete_at("x", "a", 2), Err(StoreError::Conflict { current: 3, .. })));
        store.delete_at("x", "a", 3).unwrap();
        assert!(matches!(store.compare_and_swap("x", "a", 0, 0, |_| {}), Err(StoreError::NotFound { .. })));
        assert!(!store.delete("x", "a").unwrap());
    }

    #[test]
    fn a_name_is_taken_once_a_workspace() {
        let store = store();
        store.create("create", sandbox("a", "demo"), 0).unwrap();
        let twin = store.create("create", sandbox("b", "demo"), 0);
        assert!(matches!(twin, Err(StoreError::AlreadyExists { .. })), "{twin:?}");
        let mut elsewhere = sandbox("b", "demo");
        elsewhere.meta_mut().workspace = "other".into();
        store.create("create", elsewhere, 0).unwrap();
        assert!(store.delete("x", "a").unwrap());
        store.create("create", sandbox("c", "demo"), 0).unwrap();
    }

    #[test]
    fn rows_are_listed_in_the_order_in_which_they_were_created() {
        let store = store();
        for id in ["m", "z", "a", "k"] {
            store.create("create", sandbox(id, id), 0).unwrap();
        }
        store.compare_and_swap("x", "z", 0, 0, |_| {}).unwrap();
        let ids = store.sandboxes().unwrap().iter().map(|row| row.id().to_string()).collect::<Vec<_>>();
        assert_eq!(ids, ["m", "z", "a", "k"]);
    }

    #[test]
    fn a_database_outlives_the_process_that_wrote_it() {
        let folder = std::env::temp_dir().join(format!("gateway-store-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("rows.db");
        let path = path.to_str().unwrap();
        Store::open(path).unwrap().create("create", sandbox("a", "demo"), 0).unwrap();
        assert_eq!(Store::open(path).unwrap().sandbox("a").unwrap().unwrap().name(), "demo");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn processes_on_one_memory_database_see_each_others_commits() {
        let uri = format!("file:/{}?vfs=memdb", uuid::Uuid::new_v4());
        let (one, two) = (Store::open(&uri).unwrap(), Store::open(&uri).unwrap());
        one.create("create", sandbox("a", "demo"), 0).unwrap();
        two.compare_and_swap("x", "a", 1, 0, |_| {}).unwrap();
        assert!(matches!(one.compare_and_swap("x", "a", 1, 0, |_| {}), Err(StoreError::Conflict { .. })));
    }

    #[test]
    fn the_lease_is_one_holders_until_it_was_not_renewed_for_its_time() {
        let store = store();
        assert!(store.lease("one", 1_000, 30_000).unwrap());
        assert!(!store.lease("two", 20_000, 30_000).unwrap());
        assert!(store.lease("one", 11_000, 30_000).unwrap(), "renewed");
        assert!(!store.lease("two", 41_000, 30_000).unwrap());
        assert!(store.lease("two", 41_001, 30_000).unwrap(), "stolen");
        assert!(!store.lease("one", 42_000, 30_000).unwrap());
        assert!(store.sandboxes().unwrap().is_empty());
    }

    #[test]
    fn a_note_of_work_counts_for_the_other_replicas_while_it_is_renewed() {
        let store = store();
        let seen_by = |replica, since_ms| store.is_worked_on("a", replica, since_ms).unwrap();
        assert!(!seen_by("two", 0));
        store.note_work("a", "one", 1_000).unwrap();
        assert!(seen_by("two", 999) && !seen_by("two", 1_000), "until it is old");
        assert!(!seen_by("one", 0), "one's own work is known from its gate");
        assert!(!store.is_worked_on("b", "two", 0).unwrap());
        store.note_work("a", "one", 2_000).unwrap();
        store.note_work("a", "two", 2_000).unwrap();
        assert!(seen_by("two", 1_999) && seen_by("one", 1_999));
        store.end_work("a", "one").unwrap();
        assert!(!seen_by("two", 0) && seen_by("one", 0));
        store.note_work("b", "two", 2_000).unwrap();
        store.end_all_work("two").unwrap();
        assert!(!seen_by("one", 0) && !store.is_worked_on("b", "one", 0).unwrap());
        assert!(store.sandboxes().unwrap().is_empty());
    }

    #[test]
    fn the_revision_tells_commits_of_any_process() {
        let uri = format!("file:/{}?vfs=memdb", uuid::Uuid::new_v4());
        let (one, two) = (Store::open(&uri).unwrap(), Store::open(&uri).unwrap());
        let before = one.revision().unwrap();
        assert_eq!(one.revision().unwrap(), before);
        two.create("create", sandbox("a", "demo"), 0).unwrap();
        let after = one.revision().unwrap();
        assert_ne!(after, before, "another process has written");
        one.compare_and_swap("x", "a", 1, 0, |_| {}).unwrap();
        assert_ne!(one.revision().unwrap(), after, "this one has");
    }

    #[test]
    fn the_newest_session_owns_the_owner_row() {
        let store = store();
        let owner = |session: &str, seen_ms| SupervisorOwner {
            replica: "r".into(),
            instance_id: "i".into(),
            session_id: session.into(),
            seen_ms,
        };
        assert_eq!(store.owner("a").unwrap(), None);
        store.put_owner("a", &owner("1", 5)).unwrap();
        store.put_owner("a", &owner("2", 9)).unwrap();
        assert_eq!(store.owner("a").unwrap(), Some(owner("2", 9)));
        store.delete_owner("a").unwrap();
        assert_eq!(store.owner("a").unwrap(), None);
        assert!(store.sandboxes().unwrap().is_empty());
    }
}
