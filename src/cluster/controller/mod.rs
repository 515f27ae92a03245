//! The agent-sandbox controller: keeps a Pod, a Service and claims for each Sandbox, and says how they are.
//!
//! It behaves as the real one of a given [`Profile`] was recorded to behave: same writes, same order, same conditions.
//! Four informers feed one work queue; passes over different Sandboxes run side by side, over one Sandbox one after
//! another, each on what the caches held when it read them. It never adds finalizers, and does nothing for a Sandbox
//! that is being deleted: the garbage collector takes the rest.
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::BoxError;

pub mod cache;
pub mod queue;
pub mod rules;
pub mod sandbox;
pub mod status;

mod profile;
mod reconcile;

pub use profile::Profile;

use super::informer::Key;
use cache::{Cache, Change};
use queue::Queue;
use reconcile::Reconciler;

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many Sandboxes are worked on at once. A recorded burst of ten creates showed at least three.
    pub workers: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        Config { workers: NonZeroUsize::new(10).expect("ten is not zero") }
    }
}

/// A controller of one profile.
pub struct Controller {
    client: Client,
    profile: Profile,
    config: Config,
}

impl Controller {
    /// A controller that talks to the cluster of `client`.
    pub fn new(client: Client, profile: Profile, config: Config) -> Self {
        Controller { client, profile, config }
    }

    /// Watches and reconciles until dropped. Failed calls and broken watches are tried again.
    pub async fn run(self) {
        let cache = Arc::new(Mutex::new(Cache::default()));
        let reconciler = Reconciler { client: self.client.clone(), profile: self.profile, cache: Arc::clone(&cache) };
        let mut changes = changes(&self.client, self.profile);
        let mut queue: Queue<Key> = Queue::default();
        let mut passes: FuturesUnordered<BoxFuture<'static, (Key, Outcome)>> = FuturesUnordered::new();
        loop {
            let synced = cache.lock().unwrap_or_else(PoisonError::into_inner).synced();
            while synced && queue.running() < self.config.workers.get() {
                let Some(key) = queue.pop(Instant::now()) else { break };
                let reconciler = reconciler.clone();
                passes.push(async move { (key.clone(), reconciler.reconcile(&key).await) }.boxed());
            }
            let due = queue.next_due();
            let timer = async { sleep_until(due.unwrap_or_else(Instant::now)).await };
            tokio::select! {
                biased;
                Some(change) = changes.next() => {
                    let touched = cache.lock().unwrap_or_else(PoisonError::into_inner).apply(change);
                    touched.into_iter().for_each(|key| queue.add(key));
                }
                Some((key, outcome)) = passes.next() => finish(&mut queue, key, outcome),
                () = timer, if synced && due.is_some() && queue.running() < self.config.workers.get() => {}
                else => return,
            }
        }
    }
}

type Outcome = Result<Option<std::time::Duration>, String>;

fn finish(queue: &mut Queue<Key>, key: Key, outcome: Outcome) {
    let now = Instant::now();
    match outcome {
        Ok(again) => {
            if let Some(after) = again {
                queue.add_at(key.clone(), now + after);
            }
            queue.succeeded(&key);
        }
        Err(error) => {
            warn!(namespace = key.namespace, sandbox = key.name, error, "reconcile failed");
            queue.failed(&key, now);
        }
    }
}

/// Runs the controller on the cluster of `client` until dropped.
pub async fn run(client: Client, profile: Profile, config: Config) -> Result<(), BoxError> {
    Controller::new(client, profile, config).run().await;
    Ok(())
}

/// The changes of all kinds in all namespaces, from a list on. Errors are logged; the watcher starts over by itself.
fn changes(client: &Client, profile: Profile) -> BoxStream<'static, Change> {
    stream::select_all([
        watch(Api::all_with(client.clone(), &profile.api_version()), Change::Sandbox),
        watch(Api::all(client.clone()), Change::Pod),
        watch(Api::all(client.clone()), Change::Service),
        watch(Api::all(client.clone()), Change::Claim),
    ])
    .boxed()
}

fn watch<K>(api: Api<K>, into: fn(watcher::Event<K>) -> Change) -> BoxStream<'static, Change>
where
    K: kube::Resource<DynamicType: Default> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            std::future::ready(match event {
                Ok(event) => Some(into(event)),
                Err(error) => {
                    warn!(kind = %K::kind(&Default::default()), %error, "watch failed");
                    None
                }
            })
        })
        .boxed()
}
