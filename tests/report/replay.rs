//! The same run id is the same run, in any process, folder and environment.
use crate::runs::{job, job_of, pool};
use photofinish::options::Options;
use std::collections::BTreeMap;

const RUNS: usize = 1_000;
/// Each of these processes has another folder and another environment.
const PROCESSES: usize = 10;

#[test]
fn one_run_id_has_one_trace_hash_in_a_thousand_runs() {
    let pool = pool().keep_traces(false);
    let printed = job("late-stop-snapshot-after-stopped", Options::as_reported()).id().to_string();
    let home = std::env::current_dir().expect("a working directory");
    let mut hashes = BTreeMap::new();
    for process in 0..PROCESSES {
        let folder = std::env::temp_dir().join(format!("photofinish-replay-{}-{process}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder of its own");
        std::env::set_current_dir(&folder).expect("the folder just made");
        // SAFETY: libtest runs this test in a thread of its own while the main thread waits for it; the test target is
        // run with other tests beside it only if they, too, read no environment but through the standard library.
        unsafe {
            std::env::set_var("TZ", format!("UTC{process}"));
            std::env::set_var("PHOTOFINISH_TEST_NOISE", "x".repeat(process * 1_000));
        }
        let job = job_of(&printed);
        pool.run((0..RUNS / PROCESSES).map(|_| job.clone()), |run| {
            *hashes.entry(run.report.trace_hash).or_insert(0) += 1;
            true
        })
        .expect("a zygote that answers");
        std::env::set_current_dir(&home).expect("where the test began");
        std::fs::remove_dir_all(&folder).expect("an empty folder");
    }
    assert_eq!(hashes.len(), 1, "trace hashes and how often each came: {hashes:?}");
    assert_eq!(hashes.into_values().sum::<usize>(), RUNS);
}
