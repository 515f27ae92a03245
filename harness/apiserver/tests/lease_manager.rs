//! The Lease-based election of the crate `kube-lease-manager`, as published, in worlds: three candidates on hosts of their
//! own, whose clocks are the world's, over a network that breaks, with a server that crashes and with all faults that a
//! seed draws. Once the network holds, one of them leads, and it is the one that the Lease names.
//!
//! That no two lead at once is not asked of it: it takes an expired Lease without asking whether it was renewed meanwhile.
//! `kube_runtime/election.rs` asks that of client-go's rules.
#![cfg(feature = "sim")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_lease_manager::LeaseManagerBuilder;
use photofinish_sim::host::{HostSpec, RestartPolicy};
use photofinish_sim::world::on_own_thread;

mod worlds;

const CANDIDATES: [&str; 3] = ["x", "y", "z"];

/// Who takes itself for the leader.
type Leaders = Arc<Mutex<BTreeMap<&'static str, bool>>>;

/// Stands for election for ever; a manager that gives up is followed by another.
async fn stands(client: kube::Client, who: &'static str, leaders: Leaders) {
    let note = |leads| leaders.lock().expect("no panic").insert(who, leads);
    loop {
        note(false);
        let manager =
            LeaseManagerBuilder::new(client.clone(), "leader").with_identity(who).with_duration(15).with_grace(5);
        if let Ok(manager) = manager.build().await {
            let (mut leads, task) = manager.watch().await;
            while leads.changed().await.is_ok() {
                note(*leads.borrow_and_update());
            }
            task.abort();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A run of a seed: everybody who has led.
fn run(seed: u64) -> BTreeSet<&'static str> {
    let (mut builder, server) = worlds::with_all_faults(seed);
    let leaders = Leaders::default();
    for who in CANDIDATES {
        let leaders = leaders.clone();
        // Longer than a term: otherwise a leader comes back and leads on, under the name that the Lease has.
        let again = RestartPolicy::Always { after: Duration::from_secs(40) };
        builder.host(who, HostSpec::new().restart(again), move |ctx| {
            let leaders = leaders.clone();
            async move {
                stands(ctx.wire.kube("http://api:80", "default"), who, leaders).await;
                Ok(())
            }
        });
    }
    let mut world = builder.build();
    world.start_all();
    let believed = || -> Vec<&'static str> {
        let leaders = leaders.lock().expect("no panic");
        leaders.iter().filter(|(_, leads)| **leads).map(|(who, _)| *who).collect()
    };
    let mut have_led = BTreeSet::new();
    for step in 0..24 {
        world.run_for(Duration::from_secs(5)).expect("goes on");
        have_led.extend(believed());
        let host = CANDIDATES[step % 3];
        match (seed as usize + step) % 4 {
            0 => {
                let falls = believed().first().copied().unwrap_or(host);
                leaders.lock().expect("no panic").insert(falls, false);
                world.crash(falls).expect("it is a host");
            }
            1 => world.crash("api").expect("it is a host"),
            _ => world.reset("api", host).expect("they are hosts"),
        }
    }
    let named = || {
        let lease = server.store().get("leases", "default", "leader");
        lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned))
    };
    let settled = (0..120).any(|_| {
        world.run_for(Duration::from_secs(5)).expect("goes on");
        believed().len() == 1 && believed().first().copied() == named().as_deref()
    });
    assert!(settled, "seed {seed}: {:?} lead, and the Lease names {:?}", believed(), named());
    have_led
}

#[test]
fn one_leads_in_the_end_whatever_happens() {
    let changed = (0..40).filter(|seed| on_own_thread(|| run(*seed)).len() > 1).count();
    assert!(changed > 20, "leaders crash and others follow, but only in {changed} worlds");
}
