//! The client: a host of its own that calls the gateway as a user's command line would.
//!
//! The script puts operations into its queue; each becomes a task with one gRPC call. What was asked (`op`) and what
//! came back (`reply`) are entries of the trace, and the replies can be waited for. A list and a watch show more than
//! one state: each is an entry `seen`, named after the call.
use crate::BoxError;
use crate::gateway::phases::phase_name;
use crate::gateway::record::Row;
use crate::pb::openshell::{
    CreateSandboxRequest, DeleteSandboxRequest, ListSandboxesRequest, OpenRelayRequest, Sandbox, SandboxRef,
    SandboxResponse, SandboxSpec, delete_sandbox_response::Outcome, open_shell_client::OpenShellClient,
};
use indexmap::IndexMap;
use photofinish_sim::trace::{EntryId, Trace};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// What a client may ask of the gateway about one sandbox.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// CreateSandbox with this spec.
    Create(SandboxSpec),
    /// StartSandbox.
    Start,
    /// StopSandbox.
    Stop,
    /// DeleteSandbox.
    Delete,
    /// GetSandbox.
    Get,
    /// ListSandboxes of the workspace.
    List,
    /// WatchSandbox, from its first answer on until the sandbox is gone; a stream that breaks is opened again.
    Watch,
    /// OpenRelay: a session (an exec, say) through the gateway to the sandbox's supervisor.
    Relay,
}

impl Call {
    /// The word in scenarios and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Create(_) => "create",
            Call::Start => "start",
            Call::Stop => "stop",
            Call::Delete => "delete",
            Call::Get => "get",
            Call::List => "list",
            Call::Watch => "watch",
            Call::Relay => "relay",
        }
    }
}

/// What came back: a gRPC code with its message, and the phase of the sandbox where the reply holds one.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// gRPC code.
    pub code: Code,
    /// The error's message, or the outcome of a delete, or the output of a relay.
    pub message: String,
    /// Phase in the reply, for calls that return the sandbox; a watch's is that of its first answer.
    pub phase: Option<&'static str>,
    /// The trace's entry of this reply.
    pub entry: EntryId,
}

/// Number of an operation, in the order in which the script asked for them; from 1.
pub type OpId = u64;

struct Op {
    id: OpId,
    sandbox: String,
    workspace: String,
    call: Call,
}

#[derive(Default)]
struct Shared {
    asked: OpId,
    queue: Vec<Op>,
    replies: IndexMap<OpId, Reply>,
}

/// The script's end of the client; clones share one queue.
#[derive(Clone, Default)]
pub struct Client {
    shared: Arc<Mutex<Shared>>,
    asked: Arc<Notify>,
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Asks for one operation; the client host sends it at once.
    pub fn ask(&self, sandbox: &str, workspace: &str, call: Call) -> OpId {
        let id = {
            let mut s = self.lock();
            s.asked += 1;
            let id = s.asked;
            s.queue.push(Op { id, sandbox: sandbox.to_owned(), workspace: workspace.to_owned(), call });
            id
        };
        self.asked.notify_one();
        id
    }
    /// The reply to an operation, once there is one.
    pub fn reply(&self, id: OpId) -> Option<Reply> {
        self.lock().replies.get(&id).cloned()
    }
    /// Operations that have no reply yet.
    pub fn unanswered(&self) -> Vec<OpId> {
        let s = self.lock();
        (1..=s.asked).filter(|id| !s.replies.contains_key(id)).collect()
    }

    /// The host's program: sends what is asked for, each call in a task of its own.
    pub async fn run(self, gateway: Channel, trace: Trace) -> Result<(), BoxError> {
        loop {
            let ops = std::mem::take(&mut self.lock().queue);
            for op in ops {
                let (gateway, trace, shared) = (gateway.clone(), trace.clone(), self.shared.clone());
                tokio::spawn(async move {
                    let (id, reply) = perform(op, gateway, &trace).await;
                    shared.lock().unwrap_or_else(PoisonError::into_inner).replies.insert(id, reply);
                });
            }
            self.asked.notified().await;
        }
    }
}

async fn perform(op: Op, gateway: Channel, trace: &Trace) -> (OpId, Reply) {
    let name = op.call.name();
    let asked = trace
        .entry("op", name)
        .text(format!("client: {name} {}", op.sandbox))
        .field("id", op.id)
        .field("sandbox", &op.sandbox)
        .record();
    let seen = Seen { trace, call: name, id: op.id };
    let (code, answer) = match call(&op, gateway, &seen).await {
        Ok(answer) => (Code::Ok, answer),
        Err(status) => (status.code(), Answer { message: status.message().to_owned(), ..Answer::default() }),
    };
    let Answer { message, phase, version } = answer;
    let mut text = format!("client: {name} {} -> {}", op.sandbox, code_name(code));
    if let Some(phase) = phase {
        text += &format!(" ({phase})");
    }
    if !message.is_empty() {
        text += &format!(": {message}");
    }
    let draft = trace.entry("reply", name).text(text).field("id", op.id).field("sandbox", &op.sandbox);
    let draft = draft.field("code", code as i32).field("message", &message).field("asked", asked);
    let entry = match phase {
        Some(phase) => draft.field("phase", phase).field("version", version),
        None => draft,
    }
    .record();
    (op.id, Reply { code, message, phase, entry })
}

