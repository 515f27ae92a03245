//! Remedies and what was before the merged fixes, through the whole gateway.

use std::time::Duration;

use photofinish_openshell::gateway::scripted_driver::Call;
use tokio::time::sleep;
use tonic::Code;

use crate::rig::{Setup, demo, phase, reason, settle};

const READY: &str = r#"{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}"#;

#[tokio::test(start_paused = true)]
async fn stop_from_provisioning_stops_what_is_there_and_a_start_follows() {
    let mut rig = Setup::as_reported().run(READY);
    rig.create("demo").await.unwrap();
    assert_eq!(rig.stop().await.unwrap_err().code(), Code::FailedPrecondition, "as reported");
    let mut rig = Setup::as_reported().with(&["stop-from-provisioning"]).run(READY);
    rig.create("demo").await.unwrap();
    assert_eq!(phase(&rig.stop().await.unwrap()), "Stopped");
    assert_eq!(phase(&rig.start().await.unwrap()), "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_after_ready_ends_the_wait_for_a_lost_session_in_an_error_that_can_be_started() {
    for (remedies, expected) in [(&[][..], "Provisioning"), (&["deadline-after-ready"][..], "Error")] {
        let mut rig = Setup::as_reported().with(remedies).run(READY);
        drop(rig.ready().await);
        rig.until("Provisioning").await;
        sleep(Duration::from_secs(320)).await;
        let row = rig.get().await;
        assert_eq!(phase(&row), expected, "{remedies:?}");
        if expected == "Error" {
            assert_eq!(reason(&row), "ProvisioningTimedOut");
            assert_eq!(phase(&rig.start().await.unwrap()), "Starting");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn before_workers_were_owned_a_client_that_left_stranded_its_stop() {
    let script = [READY, r#"{"answer": "stop", "wait": "slow"}"#].join("\n");
    for (without, expected) in [(&[][..], "Stopped"), (&["owned-workers"][..], "Stopping")] {
        let mut rig = Setup::as_reported().without(without).run(&script);
        let _supervisor = rig.ready().await;
        let mut client = rig.client.clone();
        let stop = tokio::spawn(async move { client.stop_sandbox(demo()).await });
        rig.until("Stopping").await;
        stop.abort();
        settle().await;
        rig.driver.release("slow");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(rig.phase().await, expected, "without {without:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn before_rows_had_locks_of_their_own_a_slow_delete_held_up_every_other_sandbox() {
    let other = r#"{"wait": "other", "sandbox": {"name": "other", "conditions": ["Suspended=True/PodTerminated"]}}"#;
    let script = [READY, other, r#"{"answer": "delete", "wait": "slow"}"#].join("\n");
    for (without, expected) in [(&[][..], "Stopped"), (&["lock-per-sandbox"][..], "Provisioning")] {
        let mut rig = Setup::as_reported().without(without).run(&script);
        let _supervisor = rig.ready().await;
        rig.create("other").await.unwrap();
        let mut client = rig.client.clone();
        tokio::spawn(async move {
            let request = photofinish_openshell::pb::openshell::DeleteSandboxRequest {
                name: "demo".into(),
                ..Default::default()
            };
            client.delete_sandbox(request).await
        });
        settle().await;
        rig.driver.release("other");
        settle().await;
        let reference = photofinish_openshell::pb::openshell::SandboxRef { name: "other".into(), ..demo() };
        let row = rig.client.get_sandbox(reference).await.unwrap().into_inner().sandbox.unwrap();
        assert_eq!(phase(&row), expected, "without {without:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn before_the_fix_a_lost_session_was_an_error() {
    let mut rig = Setup::as_reported().without(&["session-loss-is-not-terminal"]).run(READY);
    drop(rig.ready().await);
    rig.until("Error").await;
    assert_eq!(phase(&rig.stop().await.unwrap()), "Stopped", "the present profile has a way out");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_sleeps_never_lists() {
    let mut rig = Setup::as_reported().with(&["sweep-sleeps"]).run(READY);
    let _supervisor = rig.ready().await;
    sleep(Duration::from_secs(200)).await;
    assert!(rig.driver.calls().iter().all(|c| c.call != Call::List));
}
