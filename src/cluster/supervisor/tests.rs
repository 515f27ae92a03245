//! Supervisors against a gateway that writes down what it hears.
use std::pin::Pin;

use kube::core::ObjectMeta;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use super::*;
use crate::pb::openshell::open_shell_server::{OpenShell, OpenShellServer};
use crate::pb::openshell::{
    CreateSandboxRequest, DeleteSandboxRequest, DeleteSandboxResponse, ExitAccepted, HelloAccepted,
    ListSandboxesRequest, ListSandboxesResponse, OpenRelayRequest, OpenRelayResponse, RelayOpen, SandboxRef,
    SandboxResponse,
};

type Answers = mpsc::UnboundedSender<Result<GatewayFrame, Status>>;

/// Sessions as they are opened: the supervisor's frames, and where to answer them.
#[derive(Clone)]
struct Gateway(mpsc::UnboundedSender<(Streaming<SupervisorFrame>, Answers)>);

fn unused<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("no supervisor calls this"))
}

#[tonic::async_trait]
impl OpenShell for Gateway {
    type WatchSandboxStream = Pin<Box<dyn Stream<Item = Result<SandboxResponse, Status>> + Send>>;
    type ConnectSupervisorStream = UnboundedReceiverStream<Result<GatewayFrame, Status>>;

    async fn connect_supervisor(
        &self,
        request: Request<Streaming<SupervisorFrame>>,
    ) -> Result<Response<Self::ConnectSupervisorStream>, Status> {
        let (answers, stream) = mpsc::unbounded_channel();
        self.0.send((request.into_inner(), answers)).map_err(|_| Status::unavailable("the gateway is gone"))?;
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }
    async fn create_sandbox(&self, _: Request<CreateSandboxRequest>) -> Result<Response<SandboxResponse>, Status> {
        unused()
    }
    async fn start_sandbox(&self, _: Request<SandboxRef>) -> Result<Response<SandboxResponse>, Status> {
        unused()
    }
    async fn stop_sandbox(&self, _: Request<SandboxRef>) -> Result<Response<SandboxResponse>, Status> {
        unused()
    }
    async fn delete_sandbox(
        &self,
        _: Request<DeleteSandboxRequest>,
    ) -> Result<Response<DeleteSandboxResponse>, Status> {
        unused()
    }
    async fn get_sandbox(&self, _: Request<SandboxRef>) -> Result<Response<SandboxResponse>, Status> {
        unused()
    }
    async fn list_sandboxes(
        &self,
        _: Request<ListSandboxesRequest>,
    ) -> Result<Response<ListSandboxesResponse>, Status> {
        unused()
    }
    async fn watch_sandbox(&self, _: Request<SandboxRef>) -> Result<Response<Self::WatchSandboxStream>, Status> {
        unused()
    }
    async fn open_relay(&self, _: Request<OpenRelayRequest>) -> Result<Response<OpenRelayResponse>, Status> {
        unused()
    }
}

/// A gateway in memory, the supervisors, and the Pod events that they follow.
struct Stage {
    sessions: mpsc::UnboundedReceiver<(Streaming<SupervisorFrame>, Answers)>,
    pods: mpsc::UnboundedSender<Event<Pod>>,
    exits: Exits,
}

fn stage() -> Stage {
    let (opened, sessions) = mpsc::unbounded_channel();
    let (pods, events) = mpsc::unbounded_channel();
    let (near, far) = tokio::io::duplex(1 << 16);
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far));
    tokio::spawn(Server::builder().add_service(OpenShellServer::new(Gateway(opened))).serve_with_incoming(incoming));
    let near = Arc::new(Mutex::new(Some(hyper_util::rt::TokioIo::new(near))));
    let connector = tower::service_fn(move |_| {
        let io = near.lock().expect("never poisoned").take();
        std::future::ready(io.ok_or(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))
    });
    let channel = Endpoint::from_static("http://gateway").connect_with_connector_lazy(connector);
    let config = Config::default();
    let exits = config.exits.clone();
    tokio::spawn(play(UnboundedReceiverStream::new(events), channel, config));
    Stage { sessions, pods, exits }
}

