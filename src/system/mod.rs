//! Plugs the gateway, the driver and the cluster around them into photofinish.
//!
//! | host | program | talks to |
//! |---|---|---|
//! | `api` | the simulated API server | - |
//! | `driver` | [`crate::driver`], or a scripted one (`cluster: {driver: scripted}`) | `api` |
//! | `gateway` | [`crate::gateway`] on SQLite | `driver` |
//! | `driver-2`, `gateway-2` | the same once more, on the same store (`cluster: {replicas: 2}`) | `api`, `driver-2` |
//! | `controller` | [`crate::cluster::controller`] | `api` |
//! | `scheduler`, `kubelet`, `gc` | actors of photofinish-apiserver | `api` |
//! | `node-lifecycle` | the same, where somebody notices that a node is silent (`cluster: {nodes: watched}`) | `api` |
//! | `supervisor` | [`crate::cluster::supervisor`], all supervisor Pods | `api`, `gateway` |
//! | `client` | [`crate::client`] | `gateway` |
use crate::client::Client;
use crate::cluster::controller::sandbox::Version;
use crate::cluster::{controller, node, supervisor};
use crate::driver::names;
use crate::gateway::store::Store;
use crate::gateway::{self, ScriptedDriver};
use crate::pb::openshell::SandboxPhase;
use crate::remedy::{self, Remedies, SWITCHES};
use crate::{BoxError, driver, properties};
use photofinish::mistake::Mistake;
use photofinish::reading::{Grid, Meeting, Reading, Role};
use photofinish::scenario::Scenario;
use photofinish::scenario::yaml::Node;
use photofinish::switch::Switch;
use photofinish::system::{Builtin, Cluster, ClusterOption, Live, Setup, Stage, System, Verb};
use photofinish_apiserver::actors::{garbage_collector, kubelet, node_lifecycle, scheduler};
use photofinish_apiserver::sim::SimHooks;
use photofinish_apiserver::sim::faults::Enabled;
use photofinish_apiserver::{ApiServer, ConnInfo, SandboxVersions};
use photofinish_sim::choices::DelaySpec;
use photofinish_sim::host::{HostCtx, HostSpec, RestartPolicy};
use photofinish_sim::legality::{Fault, Legality};
use photofinish_sim::trace::{Entry, EntryId};
use photofinish_sim::tracing_layer::Filter;
use photofinish_sim::wire::Io;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tracing::level_filters::LevelFilter;

mod hands;
mod idle;
mod lint;
mod reach;
mod rig;
mod script;
mod sqlite;
mod state;
mod unit_test;
mod verbs;

pub use rig::Rig;

/// The gateway's and driver's system, as photofinish runs it.
pub struct OpenShell;

/// Namespace of all sandboxes in shared mode, and of the gateway itself.
pub const NAMESPACE: &str = "openshell";
/// Workspace of the sandboxes that scripts create.
pub const WORKSPACE: &str = "team";
/// What stands before a workspace's name in managed mode.
const PREFIX: &str = "openshell-";
/// How long a step waits unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// Kind of the names that `create` makes.
const SANDBOX: &str = "sandbox";
/// One database in memory a process; it lives on while the world's own connection is open, so it survives a crash.
const DATABASE: &str = "file:/gateway?vfs=memdb";

