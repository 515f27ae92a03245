//! A main process that has exited is run again by the sandbox's policy.

use std::time::Duration;

use photofinish_openshell::gateway::scripted_driver::Call;
use photofinish_openshell::pb::openshell::{CreateSandboxRequest, DeleteSandboxRequest, SandboxSpec};
use tokio::time::sleep;
use tonic::Code;

use crate::rig::{Rig, Setup, Supervisor, demo, phase, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;

/// A Ready sandbox with this restart policy, its id, and its supervisor.
async fn running(policy: &str, script: &str) -> (Rig, String, Supervisor) {
    let mut rig = Setup::as_reported().run(&[READY, script].join("\n"));
    let (id, supervisor) = ready(&mut rig, policy).await;
    (rig, id, supervisor)
}

async fn ready(rig: &mut Rig, policy: &str) -> (String, Supervisor) {
    let spec = SandboxSpec { restart_policy: policy.into(), ..Default::default() };
    let request = CreateSandboxRequest { name: "demo".into(), spec: Some(spec), ..Default::default() };
    let created = rig.client.create_sandbox(request).await.unwrap().into_inner().sandbox.unwrap();
    let id = created.metadata.unwrap().id;
    let supervisor = rig.supervise(&id, "i1").await.unwrap();
    rig.until("Ready").await;
    (id, supervisor)
}

fn starts(rig: &Rig) -> usize {
    rig.driver.calls().iter().filter(|c| c.call == Call::Start).count()
}

#[tokio::test(start_paused = true)]
async fn an_exit_is_made_up_for_at_once_after_a_stable_run_and_with_backoff_after_a_short_one() {
    let (mut rig, id, mut supervisor) = running("OnFailure", "").await;
    sleep(Duration::from_secs(20)).await;
    supervisor.exit(3).await;
    assert_eq!(rig.phase().await, "Starting");
    drop(supervisor);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(starts(&rig), 1, "the old run is stopped and a new one started");
    let refused = rig.supervise(&id, "i1").await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition, "the old run is over");
    let mut second = rig.supervise(&id, "i2").await.unwrap();
    assert_eq!(rig.phase().await, "Ready");
    assert_eq!(rig.get().await.status.unwrap().restart_count, 1);

    sleep(Duration::from_secs(5)).await;
    second.exit(3).await;
    drop(second);
    sleep(Duration::from_millis(900)).await;
    assert_eq!(starts(&rig), 1, "a second in a row waits");
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(starts(&rig), 2);
    assert_eq!(rig.get().await.status.unwrap().restart_count, 2);
}

#[tokio::test(start_paused = true)]
async fn an_exit_with_code_0_completes_a_sandbox_that_restarts_on_failure() {
    let (mut rig, _, mut supervisor) = running("OnFailure", "").await;
    supervisor.exit(0).await;
    assert_eq!(rig.phase().await, "Completed");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_before_it_ever_was_ready_is_made_up_for_once() {
    // Without the remedy its report, made once more, is one more exit, and the restart waits.
    for (remedies, counted, started_at_once) in [(&[][..], 2, false), (&["exit-needs-a-session"], 1, true)] {
        let mut rig = Setup::as_reported().with(remedies).run(READY);
        let (id, mut supervisor) = ready(&mut rig, "OnFailure").await;
        supervisor.exit(0).await;
        drop(supervisor);
        rig.start().await.unwrap();
        let mut second = rig.supervise(&id, "i2").await.unwrap();
        second.exit(3).await;
        second.exit(3).await;
        drop(second);
        assert_eq!(rig.get().await.status.unwrap().restart_count, counted, "{remedies:?}");
        assert_eq!(rig.phase().await, "Starting");
        sleep(Duration::from_millis(800)).await;
        assert_eq!(starts(&rig) == 2, started_at_once, "{remedies:?}: a start of the client, and one of the policy");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(starts(&rig), 2);
        // Nobody waits for a word on the configuration any more: that start is over.
        let _third = rig.supervise(&id, "i3").await.unwrap();
        assert_eq!(rig.phase().await, "Ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_backoff_ends_the_restarts() {
    let (mut rig, _, mut supervisor) = running("Always", "").await;
    supervisor.exit(0).await;
    assert_eq!(phase(&rig.stop().await.unwrap()), "Stopped");
    sleep(Duration::from_secs(300)).await;
    assert_eq!((rig.phase().await, starts(&rig)), ("Stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_meets_a_running_restart_wins() {
    let (mut rig, _, mut supervisor) = running("Always", r#"{"answer": "start", "wait": "slow"}"#).await;
    supervisor.exit(1).await;
    drop(supervisor);
    sleep(Duration::from_secs(2)).await;
    // The restart holds the gate: the stop waits for it, then stops what it has started.
    let mut client = rig.client.clone();
    let stop = tokio::spawn(async move { client.stop_sandbox(demo()).await });
    settle().await;
    rig.driver.release("slow");
    stop.await.unwrap().unwrap();
    assert_eq!(rig.phase().await, "Stopped");
    assert_eq!(rig.driver.calls().last().unwrap().call, Call::Stop);
}

#[tokio::test(start_paused = true)]
async fn a_stop_or_delete_at_another_replica_is_not_undone_by_the_restart_that_it_overtakes() {
    for deletes in [false, true] {
        let script = [READY, r#"{"answer": "start", "wait": "slow"}"#].join("\n");
        let (mut rig, mut other) = Setup::as_reported().run_two(&script).await;
        let (_, mut supervisor) = ready(&mut rig, "Always").await;
        supervisor.exit(1).await;
        drop(supervisor);
        sleep(Duration::from_secs(2)).await;
        // Gates are a process's own: this one does not wait for the restart.
        if deletes {
            let request = DeleteSandboxRequest { name: "demo".into(), ..Default::default() };
            other.delete_sandbox(request).await.unwrap();
        } else {
            other.stop_sandbox(demo()).await.unwrap();
        }
        assert_eq!(starts(&rig), 0, "the start is still under way");
        rig.driver.release("slow");
        settle().await;
        let calls = rig.driver.calls();
        let [.., start, undone] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!((start.call, undone.call), (Call::Start, if deletes { Call::Delete } else { Call::Stop }));
        assert!(start.lifecycle_epoch > 0, "a start is an operation");
        assert_eq!(undone.lifecycle_epoch, 0, "what undoes it is none: the epoch is that of who overtook it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_whose_run_never_says_hello_is_begun_again_after_two_minutes() {
    let (rig, _, mut supervisor) = running("Always", "").await;
    supervisor.exit(1).await;
    drop(supervisor);
    sleep(Duration::from_secs(118)).await;
    assert_eq!(starts(&rig), 1);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(starts(&rig), 2);
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_the_driver_fails_is_tried_again_and_one_without_compute_is_an_error() {
    let (mut rig, _, mut supervisor) = running(
        "Always",
        "{\"answer\": \"start\", \"code\": \"INTERNAL\"}\n{\"answer\": \"start\", \"code\": \"NOT_FOUND\"}",
    )
    .await;
    supervisor.exit(1).await;
    drop(supervisor);
    sleep(Duration::from_secs(9)).await;
    assert_eq!((rig.phase().await, starts(&rig)), ("Starting", 1));
    sleep(Duration::from_secs(3)).await;
    assert_eq!((rig.phase().await, starts(&rig)), ("Error", 2));
    assert_eq!(rig.log.changes().last().unwrap(), "Starting>Error restart");
}