impl Stage {
    fn apply(&self, pod: Pod) {
        self.pods.send(Event::Apply(pod)).expect("the supervisors follow");
    }
    async fn session(&mut self) -> Heard {
        let (frames, answers) = self.sessions.recv().await.expect("the gateway lives");
        let mut heard = Heard { frames, answers, instance_id: String::new() };
        match heard.next().await {
            Some(supervisor_frame::Frame::Hello(hello)) => {
                assert_eq!((hello.sandbox_id.as_str(), hello.token.as_str()), ("id1", "secret"));
                heard.instance_id = hello.instance_id;
            }
            other => panic!("a session starts with hello: {other:?}"),
        }
        heard
    }
}

struct Heard {
    frames: Streaming<SupervisorFrame>,
    answers: Answers,
    instance_id: String,
}

impl Heard {
    async fn next(&mut self) -> Option<supervisor_frame::Frame> {
        self.frames.message().await.expect("the stream is not broken").map(|f| f.frame.expect("a frame says something"))
    }
    fn say(&self, frame: gateway_frame::Frame) {
        self.answers.send(Ok(GatewayFrame { frame: Some(frame) })).expect("the session is open");
    }
    async fn accept(&mut self) {
        self.say(gateway_frame::Frame::Accepted(HelloAccepted {}));
        match self.next().await {
            Some(supervisor_frame::Frame::Configuration(report)) => {
                assert_eq!((report.accepted, report.instance_id), (true, self.instance_id.clone()));
            }
            other => panic!("an accepted supervisor reports its configuration: {other:?}"),
        }
    }
}

fn pod(uid: &str, phase: &str) -> Pod {
    let map = |key: &str, value: &str| Some([(key.to_owned(), value.to_owned())].into());
    Pod {
        metadata: ObjectMeta {
            name: Some("os-supervisor-id1".into()),
            namespace: Some("ns".into()),
            uid: Some(uid.into()),
            labels: map(SANDBOX_ID, "id1"),
            annotations: map(LAUNCH_AUTHENTICATION, "secret"),
            ..Default::default()
        },
        status: Some(k8s_openapi::api::core::v1::PodStatus { phase: Some(phase.into()), ..Default::default() }),
        ..Default::default()
    }
}
fn terminating(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    pod
}

#[test]
fn a_supervisor_lives_in_a_running_ungated_pod_that_is_not_terminating() {
    let gate = k8s_openapi::api::core::v1::PodSchedulingGate { name: "openshell.ai/bootstrap".into() };
    let mut gated = pod("u1", "Running");
    gated.spec = Some(k8s_openapi::api::core::v1::PodSpec { scheduling_gates: Some(vec![gate]), ..Default::default() });
    let mut nobodys = pod("u1", "Running");
    nobodys.metadata.labels = None;
    for (pod, lives) in [
        (pod("u1", "Pending"), false),
        (pod("u1", "Running"), true),
        (pod("u1", "Succeeded"), false),
        (pod("u1", "Failed"), false),
        (terminating(pod("u1", "Running")), false),
        (gated, false),
        (nobodys, false),
    ] {
        assert_eq!(launch(&pod).is_some(), lives, "{pod:?}");
    }
}

