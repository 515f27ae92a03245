//! The gateway: the public API `openshell.v1.OpenShell`, the durable rows of the sandboxes, and the loops that bring
//! rows and compute together through the driver's gRPC contract.
//!
//! Rules are pure functions in files of their own ([`admission`], [`phases`], [`snapshot`] and the judgements at the
//! top of the other files); what awaits things calls them. The gateway knows nothing of Kubernetes, nor of the world
//! that it runs in.
//!
//! | file | holds |
//! |---|---|
//! | `store`, `rows`, `record` | durable rows, their commits, what a row says |
//! | `admission` | which request a phase admits, and the words of the refusals |
//! | `phases`, `snapshot` | what a driver's snapshot means, and what it does to a row |
//! | `create`, `start`, `stop`, `delete`, `recover` | the operations, and what follows a driver call of unknown result |
//! | `watch_loop`, `sweep`, `deadline`, `restart` | the loops |
//! | `lease`, `work`, `startup` | which replica runs the loops, and what each is at; the recovery of what an earlier process left |
//! | `sessions`, `configuration`, `exit` | supervisors, what they report |
//! | `service`, `notify` | the public API and its watches |
//! | `scripted_driver` | a driver that plays a script, to race the gateway alone |

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::server::{Connected, Router};
use tonic::transport::{Channel, Endpoint, Server};

use crate::BoxError;
use crate::pb::openshell::open_shell_server::OpenShellServer;
use crate::remedy::{Remedies, Remedy};

pub mod admission;
mod clock;
pub mod configuration;
mod core;
mod create;
pub mod deadline;
mod delete;
pub mod exit;
pub mod lease;
mod locks;
mod notify;
pub mod phases;
pub mod record;
pub mod recover;
pub mod restart;
mod rows;
pub mod scripted_driver;
mod service;
mod sessions;
pub mod snapshot;
mod start;
mod startup;
mod stop;
pub mod store;
pub mod sweep;
pub mod watch_loop;
mod work;

pub use scripted_driver::ScriptedDriver;

/// Port on which a gateway listens.
pub const PORT: u16 = 8080;

/// Which release's admission and revalidation the gateway has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// The commit of NVIDIA/OpenShell#5195.
    #[default]
    Cc0642fa8,
    /// Release 0.1.2, of NVIDIA/OpenShell#4371.
    V012,
}

impl Profile {
    /// Is a snapshot that would take a row out of Ready read again first?
    pub fn revalidates_exits_from_ready(self) -> bool {
        self == Profile::Cc0642fa8
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Cc0642fa8 => "cc0642fa8",
            Profile::V012 => "0.1.2",
        })
    }
}

/// A profile name that no release of the gateway has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gateway profile must be cc0642fa8 or 0.1.2, not {0:?}")]
pub struct UnknownProfile(pub String);

impl FromStr for Profile {
    type Err = UnknownProfile;
    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        [Profile::Cc0642fa8, Profile::V012]
            .into_iter()
            .find(|p| p.to_string() == name)
            .ok_or_else(|| UnknownProfile(name.into()))
    }
}

/// What a gateway is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose behaviour it has.
    pub profile: Profile,
    /// Fixes that are on.
    pub remedies: Remedies,
    /// Name of this process among the gateways on one database.
    pub replica: String,
    /// There are other gateways on the database: the loops run only while this one holds the lease, and public watches
    /// look at the store for what other processes write.
    pub shared: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            profile: Profile::default(),
            remedies: Remedies::recommended(),
            replica: "gateway-0".into(),
            shared: false,
        }
    }
}

/// Silence of the driver after which it is pinged, and how long it may take to answer.
const PROBE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// How a gateway is to be connected with its driver (remedy `driver-is-probed`): nothing ever comes from a machine that has
/// lost power, and who only waits for its answer, or for its watch, does not find out. A call has no limit of its own,
/// since a driver that reads from a slow API server may take its time.
pub fn driver_endpoint(endpoint: Endpoint, remedies: Remedies) -> Endpoint {
    let (silence, patience) = PROBE;
    if !remedies.has(Remedy::DriverIsProbed) {
        return endpoint;
    }
    endpoint.http2_keep_alive_interval(silence).keep_alive_timeout(patience)
}

/// Runs a gateway until `incoming` ends or fails, or the future is dropped.
///
/// `database` is a path or a `file:` URI of SQLite. Each item of `incoming` is one accepted connection.
///
/// # Errors
/// If the database cannot be opened, or accepting connections fails.
pub async fn run<IO>(
    config: Config,
    driver: Channel,
    database: &str,
    incoming: impl Stream<Item = io::Result<IO>> + Send + 'static,
) -> Result<(), BoxError>
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let gateway = core::Gateway::new(config, driver, store::Store::open(database)?);
    let router: Router = Server::builder().add_service(OpenShellServer::new(service::Service(gateway.clone())));
    // Requests are served and deadlines watched from the start; the driver is followed once old transitions are driven.
    let follow = async {
        startup::recover(&gateway).await;
        lease::while_held(gateway.clone(), loops).await;
    };
    tokio::select! {
        biased;
        served = router.serve_with_incoming(incoming) => Ok(served?),
        () = follow => Ok(()),
        () = lease::while_held(gateway.clone(), deadline::run) => Ok(()),
        () = lease::run(gateway.clone()) => Ok(()),
    }
}

/// What follows the driver.
async fn loops(gateway: Arc<core::Gateway>) {
    tokio::join!(watch_loop::run(gateway.clone()), sweep::run(gateway.clone()), restart::run(gateway));
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod profile_names {
    use super::*;

    #[test]
    fn a_profile_is_named_as_its_release() {
        for profile in [Profile::Cc0642fa8, Profile::V012] {
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
        let unknown = "0.2".parse::<Profile>().unwrap_err();
        assert_eq!(unknown.to_string(), "gateway profile must be cc0642fa8 or 0.1.2, not \"0.2\"");
    }
}
