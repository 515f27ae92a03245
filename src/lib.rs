//! The system under test: a gateway and a Kubernetes driver with the sandbox lifecycle of NVIDIA/OpenShell, as an
//! independent implementation, and the cluster around them.
//!
//! [`gateway`] and [`driver`] run for real, over any wire: neither knows that it is simulated. [`cluster`] holds the
//! neighbours (agent-sandbox controller, supervisors), [`remedy`] the fixes on the table.

pub mod client;
pub mod cluster;
pub mod driver;
pub mod gateway;
pub mod pb;
pub mod properties;
pub mod remedy;
pub mod system;

/// An error of any kind, as hosts return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
