//! Names, labels and annotations of the objects that the driver owns.
//!
//! A sandbox is one Sandbox resource (the custom resource, "CR") and its companions: a supervisor Pod, a boundary
//! Service and two Secrets a generation. Companions carry an owner reference to the CR, so the garbage collector takes
//! them along.
//!
//! # What a supervisor Pod carries
//!
//! Whoever runs a supervisor finds all it needs on its Pod, `os-supervisor-<sandbox id>`:
//!
//! | where | key | value |
//! |---|---|---|
//! | label | [`COMPONENT`] | [`COMPONENT_SUPERVISOR`] |
//! | label | [`SANDBOX_ID`], [`SANDBOX_NAME`], [`SANDBOX_WORKSPACE`], [`GATEWAY_ID`] | whose it is |
//! | annotation | [`LAUNCH_AUTHENTICATION`] | the token that the gateway gave to this launch |
//! | annotation | [`GENERATION`] | the runtime generation token of this launch |
//! | annotation | [`GATEWAY_ENDPOINT`] | where to open the session |
//! | env | `OPENSHELL_SANDBOX_ID`, `OPENSHELL_SANDBOX_NAME`, `OPENSHELL_GATEWAY_ENDPOINT`, `OPENSHELL_GENERATION` | the same |
//!
//! The Pod's uid tells one launch from the next: the name is stable across generations.

/// Group of the Sandbox resource.
pub const SANDBOX_GROUP: &str = "agents.x-k8s.io";
/// Annotation in which the agent-sandbox controller keeps the name of the workload Pod that it tracks.
pub const POD_NAME: &str = "agents.x-k8s.io/pod-name";

/// Label: who manages the object.
pub const MANAGED_BY: &str = "openshell.ai/managed-by";
/// Value of [`MANAGED_BY`].
pub const MANAGED_BY_OPENSHELL: &str = "openshell";
/// Label: the sandbox's id.
pub const SANDBOX_ID: &str = "openshell.ai/sandbox-id";
/// Label: the sandbox's name.
pub const SANDBOX_NAME: &str = "openshell.ai/sandbox-name";
/// Label: the sandbox's workspace.
pub const SANDBOX_WORKSPACE: &str = "openshell.ai/sandbox-workspace";
/// Label: the gateway that the sandbox belongs to.
pub const GATEWAY_ID: &str = "openshell.ai/gateway-id";
/// Label: [`COMPONENT_SUPERVISOR`] or [`COMPONENT_WORKLOAD`].
pub const COMPONENT: &str = "openshell.ai/component";
/// The supervisor Pod.
pub const COMPONENT_SUPERVISOR: &str = "supervisor";
/// The workload Pod, made by the agent-sandbox controller from the CR's Pod template.
pub const COMPONENT_WORKLOAD: &str = "workload";

/// Scheduling gate that both Pods wait behind until their Secrets exist.
pub const BOOTSTRAP_GATE: &str = "openshell.ai/bootstrap";
/// Annotation of the supervisor Pod: the launch token that it shows to the gateway.
pub const LAUNCH_AUTHENTICATION: &str = "openshell.ai/launch-authentication";
/// Annotation of the supervisor Pod: the gateway's address.
pub const GATEWAY_ENDPOINT: &str = "openshell.ai/gateway-endpoint";

