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

mod reconcile;

use super::informer::Key;
use cache::{Cache, Change};
use queue::Queue;
use reconcile::Reconciler;

/// The released version whose behaviour is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// v0.4.6: no Suspended condition, a suspended Sandbox is Ready. Not built yet.
    V046,
    /// v0.5.0 to v0.5.3: a stale Suspended condition stays after a resume. Not built yet.
    V050,
    /// v0.5.6.
    #[default]
    V056,
}

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

/// Why a controller cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its rules are not written.
    #[error("agent-sandbox controller profile {0:?} is not supported: use V056")]
    UnsupportedProfile(Profile),
}

/// A controller of one profile.
pub struct Controller {
    client: Client,
    config: Config,
}

impl Controller {
    /// A controller that talks to the cluster of `client`; an error if the profile is not supported.
    pub fn new(client: Client, profile: Profile, config: Config) -> Result<Self, Error> {
        match profile {
            Profile::V056 => Ok(Controller { client, config }),
            Profile::V046 | Profile::V050 => Err(Error::UnsupportedProfile(profile)),
        }
    }

    /// Watches and reconciles until dropped. Failed calls and broken watches are tried again.
    pub async fn run(self) {
        let cache = Arc::new(Mutex::new(Cache::default()));
        let reconciler = Reconciler { client: self.client.clone(), cache: Arc::clone(&cache) };
        let mut changes = changes(&self.client);
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

/// Runs the controller on the cluster of `client` until dropped; an error if the profile is not supported.
pub async fn run(client: Client, profile: Profile, config: Config) -> Result<(), BoxError> {
    Controller::new(client, profile, config)?.run().await;
    Ok(())
}

/// The changes of all kinds in all namespaces, from a list on. Errors are logged; the watcher starts over by itself.
fn changes(client: &Client) -> BoxStream<'static, Change> {
    stream::select_all([
        watch(client, Change::Sandbox),
        watch(client, Change::Pod),
        watch(client, Change::Service),
        watch(client, Change::Claim),
    ])
    .boxed()
}

fn watch<K>(client: &Client, into: fn(watcher::Event<K>) -> Change) -> BoxStream<'static, Change>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    watcher(Api::<K>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            std::future::ready(match event {
                Ok(event) => Some(into(event)),
                Err(error) => {
                    warn!(kind = %K::kind(&()), %error, "watch failed");
                    None
                }
            })
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_profile_without_rules_is_refused_at_construction() {
        let server = photofinish_apiserver::ApiServer::builder().build();
        let client = Client::new(server, "default");
        for profile in [Profile::V046, Profile::V050] {
            let refused = Controller::new(client.clone(), profile, Config::default()).err().map(|e| e.to_string());
            let expected = format!("agent-sandbox controller profile {profile:?} is not supported: use V056");
            assert_eq!(refused, Some(expected));
        }
        assert!(Controller::new(client, Profile::V056, Config::default()).is_ok());
    }
}
