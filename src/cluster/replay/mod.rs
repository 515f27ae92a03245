//! Replay of recorded Sandbox watch streams: whole states, as a real cluster once stored them, are written into another
//! cluster in the same order, for a sandbox of that cluster.
//!
//! A [`Recording`] is a file of `fixtures/streams/`. [`Target`] says which sandbox its states become, and [`Player`]
//! writes them: one by one, up to a condition, or at the recorded pace. Annotations that belong to the driver were not
//! in the recorded cluster; a step lays them over the states where it wants to ([`Player::lay_over`]). So a sandbox in
//! mid-stop is the recorded suspension with the marks of a stop laid over.
mod player;
mod recording;
mod target;

pub use player::{Player, Sink};
pub use recording::{Kind, Recording, State};
pub use target::Target;

/// The recorded streams that are built in, by name: creation, suspension and resumption of one sandbox.
pub const STREAMS: [(&str, &str); 3] = [
    ("create", include_str!("../../../fixtures/streams/create.jsonl")),
    ("suspend", include_str!("../../../fixtures/streams/suspend.jsonl")),
    ("resume", include_str!("../../../fixtures/streams/resume.jsonl")),
];

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not hold what a recording holds.
    #[error("{file}:{line}: expected {expected}, found {found}")]
    Malformed {
        /// Name of the recording's file.
        file: String,
        /// Line in it, from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// There is no built-in recording of that name.
    #[error("no recorded stream {name:?}: expected one of create, suspend, resume")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// A step asked for a state that is not among those left to play.
    #[error("{file}:{line}: expected a state with {expected} at or after this line, but none of {left} has it")]
    NoSuchState {
        /// Name of the recording's file.
        file: String,
        /// Line of the first state that is left, or the last line.
        line: usize,
        /// What the step waits for.
        expected: String,
        /// How many states are left.
        left: usize,
    },
    /// A step asked for one more state than there is.
    #[error("{file}:{line}: expected another state after this line, but the recording is over")]
    Over {
        /// Name of the recording's file.
        file: String,
        /// Its last line.
        line: usize,
    },
    /// The cluster did not take a state.
    #[error("{file}:{line}: the cluster did not take this state: {source}")]
    Refused {
        /// Name of the recording's file.
        file: String,
        /// Line of the state.
        line: usize,
        /// What the cluster said.
        source: crate::BoxError,
    },
    /// The object that a replay is mapped onto is no sandbox.
    #[error("expected a stored Sandbox to map the recording onto: {missing} is missing")]
    NoTarget {
        /// The field that is not there.
        missing: &'static str,
    },
}
