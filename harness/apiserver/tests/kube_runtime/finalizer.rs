//! The finalizer helper in a controller: what an object stands for elsewhere is cleaned up before the object is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Error, Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use photofinish_apiserver::{ApiServer, Past, Store};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::weather::{self, Draw, Weather, each_seed, in_the_end};

/// Things outside of the cluster, by the uid of the object that each stands for.
struct Elsewhere {
    there: BTreeSet<String>,
    /// In their order, with the store's revision at that moment.
    log: Vec<(u64, String, Step)>,
    store: Store,
    draw: Draw,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Applies,
    FailsToClean,
    Cleaned,
}

#[derive(Debug, thiserror::Error)]
#[error("out of order")]
struct OutOfOrder;

impl Elsewhere {
    fn new(store: Store, seed: u64) -> Arc<Mutex<Elsewhere>> {
        Arc::new(Mutex::new(Elsewhere { there: BTreeSet::new(), log: Vec::new(), store, draw: Draw(seed) }))
    }

    fn note(&mut self, uid: &str, step: Step) {
        self.log.push((self.store.revision(), uid.to_owned(), step));
    }

    /// Each fails one time in three. What it does may be done even then.
    fn handle(&mut self, event: &Event<ConfigMap>) -> Result<Action, OutOfOrder> {
        let (Event::Apply(object) | Event::Cleanup(object)) = event;
        let uid = object.meta().uid.clone().unwrap_or_default();
        let fails = self.draw.below(3) == 0;
        match event {
            Event::Apply(_) => {
                self.note(&uid, Step::Applies);
                self.there.insert(uid);
            }
            Event::Cleanup(_) if fails => self.note(&uid, Step::FailsToClean),
            Event::Cleanup(_) => {
                self.note(&uid, Step::Cleaned);
                self.there.remove(&uid);
            }
        }
        if fails { Err(OutOfOrder) } else { Ok(Action::await_change()) }
    }
}

async fn reconcile(map: Arc<ConfigMap>, of: Arc<(Client, Arc<Mutex<Elsewhere>>)>) -> Result<Action, Error<OutOfOrder>> {
    let maps: Api<ConfigMap> = Api::default_namespaced(of.0.clone());
    finalizer(&maps, "test.io/cleanup", map, async |event| of.1.lock().expect("no panic").handle(&event)).await
}

fn control(client: Client, elsewhere: &Arc<Mutex<Elsewhere>>) -> JoinHandle<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let again = |_: Arc<ConfigMap>, _: &Error<OutOfOrder>, _: Arc<_>| Action::requeue(Duration::from_secs(1));
    let controller = Controller::new(maps, watcher::Config::default());
    let context = Arc::new((client, elsewhere.clone()));
    tokio::spawn(controller.run(reconcile, again, context).for_each(|_| std::future::ready(())))
}

/// What is wrong: an object that was applied and went before it was cleaned up, or was applied again behind that.
fn judge(log: &[(u64, String, Step)], gone: &BTreeMap<String, u64>) -> Result<(), String> {
    let mut applied = BTreeSet::new();
    let mut cleaned = BTreeMap::new();
    for (at, uid, step) in log {
        match step {
            Step::Applies if cleaned.contains_key(uid) => {
                return Err(format!("{uid} applied at {at}, after its cleanup"));
            }
            Step::Applies => drop(applied.insert(uid)),
            Step::FailsToClean => {}
            Step::Cleaned => drop(cleaned.entry(uid).or_insert(*at)),
        }
    }
    for (uid, end) in gone.iter().filter(|(uid, _)| applied.contains(uid)) {
        match cleaned.get(uid) {
            None => return Err(format!("{uid} went at {end}, and was never cleaned up")),
            Some(at) if at >= end => return Err(format!("{uid} went at {end}, and was cleaned up at {at}")),
            Some(_) => {}
        }
    }
    Ok(())
}

