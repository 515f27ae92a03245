//! A stretch of the idle day. The whole day is run with the release build.
use crate::runs::{pool, run_text};
use photofinish::options::Options;
use photofinish::outcome::Outcome;

const DAY: &str = include_str!("../../scenarios/long/idle-day.yaml");

#[test]
fn two_idle_hours_with_twenty_sandboxes_change_nothing_and_write_little() {
    let two_hours = DAY.replace("for: 24h", "for: 2h");
    assert_ne!(two_hours, DAY);
    let pool = pool();
    let quiet = run_text(&pool, &two_hours, Options::new());
    let hours: Vec<&str> = quiet
        .entries
        .iter()
        .filter(|e| e.name == "idle" && e.text.starts_with("hour "))
        .map(|e| e.text.as_str())
        .collect();
    assert_eq!(quiet.report.outcome, Outcome::Holds, "{hours:?} {:?}", quiet.report.violations);
    assert_eq!(hours.len(), 2, "{hours:?}");
    let busy = run_text(&pool, &two_hours, Options::new().without(["drift-spares-the-suspended"]));
    assert_eq!(busy.report.outcome, Outcome::Violated, "the suspended are suspended again and again");
}
