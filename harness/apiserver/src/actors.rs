//! Neighbours of an API server, each an async function with a `kube::Client` of its own.
//!
//! They know nothing of any simulation: they watch, wait with tokio's timers and write, as the real ones do, and they
//! come back when a watch breaks. What may take longer than normal is asked of a [`Pace`].

pub mod garbage_collector;
mod kinds;
pub mod kubelet;
pub mod namespace;
pub mod node_lifecycle;
mod pvc_protection;
pub mod scheduler;

use std::sync::Arc;
use std::time::Duration;

/// How long something takes: the key of the point (`start/pod/demo#1`) and what is normal there give the actual time.
pub type Pace = Arc<dyn Fn(&str, Duration) -> Duration + Send + Sync>;

/// Everything takes as long as is normal.
pub fn normal() -> Pace {
    Arc::new(|_, normal| normal)
}

/// What befalls a pod or a node at a point (`evict/pod/<name>#<n>`, `silent/node/<node>#<n>`): nothing, or the time until
/// it happens or for which it lasts.
pub type Fate = Arc<dyn Fn(&str) -> Option<Duration> + Send + Sync>;

/// Nothing ever befalls anybody.
pub fn spared() -> Fate {
    Arc::new(|_| None)
}

/// Anything that ends an actor.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whether a request is worth another try: it failed on its way, or the server was not able to handle it just then.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500 && status.code != 501,
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Time between two tries.
const RETRY: Duration = Duration::from_millis(500);

/// Repeats a request until it succeeds or is refused for good.
async fn persist<T, F: Future<Output = kube::Result<T>>>(mut request: impl FnMut() -> F) -> kube::Result<T> {
    loop {
        match request().await {
            Err(error) if may_pass(&error) => {
                tracing::debug!(%error, "trying again");
                tokio::time::sleep(RETRY).await;
            }
            result => return result,
        }
    }
}
