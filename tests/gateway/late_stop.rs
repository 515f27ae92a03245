//! NVIDIA/OpenShell#5195 at the gateway: a snapshot of the stop itself arrives after Stopped was reported.

use tonic::Code;

use crate::rig::{Rig, Setup, settle};

/// A create, then a stop whose middle is sent late.
const SCRIPT: &str = r#"
{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}
{"on": "stop", "truth": {"name": "demo", "conditions": ["Ready=False/DependenciesNotReady", "Suspended=True/PodTerminated"]}}
{"wait": "late", "late": true, "sandbox": {"name": "demo", "conditions": ["Bootstrapping=True/SandboxRuntimeGenerationStarting: replacement sandbox-runtime generation is starting", "Ready=False/DependenciesNotReady"]}}
{"wait": "healed", "sandbox": {"name": "demo", "conditions": ["Ready=False/DependenciesNotReady", "Suspended=True/PodTerminated"]}}
"#;

const REFUSAL: &str = "sandbox must be Ready, Completed, Suspended, Error, or in an automatic restart to stop (current phase: Provisioning)";

/// Ready, stopped by the client, and then the late snapshot.
async fn raced(setup: Setup) -> Rig {
    let mut rig = setup.run(SCRIPT);
    let mut supervisor = rig.ready().await;
    let row = rig.stop().await.unwrap();
    assert_eq!(crate::rig::phase(&row), "Stopped");
    assert!(supervisor.next().await.is_none(), "the stop ends the session");
    rig.driver.release("late");
    settle().await;
    assert_eq!(rig.driver.left(), 1, "the late snapshot was sent");
    rig
}

#[tokio::test(start_paused = true)]
async fn as_reported_a_late_stop_snapshot_takes_a_stopped_sandbox_to_provisioning_where_stop_is_refused() {
    let mut rig = raced(Setup::as_reported()).await;
    assert_eq!(rig.phase().await, "Provisioning");
    let refused = rig.stop().await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, REFUSAL));
    assert_eq!(refused.code() as i32, 9);
    let start = rig.start().await.unwrap_err();
    assert_eq!(start.code(), Code::FailedPrecondition);
    rig.driver.release("healed");
    rig.until("Stopped").await;
    assert!(rig.stop().await.is_ok());
    rig.log.has_in_order(&[
        "supervisor session: accepted",
        "request accepted op=stop",
        "Sandbox phase changed old_phase=Ready new_phase=Stopping",
        "Sandbox phase changed old_phase=Stopping new_phase=Stopped",
        "[driver_watch.sandbox_updated] Sandbox phase changed old_phase=Stopped new_phase=Provisioning",
        "request refused op=stop sandbox_name=demo",
        "[driver_watch.sandbox_updated] Sandbox phase changed old_phase=Provisioning new_phase=Stopped",
    ]);
}

#[tokio::test(start_paused = true)]
async fn either_gateway_remedy_keeps_the_sandbox_stopped_and_the_second_stop_is_accepted() {
    for remedy in ["starting-needs-a-start", "stopped-is-revalidated", "stopped-ignores-everything"] {
        let mut rig = raced(Setup::as_reported().with(&[remedy])).await;
        assert_eq!(rig.phase().await, "Stopped", "{remedy}");
        let again = rig.stop().await.unwrap();
        assert_eq!(crate::rig::phase(&again), "Stopped", "{remedy}");
        rig.driver.release("healed");
        settle().await;
        assert_eq!(rig.phase().await, "Stopped", "{remedy}");
        assert!(!rig.log.changes().iter().any(|c| c.starts_with("Stopped>")), "{remedy}:\n{}", rig.log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn profile_0_1_2_regresses_alike_and_refuses_in_its_own_words() {
    let profile = photofinish_openshell::gateway::Profile::V012;
    let mut rig = raced(Setup::as_reported().profile(profile)).await;
    assert_eq!(rig.phase().await, "Provisioning");
    let refused = rig.stop().await.unwrap_err();
    assert_eq!(refused.message(), "sandbox must be Ready to stop (current phase: Provisioning)");
}

#[tokio::test(start_paused = true)]
async fn a_stop_snapshot_that_arrives_before_stopped_is_harmless() {
    let script = r#"
{"on": "create", "sandbox": {"name": "demo", "conditions": ["Ready=True/DependenciesReady"]}}
{"wait": "stopping", "sandbox": {"name": "demo", "conditions": ["Bootstrapping=True/SandboxRuntimeGenerationStarting", "Ready=False/DependenciesNotReady"]}}
{"answer": "stop", "wait": "stopped"}
"#;
    let mut rig = Setup::as_reported().run(script);
    let _supervisor = rig.ready().await;
    let mut client = rig.client.clone();
    let stop = tokio::spawn(async move { client.stop_sandbox(crate::rig::demo()).await });
    rig.until("Stopping").await;
    rig.driver.release("stopping");
    settle().await;
    assert_eq!((rig.phase().await, rig.driver.left()), ("Stopping", 0));
    rig.driver.release("stopped");
    assert!(stop.await.unwrap().is_ok());
    assert_eq!(rig.phase().await, "Stopped");
}

#[tokio::test(start_paused = true)]
async fn a_watched_sandbox_shows_every_phase_in_its_order() {
    let mut rig = Setup::as_reported().run(SCRIPT);
    let _supervisor = rig.ready().await;
    let mut watch = rig.client.watch_sandbox(crate::rig::demo()).await.unwrap().into_inner();
    rig.stop().await.unwrap();
    rig.driver.release("late");
    settle().await;
    let mut phases = vec![];
    while let Ok(Ok(Some(event))) = tokio::time::timeout(std::time::Duration::from_secs(1), watch.message()).await {
        let phase = crate::rig::phase(&event.sandbox.unwrap());
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
    }
    assert_eq!(phases, ["Ready", "Stopping", "Stopped", "Provisioning"]);
}
