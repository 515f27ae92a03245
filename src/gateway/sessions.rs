//! Supervisor sessions: the long-lived stream of each sandbox's supervisor, and the client sessions relayed through it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval_at, timeout};
use tonic::{Status, Streaming};
use tracing::{info, warn};
use uuid::Uuid;

use crate::pb::openshell::{
    ConfigurationReport, ExitAccepted, GatewayFrame, Heartbeat, HelloAccepted, RelayOpen, Sandbox, SandboxPhase,
    SupervisorFrame, SupervisorHello, SupervisorOwner, gateway_frame, supervisor_frame,
};

use crate::remedy::{Remedies, Remedy};

use super::admission::{self, Session as Admitted};
use super::configuration;
use super::core::{Gateway, store_status};
use super::deadline;
use super::record::{Row, TOKEN_ID};
use super::restart;
use super::rows::By;
use super::store::StoreError;

/// Time between two heartbeats of the gateway.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long an owner row is believed, and a silent supervisor too.
const OWNER_TTL_MS: i64 = 45_000;
/// How long a new stream may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Attempts at a row that others write too.
const ATTEMPTS: u32 = 3;

/// What the gateway sends to a supervisor.
pub(crate) type Outgoing = mpsc::Sender<Result<GatewayFrame, Status>>;

/// The sessions that this process serves, at most one a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    live: Mutex<BTreeMap<String, Live>>,
}

#[derive(Debug)]
struct Live {
    session_id: String,
    outgoing: Outgoing,
    relays: BTreeMap<u64, oneshot::Sender<String>>,
    relay_count: u64,
    /// Dropped with the entry: that ends the session's task.
    _end: oneshot::Sender<()>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn is_live(&self, sandbox_id: &str) -> bool {
        self.lock().contains_key(sandbox_id)
    }
    /// Is this session the one that serves the sandbox?
    fn serves(&self, sandbox_id: &str, session_id: &str) -> bool {
        self.lock().get(sandbox_id).is_some_and(|l| l.session_id == session_id)
    }
    /// The newest session wins: an older one of the same sandbox ends.
    fn insert(&self, sandbox_id: &str, session_id: &str, outgoing: Outgoing) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        let (relays, session_id) = (BTreeMap::new(), session_id.to_owned());
        let live = Live { session_id, outgoing, relays, relay_count: 0, _end: end };
        self.lock().insert(sandbox_id.into(), live);
        ended
    }
    /// Ends the session of a sandbox, if this process serves one.
    pub(crate) fn disconnect(&self, sandbox_id: &str) {
        self.lock().remove(sandbox_id);
    }
    fn remove(&self, sandbox_id: &str, session_id: &str) {
        let mut live = self.lock();
        if live.get(sandbox_id).is_some_and(|l| l.session_id == session_id) {
            live.remove(sandbox_id);
        }
    }
    /// Relays one client session. The receiver fails when the supervisor's session ends first; no session is `None`.
    pub(crate) fn open_relay(&self, sandbox_id: &str, command: &str) -> Option<oneshot::Receiver<String>> {
        let mut sessions = self.lock();
        let live = sessions.get_mut(sandbox_id)?;
        live.relay_count += 1;
        let open = RelayOpen { relay_id: live.relay_count, command: command.into() };
        // A supervisor that does not drain its stream cannot run anything either.
        live.outgoing.try_send(Ok(frame(gateway_frame::Frame::Relay(open)))).ok()?;
        let (reply, answer) = oneshot::channel();
        live.relays.insert(live.relay_count, reply);
        Some(answer)
    }
    fn relay_replied(&self, sandbox_id: &str, session_id: &str, relay_id: u64, output: String) {
        let mut sessions = self.lock();
        let live = sessions.get_mut(sandbox_id).filter(|l| l.session_id == session_id);
        if let Some(reply) = live.and_then(|l| l.relays.remove(&relay_id)) {
            // The client may have left meanwhile.
            let _ = reply.send(output);
        }
    }
}