const OPTIONS: &[ClusterOption] = &[
    ClusterOption {
        name: "controller",
        values: &["v0.5.6", "v0.5.0", "v0.4.6"],
        sentence: "Version of the agent-sandbox controller.",
    },
    ClusterOption {
        name: "api",
        values: &["v1beta1", "v1alpha1"],
        sentence: "Newest version of the Sandbox API that the cluster serves; controller v0.4.6 knows v1alpha1 only.",
    },
    ClusterOption {
        name: "profile",
        values: &["cc0642fa8", "0.1.2"],
        sentence: "Release of the gateway: the one of NVIDIA/OpenShell#5195, or the one of #4371.",
    },
    ClusterOption {
        name: "mode",
        values: &["managed", "shared"],
        sentence: "Namespaces: one a workspace, managed by the driver, or one shared by all.",
    },
    ClusterOption {
        name: "replicas",
        values: &["1", "2"],
        sentence: "Gateways on one store, each with a driver of its own: of two, the first holds the lease and the second gets all requests.",
    },
    ClusterOption {
        name: "sessions",
        values: &["same", "other"],
        sentence: "Of two replicas, the one that supervisors talk to: the one that gets all requests, or the other.",
    },
    ClusterOption {
        name: "nodes",
        values: &["unwatched", "watched"],
        sentence: "Watched: the node has heartbeats, and is tainted and emptied when it is silent for long.",
    },
    ClusterOption {
        name: "driver",
        values: &["real", "scripted"],
        sentence: "The Kubernetes driver on a cluster, or a driver that plays a stream of snapshots, without a cluster.",
    },
];

/// Scenarios that are part of the program.
macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(Builtin {
            name: $name,
            path: concat!("scenarios/", $name, ".yaml"),
            text: include_str!(concat!("../../scenarios/", $name, ".yaml")),
        }),*]
    };
}
const SCENARIOS: &[Builtin] = scenarios!(
    "automatic-restart",
    "crash-after-every-write",
    "create-answer-lost",
    "create-answer-lost-and-unread",
    "create-fails-after-its-session",
    "create-timeout-late-commit",
    "delete-dies-with-its-gateway",
    "delete-is-one-way",
    "delete-unseen-and-unread",
    "delete-unseen-by-the-lease-holder",
    "dependency-failure-while-ready",
    "empty-backend-before-first-session",
    "empty-backend-during-create",
    "empty-backend-during-restart",
    "empty-backend-ends-stopped",
    "empty-backend-stuck-provisioning",
    "eviction-behind-a-session",
    "eviction-mid-start",
    "eviction-mid-stop",
    "exit-before-ready-hits-next-run",
    "last-event-lost-to-cas",
    "late-bootstrap-completion-erases-stop",
    "late-create-snapshot-after-stopped",
    "late-stop-snapshot-after-stopped",
    "lifecycle",
    "node-lost-while-ready",
    "old-exit-report-hits-new-run",
    "periodic-list-mid-stop",
    "relist-hides-delete",
    "relist-hides-delete-mid-sweep",
    "replayed-dependency-failure",
    "replayed-stop-snapshots",
    "replayed-stop-stream",
    "restart-stopped-sandbox",
    "session-elsewhere-than-its-create",
    "slow-delete-starves-other-events",
    "slow-start-is-driven-once",
    "stale-suspended-masks-ready",
    "start-dies-with-its-gateway",
    "start-meets-a-clean-up",
    "start-recovers-stale-stopped",
    "start-while-regressed",
    "stop-acked-before-backend-at-rest",
    "stop-meets-automatic-restart",
    "stop-meets-no-driver",
    "stop-meets-no-driver-and-no-pod",
    "stop-outruns-its-controller",
    "stop-restart-stop-under-slow-readiness",
    "stop-then-start-at-once",
    "stop-times-out-slow-termination",
    "suspended-fence-hot-loop",
    "suspension-outruns-an-unread-pod",
    "suspension-outruns-its-pod",
    "terminal-snapshot-queued-behind-gate",
    "transient-session-loss-is-not-terminal",
    "watch-beats-create-row",
    "workload-gone-before-supervisor",
);

/// Recorded and written streams that scenarios play.
macro_rules! fixtures {
    ($($name:literal),* $(,)?) => {
        &[$(Builtin {
            name: $name,
            path: concat!("fixtures/", $name, ".jsonl"),
            text: include_str!(concat!("../../fixtures/", $name, ".jsonl")),
        }),*]
    };
}
const FIXTURES: &[Builtin] = fixtures!(
    "streams/create",
    "streams/suspend",
    "streams/resume",
    "driver/stop-snapshots",
    "driver/early-snapshot",
    "driver/last-event",
    "driver/terminal-while-starting"
);

