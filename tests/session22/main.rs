//! The agent-sandbox controller against the recording of the real one (session 22: kube-apiserver, kube-scheduler and
//! kube-controller-manager v1.36.2, agent-sandbox controller v0.5.6).
//!
//! `fixtures/session22/<sandbox>.jsonl` holds, for one recorded sandbox, what was done to the cluster (by the user, the
//! kubelet, the scheduler) and what watches saw. Each test does the same things, at the recorded pace, to a simulated
//! cluster with our controller in it, watches as the recorder did, and compares.
//!
//! Compared, line by line:
//! - for each object, the whole sequence of its watch events: type of change, generation, labels, annotations, owner,
//!   finalizers, deletion mark and grace period; of a Sandbox the mode and the whole status, with the order of the
//!   conditions, their status, reason, message and observedGeneration; of a Pod node, phase, addresses, volumes of
//!   claims, conditions; of a Service selector and clusterIP; of a claim its spec;
//! - for each Sandbox, as long as it lives: the order of what happens to it and of the controller's writes, over all
//!   kinds, by revision.
//!
//! Absorbed, and nothing else:
//! - uids, revision numbers (not their order), timestamps, managedFields;
//! - how many events in a row look exactly the same;
//! - the interleaving of events of different kinds, except for the controller's own writes;
//! - how a Service goes: its EndpointSlices, which nobody makes here, sent the real one through a foreground deletion;
//! - the annotation in which the conversion webhook keeps a v1alpha1 original, and the spec of Pods beyond what is named
//!   above (the real server's defaults and admission).
mod lines;
mod play;
mod recording;
#[path = "../support/mod.rs"]
mod support;

use recording::Recording;

/// Plays a recording and panics with the differences, if there are any.
fn assert_as_recorded(file: &str, text: &str) {
    let recording = Recording::parse(file, text);
    let ours = play::run(&recording);
    let difference = lines::difference(&recording.seen, &ours);
    assert!(difference.is_empty(), "{file}: - is the recording, + is ours\n{difference}");
}

macro_rules! as_recorded {
    ($($(#[$doc:meta])* $test:ident: $file:literal;)*) => {$(
        #[test]
        fn $test() {
            assert_as_recorded($file, include_str!(concat!("../../fixtures/session22/", $file)));
        }
    )*};
}

as_recorded! {
    create_suspend_resume_pod_killed_pod_failed_and_foreground_delete: "s1.jsonl";
    a_volume_claim_an_unschedulable_pod_its_suspension_and_delete: "s2.jsonl";
    expiry_with_policy_delete: "s3.jsonl";
    expiry_with_policy_retain: "s4.jsonl";
    a_foreign_pod_of_the_sandboxs_name: "s5.jsonl";
    create_without_a_service_and_background_delete: "b0.jsonl";
}

#[test]
fn two_runs_see_the_same_to_the_last_uid_and_timestamp() {
    let recording = Recording::parse("s1.jsonl", include_str!("../../fixtures/session22/s1.jsonl"));
    assert_eq!(play::run(&recording), play::run(&recording));
}

#[test]
fn the_comparison_notices_a_changed_reason_a_lost_event_and_swapped_writes() {
    let recording = Recording::parse("b0.jsonl", include_str!("../../fixtures/session22/b0.jsonl"));
    let seen = &recording.seen;
    assert_eq!(lines::difference(seen, seen), "");

    let at = |wanted: &dyn Fn(&recording::Seen) -> bool| seen.iter().position(wanted).expect("it was recorded");
    let status = at(&|s| s.object["status"]["conditions"][2]["reason"] == "DependenciesReady");
    let mut changed = seen.clone();
    changed[status].object["status"]["conditions"][2]["reason"] = "Other".into();
    assert!(lines::difference(seen, &changed).contains("Ready=True/Other@1"), "a reason");

    let mut lost = seen.clone();
    lost.remove(status);
    assert!(lines::difference(seen, &lost).contains("- MODIFIED Sandbox b0"), "an event");

    let pod = at(&|s| s.object["kind"] == "Pod");
    let tracked = at(&|s| !s.object["metadata"]["annotations"].is_null());
    let mut swapped = seen.clone();
    let revision = |at: usize| seen[at].object["metadata"]["resourceVersion"].clone();
    swapped[pod].object["metadata"]["resourceVersion"] = revision(tracked);
    swapped[tracked].object["metadata"]["resourceVersion"] = revision(pod);
    assert!(lines::difference(seen, &swapped).starts_with("writes of the controller for b0"), "an order");
}