fn frame(frame: gateway_frame::Frame) -> GatewayFrame {
    GatewayFrame { frame: Some(frame) }
}

/// Serves one supervisor stream from hello to end. A refusal is the stream's last word.
pub(crate) async fn serve(gateway: Arc<Gateway>, mut incoming: Streaming<SupervisorFrame>, outgoing: Outgoing) {
    let hello = match timeout(HELLO_LIMIT, incoming.message()).await {
        Ok(Ok(Some(SupervisorFrame { frame: Some(supervisor_frame::Frame::Hello(hello)) }))) => Ok(hello),
        Ok(Ok(Some(_))) => Err(Status::invalid_argument("the first frame of a supervisor session must be its hello")),
        // The stream is gone before it began.
        Ok(Ok(None) | Err(_)) => return,
        Err(_) => Err(Status::deadline_exceeded("no hello within 10 s")),
    };
    let session_id = Uuid::new_v4().to_string();
    let connected = match hello {
        Ok(hello) => gateway.connect(&hello, &session_id, &outgoing).await.map(|ended| (hello, ended)),
        Err(refused) => Err(refused),
    };
    let (hello, ended) = match connected {
        Ok(connected) => connected,
        Err(refused) => {
            info!(code = refused.code() as i32, detail = %refused.message(), "supervisor session: refused");
            let _ = outgoing.send(Err(refused)).await;
            return;
        }
    };
    converse(&gateway, &hello, &session_id, incoming, &outgoing, ended).await;
    info!(sandbox_id = %hello.sandbox_id, instance_id = %hello.instance_id, "supervisor session: closed");
    if let Err(error) = gateway.disconnected(&hello.sandbox_id, &session_id).await {
        warn!(%error, sandbox_id = %hello.sandbox_id, "the end of a supervisor session was not recorded");
    }
}

/// Reads the supervisor's frames until either side ends, or it falls silent.
async fn converse(
    gateway: &Gateway,
    hello: &SupervisorHello,
    session_id: &str,
    mut incoming: Streaming<SupervisorFrame>,
    outgoing: &Outgoing,
    mut ended: oneshot::Receiver<()>,
) {
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    let mut heard_ms = gateway.rows.now_ms();
    loop {
        let received = tokio::select! {
            biased;
            _ = &mut ended => return,
            received = incoming.message() => received,
            _ = heartbeat.tick() => {
                let silent = gateway.rows.now_ms() - heard_ms > OWNER_TTL_MS;
                let sent = outgoing.try_send(Ok(frame(gateway_frame::Frame::Heartbeat(Heartbeat {}))));
                if silent || matches!(sent, Err(mpsc::error::TrySendError::Closed(_))) {
                    return;
                }
                continue;
            }
        };
        let Ok(Some(SupervisorFrame { frame: received })) = received else { return };
        heard_ms = gateway.rows.now_ms();
        let handled = match received {
            Some(supervisor_frame::Frame::Heartbeat(_)) => gateway.own(hello, session_id),
            Some(supervisor_frame::Frame::Configuration(report)) => {
                gateway.configuration_reported(hello, session_id, report).await
            }
            Some(supervisor_frame::Frame::Exit(report)) => {
                let recorded = gateway.exit_reported(&hello.sandbox_id, &report.instance_id, report.code).await;
                if recorded.is_ok() {
                    let _ = outgoing.send(Ok(frame(gateway_frame::Frame::ExitAccepted(ExitAccepted {})))).await;
                }
                recorded
            }
            Some(supervisor_frame::Frame::RelayReply(reply)) => {
                gateway.sessions.relay_replied(&hello.sandbox_id, session_id, reply.relay_id, reply.output);
                Ok(())
            }
            // A second hello says nothing new; an unknown frame comes from a newer supervisor.
            Some(supervisor_frame::Frame::Hello(_)) | None => Ok(()),
        };
        if let Err(error) = handled {
            warn!(%error, sandbox_id = %hello.sandbox_id, "a frame of the supervisor was not recorded");
        }
    }
}

