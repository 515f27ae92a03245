//! Each operation sends its requests in the order that the specification gives, and leaves what it says.
use super::cluster::{Cluster, ID, NEVER, managed, shared};
use crate::driver::names;
use crate::remedy::Remedies;
use photofinish_apiserver::SandboxVersions;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tonic::Code;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

fn upto<'a>(lines: &'a [String], last: &str) -> &'a [String] {
    let end = lines.iter().position(|l| l == last).unwrap_or_else(|| panic!("{last} is missing in {lines:#?}"));
    &lines[..=end]
}

/// Steps 9 to 15, the same in create and start.
const INSTALL: [&str; 11] = [
    "GET pods/demo",
    "GET sandboxes/demo",
    "GET namespaces/os-team",
    "GET sandboxes/demo",
    "PATCH sandboxes/demo identities",
    "POST secrets/os-sandbox-ID-GEN",
    "POST secrets/os-supervisor-ID-GEN",
    "PATCH pods/os-supervisor-ID schedulingGates=[]",
    "PATCH pods/demo schedulingGates=[]",
    "GET sandboxes/demo",
    "PATCH sandboxes/demo released",
];

#[tokio::test(start_paused = true)]
async fn a_create_in_managed_mode_sends_its_requests_in_order() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = cluster.create().await.expect("created");
    assert_eq!(cluster.marker().as_deref(), Some("create/released"), "it answers while it bootstraps");
    let expected: Vec<_> = [
        "GET namespaces/openshell",
        "POST namespaces/os-team",
        "POST serviceaccounts/openshell-sandbox",
        "POST networkpolicies/openshell-ssh",
        "GET namespaces/os-team",
        "LIST sandboxes",
        "GET namespaces/os-team",
        "GET networkpolicies/openshell-workload-fence",
        "POST networkpolicies/openshell-workload-fence",
        "GET networkpolicies/openshell-supervisor-egress",
        "POST networkpolicies/openshell-supervisor-egress",
        "POST sandboxes/demo",
        "GET namespaces/os-team",
        "POST services/os-boundary-ID",
        "POST pods/os-supervisor-ID",
        "GET networkpolicies/openshell-workload-fence",
        "GET sandboxes/demo",
        "PATCH sandboxes/demo operatingMode=Running",
    ]
    .into_iter()
    .chain(INSTALL)
    .collect();
    assert_eq!(upto(&cluster.requests(), "PATCH sandboxes/demo released"), expected);

    let sandbox = cluster.sandbox();
    let supervisor = cluster.object("pods", &names::supervisor_pod(ID)).expect("a supervisor Pod");
    let (uid, supervisor_uid) = (&sandbox["metadata"]["uid"], &supervisor["metadata"]["uid"]);
    assert_eq!(
        identity,
        format!("kubernetes://os-team/{}/{}", uid.as_str().unwrap_or(""), supervisor_uid.as_str().unwrap_or(""))
    );
    assert_eq!(supervisor["metadata"]["annotations"][names::LAUNCH_AUTHENTICATION], "launch-1");
    assert_eq!(cluster.annotation(names::SUPERVISOR_UID).as_deref(), supervisor_uid.as_str());
    let workload = cluster.object("pods", "demo").expect("a workload Pod");
    assert_eq!(cluster.annotation(names::WORKLOAD_UID).as_deref(), workload["metadata"]["uid"].as_str());
    assert!(cluster.object("persistentvolumeclaims", "workspace-demo").is_some());
    let environment = &workload["spec"]["containers"][0]["env"];
    assert_eq!(
        (environment[0]["name"].as_str(), environment[1]["name"].as_str()),
        (Some("A"), Some("B")),
        "in one order"
    );
}

