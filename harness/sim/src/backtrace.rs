//! Who did it: the stack of the code under test, without the frames that every such stack has.
use crate::state;

/// The calling stack, innermost first, one function a line with its place. Left out: our symbol and what is above it, the
/// standard library, and the runtime below the task.
pub(crate) fn creator() -> String {
    let full = state::outside(|| std::backtrace::Backtrace::force_capture().to_string());
    frames(&full)
}

/// Symbols of this crate from which a stack is taken.
const SYMBOLS: [&str; 3] = ["pthread_create", "pthread_join", "syscall"];

/// A frame is a line `12: function`, and `at place` may follow.
fn frames(full: &str) -> String {
    let mut frames: Vec<(&str, &str)> = Vec::new();
    for line in full.lines().map(str::trim_start) {
        match (line.split_once(": "), line.strip_prefix("at "), frames.last_mut()) {
            (_, Some(place), Some(frame)) => frame.1 = place,
            (Some((number, function)), None, _) if number.bytes().all(|b| b.is_ascii_digit()) => {
                frames.push((function, ""))
            }
            _ => {}
        }
    }
    let ours = frames.iter().position(|(function, _)| SYMBOLS.contains(function)).map_or(0, |i| i + 1);
    let below = frames.iter().position(|(_, place)| place.contains("/src/runtime/task/")).unwrap_or(frames.len());
    let theirs = frames.get(ours..below).unwrap_or_default().iter().filter(|(function, place)| {
        let std = ["std::", "core::", "alloc::"].iter().any(|s| function.trim_start_matches('<').starts_with(s));
        !std && !place.contains("/rustc/")
    });
    let line = |(function, place): &(&str, &str)| match *place {
        "" => short_name(function).to_owned(),
        place => format!("{} ({})", short_name(function), short_place(place)),
    };
    theirs.map(line).collect::<Vec<_>>().join("\n")
}

/// A function without its type arguments, which may fill a screen.
fn short_name(function: &str) -> &str {
    match function.find('<') {
        Some(at) if at > 0 => &function[..at],
        _ => function,
    }
}

/// A place under a registry, without the part that names a machine.
fn short_place(place: &str) -> &str {
    place.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')).map_or(place, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::frames;

    #[test]
    fn frames_of_the_engine_of_std_and_of_the_runtime_are_left_out() {
        let full = "   0: {closure#0}
             at ./src/backtrace.rs:8:34
   1: pthread_create
             at ./src/symbols/thread.rs:36:25
   2: <std::sys::thread::unix::Thread>::new
   3: spawn_unchecked<app::{closure_env#0}, ()>
             at /rustc/abc/library/std/src/thread/lifecycle.rs:137:26
   4: open<alloc::string::String>
             at ./src/store.rs:10:5
   5: rusqlite::Connection::open
             at /home/u/.cargo/registry/src/index-1/rusqlite-1/src/lib.rs:3:1
   6: poll<app::Main>
             at /home/u/.cargo/registry/src/index-1/tokio-1.54.1/src/runtime/task/core.rs:380:24
   7: main
";
        assert_eq!(frames(full), "open (./src/store.rs:10:5)\nrusqlite::Connection::open (rusqlite-1/src/lib.rs:3:1)");
    }
}
