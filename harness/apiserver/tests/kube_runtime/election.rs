//! Election of a leader by a Lease, with the periods and by the rules of client-go's: a term counts from when its renewal
//! is *seen*, by the clock of whoever sees it, and every write asks that the Lease has not changed since.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::ApiServer;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::weather::{Weather, each_seed, in_the_end};

/// How long others wait after a renewal that they have seen.
const TERM: Duration = Duration::from_secs(15);
/// How long a leader relies on a renewal, from when it asked for it.
const RELIES: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);

/// From when until when somebody took itself for the leader.
#[derive(Clone, Debug, PartialEq)]
struct Reign {
    who: String,
    from: Instant,
    until: Instant,
}

struct Candidate {
    leases: Api<Lease>,
    who: String,
    /// The Lease's revision, and when it was first seen.
    seen: Option<(String, Instant)>,
    /// Whether it asks, as it should, that the Lease has not changed meanwhile.
    asks: bool,
}

impl Candidate {
    fn new(client: Client, who: String) -> Candidate {
        Candidate { leases: Api::default_namespaced(client), who, seen: None, asks: true }
    }

    /// Takes the Lease if it is free or has run out, and renews it.
    async fn holds(&mut self) -> bool {
        let time = k8s_openapi::jiff::Timestamp::now();
        let spec = json!({"holderIdentity": self.who, "leaseDurationSeconds": 15, "renewTime": format!("{time:.6}")});
        let Ok(lease) = self.leases.get_opt("leader").await else { return false };
        let Some(lease) = lease else {
            let new = serde_json::from_value(json!({"metadata": {"name": "leader"}, "spec": spec})).expect("a lease");
            return self.leases.create(&PostParams::default(), &new).await.is_ok();
        };
        let revision = lease.resource_version().unwrap_or_default();
        let since = match &self.seen {
            Some((known, since)) if *known == revision => *since,
            _ => self.seen.insert((revision.clone(), Instant::now())).1,
        };
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        if holder != self.who && since.elapsed() < TERM {
            return false;
        }
        let mut change = json!({"spec": spec});
        if self.asks {
            change["metadata"]["resourceVersion"] = revision.into();
        }
        match self.leases.patch("leader", &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(lease) => {
                self.seen = Some((lease.resource_version().unwrap_or_default(), Instant::now()));
                true
            }
            Err(_) => false,
        }
    }

    /// Stands for election for ever, and writes down when it reigned.
    async fn stands(mut self, reigns: Arc<Mutex<Vec<Reign>>>) {
        loop {
            let asked = Instant::now();
            let won = self.holds().await;
            let (from, until) = (Instant::now(), asked + RELIES);
            // An answer that came too late is no reign.
            if won && from < until {
                let mut reigns = reigns.lock().expect("no panic");
                // A reign goes on as long as it is renewed in time.
                match reigns.iter_mut().rfind(|reign| reign.who == self.who) {
                    Some(last) if last.until >= from => last.until = until,
                    _ => reigns.push(Reign { who: self.who.clone(), from, until }),
                }
            }
            sleep(RETRY).await;
        }
    }
}

/// Two that reigned at the same time.
fn rivals(reigns: &[Reign]) -> Option<(&Reign, &Reign)> {
    reigns.iter().enumerate().find_map(|(at, one)| {
        let rival = |other: &&Reign| other.who != one.who && one.from < other.until && other.from < one.until;
        Some((one, reigns[at + 1..].iter().find(rival)?))
    })
}