impl System for OpenShell {
    fn name(&self) -> &'static str {
        "openshell"
    }
    fn switches(&self) -> &'static [Switch] {
        SWITCHES
    }
    fn asked(&self) -> Option<Vec<&'static str>> {
        Some(remedy::asked().names().collect())
    }
    fn cluster_options(&self) -> &'static [ClusterOption] {
        OPTIONS
    }
    fn hosts(&self, cluster: &Cluster) -> Vec<String> {
        let hosts: &[&str] = match cluster.get("driver") {
            "scripted" => &["driver", "gateway", "supervisor", "client"],
            _ => &["api", "scheduler", "kubelet", "gc", "controller", "driver", "gateway", "supervisor", "client"],
        };
        let second: &[&str] = if is_replicated(cluster) { &["driver-2", "gateway-2"] } else { &[] };
        let watch: &[&str] = if are_nodes_watched(cluster) { &["node-lifecycle"] } else { &[] };
        hosts.iter().chain(second).chain(watch).map(|h| (*h).to_owned()).collect()
    }
    fn processes(&self, cluster: &Cluster, host: &str) -> Vec<String> {
        match host {
            "driver" | "gateway" if is_replicated(cluster) => vec![host.to_owned(), format!("{host}-2")],
            _ => vec![host.to_owned()],
        }
    }
    fn streams(&self, cluster: &Cluster) -> Vec<String> {
        let streams: &[&str] = match cluster.get("driver") {
            "scripted" => &[],
            _ => &[
                "driver/sandboxes",
                "driver/pods",
                "controller/sandboxes",
                "controller/pods",
                "supervisor/pods",
                "kubelet/pods",
            ],
        };
        let second: &[&str] = if is_replicated(cluster) { &["driver-2/sandboxes"] } else { &[] };
        streams.iter().chain(second).map(|s| (*s).to_owned()).collect()
    }
    fn prepare(&self) {
        photofinish_apiserver::prepare();
    }
    fn verbs(&self) -> &'static [Verb] {
        verbs::ALL
    }
    fn properties(&self) -> Vec<photofinish::property::Property> {
        properties::all()
    }
    fn scenarios(&self) -> &'static [Builtin] {
        SCENARIOS
    }
    fn lint(&self, _: &Scenario, root: &Node) -> Vec<Mistake> {
        lint::unreachable(root)
    }
    fn template(&self) -> Option<&'static Builtin> {
        SCENARIOS.iter().find(|s| s.name == "late-stop-snapshot-after-stopped")
    }
    fn fixtures(&self) -> &'static [Builtin] {
        FIXTURES
    }
    fn durable_write<'e>(&self, e: &'e Entry) -> Option<&'e str> {
        match &*e.kind {
            "http" if e.field("rv").is_some() && !matches!(&*e.name, "get" | "list" | "watch") => e.field("client"),
            "log" if ["store commit ", "owner commit ", "work commit "].iter().any(|said| e.text.starts_with(said)) => {
                Some(&e.host)
            }
            _ => None,
        }
    }
    fn role(&self, host: &str) -> Role {
        match host.split('-').next().unwrap_or(host) {
            "client" => Role::Client,
            "gateway" => Role::Gateway,
            "driver" => Role::Driver,
            "api" => Role::Server,
            _ => Role::Actor,
        }
    }
    fn reading(&self, entries: &[Entry]) -> Reading {
        properties::reading(entries)
    }
    fn meetings(&self, entries: &[Entry]) -> Vec<Meeting> {
        properties::meetings(entries)
    }
    fn grid(&self) -> Grid {
        properties::grid()
    }
    fn unit_test(&self, entries: &[Entry], broke: EntryId) -> Option<String> {
        unit_test::of(entries, broke)
    }
    fn fits(&self, cluster: &Cluster) -> bool {
        api_and_controller(cluster).is_ok()
    }
    fn names<'e>(&self, e: &'e Entry) -> Option<(&'e str, &'e str)> {
        let created = e.kind == "log" && e.text.starts_with("request accepted") && e.field("op") == Some("create");
        created.then(|| e.field("sandbox_id").zip(e.field("sandbox_name")))?
    }
    // The driver tells 404 and 409 from the rest, the actors what may pass from what does not, kube's watcher 403 and 410.
    fn takes_failures_alike(&self, client: &str) -> bool {
        let name = client.split('-').next().unwrap_or(client);
        matches!(name, "driver" | "controller" | "gc" | "kubelet" | "scheduler" | "supervisor" | "node")
    }
    fn profiles(&self) -> Vec<Vec<(&'static str, &'static str)>> {
        let controllers = [("v0.4.6", "v1alpha1"), ("v0.5.0", "v1beta1"), ("v0.5.6", "v1beta1")];
        let releases = ["0.1.2", "cc0642fa8"];
        let all = controllers.into_iter().flat_map(|(controller, api)| {
            releases.map(|release| vec![("controller", controller), ("api", api), ("profile", release)])
        });
        all.collect()
    }
    fn filter(&self) -> Filter {
        let detailed = ["driver::watch", "gateway::watch_loop", "gateway::store", "gateway::scripted_driver"];
        let filter = |f: Filter, module| f.target(format!("photofinish_openshell::{module}"), LevelFilter::DEBUG);
        detailed.into_iter().fold(Filter::default(), filter)
    }
    fn assemble(&self, setup: &Setup, stage: &mut Stage<'_>) -> Result<Box<dyn Live>, BoxError> {
        let remedies = Remedies::from_names(setup.switches.iter().map(String::as_str));
        let front = if is_replicated(&setup.cluster) { "http://gateway-2:8080" } else { "http://gateway:8080" };
        let sessions = if setup.cluster.get("sessions") == "other" { "http://gateway:8080" } else { front };
        stage.world.at_entry(sqlite::seed);
        let mut rig = Rig::new(stage.trace.clone(), sqlite::anchor(DATABASE)?, Store::open(DATABASE)?);
        match setup.cluster.get("driver") {
            "scripted" => {
                let driver = rig.scripted(ScriptedDriver::default());
                host(stage, setup, "driver", move |ctx| {
                    let driver = driver.clone();
                    async move { driver.serve(ctx.wire.listen(driver::DEFAULT_PORT).await?).await }
                });
                let (pods, config) = (rig.supervisors(), supervisors(&rig));
                host(stage, setup, "supervisor", move |ctx| {
                    let (pods, config) = (pods.clone(), config.clone());
                    async move { supervisor::follow(pods.stream(), channel(&ctx, sessions), config).await }
                });
            }
            _ => {
                let (versions, controller) = api_and_controller(&setup.cluster)?;
                // Nobody here applies or asks who owns a field, and keeping track would be a good part of a run's time.
                let api = ApiServer::builder()
                    .managed_fields(false)
                    .sandbox_versions(versions)
                    .hooks(SimHooks::new(stage.trace.clone(), stage.choices.clone(), stage.gates.clone()))
                    .build();
                for namespace in ["default", "kube-node-lease", NAMESPACE] {
                    api.store().create_namespace(namespace);
                }
                cluster(stage, setup, &api, controller);
                let mode = match setup.cluster.get("mode") {
                    "shared" => driver::Mode::Shared { namespace: NAMESPACE.to_owned() },
                    _ => driver::Mode::Managed { prefix: PREFIX.to_owned() },
                };
                let config = driver::Config::new("gateway-0", mode, remedies);
                for name in ["driver", "driver-2"].into_iter().take(replicas(&setup.cluster)) {
                    let config = config.clone();
                    host(stage, setup, name, move |ctx| {
                        let config = config.clone();
                        async move { driver::run(config, kube(&ctx), ctx.wire.listen(driver::DEFAULT_PORT).await?).await }
                    });
                }
                let config = supervisors(&rig);
                host(stage, setup, "supervisor", move |ctx| {
                    let config = config.clone();
                    async move { supervisor::run(kube(&ctx), channel(&ctx, sessions), config).await }
                });
                rig.cluster(api);
            }
        }
        let profile = match setup.cluster.get("profile") {
            "0.1.2" => gateway::Profile::V012,
            _ => gateway::Profile::Cc0642fa8,
        };
        // In this order: the first to start takes the lease.
        let processes = [("gateway", "http://driver:50051"), ("gateway-2", "http://driver-2:50051")];
        let shared = is_replicated(&setup.cluster);
        for (name, driver) in processes.into_iter().take(replicas(&setup.cluster)) {
            host(stage, setup, name, move |ctx| async move {
                let config = gateway::Config { profile, remedies, replica: name.to_owned(), shared };
                let driver = gateway::driver_endpoint(endpoint(driver), remedies);
                let driver = driver.connect_with_connector_lazy(ctx.wire.connector());
                gateway::run(config, driver, DATABASE, ctx.wire.listen(gateway::PORT).await?).await
            });
        }
        let client = rig.client().clone();
        host(stage, setup, "client", move |ctx| {
            let client: Client = client.clone();
            async move { client.run(channel(&ctx, front), ctx.trace.clone()).await }
        });
        Ok(Box::new(rig))
    }
}