/// Annotation: `"true"` while a bootstrap or a stop is under way. This is the marker that the converter looks at.
pub const BOOTSTRAPPING: &str = "openshell.ai/sandbox-runtime-bootstrapping";
/// Annotation: when the marker was set, wall clock of the writer, decimal milliseconds.
pub const BOOTSTRAP_STARTED_AT_MS: &str = "openshell.ai/sandbox-runtime-bootstrap-started-at-ms";
/// Annotation: `create`, `restart` or `stop`.
pub const BOOTSTRAP_OPERATION: &str = "openshell.ai/sandbox-runtime-bootstrap-operation";
/// Annotation: `preparing`, `released`, `releasing` or `suspending`.
pub const BOOTSTRAP_PHASE: &str = "openshell.ai/sandbox-runtime-bootstrap-phase";
/// Annotation: which start request a restart serves (a fingerprint, never the token itself).
pub const BOOTSTRAP_SESSION: &str = "openshell.ai/sandbox-runtime-bootstrap-session";
/// Annotation: the runtime generation token, fresh for each create and restart.
pub const GENERATION: &str = "openshell.ai/sandbox-runtime-generation";
/// Annotation: `ready` or `unavailable`; published so that watchers get an event.
pub const READINESS: &str = "openshell.ai/sandbox-runtime-readiness";
/// Annotation: uid of the workload Pod of this generation.
pub const WORKLOAD_UID: &str = "openshell.ai/sandbox-runtime-workload-uid";
/// Annotation: uid of the supervisor Pod of this generation.
pub const SUPERVISOR_UID: &str = "openshell.ai/sandbox-runtime-supervisor-uid";
/// Annotation: uid of the workload fence that this generation started behind.
pub const NETWORK_POLICY_UID: &str = "openshell.ai/sandbox-runtime-network-policy-uid";
/// Annotation: generation of that fence.
pub const NETWORK_POLICY_GENERATION: &str = "openshell.ai/sandbox-runtime-network-policy-generation";
/// Annotation: the main process as JSON, kept for restarts.
pub const MAIN_PROCESS_SPEC: &str = "openshell.ai/sandbox-runtime-main-process-spec";
/// Annotation: which lost dependency suspended the sandbox, in words; gone with the next start or stop.
pub const SUSPENDED_BECAUSE: &str = "openshell.ai/sandbox-runtime-suspended-because";
/// Annotation: lifecycle epoch of the last create, start or stop of the gateway that was carried out on the resource.
pub const LIFECYCLE_EPOCH: &str = "openshell.ai/sandbox-runtime-lifecycle-epoch";
/// Annotation: the log level, kept for restarts.
pub const LOG_LEVEL: &str = "openshell.ai/sandbox-runtime-log-level";

/// NetworkPolicy that fences the workload Pods of a namespace.
pub const WORKLOAD_FENCE: &str = "openshell-workload-fence";
/// NetworkPolicy for the egress of the supervisor Pods of a namespace.
pub const SUPERVISOR_EGRESS: &str = "openshell-supervisor-egress";
/// NetworkPolicy that lets SSH in, one a managed namespace.
pub const SSH_POLICY: &str = "openshell-ssh";
/// ServiceAccount of the Pods of a managed namespace.
pub const SERVICE_ACCOUNT: &str = "openshell-sandbox";

/// In a runtime identity, the uid of a supervisor Pod that there is not.
pub const NO_SUPERVISOR: &str = "none";

/// Longest name of a Sandbox resource: it becomes a Pod's name and a label.
pub const MAX_NAME: usize = 63;

/// The supervisor Pod's name: stable across generations.
pub fn supervisor_pod(sandbox_id: &str) -> String {
    format!("os-supervisor-{sandbox_id}")
}
/// The boundary Service's name.
pub fn boundary_service(sandbox_id: &str) -> String {
    format!("os-boundary-{sandbox_id}")
}
/// Name of the workload's Secret of one generation.
pub fn sandbox_secret(sandbox_id: &str, generation: &str) -> String {
    format!("os-sandbox-{sandbox_id}-{}", alphanumeric(generation))
}
/// Name of the supervisor's Secret of one generation.
pub fn supervisor_secret(sandbox_id: &str, generation: &str) -> String {
    format!("os-supervisor-{sandbox_id}-{}", alphanumeric(generation))
}
/// Name of one generation's copy of an image pull Secret.
pub fn pull_secret_copy(secret: &str, sandbox_id: &str, generation: &str) -> String {
    format!("{secret}-{sandbox_id}-{}", alphanumeric(generation))
}

