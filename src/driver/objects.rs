//! The objects that a sandbox is made of, as JSON: pure functions of a [`Launch`].
use super::names::{self, *};
use super::resource::SandboxVersion;
use super::{Config, Mode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Port of the supervisor that the workload's side reaches through the boundary Service.
const BOUNDARY_PORT: u16 = 50052;

/// The main process, as annotation [`names::MAIN_PROCESS_SPEC`] keeps it for restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MainProcess {
    pub(super) command: Vec<String>,
    pub(super) tty: bool,
    pub(super) await_attachment: bool,
}

/// One sandbox: who it is and where its Sandbox resource stands.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) workspace: String,
    pub(super) namespace: String,
    /// Name of the Sandbox resource.
    pub(super) resource: String,
}

/// One generation of a sandbox that is being launched.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) who: Identity,
    /// Uid of the Sandbox resource.
    pub(super) sandbox_uid: String,
    pub(super) version: SandboxVersion,
    /// Runtime generation token, fresh for this launch.
    pub(super) generation: String,
    pub(super) launch_authentication: String,
    /// Token of the workload; only a create has one.
    pub(super) sandbox_token: String,
    pub(super) main_process: MainProcess,
    pub(super) log_level: String,
    /// Lifecycle epoch that the operation notes on the resource; 0: none.
    pub(super) epoch: u64,
}

/// What the workload of a new sandbox is to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Workload {
    pub(super) image: String,
    pub(super) environment: BTreeMap<String, String>,
    /// Size of the workspace volume; empty means none.
    pub(super) volume: String,
    /// User and group range that the namespace prescribes.
    pub(super) security: Option<SecurityRange>,
}

/// First user and group id of a namespace that prescribes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SecurityRange {
    pub(super) user: i64,
    pub(super) group: i64,
}

impl Identity {
    fn labels(&self, config: &Config) -> Map<String, Value> {
        [
            (MANAGED_BY, MANAGED_BY_OPENSHELL),
            (SANDBOX_ID, &self.id),
            (SANDBOX_NAME, &self.name),
            (SANDBOX_WORKSPACE, &self.workspace),
            (GATEWAY_ID, &config.gateway_id),
        ]
        .map(|(k, v)| (k.to_owned(), v.into()))
        .into_iter()
        .collect()
    }
    fn component(&self, config: &Config, component: &str) -> Map<String, Value> {
        let mut labels = self.labels(config);
        labels.insert(COMPONENT.into(), component.into());
        labels
    }
}

impl Launch {
    /// Metadata of a companion: it goes when the Sandbox resource goes. It is a plain dependent, not controlled, so that
    /// the agent-sandbox controller does not take it for a Pod of its own.
    fn companion(&self, config: &Config, name: String, component: &str) -> Value {
        json!({
            "name": name,
            "namespace": self.who.namespace,
            "labels": self.who.component(config, component),
            "ownerReferences": [{
                "apiVersion": self.version.api_version(),
                "kind": "Sandbox",
                "name": self.who.resource,
                "uid": self.sandbox_uid,
            }],
        })
    }

    /// Names of the image pull Secrets that this generation's Pods use.
    fn pull_secrets(&self, config: &Config) -> Value {
        let name = |s: &String| match config.mode {
            Mode::Shared { .. } => s.clone(),
            Mode::Managed { .. } => pull_secret_copy(s, &self.who.id, &self.generation),
        };
        config.image_pull_secrets.iter().map(|s| json!({"name": name(s)})).collect()
    }

    /// The part of the workload's Pod spec that each generation replaces.
    pub(super) fn pod_template_of_generation(&self, config: &Config) -> Value {
        json!({
            "volumes": [{"name": "sandbox-secret", "secret": {"secretName": sandbox_secret(&self.who.id, &self.generation)}}],
            "imagePullSecrets": self.pull_secrets(config),
        })
    }
}

