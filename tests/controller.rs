//! The agent-sandbox controller where its caches lag, and in the states that the recording does not show.
mod support;

use std::sync::Arc;
use std::time::Duration;

use photofinish_apiserver::sim::SimHooks;
use photofinish_apiserver::{ApiServer, SandboxVersions};
use photofinish_openshell::cluster::controller::{self, Profile};
use photofinish_sim::choices::Choices;
use photofinish_sim::gate::{Gates, Release};
use photofinish_sim::host::HostSpec;
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{World, WorldConfig, on_own_thread};
use serde_json::{Value, json};

/// A world with an API server and the controller, and hands to act on what is stored.
struct Cluster {
    world: World,
    server: ApiServer,
    profile: Profile,
    gates: Gates,
    trace: Trace,
}

/// Runs a test in a world whose controller, the newest, has made its first lists.
fn in_cluster(test: fn(&mut Cluster)) {
    in_cluster_of(Profile::V056, test);
}

/// The same with a controller of this profile, on a cluster of its time.
fn in_cluster_of(profile: Profile, test: fn(&mut Cluster)) {
    on_own_thread(move || {
        let (trace, choices) = (Trace::new(), Choices::benign());
        let gates = Gates::new(trace.clone(), choices.clone());
        let hooks = SimHooks::new(trace.clone(), choices.clone(), gates.clone());
        let versions = match profile {
            Profile::V046 => SandboxVersions::V1alpha1Only,
            Profile::V050 | Profile::V056 => SandboxVersions::Both,
        };
        let server = ApiServer::builder().sandbox_versions(versions).hooks(hooks).build();
        let mut builder = World::builder(WorldConfig::default(), trace.clone(), choices);
        let api = server.clone();
        builder.host("api", HostSpec::new(), move |ctx| support::api(ctx, api.clone()));
        builder.host("agent-sandbox", HostSpec::new(), move |ctx| async move {
            controller::run(ctx.wire.kube("http://api", "default"), profile, controller::Config::default()).await
        });
        let mut world = builder.build();
        world.start_all();
        let mut cluster = Cluster { world, server, profile, gates, trace };
        cluster.wait();
        test(&mut cluster);
    });
}