/// A supervisor is there: the sandbox is usable. A start that waits for a configuration to be accepted goes on waiting
/// for the word of this run; until then the stored main process is the one before (its tombstone).
fn connected(row: &mut Sandbox, instance_id: &str, now_ms: i64) {
    let waits = row.phase() == SandboxPhase::Starting && row.admission_is_open();
    let status = row.status_mut();
    if waits {
        status.configuration_admission.get_or_insert_default().instance_id = instance_id.into();
        return;
    }
    if status.main_process_instance_id != instance_id {
        status.main_process_instance_id = instance_id.into();
        status.main_process_started_time_ms = now_ms;
    }
    (status.exit_code, status.next_restart_time_ms) = (None, 0);
    became_ready(row, now_ms);
}

/// May the run that holds the session still tell what it thinks of its configuration?
fn takes_report(row: &Sandbox, report: &ConfigurationReport) -> bool {
    let Some(status) = &row.status else { return false };
    let Some(asked) = &status.configuration_admission else {
        // Nobody waits for a yes: a create needs none. A no counts.
        return !report.accepted
            && status.main_process_instance_id == report.instance_id
            && matches!(row.phase(), SandboxPhase::Provisioning | SandboxPhase::Ready);
    };
    match row.phase() {
        SandboxPhase::Starting => asked.instance_id == report.instance_id && !row.is_automatic_restart(),
        SandboxPhase::Provisioning | SandboxPhase::Ready => status.main_process_instance_id == report.instance_id,
        _ => false,
    }
}

/// What a Ready row becomes whose supervisor's session has ended: it may come back. Before the fix
/// `session-loss-is-not-terminal` that was an Error, which nothing heals.
fn lost(remedies: Remedies) -> (SandboxPhase, &'static str) {
    match remedies.has(Remedy::SessionLossIsNotTerminal) {
        true => (SandboxPhase::Provisioning, "DependenciesNotReady"),
        false => (SandboxPhase::Error, "SupervisorDisconnected"),
    }
}

fn became_ready(row: &mut Sandbox, now_ms: i64) {
    row.set_phase(SandboxPhase::Ready, "True", "DependenciesReady", "the supervisor is connected", now_ms);
    configuration::reconcile_readiness(row, now_ms);
    deadline::reconcile_readiness(row, now_ms);
}

impl Gateway {
    /// Is a supervisor session of this sandbox known, here or by the fresh owner row of any replica?
    pub(crate) fn session_connected(&self, id: &str) -> Result<bool, StoreError> {
        Ok(self.sessions.is_live(id) || self.fresh_owner(id)?.is_some())
    }

    fn fresh_owner(&self, id: &str) -> Result<Option<SupervisorOwner>, StoreError> {
        let now_ms = self.rows.now_ms();
        Ok(self.rows.store.owner(id)?.filter(|o| now_ms - o.seen_ms < OWNER_TTL_MS))
    }

    fn own(&self, hello: &SupervisorHello, session_id: &str) -> Result<(), StoreError> {
        let owner = SupervisorOwner {
            replica: self.config.replica.clone(),
            instance_id: hello.instance_id.clone(),
            session_id: session_id.into(),
            seen_ms: self.rows.now_ms(),
        };
        self.rows.store.put_owner(&hello.sandbox_id, &owner)
    }

