//! Supervisors in Pods of a simulated cluster, with their sessions to a real gateway over the wire.
mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use photofinish_apiserver::ApiServer;
use photofinish_apiserver::actors::{kubelet, scheduler};
use photofinish_openshell::BoxError;
use photofinish_openshell::cluster::supervisor::{self, Exits};
use photofinish_openshell::gateway::{self, ScriptedDriver};
use photofinish_openshell::pb::openshell::open_shell_client::OpenShellClient;
use photofinish_openshell::pb::openshell::{CreateSandboxRequest, OpenRelayRequest, SandboxPhase, SandboxRef};
use photofinish_sim::choices::Choices;
use photofinish_sim::host::{HostCtx, HostSpec};
use photofinish_sim::trace::Trace;
use photofinish_sim::tracing_layer::{self, Filter};
use photofinish_sim::world::{World, WorldConfig, on_own_thread};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};

fn channel(ctx: &HostCtx, uri: &'static str) -> Channel {
    Endpoint::from_static(uri).connect_with_connector_lazy(ctx.wire.connector())
}

/// What the user does, in a world with gateway, driver, API server, scheduler, kubelet and supervisors; returns
/// `time in ms: message` of the gateway's log lines about sessions.
fn in_cluster<F, Fut>(user: F) -> Vec<String>
where
    F: Fn(User) -> Fut + Send + Clone + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    on_own_thread(move || {
        let trace = Trace::new();
        let _log = tracing_layer::install(&trace, Filter::default());
        let mut builder = World::builder(WorldConfig::default(), trace.clone(), Choices::benign());
        let server = ApiServer::builder().build();
        builder.host("api", HostSpec::new(), move |ctx| support::api(ctx, server.clone()));
        builder.host("scheduler", HostSpec::new(), |ctx| async move {
            scheduler::run(ctx.wire.kube("http://api", "default")).await
        });
        builder.host("kubelet", HostSpec::new(), |ctx| async move {
            kubelet::run(ctx.wire.kube("http://api", "default"), kubelet::KubeletConfig::default()).await
        });
        builder.host("driver", HostSpec::new(), |ctx| async move {
            ScriptedDriver::default().serve(ctx.wire.listen(50051).await?).await
        });
        builder.host("gateway", HostSpec::new(), |ctx| async move {
            let driver = channel(&ctx, "http://driver:50051");
            let incoming = ctx.wire.listen(gateway::PORT).await?;
            gateway::run(gateway::Config::default(), driver, ":memory:", incoming).await
        });
        let exits = Exits::default();
        let config = supervisor::Config { exits: exits.clone(), ..supervisor::Config::default() };
        builder.host("supervisors", HostSpec::new(), move |ctx| {
            let (api, gateway) = (ctx.wire.kube("http://api", "default"), channel(&ctx, "http://gateway:8080"));
            supervisor::run(api, gateway, config.clone())
        });
        builder.host("user", HostSpec::new(), move |ctx| {
            user(User {
                gateway: OpenShellClient::new(channel(&ctx, "http://gateway:8080")),
                pods: Api::default_namespaced(ctx.wire.kube("http://api", "default")),
                exits: exits.clone(),
            })
        });
        let mut world = builder.build();
        world.start_all();
        let ended = world.run_until(Duration::from_secs(120), |world| !world.is_up("user").expect("it is a host"));
        assert!(matches!(ended, Ok(true)), "the user's script did not end: {ended:?}");
        trace.with(|entries| {
            let failed = entries.iter().find(|e| e.kind == "panic" || e.kind == "host" && e.field("error").is_some());
            assert!(failed.is_none(), "{failed:?}");
            let sessions = entries.iter().filter(|e| &*e.host == "gateway" && e.text.starts_with("supervisor session"));
            sessions.map(|e| e.text.split(" sandbox_id").next().unwrap_or_default().to_owned()).collect()
        })
    })
}

struct User {
    gateway: OpenShellClient<Channel>,
    pods: Api<Pod>,
    exits: Exits,
}