/// Three candidates that are cut off, that die and come back under another name, on servers that come and go. Returns
/// who reigned.
async fn contest(weather: &mut Weather, asks: bool) -> Arc<Mutex<Vec<Reign>>> {
    let reigns: Arc<Mutex<Vec<Reign>>> = Arc::default();
    let stand = |weather: &Weather, at: usize, life: usize| {
        let (client, cut) = weather.client_with_a_wire(at % 2, ["x", "y", "z"][at]);
        let candidate = Candidate { asks, ..Candidate::new(client, format!("{at}-{life}")) };
        (tokio::spawn(candidate.stands(reigns.clone())), cut)
    };
    let mut lives: Vec<_> = (0..3).map(|at| stand(weather, at, 0)).collect();
    for life in 1..20 {
        weather.pause(Duration::from_secs(20)).await;
        let at = weather.below(3) as usize;
        match weather.below(5) {
            0 => {
                lives[at].0.abort();
                lives[at] = stand(weather, at, life);
            }
            1 | 2 => {
                lives[at].1.set(true);
                weather.pause(Duration::from_secs(30)).await;
                lives[at].1.set(false);
            }
            3 => weather.take_a_server_away(Duration::from_secs(20)).await,
            _ => weather.restart_a_server(),
        }
    }
    let now = Instant::now();
    let reigns_now = || reigns.lock().expect("no panic").iter().any(|reign| reign.from > now || reign.until > now);
    in_the_end(reigns_now, || "nobody leads".into()).await;
    lives.into_iter().for_each(|(life, _)| life.abort());
    reigns
}

#[test]
fn no_two_leaders_reign_at_once_whatever_happens() {
    const SEEDS: u64 = 120;
    let leaders = AtomicU64::new(0);
    each_seed(0..SEEDS, async |seed| {
        let mut weather = Weather::new(seed);
        let reigns = contest(&mut weather, true).await;
        let reigns = reigns.lock().expect("no panic");
        assert_eq!(rivals(&reigns), None, "seed {seed}: {reigns:?}");
        leaders.fetch_add(reigns.iter().map(|reign| &reign.who).collect::<BTreeSet<_>>().len() as u64, Relaxed);
        weather.faults()
    });
    let leaders = leaders.into_inner();
    assert!(leaders > 3 * SEEDS, "who is cut off for longer than its term loses it, but only {leaders} reigned");
}

#[test]
fn candidates_that_overwrite_what_they_have_not_seen_are_found_out() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let found = runtime.expect("a runtime").block_on(async {
        for seed in 0..100 {
            if rivals(&contest(&mut Weather::new(seed), false).await.lock().expect("no panic")).is_some() {
                return true;
            }
        }
        false
    });
    assert!(found, "a contest in which nobody asks for the revision has rivals for some seed");
}

#[tokio::test(start_paused = true)]
async fn a_lease_has_one_holder_at_a_time_and_another_one_after_its_term() {
    let server = ApiServer::builder().build();
    let candidate = |name: &str| Candidate::new(Client::new(server.as_client(name), "default"), name.into());
    let (mut a, mut b) = (candidate("a"), candidate("b"));
    for _ in 0..20 {
        assert!(a.holds().await);
        assert!(!b.holds().await);
        sleep(RETRY).await;
    }
    // a is gone.
    let began = Instant::now();
    while !b.holds().await {
        sleep(RETRY).await;
    }
    assert!((12..=16).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(!a.holds().await, "its revision is stale");
}

#[tokio::test(start_paused = true)]
async fn reigns_that_overlap_are_rivals_and_others_are_not() {
    let zero = Instant::now();
    let reign = |who: &str, from: u64, until: u64| {
        let at = |seconds| zero + Duration::from_secs(seconds);
        Reign { who: who.into(), from: at(from), until: at(until) }
    };
    let table = [
        ([reign("a", 0, 10), reign("b", 10, 20)], false),
        ([reign("a", 0, 10), reign("b", 9, 20)], true),
        ([reign("a", 5, 10), reign("b", 0, 20)], true),
        ([reign("a", 0, 10), reign("a", 5, 20)], false),
    ];
    for (reigns, rivalry) in table {
        assert_eq!(rivals(&reigns).is_some(), rivalry, "{reigns:?}");
    }
}