/// The Sandbox resource of a new sandbox: off, and marked by `annotations`.
pub(super) fn sandbox(
    config: &Config,
    launch: &Launch,
    workload: &Workload,
    annotations: super::markers::Annotations,
) -> Value {
    let who = &launch.who;
    let mut annotations = annotations.into_json();
    for (key, value) in [(SANDBOX_ID, &who.id), (SANDBOX_NAME, &who.name), (SANDBOX_WORKSPACE, &who.workspace)] {
        annotations[key] = value.as_str().into();
    }
    let environment: Vec<_> = workload.environment.iter().map(|(k, v)| json!({"name": k, "value": v})).collect();
    let image = Some(&workload.image).filter(|i| !i.is_empty()).unwrap_or(&config.default_image);
    let mut mounts = vec![json!({"name": "sandbox-secret", "mountPath": "/run/openshell", "readOnly": true})];
    if !workload.volume.is_empty() {
        mounts.push(json!({"name": "workspace", "mountPath": "/workspace"}));
    }
    let mut pod = launch.pod_template_of_generation(config);
    pod["restartPolicy"] = "Never".into();
    pod["schedulingGates"] = json!([{"name": BOOTSTRAP_GATE}]);
    pod["containers"] = json!([{
        "name": "sandbox",
        "image": image,
        "command": launch.main_process.command,
        "tty": launch.main_process.tty,
        "env": environment,
        "volumeMounts": mounts,
    }]);
    if let Some(SecurityRange { user, group }) = workload.security {
        pod["securityContext"] = json!({"runAsUser": user, "runAsGroup": group, "fsGroup": group});
    }
    if matches!(config.mode, Mode::Managed { .. }) {
        pod["serviceAccountName"] = SERVICE_ACCOUNT.into();
    }
    let (switch, off) = launch.version.run_switch(false);
    let mut spec = json!({
        "podTemplate": {"metadata": {"labels": who.component(config, COMPONENT_WORKLOAD)}, "spec": pod},
        switch: off,
    });
    if !workload.volume.is_empty() {
        spec["volumeClaimTemplates"] = json!([{
            "metadata": {"name": "workspace"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": workload.volume}}},
        }]);
    }
    json!({
        "apiVersion": launch.version.api_version(),
        "kind": "Sandbox",
        "metadata": {
            "name": who.resource,
            "namespace": who.namespace,
            "labels": who.labels(config),
            "annotations": annotations,
        },
        "spec": spec,
    })
}

/// The supervisor Pod of this generation, behind the bootstrap gate. What it carries is told in [`names`].
pub(super) fn supervisor_pod(config: &Config, launch: &Launch) -> Value {
    let who = &launch.who;
    let mut metadata = launch.companion(config, names::supervisor_pod(&who.id), COMPONENT_SUPERVISOR);
    metadata["annotations"] = json!({
        LAUNCH_AUTHENTICATION: launch.launch_authentication,
        GENERATION: launch.generation,
        GATEWAY_ENDPOINT: config.gateway_endpoint,
    });
    let environment = [
        ("OPENSHELL_SANDBOX_ID", &who.id),
        ("OPENSHELL_SANDBOX_NAME", &who.name),
        ("OPENSHELL_GATEWAY_ENDPOINT", &config.gateway_endpoint),
        ("OPENSHELL_GENERATION", &launch.generation),
        ("OPENSHELL_LOG_LEVEL", &launch.log_level),
    ];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": BOOTSTRAP_GATE}],
            "imagePullSecrets": launch.pull_secrets(config),
            "containers": [{
                "name": "supervisor",
                "image": config.supervisor_image,
                "env": environment.map(|(name, value)| json!({"name": name, "value": value})),
                "ports": [{"name": "boundary", "containerPort": BOUNDARY_PORT, "protocol": "TCP"}],
                "volumeMounts": [{"name": "supervisor-secret", "mountPath": "/run/openshell", "readOnly": true}],
            }],
            "volumes": [{
                "name": "supervisor-secret",
                "secret": {"secretName": names::supervisor_secret(&who.id, &launch.generation)},
            }],
        },
    })
}

/// The Service through which the workload's side reaches its supervisor, one for all generations.
pub(super) fn boundary_service(config: &Config, launch: &Launch) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": launch.companion(config, names::boundary_service(&launch.who.id), COMPONENT_SUPERVISOR),
        "spec": {
            "selector": {SANDBOX_ID: launch.who.id, COMPONENT: COMPONENT_SUPERVISOR},
            "ports": [{"name": "boundary", "port": BOUNDARY_PORT, "protocol": "TCP"}],
        },
    })
}

/// The workload's and the supervisor's Secret of this generation; `boundary_token` is what the two share.
pub(super) fn secrets(config: &Config, launch: &Launch, boundary_token: &str, namespace_uid: &str) -> [Value; 2] {
    let secret = |name, component, data: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": launch.companion(config, name, component),
            "type": "Opaque",
            "stringData": data,
        })
    };
    let (id, generation) = (&launch.who.id, &launch.generation);
    let workload = json!({"boundary-token": boundary_token, "sandbox-token": launch.sandbox_token});
    let supervisor = json!({
        "boundary-token": boundary_token,
        "launch-authentication": launch.launch_authentication,
        "namespace-uid": namespace_uid,
        "main-process": serde_json::to_string(&launch.main_process).expect("strings and bools have a JSON text"),
    });
    [
        secret(sandbox_secret(id, generation), COMPONENT_WORKLOAD, workload),
        secret(names::supervisor_secret(id, generation), COMPONENT_SUPERVISOR, supervisor),
    ]
}