impl User {
    /// Creates sandbox `demo` at the gateway; returns its id.
    async fn create(&mut self) -> Result<String, BoxError> {
        let request = CreateSandboxRequest { name: "demo".into(), workspace: "w".into(), ..Default::default() };
        let sandbox = self.gateway.create_sandbox(request).await?.into_inner().sandbox.ok_or("no sandbox")?;
        Ok(sandbox.metadata.ok_or("no metadata")?.id)
    }
    /// Creates the supervisor's Pod, as a driver does.
    async fn create_pod(&self, id: &str) -> Result<(), BoxError> {
        let pod = serde_json::from_value(json!({
            "metadata": {
                "name": "supervisor",
                "labels": {"openshell.ai/component": "supervisor", "openshell.ai/sandbox-id": id},
            },
            "spec": {
                "containers": [{"name": "supervisor", "image": "img:1"}],
                "schedulingGates": [{"name": "openshell.ai/bootstrap"}],
            },
        }))?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }
    async fn open_gate(&self) -> Result<(), BoxError> {
        let patch = json!({"spec": {"schedulingGates": []}});
        self.pods.patch("supervisor", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
    async fn phase(&mut self) -> Result<SandboxPhase, BoxError> {
        let request = SandboxRef { name: "demo".into(), workspace: "w".into() };
        let sandbox = self.gateway.get_sandbox(request).await?.into_inner().sandbox.ok_or("no sandbox")?;
        Ok(sandbox.status.ok_or("no status")?.phase())
    }
    /// Waits up to 10 s for a phase.
    async fn reaches(&mut self, wanted: SandboxPhase) -> Result<(), BoxError> {
        let start = Instant::now();
        loop {
            let phase = self.phase().await?;
            if phase == wanted {
                return Ok(());
            }
            if start.elapsed() > Duration::from_secs(10) {
                return Err(format!("expected {wanted:?}, it is {phase:?}").into());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
    async fn relay(&mut self) -> Result<String, tonic::Status> {
        let request = OpenRelayRequest { name: "demo".into(), workspace: "w".into(), command: "ls".into() };
        Ok(self.gateway.open_relay(request).await?.into_inner().output)
    }
}

#[test]
fn a_supervisor_connects_once_its_pod_runs_answers_relays_and_leaves_when_its_pod_is_to_go() {
    let log = in_cluster(|mut user| async move {
        let id = user.create().await?;
        user.create_pod(&id).await?;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(user.phase().await?, SandboxPhase::Provisioning, "a gated Pod has no supervisor");
        user.open_gate().await?;
        user.reaches(SandboxPhase::Ready).await?;
        assert_eq!(user.relay().await?, "ran: ls");

        user.pods.delete("supervisor", &DeleteParams::default()).await?;
        sleep(Duration::from_millis(50)).await;
        assert!(user.pods.get_opt("supervisor").await?.is_some(), "its grace period runs");
        assert_eq!(user.phase().await?, SandboxPhase::Provisioning, "the session has ended before the Pod has");
        assert!(user.relay().await.is_err());
        sleep(Duration::from_secs(30)).await;
        Ok(())
    });
    assert_eq!(log, ["supervisor session: accepted", "supervisor session: closed"]);
}

#[test]
fn a_new_pod_is_a_new_instance_and_its_exit_is_reported() {
    let log = in_cluster(|mut user| async move {
        let id = user.create().await?;
        for _ in 0..2 {
            user.create_pod(&id).await?;
            user.open_gate().await?;
            user.reaches(SandboxPhase::Ready).await?;
            user.pods.delete("supervisor", &DeleteParams::default()).await?;
            user.reaches(SandboxPhase::Provisioning).await?;
            sleep(Duration::from_secs(1)).await;
        }
        user.create_pod(&id).await?;
        user.open_gate().await?;
        user.reaches(SandboxPhase::Ready).await?;
        user.exits.report(&id, 0);
        user.reaches(SandboxPhase::Completed).await
    });
    let (accepted, closed) = ("supervisor session: accepted", "supervisor session: closed");
    assert_eq!(log[..5], [accepted, closed, accepted, closed, accepted], "{log:?}");
}
