//! How far long work has come, on standard error: a bar on a terminal, a line now and then where that is piped.
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{coloured, note};

/// How often a bar is drawn anew.
const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// How often a line is written where there is no terminal.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// The bar's whole length: it moves by thousandths.
const LENGTH: u64 = 1_000;

/// The bar that stands on the terminal now, if there is one: whatever else is written goes above it.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// `--quiet` of commands that run long.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct QuietArg {
    /// No word of progress, and none of what holds.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// How much there is to do, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// So many of them.
    pub(super) total: Option<u64>,
    /// So much time.
    pub(super) limit: Option<Duration>,
}

/// Progress of one piece of work. It is over when it is dropped.
pub(super) struct Progress {
    form: Form,
    /// What is counted, in the plural.
    what: &'static str,
    extent: Extent,
    start: Instant,
    last: Instant,
}

enum Form {
    Silent,
    Lines,
    Bar(ProgressBar),
}

impl Progress {
    /// For work that says nothing of itself.
    pub(super) fn silent() -> Progress {
        Progress::in_form(Form::Silent, "", Extent::default())
    }
    /// Counts `what`, in the plural. Silent if it is to be quiet.
    pub(super) fn new(quiet: bool, what: &'static str, extent: Extent) -> Progress {
        let form = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Form::Silent,
            (_, false) => Form::Lines,
            // A terminal that cannot move its cursor shows no bar.
            (_, true) => match bar(coloured(true), extent) {
                bar if bar.is_hidden() => Form::Lines,
                bar => Form::Bar(bar),
            },
        };
        Progress::in_form(form, what, extent)
    }
    fn in_form(form: Form, what: &'static str, extent: Extent) -> Progress {
        if let Form::Bar(bar) = &form {
            *shown() = Some(bar.clone());
        }
        let now = Instant::now();
        Progress { form, what, extent, start: now, last: now }
    }
    /// So many are done. `facts` says what was found in them, in few words, and is asked only if it is shown.
    pub(super) fn tell(&mut self, done: u64, facts: impl FnOnce() -> String) {
        let every = match self.form {
            Form::Silent => return,
            Form::Lines => TOLD_EVERY,
            Form::Bar(_) => DRAWN_EVERY,
        };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let elapsed = self.start.elapsed();
        let line = line(done, self.what, &facts(), elapsed, self.extent);
        match &self.form {
            Form::Bar(bar) => {
                bar.set_message(line);
                bar.set_position((share(done, elapsed, self.extent) * LENGTH as f64) as u64);
            }
            _ => note(line),
        }
    }
    /// More is known of how much there is to do.
    pub(super) fn extend(&mut self, total: u64) {
        self.extent.total = Some(total);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
            *shown() = None;
        }
    }
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes something else to the terminal: above the bar, which is drawn again below it.
pub(super) fn aside<R>(write: impl FnOnce() -> R) -> R {
    let bar = shown().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

fn bar(colour: bool, extent: Extent) -> ProgressBar {
    let known = extent.total.is_some() || extent.limit.is_some();
    let template = match (known, colour) {
        (true, true) => "{bar:24.green/dim} {wide_msg}",
        (true, false) => "{bar:24} {wide_msg}",
        (false, true) => "{spinner:.green} {wide_msg}",
        (false, false) => "{spinner} {wide_msg}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is well formed").progress_chars("━━─");
    let target = ProgressDrawTarget::stderr_with_hz(10);
    ProgressBar::with_draw_target(Some(LENGTH), target).with_style(style)
}

/// How much of the work is done, from 0 to 1: of the runs or of the time, whichever is nearer to its end.
fn share(done: u64, elapsed: Duration, extent: Extent) -> f64 {
    let by_count = extent.total.map(|total| done as f64 / total.max(1) as f64);
    let by_time = extent.limit.map(|limit| elapsed.as_secs_f64() / limit.as_secs_f64().max(1e-3));
    by_count.into_iter().chain(by_time).fold(0.0, f64::max).min(1.0)
}

/// `100 of 500 runs, 50/s, 8 s left, 2 violated`
fn line(done: u64, what: &str, facts: &str, elapsed: Duration, extent: Extent) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let of = extent.total.map_or(String::new(), |total| format!(" of {total}"));
    let speed = if rate >= 10.0 { format!("{rate:.0}/s") } else { format!("{rate:.1}/s") };
    let by_count = extent.total.filter(|_| done > 0).map(|total| total.saturating_sub(done) as f64 / rate.max(1e-3));
    let by_time = extent.limit.map(|limit| limit.saturating_sub(elapsed).as_secs_f64());
    let left = by_count.into_iter().chain(by_time).min_by(f64::total_cmp);
    let left = left.map(|s| format!("{} left", time(s)));
    let facts = Some(facts.to_owned()).filter(|facts| !facts.is_empty());
    // A narrow terminal cuts the end off.
    let parts = [Some(format!("{done}{of} {what}")), Some(speed), left, facts];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `8 s`, `3 min 20 s`, `2 h 5 min`
fn time(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn the_line_says_how_many_how_fast_what_is_left_and_what_was_found() {
        for (done, total, limit, facts, expected) in [
            (100, Some(500), None, "2 violated", "100 of 500 runs, 50/s, 8 s left, 2 violated"),
            (100, Some(500), Some(secs(5)), "2 violated", "100 of 500 runs, 50/s, 3 s left, 2 violated"),
            (100, None, None, "2 violated", "100 runs, 50/s, 2 violated"),
            (9, None, None, "", "9 runs, 4.5/s"),
            (1, Some(101), None, "", "1 of 101 runs, 0.5/s, 3 min 20 s left"),
            (1, Some(10_001), None, "", "1 of 10001 runs, 0.5/s, 5 h 33 min left"),
            (0, Some(3), None, "", "0 of 3 runs, 0.0/s"),
        ] {
            assert_eq!(line(done, "runs", facts, secs(2), Extent { total, limit }), expected);
        }
    }

    #[test]
    fn the_bar_shows_what_ends_first_and_never_more_than_all() {
        for (done, total, limit, expected) in [
            (100, Some(400), None, 0.25),
            (100, Some(400), Some(secs(4)), 0.5),
            (100, None, Some(secs(8)), 0.25),
            (100, None, None, 0.0),
            (100, Some(50), None, 1.0),
            (0, Some(0), None, 0.0),
        ] {
            assert_eq!(share(done, secs(2), Extent { total, limit }), expected, "{done} of {total:?}, {limit:?}");
        }
    }

    #[test]
    fn whatever_is_silent_never_asks_for_facts() {
        let mut progress = Progress::silent();
        progress.last -= TOLD_EVERY * 2;
        progress.tell(1, || unreachable!("nobody looks"));
        let mut early = Progress::in_form(Form::Lines, "runs", Extent::default());
        early.tell(1, || unreachable!("it is too early for a line"));
    }
}
