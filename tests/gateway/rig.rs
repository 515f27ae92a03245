//! A whole gateway over in-memory connections, with a scripted driver behind it and a client before it.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use photofinish_openshell::gateway::{self, Profile, ScriptedDriver, phases::phase_name, scripted_driver::Script};
use photofinish_openshell::pb::openshell::open_shell_client::OpenShellClient;
use photofinish_openshell::pb::openshell::*;
use photofinish_openshell::remedy::{Remedies, Remedy};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// One direction of who may call whom: connections run through a pump that a test can cut.
#[derive(Clone)]
pub(crate) struct Link {
    accepted: mpsc::UnboundedSender<io::Result<DuplexStream>>,
    pumps: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Link {
    pub(crate) fn new() -> (Link, UnboundedReceiverStream<io::Result<DuplexStream>>) {
        let (accepted, incoming) = mpsc::unbounded_channel();
        (Link { accepted, pumps: Arc::default() }, UnboundedReceiverStream::new(incoming))
    }
    pub(crate) fn channel(&self) -> Channel {
        let link = self.clone();
        let connect = move |_| {
            let (client, mut near) = tokio::io::duplex(1 << 16);
            let (mut far, server) = tokio::io::duplex(1 << 16);
            let pump = tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
            link.pumps.lock().unwrap().push(pump.abort_handle());
            let sent = link.accepted.send(Ok(server)).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
            std::future::ready(sent.map(|()| TokioIo::new(client)))
        };
        Endpoint::from_static("http://peer").connect_with_connector_lazy(tower::service_fn(connect))
    }
    /// Ends all connections of now; new ones can be made.
    pub(crate) fn cut(&self) {
        for pump in self.pumps.lock().unwrap().drain(..) {
            pump.abort();
        }
    }
}

pub(crate) struct Rig {
    pub(crate) client: OpenShellClient<Channel>,
    pub(crate) driver: ScriptedDriver,
    /// Gateway to driver.
    pub(crate) link: Link,
    /// The gateway's process.
    pub(crate) gateway: AbortHandle,
    pub(crate) log: Log,
    _subscriber: (tracing::subscriber::DefaultGuard, tracing::Dispatch),
}

pub(crate) struct Setup {
    pub(crate) profile: Profile,
    pub(crate) remedies: Remedies,
    pub(crate) database: String,
}

impl Setup {
    /// As reported, on a database of its own.
    pub(crate) fn as_reported() -> Setup {
        let database = format!("file:/{}?vfs=memdb", uuid::Uuid::new_v4());
        Setup { profile: Profile::Cc0642fa8, remedies: Remedies::as_reported(), database }
    }
    pub(crate) fn with(mut self, remedies: &[&str]) -> Setup {
        self.remedies =
            Remedy::ALL.iter().copied().filter(|r| remedies.contains(&r.name())).fold(self.remedies, Remedies::with);
        self
    }
    pub(crate) fn without(mut self, remedies: &[&str]) -> Setup {
        let off = Remedy::ALL.iter().copied().filter(|r| remedies.contains(&r.name()));
        self.remedies = off.fold(self.remedies, Remedies::without);
        self
    }
    pub(crate) fn profile(mut self, profile: Profile) -> Setup {
        self.profile = profile;
        self
    }
    /// Two gateways on one store and one driver; the first takes the lease. The second is returned as a client of it.
    pub(crate) async fn run_two(self, script: &str) -> (Rig, OpenShellClient<Channel>) {
        let Setup { profile, remedies, database } = self;
        let first = Setup { profile, remedies, database: database.clone() }.serve(script, true);
        settle().await;
        let config = gateway::Config { profile, remedies, replica: "gateway-1".into(), shared: true };
        let (front, to_gateway) = Link::new();
        let channel = first.link.channel();
        tokio::spawn(async move { gateway::run(config, channel, &database, to_gateway).await.unwrap() });
        settle().await;
        (first, OpenShellClient::new(front.channel()))
    }
    pub(crate) fn run(self, script: &str) -> Rig {
        self.serve(script, false)
    }
    fn serve(self, script: &str, shared: bool) -> Rig {
        let log = Log::default();
        // tracing judges a callsite for all threads by the registering thread's dispatcher while there is only one.
        let second = tracing::Dispatch::new(tracing_subscriber::registry());
        let subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
        let driver = ScriptedDriver::new(Script::parse(script).unwrap());
        let (link, to_driver) = Link::new();
        tokio::spawn(driver.clone().serve(to_driver));
        let (front, to_gateway) = Link::new();
        let config =
            gateway::Config { profile: self.profile, remedies: self.remedies, shared, ..gateway::Config::default() };
        let channel = link.channel();
        let gateway =
            tokio::spawn(async move { gateway::run(config, channel, &self.database, to_gateway).await.unwrap() });
        let gateway = gateway.abort_handle();
        Rig {
            gateway,
            client: OpenShellClient::new(front.channel()),
            driver,
            link,
            log,
            _subscriber: (subscriber, second),
        }
    }
}

pub(crate) fn demo() -> SandboxRef {
    SandboxRef { name: "demo".into(), workspace: String::new() }
}

/// Virtual time for what was set in motion to come to rest.
pub(crate) async fn settle() {
    sleep(Duration::from_millis(100)).await;
}

impl Rig {
    pub(crate) async fn create(&mut self, name: &str) -> Result<Sandbox, Status> {
        let spec = SandboxSpec { command: vec!["sleep".into(), "infinity".into()], ..Default::default() };
        let request = CreateSandboxRequest { name: name.into(), spec: Some(spec), ..Default::default() };
        Ok(self.client.create_sandbox(request).await?.into_inner().sandbox.unwrap())
    }
    pub(crate) async fn stop(&mut self) -> Result<Sandbox, Status> {
        Ok(self.client.stop_sandbox(demo()).await?.into_inner().sandbox.unwrap())
    }
    pub(crate) async fn start(&mut self) -> Result<Sandbox, Status> {
        Ok(self.client.start_sandbox(demo()).await?.into_inner().sandbox.unwrap())
    }
    pub(crate) async fn delete(&mut self) -> Result<delete_sandbox_response::Outcome, Status> {
        let request = DeleteSandboxRequest { name: "demo".into(), ..Default::default() };
        Ok(self.client.delete_sandbox(request).await?.into_inner().outcome())
    }
    pub(crate) async fn relay(&mut self) -> Result<String, Status> {
        let request = OpenRelayRequest { name: "demo".into(), command: "ls".into(), ..Default::default() };
        Ok(self.client.open_relay(request).await?.into_inner().output)
    }
    pub(crate) async fn get(&mut self) -> Sandbox {
        self.client.get_sandbox(demo()).await.unwrap().into_inner().sandbox.unwrap()
    }
    pub(crate) async fn gone(&mut self) -> bool {
        self.client.get_sandbox(demo()).await.is_err_and(|s| s.code() == Code::NotFound)
    }
    pub(crate) async fn phase(&mut self) -> &'static str {
        phase(&self.get().await)
    }
    /// Waits, in virtual time, until the sandbox is in this phase.
    pub(crate) async fn until(&mut self, wanted: &str) {
        let reached = async {
            // Often at first, then seldom: the deadlines are minutes away.
            let mut pause = Duration::from_millis(20);
            while self.phase().await != wanted {
                sleep(pause).await;
                pause = (pause * 11 / 10).min(Duration::from_secs(1));
            }
        };
        if timeout(Duration::from_secs(600), reached).await.is_err() {
            panic!("the sandbox never became {wanted}:\n{}", self.log.text());
        }
    }
    /// Creates the sandbox `demo`, connects its supervisor and waits for Ready.
    pub(crate) async fn ready(&mut self) -> Supervisor {
        let id = self.create("demo").await.unwrap().metadata.unwrap().id;
        let supervisor = self.supervise(&id, "i1").await.unwrap();
        self.until("Ready").await;
        supervisor
    }
    /// Opens a supervisor session of the sandbox with this id.
    pub(crate) async fn supervise(&mut self, id: &str, instance: &str) -> Result<Supervisor, Status> {
        self.supervise_with(id, instance, "").await
    }
    /// The same, with the token of a run.
    pub(crate) async fn supervise_with(&mut self, id: &str, instance: &str, token: &str) -> Result<Supervisor, Status> {
        let (frames, outgoing) = mpsc::channel(16);
        let hello = SupervisorHello { sandbox_id: id.into(), instance_id: instance.into(), token: token.into() };
        let frame = |frame| SupervisorFrame { frame: Some(frame) };
        frames.send(frame(supervisor_frame::Frame::Hello(hello))).await.unwrap();
        let mut answers = self.client.connect_supervisor(ReceiverStream::new(outgoing)).await?.into_inner();
        let first = answers.message().await?.expect("an answer to hello");
        assert!(matches!(first.frame, Some(gateway_frame::Frame::Accepted(_))), "{first:?}");
        Ok(Supervisor { frames, answers, instance: instance.into() })
    }
}

