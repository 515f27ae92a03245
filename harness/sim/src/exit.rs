//! Exit codes with which a run's process ends itself, when its world cannot go on.
//!
//! Such an end comes from inside a libc call of the code under test, where nothing can be returned to the world's loop:
//! the process says why, on its standard error and in its trace, and leaves with one of these codes. The parent finds
//! the code in [`Exit::Code`](crate::zygote::Exit::Code).

/// The code under test blocks the only thread of its world, for ever (an untimed lock, join or receive).
pub const BLOCKED: i32 = 70;
/// The code under test started a thread, and the world does not allow any.
pub const FOREIGN_THREAD: i32 = 71;
/// The code under test used something that worlds do not simulate (a real socket, a child process).
pub const NOT_SIMULATED: i32 = 72;

/// The run is to begin otherwise than the beginning that it was forked from: whoever asked for it asks again.
pub const ANOTHER_BEGINNING: i32 = 73;

/// The run's process could not even begin, or not write its report: a failure of the harness or of its machine.
pub const HARNESS: i32 = 79;

/// What an exit code of this module means, in words; `None` for a code that is the code under test's own.
pub fn meaning(code: i32) -> Option<&'static str> {
    Some(match code {
        BLOCKED => "the code under test blocks the only thread of its world for ever",
        FOREIGN_THREAD => "the code under test started a thread, and this world does not allow foreign threads",
        NOT_SIMULATED => "the code under test used something that worlds do not simulate",
        HARNESS => "the run's process could not begin, or not write its report",
        _ => return None,
    })
}

/// Ends this process with `code`: `text` goes to the run's trace, as an `end` entry called `name`, and to standard error.
///
/// Safe to call from a libc symbol, whatever the interrupted code holds: it takes no lock that may be taken.
pub fn leave(code: i32, name: &'static str, text: &str) -> ! {
    if let Some(trace) = crate::trace::of_this_process() {
        let host = crate::state::current_host();
        let draft = trace.entry("end", name).text(text).field("code", code);
        match host {
            Some(host) => draft.field("host", host),
            None => draft,
        }
        .record_even_if_busy();
    }
    eprintln!("{text}");
    // SAFETY: `_exit` takes no memory and does not return. It runs no destructors, which could touch a torn world.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_codes_of_this_module_have_a_meaning() {
        assert!(
            [super::BLOCKED, super::FOREIGN_THREAD, super::NOT_SIMULATED, super::HARNESS]
                .iter()
                .all(|&c| super::meaning(c).is_some())
        );
        assert_eq!(super::meaning(0), None);
        assert_eq!(super::meaning(101), None);
    }
}
