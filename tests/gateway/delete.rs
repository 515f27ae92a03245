//! DeleteSandbox: the row goes when the compute is known to be gone.

use photofinish_openshell::pb::openshell::DeleteSandboxRequest;
use photofinish_openshell::pb::openshell::delete_sandbox_response::Outcome;
use tonic::Code;

use crate::rig::{Setup, demo, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;

#[tokio::test(start_paused = true)]
async fn a_delete_is_accepted_and_the_row_goes_with_the_deleted_event() {
    let deleting = r#"{"on": "delete", "late": true, "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;
    let gone = r#"{"wait": "gone", "deleted": "demo"}"#;
    let mut rig = Setup::as_reported().run(&[READY, deleting, gone].join("\n"));
    let _supervisor = rig.ready().await;
    let mut watch = rig.client.watch_sandbox(demo()).await.unwrap().into_inner();
    assert_eq!(rig.delete().await.unwrap(), Outcome::Accepted);
    settle().await;
    assert_eq!((rig.phase().await, rig.driver.left()), ("Deleting", 1), "no snapshot revives it");
    assert_eq!(rig.delete().await.unwrap(), Outcome::Accepted);
    rig.driver.release("gone");
    settle().await;
    assert!(rig.gone().await);
    while watch.message().await.unwrap().is_some() {}
    assert!(rig.create("demo").await.is_ok(), "the name is free again");
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_compute_that_is_gone_removes_the_row_at_once() {
    let mut rig = Setup::as_reported().run(r#"{"on": "create", "late": true, "sandbox": {"name": "demo"}}"#);
    rig.create("demo").await.unwrap();
    assert_eq!(rig.delete().await.unwrap(), Outcome::Completed);
    assert!(rig.gone().await);
    assert_eq!(rig.delete().await.unwrap_err().code(), Code::NotFound);
    let request = DeleteSandboxRequest { name: "demo".into(), allow_missing: true, ..Default::default() };
    let outcome = rig.client.delete_sandbox(request).await.unwrap().into_inner().outcome();
    assert_eq!(outcome, Outcome::AlreadyAbsent);
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_brings_back_what_is_still_there() {
    let failing = r#"{"answer": "delete", "code": "UNAVAILABLE", "message": "lost"}"#;
    let mut rig = Setup::as_reported().run(&[READY, failing].join("\n"));
    let _supervisor = rig.ready().await;
    let failed = rig.delete().await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::Internal, "delete sandbox failed: lost"));
    assert_eq!(rig.log.changes()[1..], ["Ready>Deleting rpc", "Deleting>Ready recovery"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_of_compute_that_is_gone_removes_the_row() {
    let failing = r#"{"answer": "delete", "code": "UNAVAILABLE"}"#;
    let mut rig = Setup::as_reported().run(&[failing].join("\n"));
    rig.create("demo").await.unwrap();
    assert_eq!(rig.delete().await.unwrap_err().code(), Code::Internal);
    assert!(rig.gone().await);
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_restores_the_row_when_nobody_can_say_what_is_there() {
    let script =
        [READY, r#"{"answer": "delete", "code": "UNAVAILABLE"}"#, r#"{"answer": "get", "code": "UNAVAILABLE"}"#];
    let mut rig = Setup::as_reported().run(&script.join("\n"));
    let _supervisor = rig.ready().await;
    rig.delete().await.unwrap_err();
    assert_eq!(rig.phase().await, "Ready");
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_shows_what_has_become_of_the_sandbox() {
    let failed = r#"{"wait": "failed", "truth": {"name": "demo", "conditions": ["Ready=False/PodFailed"]}}"#;
    let mut rig =
        Setup::as_reported().run(&[READY, failed, r#"{"answer": "delete", "code": "UNAVAILABLE"}"#].join("\n"));
    let _supervisor = rig.ready().await;
    rig.driver.release("failed");
    settle().await;
    rig.delete().await.unwrap_err();
    assert_eq!(rig.log.changes().last().unwrap(), "Deleting>Error recovery");
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_restores_the_row_when_what_is_there_has_no_status() {
    let bare = r#"{"wait": "bare", "truth": {"name": "demo"}}"#;
    let mut rig = Setup::as_reported().run(&[READY, bare, r#"{"answer": "delete", "code": "UNAVAILABLE"}"#].join("\n"));
    let _supervisor = rig.ready().await;
    rig.driver.release("bare");
    settle().await;
    rig.delete().await.unwrap_err();
    assert_eq!(rig.phase().await, "Ready");
}