#[tokio::test(start_paused = true)]
async fn a_create_in_shared_mode_uses_the_namespace_that_is_there() {
    let mut cluster = Cluster::v1beta1(shared()).await;
    cluster.create().await.expect("created");
    let requests = cluster.requests();
    assert_eq!(
        &requests[..4],
        ["GET namespaces/all", "LIST sandboxes", "GET namespaces/all", "GET networkpolicies/openshell-workload-fence"]
    );
    assert!(requests.contains(&"POST sandboxes/team--demo".to_owned()));
    assert!(cluster.object("pods", "team--demo").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_is_completed_by_one_patch_once_supervisor_and_resource_are_ready() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create().await.expect("created");
    upto(&cluster.requests(), "PATCH sandboxes/demo released");
    cluster.until("the bootstrap completes", |c| c.marker().is_none()).await;
    let requests = cluster.requests();
    let patches: Vec<_> = requests.iter().filter(|l| l.starts_with("PATCH")).collect();
    assert_eq!(patches, ["PATCH sandboxes/demo bootstrap completed"], "{requests:#?}");
    assert_eq!(cluster.annotation(names::READINESS).as_deref(), Some("ready"));
    let ready = cluster.get().await.expect("there").status.expect("a status");
    assert!(ready.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True"), "{ready:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_sends_its_requests_in_order_and_leaves_nothing_running() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let generation_before = cluster.sandbox()["metadata"]["generation"].as_i64();
    cluster.stop().await.expect("stopped");
    assert_eq!(
        cluster.requests(),
        [
            "LIST sandboxes",
            "GET sandboxes/demo",
            "PATCH sandboxes/demo stop/releasing",
            "GET pods/os-supervisor-ID",
            "DELETE pods/os-supervisor-ID",
            "GET pods/os-supervisor-ID",
            "GET sandboxes/demo",
            "PATCH sandboxes/demo stop/suspending operatingMode=Suspended",
            "GET sandboxes/demo",
            "GET pods/demo",
            "GET pods/os-supervisor-ID",
            "DELETE secrets/os-sandbox-ID-GEN",
            "DELETE secrets/os-supervisor-ID-GEN",
            "GET sandboxes/demo",
            "PATCH sandboxes/demo stop completed",
        ]
    );
    assert_eq!(cluster.marker(), None);
    assert_eq!(cluster.annotation(names::GENERATION), None);
    assert!(cluster.object("pods", "demo").is_none() && cluster.object("pods", &names::supervisor_pod(ID)).is_none());
    assert!(cluster.api.store().list("secrets", "os-team").is_empty());
    assert!(cluster.object("persistentvolumeclaims", "workspace-demo").is_some(), "the volume stays");
    let generation = cluster.sandbox()["metadata"]["generation"].as_i64();
    assert_eq!(generation, generation_before.map(|g| g + 1), "only the run switch moves the generation");
    let stopped = cluster.get().await.expect("there").status.expect("a status");
    assert!(stopped.conditions.iter().any(|c| c.r#type == "Suspended" && c.status == "True"), "{stopped:?}");
}

#[tokio::test(start_paused = true)]
async fn stopping_a_stopped_sandbox_brings_its_marker_back_for_a_while() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    cluster.stop().await.expect("stopped");
    cluster.requests();
    cluster.stop().await.expect("stopped again");
    assert_eq!(
        cluster.requests(),
        [
            "LIST sandboxes",
            "GET sandboxes/demo",
            "PATCH sandboxes/demo stop/releasing",
            "GET pods/os-supervisor-ID",
            "GET sandboxes/demo",
            "PATCH sandboxes/demo stop/suspending operatingMode=Suspended",
            "GET sandboxes/demo",
            "GET pods/demo",
            "GET pods/os-supervisor-ID",
            "GET sandboxes/demo",
            "PATCH sandboxes/demo stop completed",
        ]
    );
    assert_eq!(cluster.marker(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stop_with_v1alpha1_turns_replicas_to_zero() {
    let mut cluster = Cluster::new(managed(), SandboxVersions::V1alpha1Only, Remedies::as_reported()).await;
    cluster.create_and_settle().await;
    cluster.stop().await.expect("stopped");
    assert!(cluster.requests().contains(&"PATCH sandboxes/demo stop/suspending replicas=0".to_owned()));
    assert_eq!(cluster.sandbox()["spec"]["replicas"], 0);
    assert!(cluster.object("pods", "demo").is_none());
    let told = cluster.get().await.expect("there").status.expect("a status").conditions;
    assert!(told.iter().all(|c| c.r#type != "Suspended"), "nothing tells that it is stopped: {told:?}");
    assert!(told.iter().any(|c| c.r#type == "Ready" && c.reason == "DependenciesNotReady"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_resumes_where_another_left_off() {
    for (phase, expected) in [("releasing", "GET pods/os-supervisor-ID"), ("suspending", "GET sandboxes/demo")] {
        let mut cluster = Cluster::v1beta1(managed()).await;
        cluster.create_and_settle().await;
        let marks = if phase == "releasing" {
            crate::driver::markers::stop_begun(0)
        } else {
            crate::driver::markers::suspending(0)
        };
        let mut patch = json!({"metadata": {"annotations": marks.into_json()}});
        if phase == "suspending" {
            patch["spec"] = json!({"operatingMode": "Suspended"});
        }
        cluster.patch_sandbox(patch).await;
        cluster.stop().await.expect("stopped");
        let requests = cluster.requests();
        assert_eq!(requests[1], expected, "{phase}: {requests:#?}");
        assert!(!requests.contains(&"PATCH sandboxes/demo stop/releasing".to_owned()));
        assert_eq!(cluster.marker(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_sends_its_requests_in_order_and_keeps_resource_and_volume() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let first = cluster.create_and_settle().await;
    let volume = cluster.object("persistentvolumeclaims", "workspace-demo").expect("a volume");
    cluster.stop().await.expect("stopped");
    cluster.requests();
    let second = cluster.start(&first, "launch-2").await.expect("started");
    assert_eq!(cluster.marker().as_deref(), Some("restart/released"), "it answers while it bootstraps");
    let expected: Vec<_> = [
        "LIST sandboxes",
        "GET namespaces/os-team",
        "GET pods/demo",
        "GET networkpolicies/openshell-workload-fence",
        "GET networkpolicies/openshell-supervisor-egress",
        "GET pods/os-supervisor-ID",
        "DELETE secrets/os-sandbox-ID-GEN",
        "DELETE secrets/os-supervisor-ID-GEN",
        "POST pods/os-supervisor-ID",
        "GET sandboxes/demo",
        "PATCH sandboxes/demo restart/preparing operatingMode=Running +podTemplate",
        "GET namespaces/os-team",
        "GET networkpolicies/openshell-workload-fence",
    ]
    .into_iter()
    .chain(INSTALL)
    .collect();
    assert_eq!(upto(&cluster.requests(), "PATCH sandboxes/demo released"), expected);
    assert_ne!(first, second, "another supervisor Pod");
    assert_eq!(first.rsplit_once('/').map(|s| s.0), second.rsplit_once('/').map(|s| s.0), "the same resource");
    let supervisor = cluster.object("pods", &names::supervisor_pod(ID)).expect("a supervisor Pod");
    assert_eq!(supervisor["metadata"]["annotations"][names::LAUNCH_AUTHENTICATION], "launch-2");
    cluster.until("the bootstrap completes", |c| c.marker().is_none()).await;
    let same = cluster.object("persistentvolumeclaims", "workspace-demo").expect("a volume");
    assert_eq!(same["metadata"]["uid"], volume["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_of_a_running_sandbox_stops_it_first() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = cluster.create_and_settle().await;
    cluster.start(&identity, "launch-2").await.expect("started");
    let requests = cluster.requests();
    let stopped = requests.iter().position(|l| l == "PATCH sandboxes/demo stop completed").expect("stopped first");
    assert_eq!(requests[stopped + 1], "LIST sandboxes", "and looked again");
    assert!(requests.contains(&"PATCH sandboxes/demo restart/preparing operatingMode=Running +podTemplate".to_owned()));
}

/// Created and ready, but nobody completes the bootstrap: the one patch that would is refused.
async fn running_but_not_completed(cluster: &mut Cluster) -> String {
    let first = cluster.create_and_settle().await;
    cluster.stop().await.expect("stopped");
    cluster.meddle(|line, _| (line == "PATCH sandboxes/demo bootstrap completed").then_some(409));
    let identity = cluster.start(&first, "launch-2").await.expect("started");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.marker().as_deref(), Some("restart/released"));
    cluster.meddle_no_more();
    cluster.requests();
    identity
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_repeated_completes_what_is_released_already() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = running_but_not_completed(&mut cluster).await;
    let again = cluster.start(&identity, "launch-2").await.expect("started");
    let mut requests = cluster.requests();
    assert_eq!(again, identity, "the same supervisor: {requests:#?}");
    assert_eq!(requests.pop().as_deref(), Some("PATCH sandboxes/demo bootstrap completed"));
    assert!(requests.iter().all(|l| l.starts_with("LIST") || l.starts_with("GET")), "{requests:#?}");
    assert_eq!(cluster.marker(), None);
}

#[tokio::test(start_paused = true)]
async fn a_start_with_another_token_replaces_what_is_released_already() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = running_but_not_completed(&mut cluster).await;
    assert_ne!(cluster.start(&identity, "launch-3").await.expect("started"), identity, "another supervisor");
    assert!(cluster.requests().contains(&"PATCH sandboxes/demo stop completed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_stop_whose_pod_does_not_end_gives_up_and_leaves_its_marker() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(cluster.outsider(), "os-team");
    let hold = |finalizers: serde_json::Value| kube::api::Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    pods.patch("demo", &Default::default(), &hold(json!(["test/hold"]))).await.expect("patched");
    let began = tokio::time::Instant::now();
    let failure = cluster.stop().await.expect_err("gave up");
    assert_eq!(failure.code(), Code::Internal);
    assert!(failure.message().contains("did not stop within 60 s"), "{failure}");
    assert_eq!(began.elapsed(), Duration::from_millis(60_550), "no poll ends later than a minute after the first");
    assert_eq!(cluster.marker().as_deref(), Some("stop/suspending"));
    pods.patch("demo", &Default::default(), &hold(json!(null))).await.expect("patched");
    cluster.stop().await.expect("and the next one finishes it");
    assert_eq!(cluster.marker(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stop_whose_supervisor_does_not_end_gives_up_before_anything_is_switched_off() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let name = names::supervisor_pod(ID);
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(cluster.outsider(), "os-team");
    let held = kube::api::Patch::Merge(json!({"metadata": {"finalizers": ["test/hold"]}}));
    pods.patch(&name, &Default::default(), &held).await.expect("patched");
    let began = tokio::time::Instant::now();
    let failure = cluster.stop().await.expect_err("gave up");
    assert_eq!((failure.code(), began.elapsed()), (Code::Internal, Duration::from_secs(60)));
    assert!(failure.message().contains("was not deleted within 60 s"), "{failure}");
    assert_eq!(cluster.marker().as_deref(), Some("stop/releasing"));
}

/// Deletes the supervisor's Pod at once, and puts another one of its name there.
async fn replace_supervisor(client: kube::Client) {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(client, "os-team");
    let name = names::supervisor_pod(ID);
    let mut pod = pods.get(&name).await.expect("there");
    let at_once = kube::api::DeleteParams::default().grace_period(0);
    pods.delete(&name, &at_once).await.expect("deleted");
    if pods.get_opt(&name).await.expect("read").is_some() {
        let none = json!({"metadata": {"finalizers": null}});
        pods.patch(&name, &Default::default(), &kube::api::Patch::Merge(&none)).await.expect("patched");
    }
    pod.metadata = kube::api::ObjectMeta { name: Some(name), labels: pod.metadata.labels, ..Default::default() };
    pods.create(&Default::default(), &pod).await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_supervisor_that_has_come_meanwhile() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let mut outsider = Some(cluster.outsider());
    cluster.meddle(move |line, _| {
        let outsider = (line == "DELETE pods/os-supervisor-ID").then(|| outsider.take()).flatten();
        outsider.map(|outsider| tokio::spawn(replace_supervisor(outsider)));
        None
    });
    cluster.stop().await.expect("stopped");
    let deleted = cluster.requests().iter().filter(|l| *l == "DELETE pods/os-supervisor-ID").count();
    assert_eq!(deleted, 2, "the other one was there, and was deleted with the generation at the end");
}

#[tokio::test(start_paused = true)]
async fn a_stop_deletes_the_supervisor_that_it_has_read_in_the_foreground() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let supervisor = cluster.object("pods", &names::supervisor_pod(ID)).expect("there");
    cluster.stop().await.expect("stopped");
    let deletions = cluster.deletions();
    let (_, asked) = deletions.iter().find(|(line, _)| line == "DELETE pods/os-supervisor-ID").expect("deleted");
    assert_eq!(asked["preconditions"], json!({"uid": supervisor["metadata"]["uid"]}));
    assert_eq!(asked["propagationPolicy"], "Foreground");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_mind_that_its_supervisor_is_gone_but_an_error_ends_it() {
    for (code, expected) in [(404, Ok(())), (500, Err(Code::Internal))] {
        let mut cluster = Cluster::v1beta1(managed()).await;
        cluster.create_and_settle().await;
        let mut first = true;
        cluster.meddle(move |line, _| {
            (line == "DELETE pods/os-supervisor-ID" && std::mem::take(&mut first)).then_some(code)
        });
        assert_eq!(cluster.stop().await.map_err(|e| e.code()), expected, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_cannot_be_read_within_half_a_minute_changes_nothing() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    cluster.meddle(|line, _| (line == "GET pods/os-supervisor-ID").then_some(NEVER));
    let began = tokio::time::Instant::now();
    let told = cluster.get().await.expect("there").status.expect("a status").conditions;
    assert_eq!(began.elapsed().as_secs(), 30);
    assert!(told.iter().any(|c| c.r#type == "Ready" && c.status == "True"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_told_in_one_span_with_the_version_of_the_api() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let told = Told::default();
    // tracing judges a callsite for all threads by the registering thread's dispatcher while there is only one.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(told.clone()));
    cluster.stop().await.expect("stopped");
    drop(guard);
    let told = told.0.lock().expect("no panic").clone();
    let stop = format!("span kubernetes.stop_sandbox sandbox_id={ID} sandbox_name=demo");
    let prepared = "kubernetes.stop_sandbox: Prepared Kubernetes sandbox stop sandbox_api_version=v1beta1".to_owned();
    assert_eq!(told, [stop, prepared]);
}

/// Spans as they open and events with the spans around them, of the driver alone, at info and above.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Told {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        self.tell(attributes.metadata(), format!("span {}{}", attributes.metadata().name(), fields.rest));
    }
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let spans = context.event_scope(event).into_iter().flat_map(|s| s.from_root());
        let spans: String = spans.map(|s| format!("{}: ", s.name())).collect();
        self.tell(event.metadata(), format!("{spans}{}{}", fields.message, fields.rest));
    }
}

impl Told {
    fn tell(&self, metadata: &Metadata<'_>, line: String) {
        if metadata.target().contains("::driver") && *metadata.level() <= tracing::Level::INFO {
            self.0.lock().expect("no panic").push(line);
        }
    }
}

/// Message and ` key=value` of the other fields.
#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.rest += &format!(" {}={value}", field.name());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.rest += &format!(" {name}={value:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_meets_an_unfinished_first_bootstrap_with_a_refusal() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = cluster.create().await.expect("created");
    assert_eq!(cluster.marker().as_deref(), Some("create/released"));
    let refusal = cluster.start(&identity, "launch-2").await.expect_err("refused");
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert!(refusal.message().contains("initial bootstrap"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_start_without_authentication_or_with_another_identity_is_refused() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = cluster.create_and_settle().await;
    cluster.stop().await.expect("stopped");
    for (identity, token) in [
        (identity.as_str(), ""),
        ("", "launch-2"),
        ("not an identity", "launch-2"),
        ("kubernetes://os-team/another-uid/x", "launch-2"),
    ] {
        let refusal = cluster.start(identity, token).await.expect_err("refused");
        assert_eq!(refusal.code(), Code::FailedPrecondition, "{identity:?} {token:?}: {refusal}");
    }
    assert_eq!(cluster.marker(), None, "nothing was begun");
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_rolled_back_to_stopped() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = cluster.create_and_settle().await;
    cluster.stop().await.expect("stopped");
    cluster.requests();
    cluster.meddle(|line, _| (line == "POST secrets/os-sandbox-ID-GEN").then_some(500));
    let failure = cluster.start(&identity, "launch-2").await.expect_err("failed");
    assert_eq!(failure.code(), Code::Internal, "{failure}");
    assert_eq!(cluster.requests().last().map(String::as_str), Some("PATCH sandboxes/demo stop completed"));
    assert_eq!(cluster.marker(), None);
    assert!(cluster.object("pods", "demo").is_none() && cluster.object("pods", &names::supervisor_pod(ID)).is_none());
    cluster.meddle_no_more();
    cluster.start(&identity, "launch-3").await.expect("it can be started again");
}

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_after_its_resource_deletes_it_again() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.meddle(|line, _| (line == "POST services/os-boundary-ID").then_some(500));
    let failure = cluster.create().await.expect_err("failed");
    assert_eq!(failure.code(), Code::Internal, "{failure}");
    assert_eq!(cluster.requests().last().map(String::as_str), Some("DELETE sandboxes/demo"));
    assert!(cluster.object("sandboxes", "demo").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_second_create_of_the_name_says_that_it_exists() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    assert_eq!(cluster.create().await.expect_err("taken").code(), Code::AlreadyExists);
    assert!(cluster.object("sandboxes", "demo").is_some(), "the first one stays");
}

#[tokio::test(start_paused = true)]
async fn a_delete_names_the_version_that_it_listed_and_waits_for_the_pod() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    assert!(cluster.delete().await.expect("deleted"));
    assert_eq!(cluster.requests(), ["LIST sandboxes", "DELETE sandboxes/demo", "GET pods/demo", "GET sandboxes/demo"]);
    assert!(cluster.object("pods", "demo").is_none());
    assert!(!cluster.delete().await.expect("nothing to delete"));
    assert_eq!(cluster.get().await.expect_err("gone").code(), Code::NotFound);
    assert_eq!(cluster.stop().await.expect_err("gone").code(), Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_lost_against_another_write_says_that_it_deleted_nothing() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    cluster.meddle(|line, api| {
        if line == "DELETE sandboxes/demo" {
            let mut object = (*api.store().get("sandboxes", "os-team", "demo").expect("there")).clone();
            object["metadata"]["annotations"]["touched"] = "yes".into();
            api.as_writer("other").put(object).expect("written");
        }
        None
    });
    assert!(!cluster.delete().await.expect("no failure"));
    assert!(cluster.object("sandboxes", "demo").is_some());
}

#[tokio::test(start_paused = true)]
async fn patches_are_repeated_on_a_conflict() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let mut conflicts = 3;
    cluster.meddle(move |line, _| {
        let hit = line == "PATCH sandboxes/demo stop/releasing" && conflicts > 0;
        conflicts -= i32::from(hit);
        hit.then_some(409)
    });
    cluster.stop().await.expect("stopped");
    let tries = cluster.requests().iter().filter(|l| *l == "PATCH sandboxes/demo stop/releasing").count();
    assert_eq!(tries, 4);
}

#[tokio::test(start_paused = true)]
async fn the_version_is_asked_for_once() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    for _ in 0..3 {
        cluster.get().await.expect("there");
    }
    let lists = cluster.requests().iter().filter(|l| *l == "LIST sandboxes").count();
    assert_eq!(lists, 3, "one a get, none for the version");
}

#[tokio::test(start_paused = true)]
async fn two_operations_on_one_sandbox_never_overlap() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    let identity = cluster.create_and_settle().await;
    let mut other = cluster.driver.clone();
    let stop = crate::pb::compute::StopSandboxRequest {
        sandbox_id: ID.into(),
        sandbox_name: "demo".into(),
        ..Default::default()
    };
    let second = tokio::spawn(async move { other.stop_sandbox(stop).await });
    cluster.stop().await.expect("stopped");
    second.await.expect("no panic").expect("stopped again");
    let requests = cluster.requests();
    let ends: Vec<_> =
        requests.iter().filter(|l| l.ends_with("stop/releasing") || l.ends_with("stop completed")).collect();
    let one = ["PATCH sandboxes/demo stop/releasing", "PATCH sandboxes/demo stop completed"];
    assert_eq!(ends, [one, one].concat(), "{requests:#?}");
    cluster.start(&identity, "launch-2").await.expect("and a start follows");
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_usable_id_are_refused() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    for id in ["", "a,openshell.ai/sandbox-id"] {
        let request = crate::pb::compute::StopSandboxRequest { sandbox_id: id.into(), ..Default::default() };
        let refusal = cluster.driver.stop_sandbox(request).await.expect_err("refused");
        assert_eq!(refusal.code(), Code::InvalidArgument, "{id:?}");
    }
    assert!(cluster.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_workspace_is_made_once_and_deleted_only_if_it_is_ours() {
    use crate::pb::compute::{DeleteWorkspaceRequest, EnsureWorkspaceRequest};
    let mut cluster = Cluster::v1beta1(managed()).await;
    for _ in 0..2 {
        cluster.driver.ensure_workspace(EnsureWorkspaceRequest { workspace: "team".into() }).await.expect("made");
    }
    assert!(cluster.object("serviceaccounts", names::SERVICE_ACCOUNT).is_some());
    let foreign = serde_json::from_value(json!({"metadata": {"name": "os-foreign"}})).expect("a namespace");
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(cluster.outsider());
    namespaces.create(&Default::default(), &foreign).await.expect("created");
    for (workspace, code) in [("foreign", Some(Code::FailedPrecondition)), ("absent", None), ("team", None)] {
        let request = DeleteWorkspaceRequest { workspace: workspace.into() };
        let result = cluster.driver.delete_workspace(request).await;
        assert_eq!(result.err().map(|e| e.code()), code, "{workspace}");
    }
    let ending = cluster.object("namespaces", "os-team");
    assert!(ending.is_none_or(|n| n["status"]["phase"] == "Terminating"));
}
