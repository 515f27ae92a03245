//! A kube-rs controller as it is, raced against a simulated API server: it makes a Secret for each ConfigMap, and its watch
//! of Secrets may be late.
//!
//! `cargo run -p photofinish --example controller -- run` races it; `-- run --as-reported --html run.html` shows what
//! happens without the fix. `tests/controller.rs` makes both tests.
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use photofinish::property::Property;
use photofinish::reading::Role;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{self, BoxError, Builtin, Cluster, Live, Setup, Stage, System, Verb};
use photofinish::temporal::after;
use photofinish::{Switch, SwitchKind};
use photofinish_apiserver::sim::SimHooks;
use photofinish_apiserver::{ApiServer, ConnInfo};
use photofinish_sim::host::HostSpec;
use photofinish_sim::trace::Entry;
use photofinish_sim::wire::Io;
use serde_json::json;

// The controller under test: plain kube-rs.

struct Context {
    client: Client,
    secrets: Store<Secret>,
    fixed_name: bool,
}

/// Looks for the ConfigMap's Secret in the cache, and makes one if there is none.
async fn reconcile(parent: Arc<ConfigMap>, ctx: Arc<Context>) -> Result<Action, kube::Error> {
    let owned = |secret: &Arc<Secret>| secret.owner_references().iter().any(|o| parent.uid().as_ref() == Some(&o.uid));
    if !ctx.secrets.state().iter().any(owned) {
        let mut secret = Secret::default();
        match ctx.fixed_name {
            true => secret.metadata.name = Some(parent.name_any()),
            false => secret.metadata.generate_name = Some(format!("{}-", parent.name_any())),
        }
        secret.metadata.owner_references = parent.controller_owner_ref(&()).map(|owner| vec![owner]);
        let secrets: Api<Secret> = Api::default_namespaced(ctx.client.clone());
        match secrets.create(&PostParams::default(), &secret).await {
            // It is there already: the cache is late.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made?),
        }
    }
    Ok(Action::requeue(Duration::from_secs(1)))
}

async fn controller(client: Client, fixed_name: bool) -> Result<(), BoxError> {
    let (secrets, writer) = reflector::store();
    let watched = watcher(Api::<Secret>::default_namespaced(client.clone()), watcher::Config::default());
    let cache = watched.default_backoff().reflect(writer).for_each(|_| std::future::ready(()));
    let parents = Api::<ConfigMap>::default_namespaced(client.clone());
    let retry = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Context>| Action::requeue(Duration::from_secs(1));
    let context = Arc::new(Context { client, secrets, fixed_name });
    let work = Controller::new(parents, watcher::Config::default().labels("secret=wanted"))
        .run(reconcile, retry, context)
        .for_each(|_| std::future::ready(()));
    futures::future::join(cache, work).await;
    Ok(())
}

// What the harness needs to know: hosts, verbs, properties, fixes, scenarios.

pub(crate) struct Secrets;

pub(crate) static SECRETS: Secrets = Secrets;

/// The running world's own state: the API server, for steps that write to it as a user does.
struct User(ApiServer);

impl Live for User {}

#[derive(Debug)]
struct Parent(String);

impl system::Action for Parent {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let parent = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.0, "namespace": "default", "labels": {"secret": "wanted"}},
        });
        let user = scene.live::<User>().0.as_writer("user");
        user.put(parent).map(drop).map_err(|e| StepError::impossible(e.to_string()))
    }
}

/// Is this the API server's answer to the controller, that a Secret was made?
fn made(e: &Entry) -> bool {
    let field = |name| e.field(name).unwrap_or_default();
    e.kind == "http"
        && e.name == "create"
        && (field("client"), field("status")) == ("controller", "201")
        && field("path").ends_with("/secrets")
}

impl System for Secrets {
    fn name(&self) -> &'static str {
        "secrets"
    }
    fn switches(&self) -> &'static [Switch] {
        &[Switch {
            name: "fixed-name",
            kind: SwitchKind::Proposed { recommended: true },
            sentence: "A Secret is called as its ConfigMap is: a second one is refused.",
            from: "secrets#1",
        }]
    }
    fn hosts(&self, _: &Cluster) -> Vec<String> {
        vec!["api".into(), "controller".into()]
    }
    fn streams(&self, _: &Cluster) -> Vec<String> {
        vec!["controller/configmaps".into(), "controller/secrets".into()]
    }
    fn role(&self, host: &str) -> Role {
        if host == "api" { Role::Server } else { Role::Actor }
    }
    fn verbs(&self) -> &'static [Verb] {
        &[Verb {
            name: "parent",
            usage: "parent: NAME",
            sentence: "A user makes a ConfigMap that wants a Secret.",
            parse: |node, _| Ok(Box::new(Parent(node.text("a name")?.to_owned()))),
        }]
    }
    fn properties(&self) -> Vec<Property> {
        vec![Property::new(
            "one-secret",
            "A ConfigMap has one Secret, however late the controller sees it.",
            after(|e| made(e).then_some(())).never(|_, e| made(e).then(|| "a second Secret was made".to_owned())),
        )]
    }
    fn scenarios(&self) -> &'static [Builtin] {
        &[Builtin {
            name: "second-secret",
            path: "examples/second-secret.yaml",
            text: "scenario: second-secret
summary: The watch of Secrets is late, and the next reconciliation does not see the one that is there.
steps:
  - run: 1s
  - hold: {watch: controller/secrets, as: late}
  - parent: settings
  - run: 3s
  - release: late
  - run: 3s
check: [one-secret]
fails-without: {off: fixed-name, violates: [one-secret]}
",
        }]
    }
    fn assemble(&self, setup: &Setup, stage: &mut Stage<'_>) -> Result<Box<dyn Live>, BoxError> {
        let hooks = SimHooks::new(stage.trace.clone(), stage.choices.clone(), stage.gates.clone());
        let api = ApiServer::builder().hooks(hooks).build();
        api.store().create_namespace("default");
        let server = api.clone();
        stage.world.host("api", HostSpec::new(), move |ctx| {
            let server = server.clone();
            async move {
                let who = |io: &Io| ConnInfo {
                    client: io.peer_host().map_or_else(String::new, |host| host.to_string()),
                    connection: io.id(),
                };
                Ok(server.serve(ctx.wire.listen(80).await?, who).await?)
            }
        });
        let fixed_name = setup.on("fixed-name");
        stage.world.host("controller", HostSpec::new(), move |ctx| async move {
            controller(ctx.wire.kube("http://api:80", "default"), fixed_name).await
        });
        Ok(Box::new(User(api)))
    }
}

fn main() -> ExitCode {
    photofinish::cli::main(&SECRETS)
}
