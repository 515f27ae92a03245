//! The loops: reconnecting watch, sweep, deadline, and what an earlier process has left behind.

use std::time::Duration;

use photofinish_openshell::gateway::scripted_driver::Call;
use photofinish_openshell::gateway::store::Store;
use photofinish_openshell::pb::openshell::{ObjectMeta, Sandbox, SandboxPhase, SandboxStatus};
use tokio::time::sleep;
use tonic::Code;

use crate::rig::{Setup, phase, reason, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_opened_again_after_2_s() {
    let suspended =
        r#"{"wait": "suspended", "sandbox": {"name": "demo", "conditions": ["Suspended=True/PodTerminated"]}}"#;
    let script = [READY, r#"{"wait": "broken", "end": "UNAVAILABLE"}"#, suspended];
    let mut rig = Setup::as_reported().run(&script.join("\n"));
    let _supervisor = rig.ready().await;
    rig.driver.release("broken");
    rig.driver.release("suspended");
    sleep(Duration::from_millis(1_900)).await;
    assert_eq!((rig.phase().await, rig.driver.left()), ("Ready", 1));
    sleep(Duration::from_millis(200)).await;
    assert_eq!((rig.phase().await, rig.driver.left()), ("Stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_of_an_unknown_sandbox_makes_no_row() {
    let stranger = r#"{"sandbox": {"name": "stranger", "conditions": ["Ready=True/DependenciesReady"]}}"#;
    let mut rig = Setup::as_reported().run(stranger);
    settle().await;
    assert_eq!(rig.driver.left(), 0);
    let listed = rig.client.list_sandboxes(photofinish_openshell::pb::openshell::ListSandboxesRequest::default());
    assert!(listed.await.unwrap().into_inner().sandboxes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_sweep_applies_within_a_minute_what_the_watch_has_missed() {
    let missed = r#"{"wait": "missed", "truth": {"name": "demo", "conditions": ["Ready=False/PodFailed"]}}"#;
    let mut rig = Setup::as_reported().run(&[READY, missed].join("\n"));
    drop(rig.ready().await);
    rig.until("Provisioning").await;
    rig.driver.release("missed");
    sleep(Duration::from_secs(61)).await;
    assert_eq!(rig.phase().await, "Error");
    assert_eq!(rig.log.changes().last().unwrap(), "Provisioning>Error sweep");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_settles_a_row_whose_compute_is_gone_but_not_before_the_grace_of_300_s() {
    let gone = r#"{"on": "create", "late": true, "sandbox": {"name": "demo"}}"#;
    let mut rig = Setup::as_reported().run(gone);
    let _supervisor = rig.ready().await;
    rig.stop().await.unwrap();
    sleep(Duration::from_secs(290)).await;
    assert_eq!(rig.phase().await, "Stopped");
    rig.until("Error").await;
    let row = rig.get().await;
    assert_eq!((phase(&row), reason(&row)), ("Error", "ComputeResourceMissing"));
    assert_eq!(rig.log.changes().last().unwrap(), "Stopped>Error missing");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_removes_a_running_row_without_compute_after_the_grace() {
    let mut rig = Setup::as_reported().run("");
    let supervisor = rig.ready().await;
    drop(supervisor);
    rig.until("Provisioning").await;
    sleep(Duration::from_secs(290)).await;
    assert!(!rig.gone().await);
    sleep(Duration::from_secs(80)).await;
    assert!(rig.gone().await);
}

#[tokio::test(start_paused = true)]
async fn the_sweep_asks_again_before_it_settles_a_row_that_was_not_listed() {
    // A row that is older than the grace, and that the list leaves out; so the sweep asks for it alone.
    let back = r#"{"wait": "back", "truth": {"name": "demo", "conditions": ["Ready=False/PodFailed"]}}"#;
    for (answer, then) in [
        (r#"{"answer": "get", "wait": "asked"}"#, "there after all"),
        (r#"{"answer": "get", "wait": "asked", "code": "UNAVAILABLE"}"#, "not known"),
        (r#"{"answer": "get", "wait": "asked", "code": "NOT_FOUND"}"#, "gone"),
    ] {
        let mut rig = Setup::as_reported().run(&[back, answer].join("\n"));
        drop(rig.ready().await);
        rig.until("Provisioning").await;
        sleep(Duration::from_secs(362)).await;
        assert!(!rig.gone().await, "{then}: nobody has answered yet");
        rig.driver.release("back");
        settle().await;
        rig.driver.release("asked");
        settle().await;
        match then {
            "there after all" => assert_eq!(rig.log.changes().last().unwrap(), "Provisioning>Error sweep"),
            "not known" => {
                assert_eq!(rig.phase().await, "Provisioning");
                assert!(rig.log.text().contains("the sweep ended early"));
            }
            _ => assert!(rig.gone().await),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_sweep_finds_the_row_without_compute_among_others_that_have_theirs() {
    let other = r#"{"on": "create#2", "sandbox": {"name": "other", "conditions": ["Ready=True/DependenciesReady"]}}"#;
    let mut rig = Setup::as_reported().run(other);
    drop(rig.ready().await);
    rig.create("other").await.unwrap();
    sleep(Duration::from_secs(370)).await;
    assert!(rig.gone().await);
    let listed = rig.client.list_sandboxes(photofinish_openshell::pb::openshell::ListSandboxesRequest::default());
    assert_eq!(listed.await.unwrap().into_inner().sandboxes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_goes_while_the_sweep_looks_is_passed_over_and_a_driver_that_fails_ends_the_sweep() {
    let demo = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=False/DependenciesNotReady"]}}"#;
    let other = r#"{"on": "create#2", "truth": {"name": "other", "conditions": ["Ready=False/PodFailed"]}}"#;
    for (code, is_swept) in [("NOT_FOUND", true), ("UNAVAILABLE", false)] {
        let answer = format!(r#"{{"answer": "get", "code": "{code}"}}"#);
        let mut rig = Setup::as_reported().run(&[demo, other, &answer].join("\n"));
        rig.create("demo").await.unwrap();
        rig.create("other").await.unwrap();
        sleep(Duration::from_secs(61)).await;
        assert_eq!(rig.log.changes().contains(&"Provisioning>Error sweep".to_owned()), is_swept, "{code}");
        assert_eq!(rig.log.text().contains("the sweep ended early"), !is_swept, "{code}");
        sleep(Duration::from_secs(60)).await;
        assert!(rig.log.changes().contains(&"Provisioning>Error sweep".to_owned()), "{code}: by the next one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_never_gets_ready_times_out_and_its_compute_is_stopped() {
    let coming = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=False/DependenciesNotReady"]}}"#;
    let failing = r#"{"answer": "stop", "code": "INTERNAL", "message": "not yet"}"#;
    let mut rig = Setup::as_reported().run(&[coming, failing].join("\n"));
    rig.create("demo").await.unwrap();
    sleep(Duration::from_secs(299)).await;
    assert_eq!(rig.phase().await, "Provisioning");
    sleep(Duration::from_secs(4)).await;
    let row = rig.get().await;
    assert_eq!((phase(&row), reason(&row)), ("Error", "ProvisioningTimedOut"));
    let attempt = row.status.unwrap().provisioning.unwrap();
    assert_eq!((attempt.cleanup_error.as_str(), attempt.cleanup_completed_time_ms), ("not yet", 0));
    assert_eq!(rig.start().await.unwrap_err().code(), Code::FailedPrecondition, "its cleanup is still pending");
    assert_eq!(rig.stop().await.unwrap_err().code(), Code::FailedPrecondition);
    sleep(Duration::from_secs(7)).await;
    assert_eq!(rig.driver.calls().iter().filter(|c| c.call == Call::Stop).count(), 2);
    assert_eq!(phase(&rig.start().await.unwrap()), "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_keeps_others_off_for_longer_than_its_call_may_take() {
    let mut rig = Setup::as_reported().run(r#"{"answer": "stop", "wait": "never"}"#);
    rig.create("demo").await.unwrap();
    rig.until("Error").await;
    sleep(Duration::from_secs(2)).await;
    let attempt = rig.get().await.status.unwrap().provisioning.unwrap();
    let kept_off_ms = attempt.cleanup_retry_time_ms - attempt.timeout_time_ms;
    assert!((35_000..=37_000).contains(&kept_off_ms), "{kept_off_ms}");
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_sandbox_whose_compute_is_gone_is_made_anew_by_a_start() {
    let script = [
        r#"{"answer": "create"}"#,
        r#"{"answer": "stop", "code": "NOT_FOUND"}"#,
        r#"{"answer": "start", "code": "NOT_FOUND"}"#,
        r#"{"answer": "create", "identity": "scripted://second"}"#,
    ];
    let mut rig = Setup::as_reported().run(&script.join("\n"));
    rig.create("demo").await.unwrap();
    rig.until("Error").await;
    sleep(Duration::from_secs(3)).await;
    let row = rig.start().await.unwrap();
    assert_eq!(phase(&row), "Starting");
    let identity = &row.metadata.unwrap().annotations["openshell.nvidia.com/compute-runtime-identity"];
    assert_eq!(identity, "scripted://second");
}

/// A row that an earlier process has left in this phase.
fn left_behind(setup: &Setup, phase: SandboxPhase) -> Store {
    let store = Store::open(&setup.database).unwrap();
    let metadata =
        ObjectMeta { id: "1".into(), name: "demo".into(), workspace: "default".into(), ..Default::default() };
    let status = SandboxStatus { phase: phase.into(), ..Default::default() };
    let row = Sandbox { metadata: Some(metadata), status: Some(status), ..Default::default() };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    store.create("test", row, i64::try_from(now).unwrap()).unwrap();
    store
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_an_earlier_process_left_unfinished_is_driven_to_its_end() {
    let setup = Setup::as_reported();
    let _store = left_behind(&setup, SandboxPhase::Stopping);
    let mut rig = setup.run("");
    rig.until("Stopped").await;
    assert_eq!(rig.log.changes(), ["Stopping>Stopped startup"]);
    assert_eq!(rig.driver.calls()[0].call, Call::Stop);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_the_driver_refuses_to_drive_again_waits_for_the_user() {
    let setup = Setup::as_reported();
    let _store = left_behind(&setup, SandboxPhase::Starting);
    let mut rig = setup.run(r#"{"answer": "start", "code": "FAILED_PRECONDITION"}"#);
    settle().await;
    assert_eq!(rig.phase().await, "Starting");
    assert_eq!(rig.driver.calls()[0].call, Call::Start);
    assert_eq!(phase(&rig.start().await.unwrap()), "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_an_earlier_process_left_unfinished_is_not_driven_again_by_the_next() {
    let setup = Setup::as_reported();
    let _store = left_behind(&setup, SandboxPhase::Deleting);
    let mut rig = setup.run("");
    settle().await;
    assert_eq!(rig.phase().await, "Deleting");
    assert!(rig.driver.calls().iter().all(|c| c.call != Call::Delete), "documented so: a user's delete is asked for");
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_an_earlier_process_left_unfinished_is_driven_by_the_second_sweep_that_finds_it() {
    let there = r#"{"truth": {"id": "1", "name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;
    let setup = Setup::as_reported().with(&["sweep-redrives"]);
    let _store = left_behind(&setup, SandboxPhase::Deleting);
    let rig = setup.run(there);
    let deletes = || rig.driver.calls().iter().filter(|c| c.call == Call::Delete).count();
    let mut sweeps = Vec::new();
    for _ in 0..4 {
        settle().await;
        sweeps.push((rig.driver.calls().iter().filter(|c| c.call == Call::Get).count(), deletes()));
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(sweeps, [(1, 0), (2, 1), (2, 1), (2, 1)], "reads and deletes after each sweep");
}
