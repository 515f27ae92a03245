//! One line on a terminal's standard error that says how far long work has come; nothing where that is piped.
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the line is written anew.
const EVERY: Duration = Duration::from_millis(200);

pub(super) struct Progress {
    shown: bool,
    start: Instant,
    last: Option<Instant>,
    total: Option<u64>,
    limit: Option<Duration>,
}

impl Progress {
    /// For so many runs, or so much time, where that is known.
    pub(super) fn new(total: Option<u64>, limit: Option<Duration>) -> Progress {
        Progress { shown: io::stderr().is_terminal(), start: Instant::now(), last: None, total, limit }
    }
    pub(super) fn tell(&mut self, done: u64, found: usize) {
        if self.shown && self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            let line = line(done, found, self.start.elapsed(), self.total, self.limit);
            let _ = write!(io::stderr(), "\r\x1b[2K{line}");
        }
    }
    /// Takes the line away again.
    pub(super) fn end(&mut self) {
        if self.shown && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn line(done: u64, found: usize, elapsed: Duration, total: Option<u64>, limit: Option<Duration>) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let of = total.map_or(String::new(), |total| format!(" of {total}"));
    let by_runs = total.map(|total| total.saturating_sub(done) as f64 / rate.max(0.001));
    let by_time = limit.map(|limit| limit.saturating_sub(elapsed).as_secs_f64());
    let left = by_runs.into_iter().chain(by_time).min_by(f64::total_cmp);
    let left = left.map_or(String::new(), |s| format!(", {s:.0} s left"));
    format!("{done}{of} runs, {rate:.0}/s, {found} found{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_runs_rate_findings_and_the_time_that_is_left() {
        let secs = Duration::from_secs;
        for (total, limit, expected) in [
            (Some(500), None, "100 of 500 runs, 50/s, 2 found, 8 s left"),
            (Some(500), Some(secs(5)), "100 of 500 runs, 50/s, 2 found, 3 s left"),
            (None, None, "100 runs, 50/s, 2 found"),
        ] {
            assert_eq!(line(100, 2, secs(2), total, limit), expected);
        }
    }
}
