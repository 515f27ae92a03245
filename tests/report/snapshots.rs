//! What users see, kept as snapshots: the report of the failure, and the story of the benign run.
use crate::runs::{pool, run};
use photofinish::options::Options;
use photofinish::property::always_checked;
use photofinish::report::{self, Style};
use photofinish::system::System;
use photofinish_openshell::system::OpenShell;

#[test]
fn the_failure_is_reported_like_this() {
    let run = run(&pool(), "late-stop-snapshot-after-stopped", Options::as_reported());
    let properties: Vec<_> = OpenShell.properties().into_iter().chain(always_checked()).collect();
    let replay = format!("photofinish replay '{}'", run.job.id());
    insta::assert_snapshot!(report::failure(
        &run.report,
        &run.entries,
        &properties,
        |entries| OpenShell.reading(entries),
        &replay,
        Style::default()
    ));
}

#[test]
fn the_benign_run_goes_like_this() {
    let run = run(&pool(), "late-stop-snapshot-after-stopped", Options::new());
    // Requests and watch events are the subject of other tests, and many.
    let told = |kind: &str| ["step", "op", "reply", "log", "host", "end"].contains(&kind);
    let story: Vec<_> = run.entries.into_iter().filter(|e| told(&e.kind)).collect();
    insta::assert_snapshot!(report::trace(&story));
}