/// This generation's copy of an image pull Secret of the gateway's namespace.
pub(super) fn pull_secret(config: &Config, launch: &Launch, original: &Value) -> Value {
    let name = original["metadata"]["name"].as_str().unwrap_or_default();
    let copy = pull_secret_copy(name, &launch.who.id, &launch.generation);
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": launch.companion(config, copy, COMPONENT_SUPERVISOR),
        "type": original["type"],
        "data": original["data"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::markers;
    use crate::driver::resource::{Pod, Sandbox};
    use crate::remedy::Remedies;

    fn launch(version: SandboxVersion) -> Launch {
        let who = Identity {
            id: "id".into(),
            name: "demo".into(),
            workspace: "team".into(),
            namespace: "os-team".into(),
            resource: "demo".into(),
        };
        Launch {
            who,
            sandbox_uid: "cr-uid".into(),
            version,
            generation: "g1".into(),
            launch_authentication: "token".into(),
            sandbox_token: "st".into(),
            main_process: MainProcess { command: vec!["sleep".into()], ..Default::default() },
            log_level: "info".into(),
            epoch: 0,
        }
    }
    fn managed() -> Config {
        let mut config = Config::new("gw", Mode::Managed { prefix: "os-".into() }, Remedies::NONE);
        config.image_pull_secrets = vec!["regcred".into()];
        config
    }

    #[test]
    fn a_new_sandbox_is_off_gated_and_marked_in_both_versions() {
        for version in [SandboxVersion::V1alpha1, SandboxVersion::V1beta1] {
            let workload = Workload { volume: "1Gi".into(), ..Default::default() };
            let marks = markers::create_preparing(7, "g1", "{}", "info");
            let object = sandbox(&managed(), &launch(version), &workload, marks);
            assert_eq!(object["apiVersion"], version.api_version());
            assert_eq!(object["spec"]["podTemplate"]["spec"]["schedulingGates"], json!([{"name": BOOTSTRAP_GATE}]));
            assert_eq!(object["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "workspace");
            let cr: Sandbox = serde_json::from_value(object).expect("a Sandbox");
            assert!(!cr.should_run());
            let marker = markers::Marker::of(&cr).expect("marked");
            assert_eq!((marker.operation, marker.phase), (markers::Operation::Create, markers::Phase::Preparing));
            assert_eq!((cr.id(), cr.label(SANDBOX_NAME), cr.label(GATEWAY_ID)), ("id", "demo", "gw"));
            assert_eq!(cr.annotation(SANDBOX_WORKSPACE), Some("team"));
        }
    }

    #[test]
    fn a_supervisor_pod_carries_what_a_supervisor_needs() {
        let object = supervisor_pod(&managed(), &launch(SandboxVersion::V1beta1));
        assert_eq!(object["spec"]["imagePullSecrets"], json!([{"name": "regcred-id-g1"}]));
        let pod: Pod = serde_json::from_value(object).expect("a Pod");
        assert_eq!(pod.name(), "os-supervisor-id");
        assert_eq!(pod.label(COMPONENT), COMPONENT_SUPERVISOR);
        assert_eq!((pod.label(SANDBOX_ID), pod.label(SANDBOX_NAME)), ("id", "demo"));
        assert_eq!(pod.annotation(LAUNCH_AUTHENTICATION), Some("token"));
        assert_eq!(pod.annotation(GENERATION), Some("g1"));
        assert_eq!(pod.annotation(GATEWAY_ENDPOINT), Some("http://gateway:8080"));
        assert_eq!(pod.spec.scheduling_gates[0].name, BOOTSTRAP_GATE);
        assert!(!pod.is_controlled_by("cr-uid"), "the agent-sandbox controller must not adopt it");
    }

    #[test]
    fn all_companions_go_with_the_sandbox_resource() {
        let (config, launch) = (managed(), launch(SandboxVersion::V1beta1));
        let original = json!({"metadata": {"name": "regcred"}, "type": "kubernetes.io/dockerconfigjson", "data": {}});
        let [a, b] = secrets(&config, &launch, "bt", "ns-uid");
        for object in [
            supervisor_pod(&config, &launch),
            boundary_service(&config, &launch),
            a,
            b,
            pull_secret(&config, &launch, &original),
        ] {
            assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "cr-uid", "{object}");
            assert_eq!(object["metadata"]["namespace"], "os-team");
        }
    }

    #[test]
    fn a_main_process_survives_its_annotation() {
        let process = MainProcess { command: vec!["sh".into(), "-c".into()], tty: true, await_attachment: true };
        let text = serde_json::to_string(&process).expect("a JSON text");
        assert_eq!(serde_json::from_str::<MainProcess>(&text).expect("reads back"), process);
    }
}