impl Cluster {
    /// Lets the cluster act for a second.
    fn wait(&mut self) {
        self.world.run_for(Duration::from_secs(1)).expect("the world goes on");
    }
    fn get(&self, resource: &str, name: &str) -> Option<Arc<Value>> {
        self.server.store().get(resource, "default", name)
    }
    fn put(&self, object: Value) {
        self.server.as_writer("user").put(object).expect("the server stores it");
    }
    /// Stores a Sandbox of this mode, at generation 1.
    fn create(&mut self, mode: &str, more: Value) {
        let mut spec = json!({
            "shutdownPolicy": "Retain",
            "podTemplate": {"spec": {
                "containers": [{"name": "agent", "image": "img:1"}],
                "schedulingGates": [{"name": "openshell.ai/bootstrap"}],
            }},
        });
        spec.as_object_mut().expect("it is one").extend(more.as_object().cloned().unwrap_or_default());
        self.switch(&mut spec, mode);
        self.put(json!({
            "apiVersion": format!("agents.x-k8s.io/{}", self.profile.api_version().as_str()), "kind": "Sandbox",
            "metadata": {"name": "demo", "namespace": "default", "uid": "u1", "generation": 1},
            "spec": spec,
        }));
        self.wait();
    }
    /// Changes a stored object and lets the cluster act.
    fn change(&mut self, resource: &str, change: impl FnOnce(&mut Value)) {
        let stored = self.get(resource, "demo").unwrap_or_else(|| panic!("there is no {resource} demo"));
        let mut object = Value::clone(&stored);
        change(&mut object);
        self.put(object);
        self.wait();
    }
    /// The kubelet's word: the Pod runs and is ready.
    fn pod_runs(&mut self) {
        self.change("pods", |pod| {
            pod["spec"]["nodeName"] = "n1".into();
            pod["status"] = json!({
                "phase": "Running", "podIPs": [{"ip": "10.1.0.1"}],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            });
        });
    }
    fn set_mode(&mut self, mode: &str, generation: i64) {
        let mut spec = self.get("sandboxes", "demo").expect("it is there")["spec"].clone();
        self.switch(&mut spec, mode);
        self.change("sandboxes", |sandbox| {
            sandbox["spec"] = spec;
            sandbox["metadata"]["generation"] = generation.into();
        });
    }
    /// The run switch, as the version of the API has it.
    fn switch(&self, spec: &mut Value, mode: &str) {
        match self.profile {
            Profile::V046 => spec["replicas"] = i32::from(mode == "Running").into(),
            Profile::V050 | Profile::V056 => spec["operatingMode"] = mode.into(),
        }
    }
    /// `status/reason@generation` of a condition of the Sandbox.
    fn condition(&self, kind: &str) -> String {
        let sandbox = self.get("sandboxes", "demo").expect("the sandbox is there");
        let conditions = sandbox["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
        let found = conditions.iter().find(|c| c["type"] == kind);
        found.map_or("none".into(), |c| {
            format!("{}/{}@{}", text(c, "status"), text(c, "reason"), c["observedGeneration"])
        })
    }
    fn tracked(&self) -> Value {
        self.get("sandboxes", "demo").expect("it is there")["metadata"]["annotations"]["agents.x-k8s.io/pod-name"]
            .clone()
    }
    /// Writes of the controller so far.
    fn writes(&self) -> usize {
        self.trace.with(|entries| {
            let wrote = |e: &&photofinish_sim::trace::Entry| {
                e.kind == "http" && e.field("client") == Some("agent-sandbox") && e.field("rv").is_some()
            };
            entries.iter().filter(wrote).count()
        })
    }
}

#[test]
fn a_sandbox_created_suspended_gets_its_claim_and_no_pod_and_is_suspended_though_it_never_ran() {
    in_cluster(|cluster| {
        let claims = json!({"volumeClaimTemplates": [{
            "metadata": {"name": "workspace"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }]});
        cluster.create("Suspended", claims);
        assert!(cluster.get("persistentvolumeclaims", "workspace-demo").is_some());
        assert!(cluster.get("pods", "demo").is_none());
        assert_eq!(cluster.condition("Suspended"), "True/PodTerminated@1");
        assert_eq!(cluster.condition("Ready"), "False/SandboxSuspended@1");

        cluster.set_mode("Running", 2);
        let pod = cluster.get("pods", "demo").expect("it runs now");
        assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": "openshell.ai/bootstrap"}]));
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "workspace-demo");
        assert_eq!(cluster.condition("Suspended"), "False/NotSuspended@2");
        assert_eq!(cluster.condition("Ready"), "False/DependenciesNotReady@2");
        cluster.pod_runs();
        assert_eq!(cluster.condition("Ready"), "True/DependenciesReady@2");
    });
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    in_cluster(|cluster| {
        cluster.create("Running", json!({"service": true}));
        cluster.pod_runs();
        let writes = cluster.writes();
        assert_eq!(writes, 5, "Pod, annotation, Service, status before and after the Pod ran");
        for _ in 0..600 {
            cluster.wait();
        }
        assert_eq!(cluster.writes(), writes, "ten minutes later");
    });
}

#[test]
fn a_pass_on_a_stale_cache_of_pods_is_written_through_and_heals() {
    in_cluster(|cluster| {
        cluster.gates.hold("agent-sandbox/pods", "late").expect("the stream is known");
        cluster.create("Running", json!({}));
        // The passes that its own writes caused do not see the Pod: they drop it, and cannot make it again.
        assert!(cluster.get("pods", "demo").is_some());
        assert_eq!(cluster.condition("Ready"), "False/ReconcilerError@1");
        assert_eq!(cluster.tracked(), Value::Null);

        cluster.gates.release("late", Release::All).expect("it is held");
        cluster.wait();
        assert_eq!(cluster.condition("Ready"), "False/DependenciesNotReady@1");
        assert_eq!(cluster.tracked(), "demo");
        cluster.pod_runs();
        assert_eq!(cluster.condition("Ready"), "True/DependenciesReady@1");
    });
}

#[test]
fn conditions_carry_the_generation_of_the_sandbox_that_was_read_not_of_the_stored_one() {
    in_cluster(|cluster| {
        cluster.create("Running", json!({}));
        cluster.pod_runs();
        cluster.gates.hold("agent-sandbox/sandboxes", "late").expect("the stream is known");
        cluster.set_mode("Suspended", 2);
        cluster.change("pods", |pod| pod["status"]["phase"] = "Failed".into());
        let stored = cluster.get("sandboxes", "demo").expect("it is there");
        assert_eq!(stored["metadata"]["generation"], 2);
        assert_eq!(cluster.condition("Ready"), "False/PodFailed@1", "no resourceVersion stops the write");
        assert_eq!(cluster.condition("Suspended"), "False/NotSuspended@1");

        cluster.gates.release("late", Release::All).expect("it is held");
        cluster.wait();
        assert_eq!(cluster.condition("Ready"), "False/SandboxSuspended@2");
    });
}

#[test]
fn a_resume_while_the_old_pod_terminates_waits_for_its_end_and_can_be_ready_meanwhile() {
    in_cluster(|cluster| {
        cluster.create("Running", json!({}));
        cluster.pod_runs();
        cluster.set_mode("Suspended", 2);
        let old = cluster.get("pods", "demo").expect("a bound Pod has a grace period");
        assert!(!old["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(cluster.condition("Suspended"), "False/PodTerminating@2");

        cluster.set_mode("Running", 3);
        assert_eq!(cluster.get("pods", "demo").expect("the old one")["metadata"]["uid"], old["metadata"]["uid"]);
        assert_eq!(cluster.condition("Ready"), "True/DependenciesReady@3", "on the terminating Pod");

        cluster.server.as_writer("kubelet").delete(&old).expect("it is there");
        cluster.wait();
        assert_ne!(cluster.get("pods", "demo").expect("a new one")["metadata"]["uid"], old["metadata"]["uid"]);
        assert_eq!(cluster.condition("Ready"), "False/DependenciesNotReady@3");
    });
}

#[test]
fn a_sandbox_that_is_being_deleted_is_left_alone() {
    in_cluster(|cluster| {
        cluster.create("Running", json!({}));
        cluster.pod_runs();
        cluster.change("sandboxes", |sandbox| {
            sandbox["metadata"]["finalizers"] = json!(["example.com/hold"]);
            sandbox["metadata"]["deletionTimestamp"] = "2026-09-21T13:33:20Z".into();
            sandbox["metadata"]["generation"] = 2.into();
        });
        let (writes, ready) = (cluster.writes(), cluster.condition("Ready"));
        let pod = cluster.get("pods", "demo").expect("nobody deleted it");
        cluster.server.as_writer("kubelet").delete(&pod).expect("it is there");
        cluster.wait();
        assert!(cluster.get("pods", "demo").is_none(), "no new Pod");
        assert_eq!((cluster.writes(), cluster.condition("Ready")), (writes, ready));
    });
}

#[test]
fn two_owned_pods_are_reported_and_neither_is_touched() {
    in_cluster(|cluster| {
        cluster.create("Running", json!({}));
        let mut second = Value::clone(&cluster.get("pods", "demo").expect("it was created"));
        second["metadata"]["name"] = "demo-2".into();
        second["metadata"]["uid"] = "u2".into();
        cluster.put(second);
        cluster.wait();
        assert_eq!(cluster.condition("Ready"), "False/MultiplePods@1");
        cluster.set_mode("Suspended", 2);
        for pod in ["demo", "demo-2"] {
            assert_eq!(cluster.get("pods", pod).expect("it stays")["metadata"].get("deletionTimestamp"), None, "{pod}");
        }
    });
}

#[test]
fn v0_4_6_calls_a_suspended_sandbox_ready_and_never_says_suspended() {
    in_cluster_of(Profile::V046, |cluster| {
        cluster.create("Suspended", json!({}));
        assert_eq!(
            (cluster.condition("Ready").as_str(), cluster.get("pods", "demo")),
            ("True/DependenciesReady@1", None)
        );
        cluster.set_mode("Running", 2);
        assert_eq!(cluster.condition("Ready"), "False/DependenciesNotReady@2");
        let pod = cluster.get("pods", "demo").expect("it was created");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["apiVersion"], "agents.x-k8s.io/v1alpha1");
        cluster.pod_runs();
        let status = cluster.get("sandboxes", "demo").expect("it is there")["status"].clone();
        assert_eq!((&status["replicas"], status.get("nodeName")), (&json!(1), None));

        cluster.set_mode("Suspended", 3);
        assert!(!cluster.get("pods", "demo").expect("it ends")["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(cluster.condition("Ready"), "True/DependenciesReady@3", "at once, while the Pod ends");
        assert_eq!(cluster.condition("Suspended"), "none");
        assert_eq!(cluster.tracked(), Value::Null);
    });
}

#[test]
fn v0_5_0_says_suspended_while_the_pod_ends_and_leaves_it_after_a_resume() {
    in_cluster_of(Profile::V050, |cluster| {
        cluster.create("Running", json!({}));
        cluster.pod_runs();
        assert_eq!(cluster.condition("Suspended"), "none");
        cluster.set_mode("Suspended", 2);
        let pod = cluster.get("pods", "demo").expect("it ends");
        assert_eq!(cluster.condition("Suspended"), "True/PodTerminated@2");
        cluster.server.as_writer("kubelet").delete(&pod).expect("it is there");
        cluster.wait();

        cluster.set_mode("Running", 3);
        cluster.pod_runs();
        assert_eq!(cluster.condition("Suspended"), "True/PodTerminated@2", "stale");
        assert_eq!(cluster.condition("Ready"), "True/DependenciesReady@3");
    });
}

#[test]
fn older_versions_write_no_status_onto_a_sandbox_that_they_have_not_read() {
    in_cluster_of(Profile::V050, |cluster| {
        cluster.create("Running", json!({}));
        cluster.pod_runs();
        cluster.gates.hold("agent-sandbox/sandboxes", "late").expect("the stream is known");
        cluster.set_mode("Suspended", 2);
        cluster.change("pods", |pod| pod["status"]["phase"] = "Failed".into());
        assert_eq!(cluster.condition("Ready"), "True/DependenciesReady@1", "the update was refused");
        cluster.gates.release("late", Release::All).expect("it is held");
        cluster.wait();
        assert_eq!(cluster.condition("Ready"), "False/SandboxSuspended@2");
    });
}