/// How supervisors behave; the script makes main processes exit.
fn supervisors(rig: &Rig) -> supervisor::Config {
    supervisor::Config { exits: rig.exits(), ..supervisor::Config::default() }
}

/// How many gateways there are; a scripted driver has one.
fn replicas(cluster: &Cluster) -> usize {
    if cluster.get("replicas") == "2" && cluster.get("driver") == "real" { 2 } else { 1 }
}

fn is_replicated(cluster: &Cluster) -> bool {
    replicas(cluster) > 1
}

fn are_nodes_watched(cluster: &Cluster) -> bool {
    cluster.get("nodes") == "watched" && cluster.get("driver") == "real"
}

/// A host that is started again a second after its process ends, as a supervisor of processes would.
fn host<F, Fut>(stage: &mut Stage<'_>, setup: &Setup, name: &str, main: F)
where
    F: Fn(HostCtx) -> Fut + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let restart = RestartPolicy::Always { after: Duration::from_secs(1) };
    let env = setup.env(name);
    let spec = env.into_iter().fold(HostSpec::new().restart(restart), |spec, (k, v)| spec.env(k, v));
    stage.world.host(name, spec, main);
}

/// Versions of the Sandbox API that are served, and the controller that works with them.
fn api_and_controller(cluster: &Cluster) -> Result<(SandboxVersions, controller::Profile), BoxError> {
    let profile = match cluster.get("controller") {
        "v0.4.6" => controller::Profile::V046,
        "v0.5.0" => controller::Profile::V050,
        _ => controller::Profile::V056,
    };
    let (versions, served) = match cluster.get("api") {
        "v1alpha1" => (SandboxVersions::V1alpha1Only, Version::V1alpha1),
        _ => (SandboxVersions::Both, Version::V1beta1),
    };
    if profile.api_version() != served {
        let (controller, api) = (cluster.get("controller"), cluster.get("api"));
        let needs = profile.api_version().as_str();
        return Err(format!("controller {controller} needs `api: {needs}`, the cluster has `api: {api}`").into());
    }
    Ok((versions, profile))
}

