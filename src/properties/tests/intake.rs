//! What a gateway makes of what reaches it, and what a stop does to the Pods.
use super::check;

#[test]
fn a_row_is_made_by_a_create_and_by_nothing_that_the_driver_shows() {
    check("rows-come-from-creates", &[("row; end", "+"), ("row-by-watch; end", "0"), ("version 2; end", "-")]);
}

#[test]
fn a_name_is_taken_by_a_row_and_by_nothing_else() {
    check(
        "only-rows-take-names",
        &[
            ("ask create; acc create; ok create; end", "+"),
            ("ask create; refuse create; no create 6; end", "+"),
            ("ask create; acc create; no create 6; end", "2"),
            ("ask create; acc create; no create 13; end", "+"),
            ("refuse create; no create 6; acc create; no create 6; end", "3"),
            ("refuse stop; acc create; no create 6; end", "2"),
            ("ask stop; no stop 6; end", "-"),
        ],
    );
}

#[test]
fn a_deleted_row_follows_its_resource() {
    check(
        "deleted-row-goes-with-its-resource",
        &[
            ("cr on; Ready>Deleting; +200; cr gone; +80; gone; end", "+"),
            ("cr on; Ready>Deleting; cr gone; +90; end", "3"),
            ("cr on; Ready>Deleting; +300; end", "+"),
            ("cr on; cr gone; +300; Ready>Deleting; +80; gone; end", "+"),
            ("cr on; cr gone; +300; end", "-"),
        ],
    );
}

#[test]
fn one_driver_at_a_time_starts_a_sandbox() {
    check(
        "starts-do-not-overlap",
        &[
            ("begins driver; ends driver; begins driver-2; ends driver-2; end", "+"),
            ("begins driver-2; begins driver; end", "1"),
            ("begins driver-2; dies driver-2; begins driver; end", "+"),
            ("begins driver-2; dies driver; begins driver; end", "2"),
            ("begins driver; ends driver; begins driver; end", "+"),
            ("acc start; end", "-"),
        ],
    );
}

#[test]
fn what_is_at_rest_is_left_alone() {
    let again = "cr off stop/suspending; cr off";
    let times = |n: usize| vec![again; n].join("; ");
    check(
        "rest-is-undisturbed",
        &[
            (&format!("cr on; {}; end", times(3)), "+"),
            (&format!("cr on; {}; end", times(4)), "7"),
            (&format!("cr on; {}; acc stop; {}; end", times(3), times(2)), "+"),
            (&format!("cr off; {}; end", times(3)), "5"),
            (&format!("cr off; cr on; cr off; {}; end", times(2)), "5"),
            ("cr on stop/suspending; cr on; end", "-"),
        ],
    );
}

#[test]
fn a_lost_session_leaves_ready_for_provisioning() {
    check(
        "lost-session-is-no-error",
        &[
            ("Ready>Provisioning&; end", "+"),
            ("Ready>Error&; end", "0"),
            ("Ready>Error%; end", "-"),
            ("Provisioning>Ready&; end", "-"),
        ],
    );
}

#[test]
fn a_lost_snapshot_is_followed_by_a_look_at_the_sandbox() {
    check(
        "lost-snapshot-is-made-up-for",
        &[
            ("unapplied; +140; end", "+"),
            ("unapplied; +150; end", "1"),
            ("unapplied; +60; sweeps; +200; end", "+"),
            ("unapplied; +60; version 7; +200; end", "+"),
            ("unapplied; +60; sweep-fails; +140; end", "+"),
            ("unapplied; +60; sweep-fails; +200; end", "3"),
            ("unapplied; +60; sweep-fails; unapplied; +200; end", "4"),
            ("unapplied; crash; +200; end", "+"),
            ("sweeps; end", "-"),
        ],
    );
}

#[test]
fn a_rows_lock_is_not_held_for_long_but_by_a_process_that_stands_still() {
    check(
        "row-locks-are-brief",
        &[
            ("acc stop; end", "+"),
            ("acc stop; waited 6000; end", "1"),
            ("resume; waited 6000; end", "+"),
            ("resume; +30; waited 6000; end", "2"),
        ],
    );
}

#[test]
fn an_exit_ends_the_run_that_it_is_of_and_no_other() {
    check(
        "exit-ends-its-own-run",
        &[
            ("session a; Provisioning>Ready; exit a; noted; Ready>Error%; +20; end", "+"),
            ("session a; Provisioning>Ready; exit a; +20; end", "3"),
            ("session a; Provisioning>Ready; exit a; Ready>Stopping; +20; end", "+"),
            ("session a; Provisioning>Ready; exit a; crash; +20; end", "+"),
            ("session a; Provisioning>Ready; exit b; +20; end", "+"),
            ("session a; Provisioning>Ready; Ready>Starting; exit a; +20; end", "+"),
            ("session a; Provisioning>Ready; Ready>Starting; exit a; Starting>Error%; end", "4"),
            ("session a; Provisioning>Ready; Ready>Starting; session b; exit b; Starting>Error%; end", "+"),
            ("session a; Provisioning>Ready; Ready>Starting; session b; exit b; +20; end", "5"),
            ("session a; Provisioning>Ready; Ready>Starting; exit a; session b; exit b; Starting>Error%; end", "+"),
            ("session a; Provisioning>Ready; end", "-"),
        ],
    );
}

#[test]
fn a_stop_waits_for_the_supervisor_before_it_switches_off_and_a_lost_dependency_does_not() {
    let stop = |rest: &str| format!("supervisor Running; cr on; Ready>Stopping; {rest}; end");
    check(
        "supervisor-ends-first",
        &[
            (&stop("cr on stop/releasing; supervisor gone; cr off stop/suspending"), "+"),
            (&stop("cr off stop/suspending"), "3"),
            (&stop("suspends; cr off stop/suspending"), "-"),
            (&stop("cr off"), "-"),
            ("supervisor Running; cr on; cr off stop/suspending; end", "-"),
            ("supervisor Running; cr off create/preparing; end", "-"),
        ],
    );
}

#[test]
fn nothing_is_made_for_a_sandbox_that_was_reported_stopped() {
    let stopped = "acc stop; Ready>Stopping; cr off; Stopping>Stopped; ask stop; ok stop Stopped";
    let with = |rest: &str| format!("{stopped}; {rest}; end");
    let made = "workload Pending run1 w2";
    check(
        "stopped-makes-no-pod",
        &[
            (&with("+1"), "+"),
            (&with(made), "6"),
            (&with(&format!("acc start; {made}")), "+"),
            (&with(&format!("cr on; {made}")), "+"),
            (&format!("{made}; {stopped}; workload Running run1 w2; end"), "+"),
            ("acc stop; Ready>Stopping; cr off; workload Pending; end", "-"),
        ],
    );
}