pub(crate) fn phase(row: &Sandbox) -> &'static str {
    phase_name(row.status.as_ref().unwrap().phase())
}

pub(crate) fn reason(row: &Sandbox) -> &str {
    let ready = row.status.as_ref().unwrap().conditions.iter().find(|c| c.r#type == "Ready");
    ready.map_or("", |c| &c.reason)
}

/// The supervisor's end of a session.
pub(crate) struct Supervisor {
    frames: mpsc::Sender<SupervisorFrame>,
    answers: Streaming<GatewayFrame>,
    instance: String,
}

impl Supervisor {
    pub(crate) async fn send(&self, frame: supervisor_frame::Frame) {
        self.frames.send(SupervisorFrame { frame: Some(frame) }).await.unwrap();
    }
    pub(crate) async fn accept_configuration(&self) {
        let instance_id = self.instance.clone();
        let report = ConfigurationReport { instance_id, accepted: true, error: String::new() };
        self.send(supervisor_frame::Frame::Configuration(report)).await;
    }
    pub(crate) async fn exit(&mut self, code: i32) {
        let report = ExitReport { instance_id: self.instance.clone(), code };
        self.send(supervisor_frame::Frame::Exit(report)).await;
        let answer = self.next().await.expect("an answer to the exit report");
        assert!(matches!(answer, gateway_frame::Frame::ExitAccepted(_)), "{answer:?}");
    }
    /// The next frame that is not a heartbeat; `None` once the gateway has ended the session.
    pub(crate) async fn next(&mut self) -> Option<gateway_frame::Frame> {
        loop {
            match self.answers.message().await.ok()??.frame? {
                gateway_frame::Frame::Heartbeat(_) => {}
                frame => return Some(frame),
            }
        }
    }
}

/// The gateway's log, one event or opened span a line.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
    /// Asserts that lines which contain these words follow each other in this order.
    pub(crate) fn has_in_order(&self, words: &[&str]) {
        let lines = self.0.lock().unwrap();
        let mut rest = lines.iter();
        for word in words {
            assert!(rest.any(|line| line.contains(word)), "no {word:?} in its place:\n{}", lines.join("\n"));
        }
    }
    /// Every phase change, as `Old>New by`.
    pub(crate) fn changes(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let field = |line: &str, name: &str| {
            let rest = line.split(&format!(" {name}=")).nth(1).unwrap();
            rest.split(' ').next().unwrap().to_owned()
        };
        let changed = lines.iter().filter(|line| line.contains("Sandbox phase changed"));
        changed.map(|l| format!("{}>{} {}", field(l, "old_phase"), field(l, "new_phase"), field(l, "by"))).collect()
    }
}

struct Line(String, String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        } else {
            let _ = write!(self.1, " {}={value:?}", field.name());
        }
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, cx: Context<'_, S>) {
        if !event.metadata().target().starts_with("photofinish_openshell") {
            return;
        }
        let mut line = Line(String::new(), String::new());
        event.record(&mut line);
        let spans: String = cx.event_scope(event).into_iter().flatten().map(|s| format!("[{}] ", s.name())).collect();
        self.0.lock().unwrap().push(format!("{spans}{}{}", line.0, line.1));
    }
}
