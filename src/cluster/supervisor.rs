//! The supervisors: one actor plays the process of every supervisor Pod.
//!
//! While such a Pod runs, its supervisor keeps a session to the gateway open: hello, configuration report, heartbeats,
//! answers to relays. When the session breaks it comes back after 1, 2, 4, 4 ... seconds. From the Pod's deletion
//! timestamp on (or its end) it closes the session and says nothing more.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, interval_at, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use tracing::{debug, warn};
use uuid::Uuid;

use super::informer::{Informer, Key};
use crate::BoxError;
use crate::driver::names::{COMPONENT, COMPONENT_SUPERVISOR, LAUNCH_AUTHENTICATION, SANDBOX_ID};
use crate::pb::openshell::open_shell_client::OpenShellClient;
use crate::pb::openshell::{
    ConfigurationReport, ExitReport, GatewayFrame, Heartbeat, RelayReply, SupervisorFrame, SupervisorHello,
    gateway_frame, supervisor_frame,
};

/// How supervisors behave.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time between two heartbeats; 15 s.
    pub heartbeat: Duration,
    /// Waits before coming back after a broken session; the last one repeats. 1, 2, 4 s.
    pub backoff: Vec<Duration>,
    /// How long a closing supervisor waits for the gateway to end its side; 1 s.
    pub goodbye: Duration,
    /// Exits of main processes that supervisors are told to report.
    pub exits: Exits,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            heartbeat: Duration::from_secs(15),
            backoff: [1, 2, 4].map(Duration::from_secs).to_vec(),
            goodbye: Duration::from_secs(1),
            exits: Exits::default(),
        }
    }
}

/// Tells running supervisors that their main process has exited. Clones share what is pending.
#[derive(Clone, Debug)]
pub struct Exits {
    pending: Arc<Mutex<BTreeMap<String, i32>>>,
    changed: watch::Sender<()>,
}

impl Default for Exits {
    fn default() -> Self {
        Exits { pending: Arc::default(), changed: watch::Sender::new(()) }
    }
}

impl Exits {
    /// The main process of this sandbox has exited with `code`: its supervisor reports it, now or once it is connected.
    pub fn report(&self, sandbox_id: &str, code: i32) {
        self.pending().insert(sandbox_id.to_owned(), code);
        self.changed.send_replace(());
    }
    fn take(&self, sandbox_id: &str) -> Option<i32> {
        self.pending().remove(sandbox_id)
    }
    fn pending(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, i32>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plays the supervisors of the cluster of `client` until dropped, over `gateway`. Broken watches are tried again.
pub async fn run(client: Client, gateway: Channel, config: Config) -> Result<(), BoxError> {
    let all = watcher::Config::default().labels(&format!("{COMPONENT}={COMPONENT_SUPERVISOR}"));
    let pods = watcher(Api::<Pod>::all(client), all).default_backoff();
    let events = pods.filter_map(|event| {
        std::future::ready(event.inspect_err(|error| warn!(%error, "watch of supervisor pods failed")).ok())
    });
    follow(events.boxed(), gateway, config).await
}

/// The same for Pods that somebody else watches: without a cluster.
pub async fn follow(
    events: impl Stream<Item = Event<Pod>> + Unpin,
    gateway: Channel,
    config: Config,
) -> Result<(), BoxError> {
    play(events, gateway, config).await;
    Ok(())
}

/// What a supervisor process knows from its Pod.
#[derive(Clone, Debug, PartialEq)]
struct Launch {
    pod_uid: String,
    sandbox_id: String,
    token: String,
}

/// The supervisor that lives in this Pod: none before it runs, after it ended, or once it is told to terminate.
fn launch(pod: &Pod) -> Option<Launch> {
    let meta = &pod.metadata;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let gated = pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.iter().flatten().next().is_some());
    if phase != Some("Running") || gated || meta.deletion_timestamp.is_some() {
        return None;
    }
    let token = meta.annotations.as_ref().and_then(|map| map.get(LAUNCH_AUTHENTICATION));
    Some(Launch {
        pod_uid: meta.uid.clone()?,
        sandbox_id: meta.labels.as_ref()?.get(SANDBOX_ID)?.clone(),
        token: token.cloned().unwrap_or_default(),
    })
}

/// A process that lives; dropping `stop` ends it.
struct Process {
    launch: Launch,
    stop: oneshot::Sender<()>,
}

async fn play(mut events: impl Stream<Item = Event<Pod>> + Unpin, gateway: Channel, config: Config) {
    let mut pods = Informer::<Pod>::default();
    let mut processes: BTreeMap<Key, Process> = BTreeMap::new();
    let mut sessions: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            event = events.next() => {
                let Some(event) = event else { return };
                for touched in pods.apply(event) {
                    let key = Key::of(&*touched);
                    let wanted = pods.get(&key).and_then(|pod| launch(&pod));
                    if processes.get(&key).map(|process| &process.launch) == wanted.as_ref() {
                        continue;
                    }
                    if let Some(process) = processes.remove(&key) {
                        drop(process.stop);
                    }
                    if let Some(launch) = wanted {
                        let (stop, stopped) = oneshot::channel();
                        sessions.push(live(launch.clone(), gateway.clone(), config.clone(), stopped).boxed());
                        processes.insert(key, Process { launch, stop });
                    }
                }
            }
            Some(()) = sessions.next() => {}
        }
    }
}

