//! Controllers: the last change of each object is seen, and no object is worked on twice at once.
//!
//! Two things are lost by kube-rs 5.0 itself, and both were found here. Of a child that goes while the watch of children
//! is broken nobody is told, since `owns` compares a new list with nothing. And an object that a new list brings is
//! dropped (`ObjectNotFound`) if another of the controller's streams fails between the object's arrival and the list's
//! end. Both need a second stream: a controller with children must go through all of its objects now and then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::weather::{self, Draw, Weather, each_seed, in_the_end};

/// What the controllers of a run have done.
struct Work {
    /// How many work on an object now.
    now: BTreeMap<String, usize>,
    /// Of each object, the revision of which a reconciliation has last succeeded.
    done: BTreeMap<String, String>,
    draw: Draw,
}

impl Work {
    fn new(seed: u64) -> Arc<Mutex<Work>> {
        Arc::new(Mutex::new(Work { now: BTreeMap::new(), done: BTreeMap::new(), draw: Draw(seed) }))
    }
}

struct Context {
    client: Client,
    children: bool,
    work: Arc<Mutex<Work>>,
}

/// Work that ends, however it does.
struct Working {
    work: Arc<Mutex<Work>>,
    name: String,
}

impl Working {
    fn begin(work: &Arc<Mutex<Work>>, name: String) -> Working {
        let mut all = work.lock().expect("no panic");
        let count = all.now.entry(name.clone()).or_default();
        *count += 1;
        let alone = *count == 1;
        drop(all);
        assert!(alone, "{name} is worked on already");
        Working { work: work.clone(), name }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.work.lock().expect("no panic").now.remove(&self.name);
    }
}

/// Each ConfigMap has an annotation that says what its text was, and perhaps a Secret with the same text.
async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let name = map.name_any();
    let working = Working::begin(&context.work, name.clone());
    let takes = context.work.lock().expect("no panic").draw.below(3_000);
    sleep(Duration::from_millis(takes)).await;
    let text = map.data.as_ref().and_then(|data| data.get("n").cloned()).unwrap_or_default();
    let apply = PatchParams::apply("controller").force();
    if context.children {
        let child = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "ownerReferences": [map.controller_owner_ref(&())], "annotations": {"n": text}},
        });
        let secrets: Api<Secret> = Api::default_namespaced(context.client.clone());
        secrets.patch(&name, &apply, &Patch::Apply(&child)).await?;
    }
    if map.annotations().get("seen") != Some(&text) {
        let metadata = json!({"name": name, "uid": map.uid(), "annotations": {"seen": text}});
        let seen = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let maps: Api<ConfigMap> = Api::default_namespaced(context.client.clone());
        maps.patch(&name, &apply, &Patch::Apply(&seen)).await?;
    }
    let revision = map.resource_version().unwrap_or_default();
    context.work.lock().expect("no panic").done.insert(name, revision);
    drop(working);
    Ok(Action::await_change())
}

fn control(client: Client, children: bool, work: &Arc<Mutex<Work>>) -> JoinHandle<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut controller = Controller::new(maps, watcher::Config::default());
    if children {
        let secrets: Api<Secret> = Api::default_namespaced(client.clone());
        let now_and_then = stream::repeat(()).then(|()| sleep(Duration::from_secs(300)));
        controller = controller.owns(secrets, watcher::Config::default()).reconcile_all_on(now_and_then);
    }
    let again = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Context>| Action::requeue(Duration::from_secs(1));
    let context = Arc::new(Context { client, children, work: work.clone() });
    tokio::spawn(controller.run(reconcile, again, context).for_each(|_| std::future::ready(())))
}

async fn run(seed: u64, children: bool) -> usize {
    let mut weather = Weather::new(seed);
    let work = Work::new(seed);
    let mut controller = control(weather.client(0, "controller-0"), children, &work);
    let maps: Api<ConfigMap> = Api::default_namespaced(weather.client(1, "user"));
    let secrets: Api<Secret> = Api::default_namespaced(weather.client(1, "user"));
    for n in 0..25 {
        let name = format!("m{}", weather.below(4));
        match weather.below(10) {
            0..5 => {
                let change = json!({"data": {"n": n.to_string()}});
                let new = json!({"metadata": {"name": name}, "data": {"n": n.to_string()}});
                if maps.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.is_err() {
                    let new = serde_json::from_value(new).expect("a map");
                    drop(maps.create(&PostParams::default(), &new).await);
                }
            }
            5 => drop(maps.delete(&name, &DeleteParams::default()).await),
            6 | 7 if children => drop(secrets.delete(&name, &DeleteParams::default()).await),
            6..9 => weather.restart_a_server(),
            _ => {
                // One process dies, and its successor begins, on whichever server.
                controller.abort();
                drop(controller.await);
                controller = control(weather.client(n % 2, &format!("controller-{n}")), children, &work);
            }
        }
        weather.pause(Duration::from_secs(4)).await;
    }
    let stored = |resource, pointer| weather::stored(&weather.front, resource, pointer);
    let settled = || {
        let texts = stored("configmaps", "/data/n");
        let of_children = stored("secrets", "/metadata/annotations/n");
        let done = &work.lock().expect("no panic").done;
        // Everything that is there was seen as it is now.
        stored("configmaps", "/metadata/resourceVersion").iter().all(|(name, at)| done.get(name) == Some(at))
            && stored("configmaps", "/metadata/annotations/seen") == texts
            && (!children || texts.iter().all(|(name, text)| of_children.get(name) == Some(text)))
    };
    let shown = || {
        let done = &work.lock().expect("no panic").done;
        let (texts, seen) = (stored("configmaps", "/data/n"), stored("configmaps", "/metadata/annotations/seen"));
        let of_children = stored("secrets", "/metadata/annotations/n");
        let revisions = stored("configmaps", "/metadata/resourceVersion");
        let words = weather.last_words();
        format!("seed {seed}: done {done:?} of {revisions:?}; {texts:?}, seen {seen:?}, with {of_children:?}{words}")
    };
    in_the_end(settled, shown).await;
    assert!(!controller.is_finished(), "seed {seed}: a reconciliation panicked");
    controller.abort();
    weather.faults()
}

#[test]
fn a_controller_sees_the_last_change_of_each_object_and_works_on_each_once_at_a_time() {
    each_seed(0..400, async |seed| run(seed, false).await);
}

#[test]
fn a_controller_that_goes_through_all_objects_now_and_then_restores_their_children() {
    each_seed(0..150, async |seed| run(seed, true).await);
}

#[test]
#[should_panic(expected = "is worked on already")]
fn work_on_one_object_twice_at_once_is_found() {
    let work = Work::new(0);
    drop(Working::begin(&work, "m".into()));
    let _one = Working::begin(&work, "m".into());
    let _two = Working::begin(&work, "m".into());
}
