//! StartSandbox, and a start that was lost: it must still be seen, whatever the remedies.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::rig::{Rig, Setup, demo, phase, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;
const SUSPENDED: &str = r#"{"on": "stop", "sandbox": {"name": "demo", "conditions": ["Ready=False/DependenciesNotReady", "Suspended=True/PodTerminated"]}}"#;
const STARTING: &str = r#"{"wait": "starting", "late": true, "sandbox": {"name": "demo", "conditions": ["Bootstrapping=True/SandboxRuntimeGenerationStarting", "Ready=False/DependenciesNotReady"]}}"#;

async fn stopped(setup: Setup, rest: &[&str]) -> Rig {
    let script = [&[READY, SUSPENDED], rest].concat().join("\n");
    let mut rig = setup.run(&script);
    let _supervisor = rig.ready().await;
    rig.stop().await.unwrap();
    settle().await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_start_is_ready_once_the_new_run_has_accepted_its_configuration() {
    let mut rig = stopped(Setup::as_reported(), &[]).await;
    let before = rig.get().await;
    let row = rig.start().await.unwrap();
    assert_eq!(phase(&row), "Starting");
    assert_ne!(row.start_attempt, "");
    let annotation = |row: &photofinish_openshell::pb::openshell::Sandbox, key: &str| {
        row.metadata.as_ref().unwrap().annotations[&format!("openshell.nvidia.com/{key}")].clone()
    };
    assert_eq!((annotation(&before, "auth-epoch"), annotation(&row, "auth-epoch")), ("1".into(), "2".into()));
    for kept in ["runtime-generation-id", "compute-runtime-identity"] {
        assert_eq!(annotation(&before, kept), annotation(&row, kept));
    }
    let supervisor = rig.supervise(&row.metadata.unwrap().id, "i2").await.unwrap();
    settle().await;
    assert_eq!(rig.phase().await, "Starting", "its configuration is still open");
    supervisor.accept_configuration().await;
    rig.until("Ready").await;
    let row = rig.get().await;
    assert_eq!((row.start_attempt.as_str(), row.status.unwrap().main_process_instance_id.as_str()), ("", "i2"));
    assert_eq!(rig.log.changes()[3..], ["Stopped>Starting rpc", "Starting>Ready session"]);
    assert!(rig.start().await.is_ok(), "a start of a ready sandbox changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_result_is_unknown_falls_back_to_stopped_and_is_still_recognised() {
    for remedies in [&[][..], &["starting-needs-a-start"]] {
        let setup = Setup::as_reported().with(remedies);
        let mut rig = stopped(setup, &[STARTING, r#"{"answer": "start", "code": "UNAVAILABLE"}"#]).await;
        let failed = rig.start().await.unwrap_err();
        assert_eq!(failed.code(), Code::Unavailable);
        let row = rig.get().await;
        assert_eq!(phase(&row), "Stopped", "the driver still showed it stopped");
        assert_ne!(row.start_attempt, "", "but the start is not settled");
        rig.driver.release("starting");
        rig.until("Provisioning").await;
        assert_eq!(rig.log.changes().last().unwrap(), "Stopped>Provisioning snapshot", "{remedies:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_supervisor_of_a_lost_start_is_let_in_and_one_of_the_run_before_is_not() {
    let token = |row: &photofinish_openshell::pb::openshell::Sandbox| {
        row.metadata.as_ref().unwrap().annotations["openshell.nvidia.com/gateway-token-id"].clone()
    };
    let mut rig = stopped(Setup::as_reported(), &[STARTING, r#"{"answer": "start", "code": "UNAVAILABLE"}"#]).await;
    let before = rig.get().await;
    rig.start().await.unwrap_err();
    let restored = rig.get().await;
    assert_ne!(token(&before), token(&restored));
    rig.driver.release("starting");
    rig.until("Provisioning").await;
    let id = restored.metadata.as_ref().unwrap().id.as_str();
    let refused = rig.supervise_with(id, "i1", &token(&before)).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let _supervisor = rig.supervise_with(id, "i2", &token(&restored)).await.unwrap();
    rig.until("Ready").await;
}

#[tokio::test(start_paused = true)]
async fn the_mutant_that_ignores_everything_never_sees_the_lost_start() {
    let setup = Setup::as_reported().with(&["stopped-ignores-everything"]);
    let mut rig = stopped(setup, &[STARTING, r#"{"answer": "start", "code": "UNAVAILABLE"}"#]).await;
    rig.start().await.unwrap_err();
    rig.driver.release("starting");
    sleep(Duration::from_secs(130)).await;
    assert_eq!((rig.phase().await, rig.driver.left()), ("Stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_is_settled_so_a_starting_claim_moves_nothing() {
    let setup = Setup::as_reported().with(&["starting-needs-a-start"]);
    let refusal = r#"{"answer": "start", "code": "FAILED_PRECONDITION", "message": "initial bootstrap not completed"}"#;
    let mut rig = stopped(setup, &[STARTING, refusal]).await;
    let failed = rig.start().await.unwrap_err();
    assert_eq!(failed.code(), Code::FailedPrecondition);
    assert_eq!(failed.message(), "start sandbox failed: initial bootstrap not completed");
    assert_eq!(rig.get().await.start_attempt, "");
    rig.driver.release("starting");
    settle().await;
    assert_eq!((rig.phase().await, rig.driver.left()), ("Stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_is_settled_even_if_what_the_driver_shows_leaves_the_row_as_it_is() {
    let restarting =
        r#"{"wait": "restarting", "truth": {"name": "demo", "conditions": ["Ready=False/ContainerRuntimeRestart"]}}"#;
    let refusal = r#"{"answer": "start", "code": "FAILED_PRECONDITION"}"#;
    let mut rig = stopped(Setup::as_reported(), &[restarting, refusal]).await;
    rig.driver.release("restarting");
    settle().await;
    rig.start().await.unwrap_err();
    let row = rig.get().await;
    assert_eq!((phase(&row), row.start_attempt.as_str()), ("Starting", ""));
}

#[tokio::test(start_paused = true)]
async fn a_stop_accepted_after_a_lost_start_settles_it() {
    let setup = Setup::as_reported().with(&["starting-needs-a-start"]);
    let mut rig = stopped(setup, &[STARTING, r#"{"answer": "start", "code": "UNAVAILABLE"}"#]).await;
    rig.start().await.unwrap_err();
    assert_eq!(rig.stop().await.unwrap().start_attempt, "");
    rig.driver.release("starting");
    settle().await;
    assert_eq!((rig.phase().await, rig.driver.left()), ("Stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_starting_sandbox_waits_for_the_running_start_and_is_read_again() {
    let script = [
        r#"{"wait": "starting", "late": true, "sandbox": {"name": "demo", "conditions": ["Ready=False/PodFailed"]}}"#,
        r#"{"sandbox": {"name": "other", "conditions": ["Ready=False/PodFailed"]}}"#,
        r#"{"answer": "start", "wait": "started"}"#,
    ];
    let mut rig = stopped(Setup::as_reported(), &script).await;
    let other = rig.create("other").await.unwrap();
    let mut client = rig.client.clone();
    let start = tokio::spawn(async move { client.start_sandbox(demo()).await });
    rig.until("Starting").await;
    rig.driver.release("starting");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.driver.left(), 0, "both snapshots were sent");
    // The one loop is blocked: what happened to the other sandbox waits behind the start of this one.
    let of_other = |rig: &Rig| rig.log.text().contains("new_phase=Error sandbox_id=");
    assert!(!of_other(&rig));
    rig.driver.release("started");
    assert_eq!(phase(&start.await.unwrap().unwrap().into_inner().sandbox.unwrap()), "Starting");
    settle().await;
    assert!(of_other(&rig));
    assert_eq!(other.metadata.unwrap().name, "other");
    assert_eq!(rig.phase().await, "Starting", "the live snapshot is not failed, so the stale one is not believed");
}

#[tokio::test(start_paused = true)]
async fn stop_and_start_that_queue_on_one_sandbox_are_served_in_their_order() {
    let mut rig = stopped(Setup::as_reported(), &[r#"{"answer": "start", "wait": "started"}"#]).await;
    let (mut one, mut two) = (rig.client.clone(), rig.client.clone());
    let start = tokio::spawn(async move { one.start_sandbox(demo()).await });
    rig.until("Starting").await;
    let stop = tokio::spawn(async move { two.stop_sandbox(demo()).await });
    settle().await;
    assert!(!stop.is_finished(), "the stop waits for the start");
    rig.driver.release("started");
    assert!(start.await.unwrap().is_ok());
    let refused = stop.await.unwrap().unwrap_err();
    assert!(refused.message().ends_with("(current phase: Starting)"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_outlasts_its_deadline_is_answered_and_lets_go_of_the_gate() {
    let mut rig = stopped(Setup::as_reported(), &[r#"{"answer": "start", "wait": "never"}"#]).await;
    let failed = timeout(Duration::from_secs(310), rig.start()).await.unwrap().unwrap_err();
    assert_eq!(failed.code(), Code::DeadlineExceeded);
    settle().await;
    rig.until("Error").await;
    sleep(Duration::from_secs(3)).await;
    let row = rig.get().await;
    assert_eq!(crate::rig::reason(&row), "ProvisioningTimedOut");
    assert_ne!(row.status.unwrap().provisioning.unwrap().cleanup_completed_time_ms, 0, "its compute was reclaimed");
    assert_eq!(phase(&rig.start().await.unwrap()), "Starting", "and it can be started again");
}
