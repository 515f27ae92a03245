//! The Kubernetes driver: a gRPC `ComputeDriver` that keeps sandboxes as Sandbox resources and their companions.
//!
//! Rules are pure functions ([`markers`], [`convert`], [`names`]); what awaits things calls them.
use crate::remedy::Remedies;

pub mod convert;
pub mod error;
mod gates;
pub mod markers;
pub mod names;
pub mod resource;

/// Where sandboxes live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All in this one namespace, which exists already.
    Shared {
        /// Its name.
        namespace: String,
    },
    /// One namespace a workspace, `<prefix><workspace>`, made by this driver.
    Managed {
        /// What stands before the workspace's name.
        prefix: String,
    },
}

/// What a driver is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which gateway the sandboxes belong to: a label of every object.
    pub gateway_id: String,
    /// Where sandboxes live.
    pub mode: Mode,
    /// Image of a workload that names none.
    pub default_image: String,
    /// Image of supervisor Pods.
    pub supervisor_image: String,
    /// Address that supervisors open their session to.
    pub gateway_endpoint: String,
    /// Namespace of the gateway itself: managed mode copies from it.
    pub gateway_namespace: String,
    /// Image pull Secrets: in shared mode of the namespace itself, in managed mode copied from the gateway's.
    pub image_pull_secrets: Vec<String>,
    /// Fixes that are on.
    pub remedies: Remedies,
}

impl Config {
    /// A driver for this gateway, with default images and addresses.
    pub fn new(gateway_id: impl Into<String>, mode: Mode, remedies: Remedies) -> Self {
        Self {
            gateway_id: gateway_id.into(),
            mode,
            default_image: "ghcr.io/openshell/sandbox:latest".into(),
            supervisor_image: "ghcr.io/openshell/supervisor:latest".into(),
            gateway_endpoint: "http://gateway:8080".into(),
            gateway_namespace: "openshell".into(),
            image_pull_secrets: Vec::new(),
            remedies,
        }
    }
}
