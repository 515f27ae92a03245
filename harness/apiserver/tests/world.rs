//! What `properties.rs` says of watches, in worlds: clients on hosts of their own, over a simulated network, with the
//! faults that a seed draws, connections that are reset and a server that crashes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::Past;
use photofinish_sim::host::HostSpec;
use photofinish_sim::world::on_own_thread;
use serde_json::json;

mod worlds;

/// SplitMix64.
#[derive(Clone)]
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// What a watcher has seen, in its order.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// A list: its revision, and the revisions of its objects by name.
    State(u64, BTreeMap<String, u64>),
    /// An event: revision, type, name.
    Event(u64, &'static str, String),
    /// Everything up to this revision has been seen.
    Upto(u64),
}

type Log = Arc<Mutex<Vec<Seen>>>;

fn number(revision: Option<String>) -> u64 {
    revision.and_then(|revision| revision.parse().ok()).expect("every object has a revision")
}

/// Lists, and watches from where it is for as long as that goes.
async fn follow(maps: Api<ConfigMap>, log: Log) {
    let note = |seen| log.lock().expect("no panic").push(seen);
    let pause = || tokio::time::sleep(Duration::from_millis(100));
    loop {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            pause().await;
            continue;
        };
        let mut at = number(list.metadata.resource_version.clone());
        let state = list.items.iter().map(|map| (map.name_any(), number(map.resource_version()))).collect();
        note(Seen::State(at, state));
        'known: loop {
            let Ok(events) = maps.watch(&WatchParams::default(), &at.to_string()).await else {
                pause().await;
                continue;
            };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let (kind, map) = match event {
                    WatchEvent::Added(map) => ("ADDED", map),
                    WatchEvent::Modified(map) => ("MODIFIED", map),
                    WatchEvent::Deleted(map) => ("DELETED", map),
                    WatchEvent::Bookmark(mark) => {
                        at = at.max(mark.metadata.resource_version.parse().expect("a revision"));
                        note(Seen::Upto(at));
                        continue;
                    }
                    // The revision has expired.
                    WatchEvent::Error(_) => break 'known,
                };
                at = number(map.resource_version());
                note(Seen::Event(at, kind, map.name_any()));
            }
        }
    }
}

/// Writes for half a minute. Whether a write was done that got no answer is the history's to say.
async fn write(maps: Api<ConfigMap>, mut draw: Draw) {
    for n in 0..25_u64 {
        tokio::time::sleep(Duration::from_millis(200 + draw.below(2_000))).await;
        let name = format!("m{}", draw.below(4));
        let patch = json!({"data": {"n": n.to_string()}});
        let _ = match draw.below(4) {
            0 => maps.delete(&name, &DeleteParams::default()).await.map(|_| ()),
            1 => {
                let map = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a map");
                maps.create(&PostParams::default(), &map).await.map(|_| ())
            }
            _ => maps.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| ()),
        };
    }
}

/// A run of a seed: the history, and what two watchers saw of it.
fn run(seed: u64) -> (Vec<Past>, Vec<Vec<Seen>>) {
    let (mut builder, server) = worlds::with_all_faults(seed);
    let maps = |client: Client| Api::<ConfigMap>::default_namespaced(client);
    let mut draw = Draw(seed);
    for name in ["writer-a", "writer-b"] {
        let own = Draw(draw.below(u64::MAX));
        builder.host(name, HostSpec::new(), move |ctx| {
            let own = own.clone();
            async move {
                write(maps(ctx.wire.kube("http://api:80", "default")), own).await;
                Ok(())
            }
        });
    }
    let logs = [Log::default(), Log::default()];
    for (name, log) in ["watcher-a", "watcher-b"].into_iter().zip(&logs) {
        let log = log.clone();
        builder.host(name, HostSpec::new(), move |ctx| {
            let log = log.clone();
            async move {
                follow(maps(ctx.wire.kube("http://api:80", "default")), log).await;
                Ok(())
            }
        });
    }
    let mut world = builder.build();
    world.start_all();
    for _ in 0..12 {
        world.run_for(Duration::from_millis(1_000 + draw.below(6_000))).expect("goes on");
        let host = ["watcher-a", "watcher-b", "writer-a"][draw.below(3) as usize];
        match draw.below(4) {
            0 => world.crash("api").expect("it is a host"),
            1 => server.store().compact(server.store().revision()),
            _ => world.reset("api", host).expect("they are hosts"),
        }
    }
    // Late events have arrived by then, and a broken connection has been noticed.
    world.run_for(Duration::from_secs(120)).expect("goes on");
    drop(world);
    let past = server.store().past().into_iter().filter(|past| past.resource == "configmaps").collect();
    let seen = logs.iter().map(|log| log.lock().expect("no panic").clone()).collect();
    (past, seen)
}

