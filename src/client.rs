//! The client: a host of its own that calls the gateway as a user's command line would.
//!
//! The script puts operations into its queue; each becomes a task with one gRPC call. What was asked (`op`) and what
//! came back (`reply`) are entries of the trace, and the replies can be waited for.
use crate::BoxError;
use crate::gateway::phases::phase_name;
use crate::pb::openshell::{
    CreateSandboxRequest, DeleteSandboxRequest, OpenRelayRequest, SandboxRef, SandboxResponse, SandboxSpec,
    delete_sandbox_response::Outcome, open_shell_client::OpenShellClient,
};
use indexmap::IndexMap;
use photofinish_sim::trace::{EntryId, Trace};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tonic::transport::Channel;
use tonic::{Code, Status};

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
    /// Phase in the reply, for calls that return the sandbox.
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
    let result = call(&op, gateway).await;
    let (code, message, phase) = match result {
        Ok((message, phase)) => (Code::Ok, message, phase),
        Err(status) => (status.code(), status.message().to_owned(), None),
    };
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
        Some(phase) => draft.field("phase", phase),
        None => draft,
    }
    .record();
    (op.id, Reply { code, message, phase, entry })
}

async fn call(op: &Op, gateway: Channel) -> Result<(String, Option<&'static str>), Status> {
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
        Call::Delete => {
            let request = DeleteSandboxRequest { name, workspace, allow_missing: false };
            let outcome = client.delete_sandbox(request).await?.into_inner().outcome();
            let word = match outcome {
                Outcome::Completed => "completed",
                Outcome::Accepted => "accepted",
                Outcome::AlreadyAbsent => "already absent",
                Outcome::Unspecified => "unspecified",
            };
            return Ok((word.to_owned(), None));
        }
        Call::Relay => {
            let request = OpenRelayRequest { name, workspace, command: "true".to_owned() };
            return Ok((client.open_relay(request).await?.into_inner().output, None));
        }
    };
    Ok((String::new(), phase_of(&sandbox.into_inner())))
}

fn phase_of(r: &SandboxResponse) -> Option<&'static str> {
    r.sandbox.as_ref()?.status.as_ref().map(|s| phase_name(s.phase()))
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
