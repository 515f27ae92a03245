//! Which field of a message has which number.
//!
//! `numbers.txt` has one line for each message of the published `.proto` files of Kubernetes 1.35: its name, the
//! `apiVersion` of its kind (`-` for what is no kind, `*` for any), and its fields as `name=number`. An exclamation mark
//! behind a number says that the field tells zero from absent; of others a zero is nothing, as in JSON. What a field
//! holds is in the table of types, or stands behind a colon. A field without a name holds a message whose fields belong
//! to this one.

use std::sync::{LazyLock, OnceLock};

use crate::typed;

static TABLE: &str = include_str!("numbers.txt");

pub(crate) struct Message {
    pub(crate) name: &'static str,
    pub(crate) api_version: &'static str,
    line: &'static str,
    fields: OnceLock<Vec<Numbered>>,
}

pub(crate) struct Numbered {
    pub(crate) number: u64,
    /// Empty: the fields of the message in it belong to this one.
    pub(crate) name: &'static str,
    /// What it holds, where the table of types does not say.
    pub(crate) kind: Option<&'static str>,
    /// Zero is a value.
    pub(crate) keeps_zero: bool,
}

static MESSAGES: LazyLock<Vec<Message>> = LazyLock::new(|| {
    let parsed = TABLE.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (name, api_version) = (words.next()?, words.next()?);
        Some(Message { name, api_version, line: words.next().unwrap_or_default(), fields: OnceLock::new() })
    });
    parsed.collect()
});

/// The message of that name.
pub(crate) fn message(name: &str) -> Option<&'static Message> {
    MESSAGES.binary_search_by_key(&name, |message| message.name).ok().map(|at| &MESSAGES[at])
}

/// The message of a kind.
pub(crate) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Message> {
    message(typed::definition(api_version, kind))
        .filter(|message| matches!(message.api_version, "*") || message.api_version == api_version)
}

impl Message {
    pub(crate) fn fields(&self) -> &[Numbered] {
        self.fields.get_or_init(|| self.line.split(' ').filter_map(numbered).collect())
    }

    pub(crate) fn field(&self, number: u64) -> Option<&Numbered> {
        self.fields().iter().find(|field| field.number == number)
    }
}

/// `name=1`, `name=1!`, `name:kind=1`, `=1:Message`.
fn numbered(text: &'static str) -> Option<Numbered> {
    let (name, number) = text.split_once('=')?;
    let keeps_zero = number.ends_with('!');
    let number = number.trim_end_matches('!');
    if name.is_empty() {
        let (number, inlined) = number.split_once(':')?;
        return Some(Numbered { number: number.parse().ok()?, name, kind: Some(inlined), keeps_zero });
    }
    let (name, kind) = name.split_once(':').map_or((name, None), |(name, kind)| (name, Some(kind)));
    Some(Numbered { number: number.parse().ok()?, name, kind, keeps_zero })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_of_its_fields_is_a_field_of_a_type() {
        assert!(MESSAGES.is_sorted_by_key(|message| message.name));
        for of in MESSAGES.iter().filter(|of| typed::has(of.name)) {
            for text in of.line.split(' ') {
                let field = numbered(text).unwrap_or_else(|| panic!("{} {text}", of.name));
                let known = match (field.name, field.kind) {
                    ("", Some(inlined)) => message(inlined).is_some(),
                    (name, None) => typed::kind(of.name, name).is_some(),
                    (_, Some(_)) => false,
                };
                assert!(known, "{} {text}", of.name);
            }
        }
    }

    #[test]
    fn messages_that_are_no_types_say_what_their_fields_hold() {
        for of in MESSAGES.iter().filter(|of| !typed::has(of.name) && of.api_version != "-") {
            for text in of.line.split(' ') {
                let kind = numbered(text).and_then(|field| field.kind).unwrap_or_else(|| panic!("{} {text}", of.name));
                assert!(kind.trim_start_matches('[').len() == 1 || message(kind).is_some(), "{} {text}", of.name);
            }
        }
    }

    /// Texts that are pointers in the published Go types of Kubernetes, and some that are none: outside of pod templates,
    /// which `tests/kubectl/messages.rs` compares with kubectl's own types.
    #[test]
    fn texts_that_go_tells_from_absent_ones_are_marked_and_others_are_not() {
        let marked = "AzureFilePersistentVolumeSource.secretNamespace Endpoint.hostname Endpoint.nodeName Endpoint.zone \
            EndpointAddress.nodeName EndpointPort.name EndpointPort.protocol EndpointPort.appProtocol \
            GlusterfsPersistentVolumeSource.endpointsNamespace HPAScalingRules.selectPolicy \
            ISCSIPersistentVolumeSource.initiatorName IngressClassParametersReference.apiGroup \
            IngressClassParametersReference.scope IngressClassParametersReference.namespace IngressPortStatus.error \
            IngressSpec.ingressClassName JobStatus.failedIndexes LeaseSpec.holderIdentity LeaseSpec.strategy \
            LeaseSpec.preferredHolder LoadBalancerIngress.ipMode LocalVolumeSource.fsType NetworkPolicyPort.protocol \
            PersistentVolumeClaimStatus.currentVolumeAttributesClassName PersistentVolumeSpec.volumeMode \
            PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy PortStatus.error PriorityClass.preemptionPolicy \
            ServicePort.appProtocol ServiceSpec.ipFamilyPolicy ServiceSpec.loadBalancerClass \
            ServiceSpec.internalTrafficPolicy ServiceSpec.trafficDistribution StorageClass.reclaimPolicy \
            StorageClass.volumeBindingMode core.EndpointPort.appProtocol";
        let unmarked = "EndpointAddress.hostname ISCSIPersistentVolumeSource.iscsiInterface LoadBalancerIngress.ip \
            LoadBalancerIngress.hostname LocalObjectReference.name PersistentVolumeSpec.storageClassName \
            PriorityClass.description ServicePort.name ServicePort.protocol ServiceSpec.clusterIP \
            ServiceSpec.externalTrafficPolicy core.EndpointPort.name core.EndpointPort.protocol";
        for (list, keeps) in [(marked, true), (unmarked, false)] {
            for path in list.split_whitespace() {
                let (of, name) = path.rsplit_once('.').expect("a type and a field");
                let field = message(of).and_then(|of| of.fields().iter().find(|field| field.name == name));
                assert_eq!(field.map(|field| field.keeps_zero), Some(keeps), "{path}");
            }
        }
    }

    #[test]
    fn a_kind_is_known_by_its_api_version_too() {
        let name = |api_version, kind| of_kind(api_version, kind).map(|message| message.name);
        assert_eq!(name("v1", "Event"), Some("Event"));
        assert_eq!(name("events.k8s.io/v1", "Event"), Some("events.Event"));
        assert_eq!(name("autoscaling/v1", "HorizontalPodAutoscaler"), Some("autoscaling1.HorizontalPodAutoscaler"));
        assert_eq!(name("apps/v1", "Deployment"), Some("Deployment"));
        assert_eq!(name("authentication.k8s.io/v1", "TokenRequest"), Some("TokenRequest"));
        assert_eq!(name("apps/v1beta1", "Deployment"), None);
        assert_eq!(name("apps/v1", "DeleteOptions"), Some("DeleteOptions"));
        assert_eq!(name("v1", "PodSpec"), None);
    }
}
