//! Runs of scenarios, in processes of their own.
use photofinish::options::Options;
use photofinish::pool::{Again, Job, Pool, Run};
use photofinish::scenario::{self, Source as Text};
use photofinish::{catalogue, execute};
use photofinish_openshell::system::OpenShell;
use photofinish_sim::choices::{Pins, Source};
use photofinish_sim::trace::Entry;
use photofinish_sim::zygote::this_test;
use std::sync::Arc;
use std::time::Duration;

static SYSTEM: OpenShell = OpenShell;

/// Nothing here asks how fast a machine is.
const WALL_LIMIT: Duration = Duration::from_secs(300);

/// Runs that keep their traces. Serves them, if this process was made for that.
pub(crate) fn pool() -> Pool {
    execute::serve_if_zygote(&SYSTEM);
    let pool = Pool::new(&SYSTEM).zygote_args(this_test());
    pool.workers(1).wall_limit(WALL_LIMIT).keep_traces(true).again(Again::Never)
}

/// A run of a built-in scenario, benign.
pub(crate) fn run(pool: &Pool, name: &str, options: Options) -> Run {
    pool.run_one(&job(name, options)).expect("a zygote that answers")
}

pub(crate) fn job(name: &str, options: Options) -> Job {
    let scenario = catalogue::find(&SYSTEM, name).expect("a built-in scenario").swap_remove(0);
    Job::new(&SYSTEM, scenario, &options, Source::Benign, Pins::default())
}

/// A benign run of a scenario that stands in the test.
pub(crate) fn run_text(pool: &Pool, text: &str, options: Options) -> Run {
    let source = Arc::new(Text { path: "in-a-test.yaml".into(), text: text.into(), builtin: false });
    let scenario = Arc::new(scenario::read(&SYSTEM, &source).expect("a good scenario").swap_remove(0));
    pool.run_one(&Job::new(&SYSTEM, scenario, &options, Source::Benign, Pins::default()))
        .expect("a zygote that answers")
}

/// What a test looks for: kind of entry, host, and how its text begins behind the enclosing spans.
pub(crate) type Mark<'a> = (&'a str, &'a str, &'a str);

pub(crate) fn is(e: &Entry, (kind, host, text): Mark<'_>) -> bool {
    e.kind == kind && e.host == host && e.text.starts_with(text)
}

/// Positions of entries that match, one after the other; says which mark is missing behind which entry.
pub(crate) fn in_order<'e>(entries: &'e [Entry], marks: &[Mark<'_>]) -> Vec<&'e Entry> {
    let mut from = 0;
    marks
        .iter()
        .map(|mark| {
            let at = entries[from..].iter().position(|e| is(e, *mark)).map(|n| from + n);
            let at =
                at.unwrap_or_else(|| panic!("no {mark:?} behind\n{}", photofinish::report::trace(&entries[..from])));
            from = at + 1;
            &entries[at]
        })
        .collect()
}