fn alphanumeric(generation: &str) -> String {
    generation.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Selects the one sandbox with this id.
pub fn sandbox_selector(gateway_id: &str, sandbox_id: &str) -> String {
    format!("{MANAGED_BY}={MANAGED_BY_OPENSHELL},{SANDBOX_ID}={sandbox_id},{GATEWAY_ID}={gateway_id}")
}
/// Selects all sandboxes of a gateway.
pub fn gateway_selector(gateway_id: &str) -> String {
    format!("{MANAGED_BY}={MANAGED_BY_OPENSHELL},{SANDBOX_ID},{GATEWAY_ID}={gateway_id}")
}
/// Selects all sandboxes of a namespace, whosever they are: the watch of shared mode.
pub fn any_gateway_selector() -> String {
    format!("{MANAGED_BY}={MANAGED_BY_OPENSHELL},{SANDBOX_ID}")
}

/// Is this a DNS label (RFC 1123): lower-case letters, digits, `-` inside, at most 63?
pub fn is_dns_label(s: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !s.is_empty() && s.len() <= MAX_NAME && s.bytes().all(inner) && !s.starts_with('-') && !s.ends_with('-')
}

/// What names one run of a sandbox to the gateway: `kubernetes://<namespace>/<CR uid>/<supervisor Pod uid>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeIdentity {
    /// Namespace of the CR.
    pub namespace: String,
    /// Uid of the CR.
    pub sandbox_uid: String,
    /// Uid of the supervisor Pod.
    pub supervisor_uid: String,
}

impl RuntimeIdentity {
    /// Reads the string form; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("kubernetes://")?.split('/');
        let mut part = || parts.next().filter(|p| !p.is_empty()).map(str::to_owned);
        let identity = Self { namespace: part()?, sandbox_uid: part()?, supervisor_uid: part()? };
        parts.next().is_none().then_some(identity)
    }
}

impl std::fmt::Display for RuntimeIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kubernetes://{}/{}/{}", self.namespace, self.sandbox_uid, self.supervisor_uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_identity_reads_back_what_it_writes_and_nothing_else() {
        let text = "kubernetes://team-a/11-22/33-44";
        let identity = RuntimeIdentity::parse(text).expect("well formed");
        assert_eq!(identity.namespace, "team-a");
        assert_eq!(identity.sandbox_uid, "11-22");
        assert_eq!(identity.supervisor_uid, "33-44");
        assert_eq!(identity.to_string(), text);
        for bad in
            ["", "kubernetes://", "kubernetes://a/b", "kubernetes://a/b/", "kubernetes://a/b/c/d", "docker://a/b/c"]
        {
            assert_eq!(RuntimeIdentity::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_of_a_generation_hold_only_what_an_object_name_may_hold() {
        assert_eq!(sandbox_secret("id", "Ab:9/z"), "os-sandbox-id-ab9z");
        assert_eq!(supervisor_secret("id", "Ab:9/z"), "os-supervisor-id-ab9z");
        assert_eq!(pull_secret_copy("regcred", "id", "g-1"), "regcred-id-g1");
    }

    #[test]
    fn companions_are_named_after_the_sandbox_id() {
        assert_eq!(supervisor_pod("id"), "os-supervisor-id");
        assert_eq!(boundary_service("id"), "os-boundary-id");
    }

    #[test]
    fn selectors_name_manager_sandbox_and_gateway() {
        assert_eq!(
            sandbox_selector("gw", "id"),
            "openshell.ai/managed-by=openshell,openshell.ai/sandbox-id=id,openshell.ai/gateway-id=gw"
        );
        assert_eq!(
            gateway_selector("gw"),
            "openshell.ai/managed-by=openshell,openshell.ai/sandbox-id,openshell.ai/gateway-id=gw"
        );
        assert_eq!(any_gateway_selector(), "openshell.ai/managed-by=openshell,openshell.ai/sandbox-id");
    }

    #[test]
    fn dns_labels_are_told_from_others() {
        for good in ["a", "a-b", "0", &"x".repeat(63)] {
            assert!(is_dns_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }
}
