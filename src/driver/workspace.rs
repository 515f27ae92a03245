//! Namespaces: one for all sandboxes (shared mode), or one a workspace, made here (managed mode).
use super::error::DriverError;
use super::kube_calls::{NAMESPACES, NETWORK_POLICIES, SERVICE_ACCOUNTS};
use super::names::{self, *};
use super::objects::SecurityRange;
use super::resource::{Metadata, Namespace};
use super::{Config, Driver, Mode};
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;

impl Config {
    /// Namespace of a workspace's sandboxes.
    pub(super) fn namespace_of(&self, workspace: &str) -> String {
        match &self.mode {
            Mode::Shared { namespace } => namespace.clone(),
            Mode::Managed { prefix } => format!("{prefix}{workspace}"),
        }
    }
    /// Name of a sandbox's resource. In a shared namespace it tells the workspace as well.
    pub(super) fn resource_name(&self, workspace: &str, name: &str) -> String {
        match self.mode {
            Mode::Shared { .. } => format!("{workspace}--{name}"),
            Mode::Managed { .. } => name.to_owned(),
        }
    }
    /// Namespace that lists and watches are limited to.
    pub(super) fn scope(&self) -> Option<&str> {
        match &self.mode {
            Mode::Shared { namespace } => Some(namespace),
            Mode::Managed { .. } => None,
        }
    }
}

/// May sandboxes run in this namespace? It must not be ending; in managed mode it must be this gateway's.
pub(super) fn admits(config: &Config, namespace: &Namespace) -> Result<(), DriverError> {
    let ending = namespace.status.as_ref().is_some_and(|s| s.phase == "Terminating");
    if ending || namespace.is_terminating() {
        return Err(DriverError::Precondition(format!("namespace {} is being deleted", namespace.name())));
    }
    let ours = namespace.label(MANAGED_BY) == MANAGED_BY_OPENSHELL && namespace.label(GATEWAY_ID) == config.gateway_id;
    if matches!(config.mode, Mode::Managed { .. }) && !ours {
        let message = format!("namespace {} is not managed by gateway {}", namespace.name(), config.gateway_id);
        return Err(DriverError::Precondition(message));
    }
    Ok(())
}

/// User and group ids that a namespace prescribes to its Pods: the first of each range in its annotations
/// (`<first>/<length>`, OpenShift's form).
pub(super) fn security_range(namespace: &Namespace) -> Option<SecurityRange> {
    let first = |key| namespace.annotation(key)?.split(['/', '-']).next()?.parse().ok();
    let user = first("openshift.io/sa.scc.uid-range")?;
    Some(SecurityRange { user, group: first("openshift.io/sa.scc.supplemental-groups").unwrap_or(user) })
}

impl Driver {
    pub(super) async fn namespace(&self, name: &str) -> Result<Namespace, DriverError> {
        let found = self.kube.get(NAMESPACES, None, name).await?;
        found.ok_or_else(|| DriverError::NotFound(format!("namespace {name} does not exist")))
    }

    /// Admission: reads the namespace and asks whether sandboxes may run in it.
    pub(super) async fn admit(&self, namespace: &str) -> Result<(), DriverError> {
        admits(&self.config, &self.namespace(namespace).await?)
    }

