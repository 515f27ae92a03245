//! Driver calls whose result is unknown, and clients that do not wait for theirs.

use std::time::Duration;

use photofinish_openshell::pb::openshell::delete_sandbox_response::Outcome;
use tokio::time::sleep;
use tonic::Code;

use crate::rig::{Rig, Setup, Supervisor, demo, phase, reason, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;

/// A stop whose driver call is cut in the middle, while the driver would show `truth`.
async fn cut_in_mid_stop(truth: &str) -> (Rig, Supervisor, tonic::Status) {
    let script = format!(
        "{READY}\n{{\"wait\": \"stopping\", \"truth\": {truth}}}\n{{\"answer\": \"stop\", \"wait\": \"never\"}}"
    );
    let mut rig = Setup::as_reported().run(&script);
    let supervisor = rig.ready().await;
    let mut client = rig.client.clone();
    let stop = tokio::spawn(async move { client.stop_sandbox(demo()).await });
    rig.until("Stopping").await;
    rig.driver.release("stopping");
    settle().await;
    rig.link.cut();
    let failed = stop.await.unwrap().unwrap_err();
    (rig, supervisor, failed)
}

#[tokio::test(start_paused = true)]
async fn a_stop_cut_in_its_middle_restores_ready_when_the_driver_shows_a_marked_sandbox() {
    let marked = r#"{"name": "demo", "conditions": ["Bootstrapping=True", "Ready=False/DependenciesNotReady"]}"#;
    let (mut rig, _supervisor, failed) = cut_in_mid_stop(marked).await;
    assert!(failed.message().starts_with("stop sandbox failed: "), "{failed}");
    rig.log.has_in_order(&["old_phase=Ready new_phase=Stopping", "old_phase=Stopping new_phase=Ready"]);
    assert_eq!(rig.log.changes().last().unwrap(), "Stopping>Ready recovery");
    assert_eq!(rig.phase().await, "Ready");
    // The sandbox can be stopped after all; the watch is back too.
    sleep(Duration::from_secs(3)).await;
    assert!(rig.stop().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stop_cut_in_its_middle_settles_stopped_when_the_driver_shows_it_stopped() {
    let (mut rig, _supervisor, failed) =
        cut_in_mid_stop(r#"{"name": "demo", "conditions": ["Suspended=True/PodTerminated"]}"#).await;
    assert!(failed.message().starts_with("stop sandbox failed: "), "{failed}");
    assert_eq!(rig.phase().await, "Stopped");
    assert_eq!(rig.log.changes().last().unwrap(), "Stopping>Stopped recovery");
}

#[tokio::test(start_paused = true)]
async fn a_stop_cut_in_its_middle_stays_stopping_while_the_pod_ends_and_is_driven_again_by_the_next_stop() {
    let terminating =
        r#"{"name": "demo", "conditions": ["Ready=False/DependenciesNotReady", "Suspended=False/PodTerminating"]}"#;
    let (mut rig, _supervisor, _) = cut_in_mid_stop(terminating).await;
    assert_eq!(rig.phase().await, "Stopping");
    assert_eq!(phase(&rig.stop().await.unwrap()), "Stopped");
}

#[tokio::test(start_paused = true)]
async fn a_failed_stop_keeps_the_drivers_code() {
    let script = format!(
        "{READY}\n{{\"answer\": \"stop\", \"code\": \"NOT_FOUND\", \"message\": \"no such resource\"}}\n{{\"answer\": \"get\", \"code\": \"NOT_FOUND\"}}"
    );
    let mut rig = Setup::as_reported().run(&script);
    let _supervisor = rig.ready().await;
    let failed = rig.stop().await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::NotFound, "stop sandbox failed: no such resource"));
    assert_eq!(rig.phase().await, "Stopping", "nothing was seen, so the intent stays");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_does_not_strand_its_stop() {
    let script = format!("{READY}\n{{\"answer\": \"stop\", \"wait\": \"stopped\"}}");
    let mut rig = Setup::as_reported().run(&script);
    let _supervisor = rig.ready().await;
    let mut client = rig.client.clone();
    let stop = tokio::spawn(async move { client.stop_sandbox(demo()).await });
    rig.until("Stopping").await;
    stop.abort();
    settle().await;
    rig.driver.release("stopped");
    rig.until("Stopped").await;
    assert_eq!(rig.log.changes().last().unwrap(), "Stopping>Stopped worker");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_does_not_strand_its_start_or_its_delete() {
    let script = format!(
        "{READY}\n{{\"answer\": \"start\", \"wait\": \"started\"}}\n{{\"answer\": \"delete\", \"wait\": \"deleted\"}}"
    );
    let mut rig = Setup::as_reported().run(&script);
    let _supervisor = rig.ready().await;
    rig.stop().await.unwrap();
    let mut client = rig.client.clone();
    let start = tokio::spawn(async move { client.start_sandbox(demo()).await });
    rig.until("Starting").await;
    start.abort();
    rig.driver.release("started");
    settle().await;
    rig.log.has_in_order(&["request accepted op=start", "store commit op=bind"]);

    let mut deleting = rig.client.clone();
    let request =
        photofinish_openshell::pb::openshell::DeleteSandboxRequest { name: "demo".into(), ..Default::default() };
    let delete = tokio::spawn(async move { deleting.delete_sandbox(request).await });
    rig.until("Deleting").await;
    delete.abort();
    rig.driver.release("deleted");
    settle().await;
    let calls = rig.driver.calls();
    let deleted = calls.iter().find(|c| c.call == photofinish_openshell::gateway::scripted_driver::Call::Delete);
    assert_eq!(deleted.map(|c| c.code), Some(Code::Ok));
    assert_eq!(rig.delete().await.unwrap(), Outcome::Accepted, "its row still is Deleting");
}

#[tokio::test(start_paused = true)]
async fn a_create_that_the_driver_refuses_leaves_no_row() {
    for (code, expected) in [
        ("INTERNAL", Code::Internal),
        ("UNAVAILABLE", Code::Internal),
        ("ALREADY_EXISTS", Code::AlreadyExists),
        ("FAILED_PRECONDITION", Code::FailedPrecondition),
    ] {
        let script = format!("{{\"answer\": \"create\", \"code\": \"{code}\", \"message\": \"no\"}}");
        let mut rig = Setup::as_reported().run(&script);
        let failed = rig.create("demo").await.unwrap_err();
        assert_eq!((failed.code(), failed.message()), (expected, "create sandbox failed: no"));
        assert!(rig.gone().await);
        assert!(rig.create("demo").await.is_ok(), "the name is free again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_without_a_runtime_identity_is_undone() {
    let mut rig = Setup::as_reported().run(r#"{"answer": "create", "identity": ""}"#);
    let failed = rig.create("demo").await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal);
    let row = rig.get().await;
    assert_eq!((phase(&row), reason(&row)), ("Deleting", "Deleting"));
    use photofinish_openshell::gateway::scripted_driver::Call;
    assert!(rig.driver.calls().iter().any(|c| c.call == Call::Delete));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_refused() {
    let mut rig = Setup::as_reported().run(READY);
    rig.create("demo").await.unwrap();
    let refused = rig.create("demo").await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    rig.log.has_in_order(&["request accepted op=create", "request refused op=create sandbox_name=demo"]);
}
