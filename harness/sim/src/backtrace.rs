//! Who did it: a backtrace of the code under test, without the frames that every backtrace has.
use crate::state;
use std::fmt::Write;

/// The calling stack, innermost first, one function a line with its place; this crate's own frames and those of the
/// runtime below the task are left out.
pub(crate) fn creator() -> String {
    let full = state::outside(|| std::backtrace::Backtrace::force_capture().to_string());
    frames(&full)
}

/// A frame is a line `12: function`, and `at place` may follow.
fn frames(full: &str) -> String {
    let mut out = String::new();
    let mut keep = false;
    for line in full.lines() {
        let line = line.trim_start();
        if let Some((number, function)) = line.split_once(": ")
            && number.bytes().all(|b| b.is_ascii_digit())
        {
            if function.starts_with("tokio::runtime::runtime::Runtime::block_on") {
                break;
            }
            keep = !NOISE.iter().any(|n| function.trim_start_matches('<').starts_with(n));
            if keep {
                let _ = write!(out, "{}{function}", if out.is_empty() { "" } else { "\n" });
            }
        } else if keep && let Some(place) = line.strip_prefix("at ") {
            let _ = write!(out, " ({})", short(place));
        }
    }
    out
}

const NOISE: [&str; 8] = [
    "photofinish_sim::",
    "std::backtrace",
    "core::",
    "std::sys",
    "std::thread::",
    "pthread_create",
    "syscall",
    "std::panicking",
];

/// Places under a registry or the standard library, without the part that names a machine.
fn short(place: &str) -> &str {
    ["/registry/src/", "/rustc/"]
        .iter()
        .find_map(|p| place.split_once(p).and_then(|(_, rest)| rest.split_once('/')))
        .map_or(place, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::frames;

    #[test]
    fn frames_of_the_engine_and_of_the_runtime_are_left_out() {
        let full = "   0: std::backtrace_rs::trace\n             at /rustc/abc/library/x.rs:1:2\n   1: photofinish_sim::symbols::thread::pthread_create\n   \
                    2: std::thread::spawn\n   3: app::store::open\n             at ./src/store.rs:10:5\n   \
                    4: rusqlite::Connection::open\n             at /home/u/.cargo/registry/src/index-1/rusqlite-1/src/lib.rs:3:1\n   \
                    5: tokio::runtime::runtime::Runtime::block_on\n   6: main\n";
        assert_eq!(
            frames(full),
            "app::store::open (./src/store.rs:10:5)\nrusqlite::Connection::open (rusqlite-1/src/lib.rs:3:1)"
        );
    }
}