    /// Managed mode: makes the workspace's namespace with its ServiceAccount and SSH policy, or takes the one that is
    /// there if it is this gateway's. Shared mode: nothing to do.
    pub(super) async fn ensure_workspace(&self, workspace: &str) -> Result<(), DriverError> {
        let Mode::Managed { .. } = self.config.mode else { return Ok(()) };
        if !is_dns_label(workspace) {
            return Err(DriverError::InvalidArgument(format!("workspace {workspace:?} is not a DNS label")));
        }
        let name = self.config.namespace_of(workspace);
        if !is_dns_label(&name) {
            return Err(DriverError::InvalidArgument(format!("namespace {name:?} would not be a DNS label")));
        }
        let labels =
            json!({MANAGED_BY: MANAGED_BY_OPENSHELL, GATEWAY_ID: self.config.gateway_id, SANDBOX_WORKSPACE: workspace});
        let mut annotations = json!({});
        // Noted so that an administrator finds the gateway of a namespace; a gateway outside the cluster has none.
        if let Some(gateway) = self.kube.get::<Metadata>(NAMESPACES, None, &self.config.gateway_namespace).await? {
            annotations["openshell.ai/gateway-namespace-uid"] = gateway.uid().into();
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
        });
        match self.kube.create::<Namespace>(NAMESPACES, None, &object).await {
            Ok(_) => {}
            Err(e) if e.is_already_exists() => admits(&self.config, &self.namespace(&name).await?)?,
            Err(e) => return Err(e.into()),
        }
        let account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": names::SERVICE_ACCOUNT, "namespace": name, "labels": labels},
            "automountServiceAccountToken": false,
        });
        let ssh = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": names::SSH_POLICY, "namespace": name, "labels": labels},
            "spec": {
                "podSelector": {"matchLabels": {COMPONENT: COMPONENT_SUPERVISOR}},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": 2222, "protocol": "TCP"}]}],
            },
        });
        for (kind, object) in [(SERVICE_ACCOUNTS, account), (NETWORK_POLICIES, ssh)] {
            match self.kube.create::<Metadata>(kind, Some(&name), &object).await {
                Err(e) if !e.is_already_exists() => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Managed mode: deletes the workspace's namespace, if it is there and this gateway's. Shared mode: nothing to do.
    pub(super) async fn delete_workspace(&self, workspace: &str) -> Result<(), DriverError> {
        let Mode::Managed { .. } = self.config.mode else { return Ok(()) };
        let name = self.config.namespace_of(workspace);
        if !is_dns_label(&name) {
            return Err(DriverError::InvalidArgument(format!("workspace {workspace:?} is not a DNS label")));
        }
        let Some(namespace) = self.kube.get::<Namespace>(NAMESPACES, None, &name).await? else { return Ok(()) };
        if namespace.is_terminating() {
            return Ok(());
        }
        admits(&self.config, &namespace)?;
        let uid = Preconditions { uid: Some(namespace.uid().to_owned()), ..Default::default() };
        match self.kube.delete(NAMESPACES, None, &name, &DeleteParams::default().preconditions(uid)).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::Remedies;
    use serde_json::Value;

    fn shared() -> Config {
        Config::new("gw", Mode::Shared { namespace: "all".into() }, Remedies::NONE)
    }
    fn managed() -> Config {
        Config::new("gw", Mode::Managed { prefix: "os-".into() }, Remedies::NONE)
    }
    fn namespace(metadata: Value, phase: &str) -> Namespace {
        serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": {"phase": phase}}))
            .expect("a namespace")
    }

    #[test]
    fn each_mode_has_its_places_and_names() {
        assert_eq!(
            (shared().namespace_of("team"), shared().resource_name("team", "demo")),
            ("all".into(), "team--demo".into())
        );
        assert_eq!(
            (managed().namespace_of("team"), managed().resource_name("team", "demo")),
            ("os-team".into(), "demo".into())
        );
        assert_eq!((shared().scope(), managed().scope()), (Some("all"), None));
    }

    #[test]
    fn an_ending_or_foreign_namespace_admits_nothing() {
        let ours = json!({"labels": {MANAGED_BY: "openshell", GATEWAY_ID: "gw"}});
        let foreign = json!({"labels": {MANAGED_BY: "openshell", GATEWAY_ID: "other"}});
        for (config, metadata, phase, admitted) in [
            (managed(), ours.clone(), "Active", true),
            (managed(), ours.clone(), "Terminating", false),
            (managed(), foreign, "Active", false),
            (managed(), json!({}), "Active", false),
            (shared(), json!({}), "Active", true),
            (shared(), json!({}), "Terminating", false),
            (shared(), json!({"deletionTimestamp": "2026-08-21T10:00:00Z"}), "Active", false),
        ] {
            let verdict = admits(&config, &namespace(metadata.clone(), phase));
            assert_eq!(verdict.is_ok(), admitted, "{:?} {metadata} {phase}", config.mode);
            assert!(verdict.is_ok() || matches!(verdict, Err(DriverError::Precondition(_))));
        }
    }

    #[test]
    fn a_namespace_may_prescribe_user_and_group() {
        let with = |annotations| security_range(&namespace(json!({"annotations": annotations}), "Active"));
        assert_eq!(with(json!({})), None);
        let range = json!({"openshift.io/sa.scc.uid-range": "1000700000/10000"});
        assert_eq!(with(range), Some(SecurityRange { user: 1_000_700_000, group: 1_000_700_000 }));
        let both = json!({
            "openshift.io/sa.scc.uid-range": "1000/10",
            "openshift.io/sa.scc.supplemental-groups": "2000-2010",
        });
        assert_eq!(with(both), Some(SecurityRange { user: 1000, group: 2000 }));
    }
}