/// The API server, the control plane's actors and the node.
fn cluster(stage: &mut Stage<'_>, setup: &Setup, api: &ApiServer, profile: controller::Profile) {
    let server = api.clone();
    host(stage, setup, "api", move |ctx| {
        let server = server.clone();
        async move {
            let who = |io: &Io| ConnInfo {
                client: io.peer_host().map_or_else(|| "unknown".to_owned(), |h| h.to_string()),
                connection: io.id(),
            };
            Ok(server.serve(ctx.wire.listen(80).await?, who).await?)
        }
    });
    host(stage, setup, "scheduler", |ctx| async move { scheduler::run(kube(&ctx)).await });
    host(stage, setup, "gc", |ctx| async move { garbage_collector::run(kube(&ctx)).await });
    host(stage, setup, "controller", move |ctx| async move {
        controller::run(kube(&ctx), profile, Default::default()).await
    });
    let watched = are_nodes_watched(&setup.cluster);
    if watched {
        host(
            stage,
            setup,
            "node-lifecycle",
            |ctx| async move { node_lifecycle::run(kube(&ctx), Default::default()).await },
        );
    }
    let store = api.store().clone();
    host(stage, setup, "kubelet", move |ctx| {
        let store = store.clone();
        async move {
            let choices = ctx.choices.clone();
            let pace = move |key: &str, usual: Duration| {
                let clean_up = if cleans_up_in_vain(key, &store) { CLEAN_UP_IN_VAIN } else { Duration::ZERO };
                usual + clean_up + choices.delay(key, &POD_IS_SLOW)
            };
            let heartbeat = watched.then_some(HEARTBEAT);
            let fate = photofinish_apiserver::sim::fate(ctx.choices.clone(), Enabled::usual());
            let config = kubelet::KubeletConfig { pace: Arc::new(pace), heartbeat, fate, ..Default::default() };
            if lost_power(&ctx) {
                node::booted(kube(&ctx), &config.node).await?;
            }
            kubelet::run(kube(&ctx), config).await
        }
    });
}