#[test]
fn a_broken_session_is_tried_again_after_1_2_4_4_seconds() {
    let waits = Config::default().backoff;
    assert_eq!([0, 1, 2, 3, 9].map(|n| backoff(&waits, n).as_secs()), [1, 2, 4, 4, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_opens_a_session_says_hello_reports_its_configuration_and_beats_every_15_s() {
    let mut stage = stage();
    stage.apply(pod("u1", "Pending"));
    stage.apply(pod("u1", "Running"));
    let mut session = stage.session().await;
    session.accept().await;
    let accepted = Instant::now();
    for beat in 1..=3_u64 {
        assert_eq!(session.next().await, Some(supervisor_frame::Frame::Heartbeat(Heartbeat {})));
        assert_eq!(accepted.elapsed().as_secs(), beat * 15);
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_is_answered_under_its_number() {
    let mut stage = stage();
    stage.apply(pod("u1", "Running"));
    let mut session = stage.session().await;
    session.accept().await;
    session.say(gateway_frame::Frame::Relay(RelayOpen { relay_id: 7, command: "ls".into() }));
    let reply = RelayReply { relay_id: 7, output: "ran: ls".into() };
    assert_eq!(session.next().await, Some(supervisor_frame::Frame::RelayReply(reply)));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_timestamp_closes_the_session_without_another_word_and_for_good() {
    let mut stage = stage();
    stage.apply(pod("u1", "Running"));
    let mut session = stage.session().await;
    session.accept().await;
    stage.apply(terminating(pod("u1", "Running")));
    assert_eq!(session.next().await, None, "the supervisor ends its side");
    drop(session);
    sleep(Duration::from_secs(60)).await;
    assert!(stage.sessions.try_recv().is_err(), "a terminating supervisor does not come back");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_list_no_longer_has_ends_its_session() {
    let mut stage = stage();
    stage.apply(pod("u1", "Running"));
    let mut session = stage.session().await;
    session.accept().await;
    for event in [Event::Init, Event::InitDone] {
        stage.pods.send(event).expect("the supervisors follow");
    }
    assert_eq!(session.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_broken_session_comes_back_with_the_same_instance_and_a_new_pod_with_another() {
    let mut stage = stage();
    stage.apply(pod("u1", "Running"));
    let first = stage.session().await;
    let (instance, broken) = (first.instance_id.clone(), Instant::now());
    drop(first);
    let mut again = stage.session().await;
    assert_eq!(broken.elapsed().as_secs(), 1);
    assert_eq!(again.instance_id, instance, "the process is the same");
    again.accept().await;
    stage.apply(pod("u2", "Running"));
    assert_eq!(again.next().await, None, "the old process is gone");
    assert_ne!(stage.session().await.instance_id, instance);
}

#[tokio::test(start_paused = true)]
async fn refused_sessions_back_off_and_an_accepted_one_starts_over() {
    let mut stage = stage();
    stage.apply(pod("u1", "Running"));
    let (mut waits, mut ended) = (Vec::new(), None::<Instant>);
    for accept in [false, false, false, true, false, false] {
        let mut session = stage.session().await;
        waits.extend(ended.map(|ended| ended.elapsed().as_secs()));
        if accept {
            session.accept().await;
        }
        session.answers.send(Err(Status::failed_precondition("not now"))).expect("the session is open");
        ended = Some(Instant::now());
    }
    assert_eq!(waits, [1, 2, 4, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_exit_is_reported_until_the_gateway_has_it() {
    let mut stage = stage();
    stage.apply(pod("u1", "Running"));
    let mut session = stage.session().await;
    session.accept().await;
    stage.exits.report("other", 1);
    stage.exits.report("id1", 137);
    let report = ExitReport { instance_id: session.instance_id.clone(), code: 137 };
    assert_eq!(session.next().await, Some(supervisor_frame::Frame::Exit(report.clone())));
    drop(session);
    let mut session = stage.session().await;
    session.say(gateway_frame::Frame::Accepted(HelloAccepted {}));
    let told = session.next().await;
    assert_eq!(
        told,
        Some(supervisor_frame::Frame::Exit(report)),
        "nobody acknowledged it, and no configuration is left"
    );
    session.say(gateway_frame::Frame::ExitAccepted(ExitAccepted {}));
    assert_eq!(session.next().await, Some(supervisor_frame::Frame::Heartbeat(Heartbeat {})));
}