    /// Admits a session and brings the row to Ready, if its phase lets it.
    async fn connect(
        &self,
        hello: &SupervisorHello,
        session_id: &str,
        outgoing: &Outgoing,
    ) -> Result<oneshot::Receiver<()>, Status> {
        let id = &hello.sandbox_id;
        let _lock = self.mutations.lock(id).await;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let read = self.rows.get(id).map_err(|e| store_status("supervisor session", e))?;
            let row = read.ok_or_else(|| Status::from(admission::not_found(id)))?;
            // The token names the run that it was minted for. One without a token cannot be told apart.
            if !hello.token.is_empty() && hello.token != row.annotation(TOKEN_ID) {
                return Err(Status::unauthenticated("the supervisor's token belongs to another run of the sandbox"));
            }
            if self.waits_for_create(&row).map_err(|e| store_status("supervisor session", e))? {
                return Err(Status::unavailable("the create of the sandbox is not over"));
            }
            if admission::session(&row, &hello.instance_id)? == Admitted::Connect {
                let change = |row: &mut Sandbox| connected(row, &hello.instance_id, self.rows.now_ms());
                match self.rows.update(By::Session, "session-connect", id, row.version(), change) {
                    Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => continue,
                    written => written.map_err(|e| store_status("supervisor session", e))?,
                };
            }
            break;
        }
        self.own(hello, session_id).map_err(|e| store_status("supervisor session", e))?;
        let ended = self.sessions.insert(id, session_id, outgoing.clone());
        info!(sandbox_id = %id, instance_id = %hello.instance_id, "supervisor session: accepted");
        // The channel is new and has room.
        let _ = outgoing.try_send(Ok(frame(gateway_frame::Frame::Accepted(HelloAccepted {}))));
        Ok(ended)
    }

    /// Is a create still at work on the row, here or at another replica? Should it fail, it takes the compute back with all
    /// that is in it; so nobody may use it yet (remedy `session-waits-for-create`). Supervisors try again.
    fn waits_for_create(&self, row: &Sandbox) -> Result<bool, StoreError> {
        // All others that hold the gate for long have moved the row out of Provisioning first, or it was Ready before.
        Ok(row.phase() == SandboxPhase::Provisioning
            && row.start_in_flight()
            && (self.gates.try_lock(row.id()).is_none() || self.is_worked_on_elsewhere(row.id())?)
            && self.config.remedies.has(Remedy::SessionWaitsForCreate))
    }

    /// A session has ended: a Ready sandbox is usable no longer, unless another session serves it.
    async fn disconnected(&self, id: &str, session_id: &str) -> Result<(), StoreError> {
        let _lock = self.mutations.lock(id).await;
        self.sessions.remove(id, session_id);
        if self.rows.store.owner(id)?.is_some_and(|o| o.session_id == session_id) {
            self.rows.store.delete_owner(id)?;
        }
        for _ in 0..ATTEMPTS {
            if self.session_connected(id)? {
                return Ok(());
            }
            let Some(row) = self.rows.get(id)? else { return Ok(()) };
            if row.is_automatic_restart() {
                let change = |row: &mut Sandbox| restart::drained(row, self.rows.now_ms());
                match self.rows.update(By::Session, "session-disconnect", id, row.version(), change) {
                    Err(StoreError::Conflict { .. }) => continue,
                    written => return written.map(drop),
                }
            }
            if row.phase() != SandboxPhase::Ready {
                return Ok(());
            }
            let left = |row: &mut Sandbox| {
                let (phase, reason) = lost(self.config.remedies);
                row.set_phase(phase, "False", reason, "supervisor session disconnected", self.rows.now_ms());
            };
            match self.rows.update(By::Session, "session-disconnect", id, row.version(), left) {
                Err(StoreError::Conflict { .. }) => {}
                Err(e) => return Err(e),
                Ok(left) => {
                    // Another replica may have accepted a session while this one was writing.
                    if self.session_connected(id)? {
                        let back = |row: &mut Sandbox| became_ready(row, self.rows.now_ms());
                        self.rows.update(By::Session, "session-connect", id, left.version(), back)?;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The supervisor has judged its configuration. Only the run that holds the session may.
    async fn configuration_reported(
        &self,
        hello: &SupervisorHello,
        session_id: &str,
        report: ConfigurationReport,
    ) -> Result<(), StoreError> {
        let id = &hello.sandbox_id;
        let _lock = self.mutations.lock(id).await;
        for _ in 0..ATTEMPTS {
            let Some(row) = self.rows.get(id)?.filter(|row| takes_report(row, &report)) else { return Ok(()) };
            if report.instance_id != hello.instance_id || !self.sessions.serves(id, session_id) {
                return Ok(());
            }
            let change = |row: &mut Sandbox| {
                let now_ms = self.rows.now_ms();
                configuration::record_report(row, &report.instance_id, report.accepted, &report.error);
                if report.accepted {
                    connected(row, &report.instance_id, now_ms);
                } else {
                    deadline::extend_for_rejection(row, now_ms);
                    configuration::reconcile_readiness(row, now_ms);
                }
            };
            match self.rows.update(By::Session, "configuration", id, row.version(), change) {
                Err(StoreError::Conflict { .. }) => {}
                written => return written.map(drop),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::new_attempt;
    use super::*;

    fn row(phase: SandboxPhase) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(phase, "False", "Before", "", 0);
        row.status_mut().provisioning = Some(new_attempt(0));
        row
    }

    #[test]
    fn a_hello_makes_a_sandbox_ready_and_settles_its_deadline() {
        let mut r = row(SandboxPhase::Provisioning);
        r.status_mut().exit_code = Some(1);
        connected(&mut r, "i1", 1_000);
        assert_eq!((r.phase(), r.ready_reason()), (SandboxPhase::Ready, "DependenciesReady"));
        let status = r.status_mut();
        assert_eq!((status.main_process_instance_id.as_str(), status.exit_code), ("i1", None));
        assert_eq!(status.provisioning.as_ref().unwrap().deadline_ms, 0);
    }

    #[test]
    fn a_start_waits_for_the_supervisors_word_on_its_configuration() {
        let mut r = row(SandboxPhase::Starting);
        r.status_mut().configuration_admission = Some(configuration::pending());
        r.status_mut().main_process_instance_id = "i1".into();
        connected(&mut r, "i2", 1_000);
        assert_eq!((r.phase(), r.status_mut().main_process_instance_id.as_str()), (SandboxPhase::Starting, "i1"));
        let report =
            |instance: &str| ConfigurationReport { instance_id: instance.into(), accepted: true, error: String::new() };
        assert!(!takes_report(&r, &report("i1")), "the run before has no say");
        assert!(takes_report(&r, &report("i2")));
        configuration::record_report(&mut r, "i2", true, "");
        connected(&mut r, "i2", 2_000);
        assert_eq!((r.phase(), r.status_mut().main_process_instance_id.as_str()), (SandboxPhase::Ready, "i2"));
    }

    #[tokio::test]
    async fn the_newest_session_of_a_sandbox_wins_and_an_old_one_cannot_end_it() {
        let sessions = Sessions::default();
        let (outgoing, _frames) = mpsc::channel(4);
        let old = sessions.insert("a", "1", outgoing.clone());
        let mut new = sessions.insert("a", "2", outgoing);
        assert!(old.await.is_err(), "the old session is told to end");
        sessions.remove("a", "1");
        assert!(sessions.is_live("a"));
        assert!(new.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        sessions.disconnect("a");
        assert!(new.await.is_err());
    }

    #[tokio::test]
    async fn a_relay_is_answered_by_its_session_or_ends_with_it() {
        let sessions = Sessions::default();
        assert!(sessions.open_relay("a", "ls").is_none());
        let (outgoing, mut frames) = mpsc::channel(4);
        let _ended = sessions.insert("a", "1", outgoing);
        let answer = sessions.open_relay("a", "ls").unwrap();
        let Some(gateway_frame::Frame::Relay(open)) = frames.recv().await.unwrap().unwrap().frame else { panic!() };
        assert_eq!(open.command, "ls");
        sessions.relay_replied("a", "another session", open.relay_id, "wrong".into());
        sessions.relay_replied("a", "1", open.relay_id, "right".into());
        assert_eq!(answer.await.unwrap(), "right");
        let cut = sessions.open_relay("a", "ls").unwrap();
        sessions.disconnect("a");
        assert!(cut.await.is_err());
    }
}