/// The uids of objects that have gone, and when.
fn gone(past: &[Past]) -> BTreeMap<String, u64> {
    let mut there: BTreeMap<&str, String> = BTreeMap::new();
    let mut gone = BTreeMap::new();
    for write in past.iter().filter(|write| write.resource == "configmaps") {
        match &write.object {
            Some(object) => drop(there.insert(&write.name, weather::text(object, "/metadata/uid").to_owned())),
            None => gone.extend(there.remove(&*write.name).map(|uid| (uid, write.revision))),
        }
    }
    gone
}

async fn run(seed: u64) -> usize {
    let mut weather = Weather::new(seed);
    let elsewhere = Elsewhere::new(weather.front.store().clone(), seed);
    let mut controller = control(weather.client(0, "controller-0"), &elsewhere);
    let user: Api<ConfigMap> = Api::default_namespaced(weather.client(1, "user"));
    for n in 0..25 {
        let name = format!("m{}", weather.below(4));
        match weather.below(8) {
            0..4 => {
                let new = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a map");
                drop(user.create(&PostParams::default(), &new).await);
            }
            4..6 => drop(user.delete(&name, &DeleteParams::default()).await),
            6 => weather.restart_a_server(),
            _ => {
                controller.abort();
                controller = control(weather.client(n % 2, &format!("controller-{n}")), &elsewhere);
            }
        }
        weather.pause(Duration::from_secs(4)).await;
    }
    // Everything that is to go is gone, and what is left there and elsewhere is the same.
    let store = weather.front.store();
    let settled = || {
        let all = store.list("configmaps", "default");
        let uids: BTreeSet<String> = all.iter().map(|map| weather::text(map, "/metadata/uid").to_owned()).collect();
        let leaving = all.iter().any(|map| map["metadata"].get("deletionTimestamp").is_some());
        !leaving && uids == elsewhere.lock().expect("no panic").there
    };
    let shown = || format!("seed {seed}: {:?} of {:?}", elsewhere.lock().expect("no panic").there, store.past());
    in_the_end(settled, shown).await;
    controller.abort();
    let judged = judge(&elsewhere.lock().expect("no panic").log, &gone(&store.past()));
    assert_eq!(judged, Ok(()), "seed {seed}");
    weather.faults()
}

#[test]
fn an_object_is_gone_only_after_its_cleanup_has_succeeded_whatever_happens() {
    each_seed(0..600, run);
}

#[test]
fn an_order_that_a_finalizer_forbids_is_found() {
    use Step::{Applies, Cleaned, FailsToClean};
    let table: [(&[(u64, Step)], bool); 6] = [
        (&[(3, Applies), (5, FailsToClean), (6, Cleaned)], true),
        (&[(3, Applies), (6, Cleaned), (9, Cleaned)], true),
        (&[], true),
        (&[(3, Applies), (5, FailsToClean)], false),
        (&[(3, Applies), (8, Cleaned)], false),
        (&[(3, Applies), (5, Cleaned), (6, Applies)], false),
    ];
    for (steps, allowed) in table {
        let log: Vec<_> = steps.iter().map(|(at, step)| (*at, "u".to_owned(), *step)).collect();
        assert_eq!(judge(&log, &BTreeMap::from([("u".to_owned(), 8)])).is_ok(), allowed, "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_cleans_up_before_its_object_goes() {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.as_client("controller"), "default"));
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a map");
    maps.create(&PostParams::default(), &map).await.expect("creates");
    let done = Mutex::new(Vec::new());
    let reconcile = async || {
        let current = Arc::new(maps.get("a").await.expect("reads"));
        let outcome = finalizer(&maps, "test.io/cleanup", current, async |event| {
            done.lock().expect("no panic").push(matches!(event, Event::Cleanup(_)));
            Ok::<_, OutOfOrder>(Action::await_change())
        });
        outcome.await.expect("reconciles")
    };
    // The first pass adds the finalizer, the second applies.
    reconcile().await;
    reconcile().await;
    assert_eq!(*done.lock().expect("no panic"), [false]);
    maps.delete("a", &DeleteParams::default()).await.expect("deletes");
    assert!(maps.get("a").await.expect("still there").metadata.deletion_timestamp.is_some());
    reconcile().await;
    assert_eq!(*done.lock().expect("no panic"), [false, true]);
    assert!(maps.get_opt("a").await.expect("reads").is_none());
}