/// The history as events.
fn events(past: &[Past]) -> Vec<(u64, &'static str, String)> {
    let mut there = BTreeMap::new();
    let told = past.iter().map(|write| {
        let before = there.insert(write.name.clone(), write.object.is_some()).unwrap_or(false);
        let kind = match (before, write.object.is_some()) {
            (false, _) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        (write.revision, kind, write.name.clone())
    });
    told.collect()
}

fn state_at(past: &[Past], revision: u64) -> BTreeMap<String, u64> {
    let mut state = BTreeMap::new();
    for write in past.iter().take_while(|write| write.revision <= revision) {
        match write.object {
            Some(_) => state.insert(write.name.clone(), write.revision),
            None => state.remove(&write.name),
        };
    }
    state
}

/// What is wrong with what a watcher saw. It must end with everything.
fn judge(past: &[Past], seen: &[Seen]) -> Result<(), String> {
    let all = events(past);
    let mut at = None;
    for (position, what) in seen.iter().enumerate() {
        match what {
            Seen::State(revision, state) => {
                if *state != state_at(past, *revision) {
                    return Err(format!("{position}: the list at {revision} shows {state:?}"));
                }
                at = Some(*revision);
            }
            Seen::Event(revision, kind, name) => {
                let next = all.iter().find(|(revision, ..)| Some(*revision) > at);
                if next != Some(&(*revision, *kind, name.clone())) {
                    return Err(format!("{position}: after {at:?} comes {what:?} rather than {next:?}"));
                }
                at = Some(*revision);
            }
            Seen::Upto(revision) => {
                if let Some(missed) = all.iter().find(|(of, ..)| Some(*of) > at && of <= revision) {
                    return Err(format!("{position}: a bookmark at {revision} passes over {missed:?}"));
                }
                at = at.max(Some(*revision));
            }
        }
    }
    match all.last() {
        Some((last, ..)) if at < Some(*last) => Err(format!("it ends at {at:?}, before {last}")),
        _ => Ok(()),
    }
}

fn seeds(range: std::ops::Range<u64>) {
    let mut events_seen = 0;
    for seed in range {
        let (past, watchers) = on_own_thread(|| run(seed));
        for seen in &watchers {
            if let Err(wrong) = judge(&past, seen) {
                panic!("seed {seed}: {wrong}\n{seen:#?}");
            }
            events_seen += seen.iter().filter(|seen| matches!(seen, Seen::Event(..))).count();
        }
    }
    assert!(events_seen > 0, "the watches showed something");
}

#[test]
fn on_each_watch_in_a_world_comes_exactly_the_history() {
    seeds(0..25);
}

#[test]
fn a_watcher_that_misses_doubles_or_swaps_an_event_is_noticed() {
    let past = |revision, name: &str, there: bool| Past {
        revision,
        resource: "configmaps".into(),
        namespace: "default".into(),
        name: name.into(),
        object: there.then(|| Arc::new(json!({}))),
    };
    let history = [past(5, "a", true), past(7, "a", true), past(8, "a", false)];
    let list = Seen::State(5, BTreeMap::from([("a".into(), 5)]));
    let modified = Seen::Event(7, "MODIFIED", "a".into());
    let deleted = Seen::Event(8, "DELETED", "a".into());
    let judged = |seen: &[&Seen]| judge(&history, &seen.iter().map(|seen| (*seen).clone()).collect::<Vec<_>>());
    assert_eq!(judged(&[&list, &modified, &deleted]), Ok(()));
    assert_eq!(judged(&[&list, &modified, &Seen::Upto(7), &deleted, &Seen::Upto(9)]), Ok(()));
    for wrong in [
        &[&list, &modified][..],
        &[&list, &deleted],
        &[&list, &modified, &modified, &deleted],
        &[&list, &Seen::Upto(7), &deleted],
        &[&Seen::State(7, BTreeMap::from([("a".into(), 5)])), &deleted],
        &[&Seen::State(4, BTreeMap::new()), &Seen::Event(5, "MODIFIED", "a".into())],
    ] {
        assert!(judged(wrong).is_err(), "{wrong:?}");
    }
}