/// What a call that succeeded has answered.
#[derive(Default)]
struct Answer {
    message: String,
    phase: Option<&'static str>,
    /// Of the row.
    version: u64,
}

impl Answer {
    fn says(message: impl Into<String>) -> Answer {
        Answer { message: message.into(), ..Answer::default() }
    }
    fn shows(sandbox: Option<&Sandbox>) -> Answer {
        let Some(sandbox) = sandbox else { return Answer::default() };
        let phase = sandbox.status.as_ref().map(|s| phase_name(s.phase()));
        Answer { phase, version: sandbox.version(), ..Answer::default() }
    }
}

/// Notes what lists and watches show.
struct Seen<'t> {
    trace: &'t Trace,
    call: &'static str,
    id: OpId,
}

impl Seen<'_> {
    fn note(&self, sandbox: &Sandbox) {
        let Answer { phase: Some(phase), version, .. } = Answer::shows(Some(sandbox)) else { return };
        let (call, name) = (self.call, sandbox.name());
        let draft = self.trace.entry("seen", call).text(format!("client: {call} shows {name} {phase}"));
        let draft = draft.field("id", self.id).field("sandbox", name).field("sandbox_id", sandbox.id());
        draft.field("phase", phase).field("version", version).record();
    }
    fn gone(&self, name: &str) {
        let draft = self.trace.entry("seen", self.call).text(format!("client: {} of {name} has ended", self.call));
        draft.field("id", self.id).field("sandbox", name).record();
    }
}

async fn call(op: &Op, gateway: Channel, seen: &Seen<'_>) -> Result<Answer, Status> {
    let mut client = OpenShellClient::new(gateway);
    let (name, workspace) = (op.sandbox.clone(), op.workspace.clone());
    let the = SandboxRef { name: name.clone(), workspace: workspace.clone() };
    let sandbox = match &op.call {
        Call::Create(spec) => {
            let request = CreateSandboxRequest { name, workspace, spec: Some(spec.clone()), ..Default::default() };
            client.create_sandbox(request).await?
        }
        Call::Start => client.start_sandbox(the).await?,
        Call::Stop => client.stop_sandbox(the).await?,
        Call::Get => client.get_sandbox(the).await?,
        Call::List => {
            let sandboxes = client.list_sandboxes(ListSandboxesRequest { workspace }).await?.into_inner().sandboxes;
            sandboxes.iter().for_each(|sandbox| seen.note(sandbox));
            return Ok(Answer::says(format!("{} sandboxes", sandboxes.len())));
        }
        Call::Watch => {
            let mut states = client.watch_sandbox(the).await?.into_inner();
            let first = states.message().await?.ok_or_else(|| Status::unavailable("the watch ended at once"))?;
            let answer = Answer::shows(first.sandbox.as_ref());
            first.sandbox.iter().for_each(|sandbox| seen.note(sandbox));
            tokio::spawn(watch(client, op.sandbox.clone(), op.workspace.clone(), states, seen.trace.clone(), seen.id));
            return Ok(answer);
        }
        Call::Delete => {
            let request = DeleteSandboxRequest { name, workspace, allow_missing: false };
            let outcome = client.delete_sandbox(request).await?.into_inner().outcome();
            return Ok(Answer::says(match outcome {
                Outcome::Completed => "completed",
                Outcome::Accepted => "accepted",
                Outcome::AlreadyAbsent => "already absent",
                Outcome::Unspecified => "unspecified",
            }));
        }
        Call::Relay => {
            let request = OpenRelayRequest { name, workspace, command: "true".to_owned() };
            return Ok(Answer::says(client.open_relay(request).await?.into_inner().output));
        }
    };
    Ok(Answer::shows(sandbox.into_inner().sandbox.as_ref()))
}

/// How long a client waits before it opens a broken watch again.
const REOPEN: Duration = Duration::from_secs(1);

/// Follows a watch to the end of its sandbox.
async fn watch(
    mut client: OpenShellClient<Channel>,
    name: String,
    workspace: String,
    mut states: Streaming<SandboxResponse>,
    trace: Trace,
    id: OpId,
) {
    let seen = Seen { trace: &trace, call: Call::Watch.name(), id };
    loop {
        match states.message().await {
            Ok(Some(state)) => state.sandbox.iter().for_each(|sandbox| seen.note(sandbox)),
            Ok(None) => return seen.gone(&name),
            Err(_) => loop {
                tokio::time::sleep(REOPEN).await;
                match client.watch_sandbox(SandboxRef { name: name.clone(), workspace: workspace.clone() }).await {
                    Ok(reopened) => {
                        states = reopened.into_inner();
                        break;
                    }
                    Err(status) if status.code() == Code::NotFound => return seen.gone(&name),
                    Err(_) => {}
                }
            },
        }
    }
}

/// The code's name as gRPC documents write it: `FAILED_PRECONDITION`.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// The code with this name, upper case.
pub fn code_named(name: &str) -> Option<Code> {
    (0..17).map(Code::from_i32).find(|c| code_name(*c) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_names_are_those_of_grpc_and_lead_back() {
        for i in 0..17 {
            assert_eq!(code_named(code_name(Code::from_i32(i))), Some(Code::from_i32(i)));
        }
        assert_eq!(code_name(Code::from_i32(9)), "FAILED_PRECONDITION");
        assert_eq!(code_named("Nope"), None);
    }
}