/// Time between two signs of life of a node.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Did the machine of this host go down, not only its process?
fn lost_power(ctx: &HostCtx) -> bool {
    ctx.trace.with(|entries| {
        let of_this = |e: &&Entry| e.kind == "host" && *e.host == *ctx.name;
        let end = |e: &&Entry| matches!(&*e.name, "crash" | "exit" | "power-off");
        entries.iter().rev().filter(of_this).find(end).is_some_and(|e| e.name == "power-off")
    })
}

/// How long a supervisor that was told to end tries to reach its workload; it is killed before.
const CLEAN_UP_IN_VAIN: Duration = Duration::from_secs(3600);

/// Is this the end of a supervisor whose workload has gone before it?
fn cleans_up_in_vain(key: &str, store: &photofinish_apiserver::Store) -> bool {
    let Some(pod) = key.strip_prefix("stop/pod/").and_then(|rest| rest.split('#').next()) else { return false };
    let Some(id) = pod.strip_prefix("os-supervisor-") else { return false };
    let pods = store.list("pods", "");
    let of_it = |pod: &&Arc<Value>| pod["metadata"]["labels"][names::SANDBOX_ID] == id;
    let component = |pod: &Arc<Value>, which: &str| pod["metadata"]["labels"][names::COMPONENT] == which;
    let runs = |pod: &Arc<Value>| component(pod, names::COMPONENT_SUPERVISOR) && pod["status"]["phase"] == "Running";
    pods.iter().filter(of_it).any(runs)
        && !pods.iter().filter(of_it).any(|pod| component(pod, names::COMPONENT_WORKLOAD))
}

/// How much longer than usual a pod may take to start and to end.
static POD_IS_SLOW: DelaySpec = DelaySpec {
    fault: &Fault {
        name: "pod-delay",
        legality: Legality::Always,
        contract: "A pod starts when its images are there and its containers run, and ends within its grace period.",
    },
    odds: 0.3,
    min: Duration::from_millis(1),
    max: Duration::from_secs(2),
};

fn kube(ctx: &HostCtx) -> kube::Client {
    ctx.wire.kube("http://api:80", "default")
}

fn endpoint(address: &'static str) -> Endpoint {
    Endpoint::from_static(address).connect_timeout(Duration::from_secs(5))
}

fn channel(ctx: &HostCtx, address: &'static str) -> Channel {
    endpoint(address).connect_with_connector_lazy(ctx.wire.connector())
}

/// Phase's number by its word in scenarios: `Ready`.
fn phase_named(word: &str) -> Option<SandboxPhase> {
    (0..10).filter_map(|n| SandboxPhase::try_from(n).ok()).find(|p| gateway::phases::phase_name(*p) == word)
}
