//! Two gateways on one store: requests go to either, the loops run on the holder of the lease.

use std::time::Duration;

use photofinish_openshell::gateway::scripted_driver::Call;
use photofinish_openshell::pb::openshell::{CreateSandboxRequest, SandboxPhase};
use tokio::time::{sleep, timeout};

use crate::rig::{Setup, demo, phase, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;

fn create() -> CreateSandboxRequest {
    CreateSandboxRequest { name: "demo".into(), ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_to_one_replica_while_the_other_holds_the_lease() {
    let (mut rig, mut other) = Setup::as_reported().run_two(READY).await;
    let id = other.create_sandbox(create()).await.unwrap().into_inner().sandbox.unwrap().metadata.unwrap().id;
    let _supervisor = rig.supervise(&id, "i1").await.unwrap();
    rig.until("Ready").await;
    let stopped = other.stop_sandbox(demo()).await.unwrap().into_inner().sandbox.unwrap();
    assert_eq!(phase(&stopped), "Stopped");
    assert_eq!(phase(&other.stop_sandbox(demo()).await.unwrap().into_inner().sandbox.unwrap()), "Stopped");
    assert_eq!(rig.phase().await, "Stopped", "the store is one");
    assert_eq!(rig.log.text().matches("driver watch: opened").count(), 1, "only the holder watches");
    sleep(Duration::from_secs(179)).await;
    let sweeps = rig.driver.calls().iter().filter(|c| c.call == Call::List).count();
    assert_eq!(sweeps, 3, "only the holder sweeps");
}

#[tokio::test(start_paused = true)]
async fn when_the_holder_goes_the_other_takes_the_lease_within_its_time_and_follows_the_driver() {
    let late = r#"{"wait": "late", "sandbox": {"name": "demo", "conditions": ["Suspended=True/PodTerminated"]}}"#;
    let (rig, mut other) = Setup::as_reported().run_two(&[READY, late].join("\n")).await;
    other.create_sandbox(create()).await.unwrap();
    settle().await;
    rig.gateway.abort();
    sleep(Duration::from_secs(20)).await;
    rig.driver.release("late");
    assert_eq!(rig.driver.left(), 1, "nobody listens yet");
    sleep(Duration::from_secs(20)).await;
    let row = other.get_sandbox(demo()).await.unwrap().into_inner().sandbox.unwrap();
    assert_eq!((phase(&row), rig.driver.left()), ("Stopped", 0));
    rig.log.has_in_order(&[
        "replica=gateway-0 holds=true",
        "replica=gateway-1 holds=true",
        "Provisioning new_phase=Stopped",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_at_one_replica_shows_within_a_second_what_the_other_has_written() {
    let (mut rig, mut other) = Setup::as_reported().run_two(READY).await;
    let _supervisor = rig.ready().await;
    let mut watch = other.watch_sandbox(demo()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    rig.stop().await.unwrap();
    let stopped = async {
        loop {
            let row = watch.message().await.unwrap().unwrap().sandbox.unwrap();
            if row.status.unwrap().phase() == SandboxPhase::Stopped {
                return;
            }
        }
    };
    timeout(Duration::from_millis(1_100), stopped).await.expect("within a second");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_alone_runs_its_loops_without_a_lease() {
    let mut rig = Setup::as_reported().run(READY);
    let _supervisor = rig.ready().await;
    assert!(!rig.log.text().contains("reconciler lease"));
    assert_eq!(rig.log.text().matches("driver watch: opened").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_client_goes_away_is_worked_on_no_longer() {
    let script = format!("{{\"answer\": \"create\", \"wait\": \"created\"}}\n{READY}");
    let (rig, other) = Setup::as_reported().with(&["replicas-note-their-work"]).run_two(&script).await;
    let mut client = other.clone();
    let creating = tokio::spawn(async move { client.create_sandbox(create()).await });
    sleep(Duration::from_secs(20)).await;
    let noted = || rig.log.text().matches("works=true").count();
    assert_eq!((noted(), rig.log.text().contains("works=false")), (2, false), "it is noted, and once more after 15 s");
    creating.abort();
    settle().await;
    rig.log.has_in_order(&["works=true", "works=false"]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(noted(), 2, "nobody renews it");
}
