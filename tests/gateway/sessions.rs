//! Supervisor sessions: relays, exits, silence.

use std::time::Duration;

use photofinish_openshell::gateway::Profile;
use photofinish_openshell::pb::openshell::{Heartbeat, RelayReply, gateway_frame, supervisor_frame};
use tokio::time::sleep;
use tonic::Code;

use crate::rig::{Setup, phase, reason, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;

#[tokio::test(start_paused = true)]
async fn a_client_session_is_relayed_to_the_supervisor_and_back() {
    let mut rig = Setup::as_reported().run(READY);
    let mut supervisor = rig.ready().await;
    let relayed = tokio::spawn(async move {
        let Some(gateway_frame::Frame::Relay(open)) = supervisor.next().await else { panic!("expected a relay") };
        assert_eq!(open.command, "ls");
        let reply = RelayReply { relay_id: open.relay_id, output: "a b c".into() };
        supervisor.send(supervisor_frame::Frame::RelayReply(reply)).await;
        supervisor
    });
    assert_eq!(rig.relay().await.unwrap(), "a b c");
    drop(relayed.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_relay_to_a_stopped_sandbox_is_refused_and_one_without_a_session_is_unavailable() {
    let ready = r#"{"wait": "again", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;
    let mut rig = Setup::as_reported().run(&format!("{READY}\n{ready}"));
    let supervisor = rig.ready().await;
    drop(supervisor);
    rig.until("Provisioning").await;
    let refused = rig.relay().await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);

    let id = rig.get().await.metadata.unwrap().id;
    let _supervisor = rig.supervise(&id, "i1").await.unwrap();
    rig.until("Ready").await;
    rig.stop().await.unwrap();
    let refused = rig.relay().await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "sandbox must be Ready to open a session (current phase: Stopped)");
    let refused = rig.supervise(&id, "i1").await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition, "nor may the supervisor come back");
}

#[tokio::test(start_paused = true)]
async fn a_ready_sandbox_whose_supervisor_leaves_is_provisioning_until_it_comes_back() {
    let mut rig = Setup::as_reported().run(READY);
    drop(rig.ready().await);
    rig.until("Provisioning").await;
    let row = rig.get().await;
    assert_eq!(reason(&row), "DependenciesNotReady");
    let _supervisor = rig.supervise(&row.metadata.unwrap().id, "i1").await.unwrap();
    rig.until("Ready").await;
    assert_eq!(
        rig.log.changes(),
        ["Provisioning>Ready session", "Ready>Provisioning session", "Provisioning>Ready session"]
    );
    rig.log.has_in_order(&[
        "supervisor session: accepted",
        "supervisor session: closed",
        "supervisor session: accepted",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_supervisor_is_given_up_and_one_that_sends_heartbeats_is_not() {
    let mut rig = Setup::as_reported().run(READY);
    let silent = rig.ready().await;
    sleep(Duration::from_secs(70)).await;
    assert_eq!(rig.phase().await, "Provisioning");
    drop(silent);
    let id = rig.get().await.metadata.unwrap().id;
    let alive = rig.supervise(&id, "i1").await.unwrap();
    for _ in 0..8 {
        sleep(Duration::from_secs(15)).await;
        alive.send(supervisor_frame::Frame::Heartbeat(Heartbeat {})).await;
    }
    assert_eq!(rig.phase().await, "Ready");
}

#[tokio::test(start_paused = true)]
async fn an_exit_ends_the_run_and_the_sandbox_can_be_started_again() {
    for (code, ended, why) in [(0, "Completed", "MainProcessCompleted"), (3, "Error", "MainProcessFailed")] {
        let mut rig = Setup::as_reported().run(READY);
        let mut supervisor = rig.ready().await;
        supervisor.exit(code).await;
        let row = rig.get().await;
        assert_eq!((phase(&row), reason(&row), row.status.as_ref().unwrap().exit_code), (ended, why, Some(code)));
        assert_eq!(phase(&rig.stop().await.unwrap()), ended, "a stop has nothing to do");
        assert_eq!(phase(&rig.start().await.unwrap()), "Starting");
        let id = rig.get().await.metadata.unwrap().id;
        let mut late = rig.supervise(&id, "i1").await.unwrap();
        late.exit(9).await;
        assert_eq!(rig.phase().await, "Starting", "the exit of the run before is no news");
    }
}

#[tokio::test(start_paused = true)]
async fn the_present_profile_reads_again_before_a_snapshot_takes_a_sandbox_out_of_ready() {
    let stale =
        r#"{"wait": "stale", "late": true, "sandbox": {"name": "demo", "conditions": ["Ready=False/PodFailed"]}}"#;
    for (profile, after) in [(Profile::Cc0642fa8, "Ready"), (Profile::V012, "Error")] {
        let mut rig = Setup::as_reported().profile(profile).run(&format!("{READY}\n{stale}"));
        let _supervisor = rig.ready().await;
        rig.driver.release("stale");
        settle().await;
        assert_eq!((rig.phase().await, rig.driver.left()), (after, 0), "{profile}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_the_driver_confirms_does_take_it_out_of_ready() {
    let failed = r#"{"wait": "failed", "sandbox": {"name": "demo", "conditions": ["Ready=False/PodFailed"]}}"#;
    let mut rig = Setup::as_reported().run(&format!("{READY}\n{failed}"));
    let _supervisor = rig.ready().await;
    rig.driver.release("failed");
    rig.until("Error").await;
    assert_eq!(phase(&rig.stop().await.unwrap()), "Stopped", "and it can be stopped from there");
}
