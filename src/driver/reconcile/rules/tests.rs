//! The reconciler's rules a to k as a table: what each looks at, in which order, and what it does.
use super::*;
use crate::driver::markers::Annotations;
use crate::driver::resource::View;
use crate::driver::{fences, markers};
use serde_json::{Value, json};

const NOW: i64 = 1_790_000_000_000;
const STALE: i64 = NOW - markers::BOOTSTRAP_GRACE_MS;

/// What the cluster holds besides the resource: by default a sandbox that is up and lacks nothing.
struct World {
    refused: Option<String>,
    fence: Read<NetworkPolicy>,
    policy: Read<NetworkPolicy>,
    tracked_pod: bool,
    workload: Read<Pod>,
    supervisor: Read<Pod>,
    service: bool,
}

fn policy(uid: &str, generation: i64, spec: Value) -> Read<NetworkPolicy> {
    let metadata = json!({"uid": uid, "generation": generation});
    Read::There(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a policy"))
}
fn pod(uid: &str, phase: &str, ready: &str) -> Read<Pod> {
    let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
    Read::There(serde_json::from_value(json!({"metadata": {"uid": uid}, "status": status})).expect("a Pod"))
}
fn ending(uid: &str) -> Read<Pod> {
    let metadata = json!({"uid": uid, "deletionTimestamp": "2026-08-21T10:00:00Z"});
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    Read::There(serde_json::from_value(json!({"metadata": metadata, "status": status})).expect("a Pod"))
}

impl World {
    fn up() -> World {
        let [(_, fence), (_, egress)] = fences::fences();
        World {
            refused: None,
            fence: policy("f", 1, fence),
            policy: policy("p", 1, egress),
            tracked_pod: true,
            workload: pod("w", "Running", "True"),
            supervisor: pod("s", "Running", "True"),
            service: true,
        }
    }
    /// A round over this sandbox: what it read, in order, and what it did.
    fn round(self, sandbox: &Sandbox, remedies: Remedies) -> (Vec<Wanted>, Action) {
        let again = |read: &Read<NetworkPolicy>| match read {
            Read::There(there) => Read::There(there.clone()),
            Read::Absent => Read::Absent,
            Read::Unread => Read::Unread,
        };
        let mut seen = Seen { refused: self.refused, ..Seen::new(sandbox) };
        let (mut reads, mut workload, mut supervisor) = (vec![], Some(self.workload), Some(self.supervisor));
        let taken = "nothing is read twice";
        loop {
            let wanted = match next(&seen, NOW, remedies) {
                Next::Act(action) => return (reads, action),
                Next::Read(wanted) => wanted,
            };
            reads.push(wanted);
            match wanted {
                Wanted::Fences => seen.fences = Some([again(&self.fence), again(&self.policy)]),
                Wanted::TrackedPod => seen.tracked_pod = Some(self.tracked_pod),
                Wanted::Workload => seen.workload = Some(workload.take().expect(taken)),
                Wanted::Parts => {
                    let there =
                        Read::There(View { metadata: Default::default(), spec: Default::default(), status: None });
                    seen.parts = Some(Parts {
                        supervisor: supervisor.take().expect(taken),
                        service: if self.service { there } else { Read::Absent },
                        workload_fence: again(&self.fence),
                        supervisor_egress: again(&self.policy),
                    });
                }
            }
        }
    }
}

/// A resource at generation 2 whose controller says Ready of it: run switch, and annotations as these steps left them.
fn resource(run: bool, steps: impl IntoIterator<Item = Annotations>) -> Sandbox {
    let mut annotations = json!({});
    for step in steps {
        for (key, value) in step.into_json().as_object().expect("annotations") {
            annotations[key] = value.clone();
        }
    }
    annotations.as_object_mut().expect("a map").retain(|_, value| !value.is_null());
    let ready = json!({"type": "Ready", "status": "True", "observedGeneration": 2});
    serde_json::from_value(json!({
        "metadata": {"generation": 2, "annotations": annotations},
        "spec": {"operatingMode": if run { "Running" } else { "Suspended" }},
        "status": {"conditions": [ready]},
    }))
    .expect("a Sandbox")
}
fn installed() -> Annotations {
    markers::installed("w", "s", "f", "1")
}
/// Up, its bootstrap completed.
fn running() -> Sandbox {
    resource(true, [markers::create_preparing(NOW, "g", "{}", "info"), installed(), markers::bootstrap_completed()])
}
/// Off, its stop completed.
fn stopped() -> Sandbox {
    resource(false, [installed(), markers::stop_completed()])
}
fn creating(at: i64) -> Sandbox {
    resource(true, [markers::create_preparing(at, "g", "{}", "info"), installed(), markers::released()])
}
fn restarting(at: i64) -> Sandbox {
    resource(true, [markers::restart_preparing(at, "session", "g", "s"), installed(), markers::released()])
}
fn not_ready(mut sandbox: Sandbox) -> Sandbox {
    sandbox.status = None;
    sandbox
}
fn annotated(mut sandbox: Sandbox, key: &str, value: Option<&str>) -> Sandbox {
    let annotations = sandbox.metadata.annotations.as_mut().expect("some");
    match value {
        Some(value) => annotations.insert(key.into(), value.into()),
        None => annotations.remove(key),
    };
    sandbox
}

type Row = (&'static str, Sandbox, World, &'static [Wanted], Action);

fn check(rows: Vec<Row>, remedies: Remedies) {
    for (row, sandbox, world, reads, action) in rows {
        assert_eq!(world.round(&sandbox, remedies), (reads.to_vec(), action), "{row}");
    }
}
fn suspend(why: &str) -> Action {
    Action::Suspend(why.into())
}

const NOTHING_READ: &[Wanted] = &[];
const POD: &[Wanted] = &[Wanted::TrackedPod];
const FENCES: &[Wanted] = &[Wanted::Fences];
const FENCES_AND_PARTS: &[Wanted] = &[Wanted::Fences, Wanted::Parts];
const ALL: &[Wanted] = &[Wanted::Fences, Wanted::Workload, Wanted::Parts];

const ALTERED: &str = "a fence was altered";
const REPLACED: &str = "the workload fence was replaced";
const OTHER_WORKLOAD: &str = "the workload Pod is not the noted one";
const OTHER_SUPERVISOR: &str = "the supervisor Pod is not the noted one";
const NO_SERVICE: &str = "the boundary Service is missing";
const UNAVAILABLE: &str = "a dependency is unavailable";
const LATE: &str = "the bootstrap did not complete in time";

#[test]
fn b5_a_a_sandbox_whose_namespace_is_refused_is_suspended_before_anything_else() {
    let refused = || World { refused: Some("not ours".into()), ..World::up() };
    let releasing = || resource(true, [markers::stop_begun(NOW)]);
    let suspending = || resource(false, [markers::suspending(NOW)]);
    check(
        vec![
            ("b5_a_running", running(), refused(), NOTHING_READ, suspend("not ours")),
            ("b5_a_stopped", stopped(), refused(), NOTHING_READ, suspend("not ours")),
            ("b5_a_before_b", releasing(), refused(), NOTHING_READ, suspend("not ours")),
            ("b5_a_before_c", suspending(), refused(), NOTHING_READ, suspend("not ours")),
        ],
        Remedies::as_reported(),
    );
}

#[test]
fn b5_b_and_c_a_stop_is_carried_on_from_where_it_was_left_whatever_else_is_wrong() {
    let altered = || World { fence: policy("f", 1, json!({})), service: false, ..World::up() };
    let gone = || World { tracked_pod: false, ..altered() };
    let releasing = || resource(true, [installed(), markers::stop_begun(NOW)]);
    let suspending = || resource(false, [installed(), markers::suspending(NOW)]);
    let old = || resource(false, [installed(), markers::suspending(STALE)]);
    check(
        vec![
            ("b5_b_releasing", releasing(), World::up(), NOTHING_READ, Action::FinishReleasing),
            ("b5_b_before_d", releasing(), altered(), NOTHING_READ, Action::FinishReleasing),
            ("b5_c_pod_there", suspending(), World::up(), POD, Action::Nothing),
            ("b5_c_pod_gone", suspending(), gone(), POD, Action::CompleteStop),
            ("b5_c_before_d", suspending(), altered(), POD, Action::Nothing),
            ("b5_c_has_no_limit", old(), World::up(), POD, Action::Nothing),
        ],
        Remedies::as_reported(),
    );
}

#[test]
fn with_the_remedy_a_stop_is_over_when_the_controller_has_seen_it_as_well() {
    let gone = || World { tracked_pod: false, ..World::up() };
    let suspending = || resource(false, [installed(), markers::suspending(NOW)]);
    let of_before = || {
        let mut sandbox = suspending();
        sandbox.metadata.generation = Some(3);
        sandbox
    };
    check(vec![("as reported", of_before(), gone(), POD, Action::CompleteStop)], Remedies::as_reported());
    check(
        vec![
            ("seen", suspending(), gone(), POD, Action::CompleteStop),
            ("seen, and a Pod", suspending(), World::up(), POD, Action::Nothing),
            ("not seen yet", of_before(), gone(), POD, Action::Nothing),
            ("nothing said yet", not_ready(suspending()), gone(), POD, Action::Nothing),
        ],
        Remedies::as_reported().with(Remedy::StopIsObserved),
    );
}

#[test]
fn b5_d_an_altered_fence_suspends_whatever_the_sandbox_does() {
    let workload = || World { fence: policy("f", 1, json!({})), ..World::up() };
    let supervisor = || World { policy: policy("p", 1, json!({})), ..World::up() };
    let unread = || World { fence: Read::Unread, policy: Read::Unread, ..World::up() };
    let missing = || World { fence: Read::Absent, ..World::up() };
    check(
        vec![
            ("b5_d_workload_fence", running(), workload(), FENCES, suspend(ALTERED)),
            ("b5_d_supervisor_policy", running(), supervisor(), FENCES, suspend(ALTERED)),
            ("b5_d_stopped_too", stopped(), workload(), FENCES, suspend(ALTERED)),
            ("b5_d_before_f", creating(NOW), workload(), FENCES, suspend(ALTERED)),
            ("b5_d_not_if_unread", running(), unread(), ALL, Action::Nothing),
            ("b5_d_missing_is_for_j", running(), missing(), ALL, suspend(UNAVAILABLE)),
        ],
        Remedies::as_reported(),
    );
}

#[test]
fn b5_e_another_fence_than_the_noted_one_suspends_what_runs_or_has_a_marker() {
    let [(_, spec), _] = fences::fences();
    let other = || World { fence: policy("other", 1, spec.clone()), ..World::up() };
    let edited = || World { fence: policy("f", 2, spec.clone()), ..World::up() };
    let unnoted = || resource(true, [markers::create_preparing(NOW, "g", "{}", "info")]);
    check(
        vec![
            ("b5_e_other_uid", running(), other(), FENCES, suspend(REPLACED)),
            ("b5_e_other_generation", running(), edited(), FENCES, suspend(REPLACED)),
            ("b5_e_marker", creating(NOW), other(), FENCES, suspend(REPLACED)),
            ("b5_e_marker_before_its_note", not_ready(unnoted()), other(), FENCES, Action::Nothing),
            ("b5_e_not_a_stopped_one", stopped(), other(), FENCES, Action::CleanUp),
        ],
        Remedies::as_reported(),
    );
    let before = Remedies::as_reported().without(Remedy::DriftSparesTheSuspended);
    check(vec![("b5_e_before_3525", stopped(), World::up(), FENCES, suspend(REPLACED))], before);
}

#[test]
fn b5_f_a_bootstrap_is_completed_when_it_is_up_and_given_up_when_it_is_stale() {
    let degraded = || World { supervisor: pod("s", "Running", "False"), ..World::up() };
    let down = || World { supervisor: Read::Absent, ..World::up() };
    let unread = || World { supervisor: Read::Unread, ..World::up() };
    let preparing = |at| resource(true, [markers::create_preparing(at, "g", "{}", "info")]);
    let unreadable = |sandbox| annotated(sandbox, names::BOOTSTRAP_STARTED_AT_MS, Some("soon"));
    let unknown = |at| annotated(not_ready(restarting(at)), names::BOOTSTRAP_OPERATION, Some("hibernate"));
    let done = || Action::CompleteBootstrap;
    check(
        vec![
            ("b5_f_create_up", creating(NOW), World::up(), FENCES_AND_PARTS, done()),
            ("b5_f_restart_up", restarting(NOW), World::up(), FENCES_AND_PARTS, done()),
            ("b5_f_up_though_stale", restarting(STALE), World::up(), FENCES_AND_PARTS, done()),
            ("b5_f_degraded", creating(NOW), degraded(), FENCES_AND_PARTS, Action::Nothing),
            ("b5_f_unknown", creating(NOW), unread(), FENCES_AND_PARTS, Action::Nothing),
            ("b5_f_down", creating(NOW), down(), FENCES_AND_PARTS, Action::Nothing),
            ("b5_f_preparing", preparing(NOW), World::up(), FENCES, Action::Nothing),
            ("b5_f_not_ready", not_ready(creating(NOW)), World::up(), FENCES, Action::Nothing),
            ("b5_f_fresh_until_5_min", not_ready(creating(STALE + 1)), World::up(), FENCES, Action::Nothing),
            ("b5_f_stale_create", not_ready(creating(STALE)), World::up(), FENCES, Action::DeleteResource),
            ("b5_f_stale_and_degraded", creating(STALE), degraded(), FENCES_AND_PARTS, Action::DeleteResource),
            ("b5_f_stale_restart", not_ready(restarting(STALE)), World::up(), FENCES, suspend(LATE)),
            ("b5_f_unreadable", unreadable(not_ready(creating(NOW))), World::up(), FENCES, Action::DeleteResource),
            ("b5_f_unknown_operation", unknown(STALE), World::up(), FENCES, suspend(LATE)),
            ("b5_f_unknown_and_fresh", unknown(NOW), World::up(), FENCES, Action::Nothing),
            // The written time of a skewed clock has no age: as reported such a marker never is stale.
            ("b5_f_future", not_ready(creating(NOW + 1_000_000)), World::up(), FENCES, Action::Nothing),
        ],
        Remedies::as_reported(),
    );
    let kept = Remedies::as_reported().with(Remedy::InstalledCreateIsKept);
    check(
        vec![
            ("installed-create-is-kept", not_ready(creating(STALE)), World::up(), FENCES, suspend(LATE)),
            ("nothing of value is in it", not_ready(preparing(STALE)), World::up(), FENCES, Action::DeleteResource),
        ],
        kept,
    );
    let stays = Remedies::as_reported().with(Remedy::StaleCreatesStay);
    check(vec![("stale-creates-stay", not_ready(creating(STALE)), World::up(), FENCES, Action::Nothing)], stays);
}

#[test]
fn b5_g_and_h_a_running_sandbox_has_the_pods_that_are_noted() {
    let workload = |workload| World { workload, ..World::up() };
    let supervisor = |supervisor| World { supervisor, ..World::up() };
    let unnoted = |key| annotated(running(), key, None);
    let other = || pod("other", "Running", "True");
    check(
        vec![
            ("b5_g_other_uid", running(), workload(other()), ALL, suspend(OTHER_WORKLOAD)),
            ("b5_g_missing", running(), workload(Read::Absent), ALL, suspend(OTHER_WORKLOAD)),
            ("b5_g_not_noted", unnoted(names::WORKLOAD_UID), World::up(), ALL, suspend(OTHER_WORKLOAD)),
            // As reported an ended workload is no lost dependency while it is the noted one.
            ("b5_g_ended", running(), workload(pod("w", "Failed", "False")), ALL, Action::Publish(true)),
            ("b5_g_unread_is_not_lost", running(), workload(Read::Unread), ALL, Action::Publish(true)),
            ("b5_h_other_uid", running(), supervisor(other()), ALL, suspend(OTHER_SUPERVISOR)),
            ("b5_h_not_noted", unnoted(names::SUPERVISOR_UID), World::up(), ALL, suspend(OTHER_SUPERVISOR)),
            ("b5_g_before_h", unnoted(names::WORKLOAD_UID), supervisor(other()), ALL, suspend(OTHER_WORKLOAD)),
        ],
        Remedies::as_reported(),
    );
}

#[test]
fn b5_i_companions_of_what_is_off_go_and_those_of_what_runs_must_be_there() {
    let off_by_replicas = || {
        let mut sandbox = stopped();
        (sandbox.spec.operating_mode, sandbox.spec.replicas) = (None, Some(0));
        sandbox
    };
    let on_by_default = || {
        let mut sandbox = running();
        sandbox.spec.operating_mode = None;
        sandbox
    };
    let no_service = || World { service: false, ..World::up() };
    let no_supervisor = || World { supervisor: Read::Absent, ..World::up() };
    check(
        vec![
            ("b5_i_suspended", stopped(), World::up(), FENCES, Action::CleanUp),
            ("b5_i_replicas_0", off_by_replicas(), World::up(), FENCES, Action::CleanUp),
            ("b5_i_not_what_runs_by_default", on_by_default(), World::up(), ALL, Action::Publish(true)),
            ("b5_i'_no_service", running(), no_service(), ALL, suspend(NO_SERVICE)),
            // A Pod that is missing has no uid, so h has it first; both lead to the same suspension.
            ("b5_i'_no_supervisor", running(), no_supervisor(), ALL, suspend(OTHER_SUPERVISOR)),
        ],
        Remedies::as_reported(),
    );
}

#[test]
fn b5_j_and_k_what_is_unavailable_suspends_and_what_is_degraded_is_published() {
    let supervisor = |supervisor| World { supervisor, ..World::up() };
    let no_policy = || World { policy: Read::Absent, ..World::up() };
    check(
        vec![
            ("b5_j_ending", running(), supervisor(ending("s")), ALL, suspend(UNAVAILABLE)),
            ("b5_j_pending", running(), supervisor(pod("s", "Pending", "False")), ALL, suspend(UNAVAILABLE)),
            ("b5_j_failed", running(), supervisor(pod("s", "Failed", "False")), ALL, suspend(UNAVAILABLE)),
            ("b5_j_no_policy", running(), no_policy(), ALL, suspend(UNAVAILABLE)),
            ("b5_k_available", running(), World::up(), ALL, Action::Publish(true)),
            ("b5_k_degraded", running(), supervisor(pod("s", "Running", "False")), ALL, Action::Publish(false)),
            ("b5_k_unknown_is_no_news", running(), supervisor(Read::Unread), ALL, Action::Nothing),
        ],
        Remedies::as_reported(),
    );
}

#[test]
fn with_the_remedy_a_generation_is_over_when_one_of_its_pods_has_ended() {
    const WORKLOAD_ENDED: &str = "the workload Pod has ended";
    let workload = |phase| World { workload: pod("w", phase, "False"), ..World::up() };
    let of_before = || World { workload: pod("before", "Failed", "False"), ..World::up() };
    let supervisor = || World { supervisor: pod("s", "Failed", "False"), ..World::up() };
    let unread = || World { workload: Read::Unread, supervisor: Read::Unread, ..World::up() };
    let restarts = || not_ready(restarting(NOW));
    let over = || suspend(WORKLOAD_ENDED);
    check(
        vec![
            ("failed", running(), workload("Failed"), ALL, over()),
            ("succeeded", running(), workload("Succeeded"), ALL, over()),
            ("runs", running(), workload("Running"), ALL, Action::Publish(true)),
            ("mid-restart", restarts(), workload("Failed"), ALL, over()),
            ("mid-create", not_ready(creating(NOW)), workload("Failed"), ALL, over()),
            ("supervisor, mid-restart", restarts(), supervisor(), ALL, suspend("the supervisor Pod has ended")),
            ("comes up", restarts(), workload("Pending"), ALL, Action::Nothing),
            ("not the noted one, mid-restart", restarts(), of_before(), ALL, Action::Nothing),
            ("unread is not over", restarts(), unread(), ALL, Action::Nothing),
        ],
        Remedies::as_reported().with(Remedy::EndedPodIsLost),
    );
}