/// The life of one supervisor process: sessions, one after the other, until `stopped`.
async fn live(launch: Launch, gateway: Channel, config: Config, mut stopped: oneshot::Receiver<()>) {
    let mut run = Run { instance_id: Uuid::new_v4().to_string(), launch, config, exit: None, failures: 0 };
    loop {
        let frames = tokio::select! {
            biased;
            _ = &mut stopped => return,
            opened = run.open(&gateway) => opened,
        };
        match frames {
            Ok(session) => {
                if run.serve(session, &mut stopped).await {
                    return;
                }
            }
            Err(status) => debug!(sandbox_id = run.launch.sandbox_id, %status, "session was not opened"),
        }
        let wait = backoff(&run.config.backoff, run.failures);
        run.failures += 1;
        tokio::select! {
            biased;
            _ = &mut stopped => return,
            () = sleep(wait) => {}
        }
    }
}

/// The wait after this many failures in a row; the last one of the list repeats.
fn backoff(waits: &[Duration], failures: usize) -> Duration {
    waits.get(failures).or(waits.last()).copied().unwrap_or_default()
}

/// One run of a main process and its supervisor.
struct Run {
    instance_id: String,
    launch: Launch,
    config: Config,
    /// Exit code that the gateway has not acknowledged.
    exit: Option<i32>,
    failures: usize,
}

struct Session {
    frames: mpsc::Sender<SupervisorFrame>,
    answers: Streaming<GatewayFrame>,
}

impl Run {
    /// Opens a stream with hello as its first frame.
    async fn open(&self, gateway: &Channel) -> Result<Session, tonic::Status> {
        let (frames, outgoing) = mpsc::channel(16);
        let hello = supervisor_frame::Frame::Hello(SupervisorHello {
            sandbox_id: self.launch.sandbox_id.clone(),
            instance_id: self.instance_id.clone(),
            token: self.launch.token.clone(),
        });
        // The receiver is at hand and empty: this neither waits nor fails.
        let _ = frames.try_send(frame(hello));
        let mut client = OpenShellClient::new(gateway.clone());
        let answers = client.connect_supervisor(ReceiverStream::new(outgoing)).await?.into_inner();
        Ok(Session { frames, answers })
    }

    /// Serves until the session breaks (false) or the process is stopped (true).
    async fn serve(&mut self, session: Session, stopped: &mut oneshot::Receiver<()>) -> bool {
        let Session { frames, mut answers } = session;
        let mut exits = self.config.exits.changed.subscribe();
        let mut heartbeat = interval_at(Instant::now() + self.config.heartbeat, self.config.heartbeat);
        let mut accepted = false;
        'session: loop {
            let replies = tokio::select! {
                biased;
                _ = &mut *stopped => break,
                answer = answers.message() => match answer {
                    Ok(Some(GatewayFrame { frame: Some(frame) })) => self.answer(frame, &mut accepted),
                    Ok(Some(GatewayFrame { frame: None })) => vec![],
                    Ok(None) => return false,
                    Err(status) => {
                        debug!(sandbox_id = self.launch.sandbox_id, %status, "session broke");
                        return false;
                    }
                },
                Ok(()) = exits.changed(), if accepted => self.unreported_exit().into_iter().collect(),
                _ = heartbeat.tick(), if accepted => vec![supervisor_frame::Frame::Heartbeat(Heartbeat {})],
            };
            for reply in replies {
                tokio::select! {
                    biased;
                    _ = &mut *stopped => break 'session,
                    sent = frames.send(frame(reply)) => if sent.is_err() { return false },
                }
            }
        }
        // Terminating: our side ends at once, and the gateway's side is given a moment to end too.
        drop(frames);
        let drained = async { while let Ok(Some(_)) = answers.message().await {} };
        if timeout(self.config.goodbye, drained).await.is_err() {
            debug!(sandbox_id = self.launch.sandbox_id, "the gateway did not end the session in time");
        }
        true
    }

    /// What is said to a frame of the gateway.
    fn answer(&mut self, frame: gateway_frame::Frame, accepted: &mut bool) -> Vec<supervisor_frame::Frame> {
        match frame {
            gateway_frame::Frame::Accepted(_) => {
                *accepted = true;
                self.failures = 0;
                // A run that is over has no configuration to tell of.
                vec![self.unreported_exit().unwrap_or_else(|| self.configuration())]
            }
            gateway_frame::Frame::Relay(relay) => {
                let output = format!("ran: {}", relay.command);
                vec![supervisor_frame::Frame::RelayReply(RelayReply { relay_id: relay.relay_id, output })]
            }
            gateway_frame::Frame::ExitAccepted(_) => {
                self.exit = None;
                vec![]
            }
            gateway_frame::Frame::Heartbeat(_) => vec![],
        }
    }

    fn configuration(&self) -> supervisor_frame::Frame {
        let instance_id = self.instance_id.clone();
        let report = ConfigurationReport { instance_id, accepted: true, error: String::new() };
        supervisor_frame::Frame::Configuration(report)
    }

    /// The report of an exit that is new or was not acknowledged.
    fn unreported_exit(&mut self) -> Option<supervisor_frame::Frame> {
        self.exit = self.config.exits.take(&self.launch.sandbox_id).or(self.exit);
        let code = self.exit?;
        Some(supervisor_frame::Frame::Exit(ExitReport { instance_id: self.instance_id.clone(), code }))
    }
}

fn frame(frame: supervisor_frame::Frame) -> SupervisorFrame {
    SupervisorFrame { frame: Some(frame) }
}

#[cfg(test)]
mod tests;
