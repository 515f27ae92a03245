//! Writing a recording's states into a cluster.
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};

use super::{Error, Kind, Recording, State, Target};
use crate::BoxError;

/// Where states are written: a cluster's store, which gives each a fresh revision.
pub trait Sink {
    /// Stores this object as it is, whether or not one of its name is there.
    fn put(&mut self, object: Value) -> Result<(), BoxError>;
    /// Removes the object of this one's kind and name.
    fn remove(&mut self, object: Value) -> Result<(), BoxError>;
}

impl Sink for photofinish_apiserver::Writer {
    fn put(&mut self, object: Value) -> Result<(), BoxError> {
        Ok(photofinish_apiserver::Writer::put(self, object).map(drop)?)
    }
    fn remove(&mut self, object: Value) -> Result<(), BoxError> {
        Ok(self.delete(&object).map(drop)?)
    }
}

/// Plays a recording into a [`Sink`], step by step.
pub struct Player<S> {
    recording: Recording,
    target: Target,
    sink: S,
    laid_over: Map<String, Value>,
    /// States written so far.
    played: usize,
}

impl<S: Sink> Player<S> {
    /// A player at the start of a recording; nothing is written yet.
    pub fn new(recording: Recording, target: Target, sink: S) -> Self {
        Player { recording, target, sink, laid_over: Map::new(), played: 0 }
    }

    /// From the next written state on, lays these annotations over: text sets one, null takes one away. What was laid
    /// over before stays, unless it is named again.
    pub fn lay_over(&mut self, annotations: impl IntoIterator<Item = (String, Value)>) {
        self.laid_over.extend(annotations);
    }

    /// How many states are left.
    pub fn remaining(&self) -> usize {
        self.recording.states.len() - self.played
    }

    /// Time between the state played last (or the start) and the next one, as recorded; none when it is over.
    pub fn until_next(&self) -> Option<Duration> {
        let next = self.recording.states.get(self.played)?;
        let last = self.played.checked_sub(1).map_or(Duration::ZERO, |last| self.recording.states[last].at);
        Some(next.at - last)
    }

    /// Writes the next state and returns it as written.
    #[expect(clippy::should_implement_trait, reason = "a step of a script, which may fail")]
    pub fn next(&mut self) -> Result<Value, Error> {
        if self.remaining() == 0 {
            let (file, line) = self.place();
            return Err(Error::Over { file, line });
        }
        let written = self.write(self.played)?;
        self.played += 1;
        Ok(written)
    }

    /// Writes the state played last once more, with the annotations laid over since: what the driver did to a sandbox
    /// between two moves of its controller.
    pub fn again(&mut self) -> Result<Value, Error> {
        match self.played.checked_sub(1) {
            Some(last) => self.write(last),
            None => {
                let (file, line) = self.place();
                Err(Error::NoSuchState { file, line, expected: "been played before".into(), left: 0 })
            }
        }
    }

    /// Writes states up to and including the first one that is `reached`, and returns it as written. If none of those
    /// left is, nothing is written; `expected` is how the error calls what was asked for.
    pub fn until(&mut self, expected: &str, reached: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        let left = &self.recording.states[self.played..];
        let hit = left.iter().position(|state| reached(&self.target.map(&state.object, &self.laid_over)));
        let Some(hit) = hit else {
            let (file, line) = self.place();
            return Err(Error::NoSuchState { file, line, expected: expected.to_owned(), left: left.len() });
        };
        for _ in 0..hit {
            self.next()?;
        }
        self.next()
    }

    /// Writes all states that are left at the recorded pace, the first one at once.
    pub async fn play(&mut self) -> Result<(), Error> {
        let Some(first) = self.recording.states.get(self.played).map(|state| state.at) else { return Ok(()) };
        let start = Instant::now();
        while let Some(state) = self.recording.states.get(self.played) {
            sleep_until(start + (state.at - first)).await;
            self.next()?;
        }
        Ok(())
    }

    fn write(&mut self, at: usize) -> Result<Value, Error> {
        let State { file, line, kind, object, .. } = &self.recording.states[at];
        let mapped = self.target.map(object, &self.laid_over);
        let taken = match kind {
            Kind::Added | Kind::Modified => self.sink.put(mapped.clone()),
            Kind::Deleted => self.sink.remove(mapped.clone()),
        };
        taken.map_err(|source| Error::Refused { file: file.clone(), line: *line, source })?;
        Ok(mapped)
    }

    /// Where errors point: the next state, or the last line.
    fn place(&self) -> (String, usize) {
        let state = self.recording.states.get(self.played).or(self.recording.states.last());
        state.map_or_else(Default::default, |state| (state.file.clone(), state.line))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::driver::markers;
    use crate::driver::names::{BOOTSTRAP_PHASE, BOOTSTRAPPING};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<Value>>>);

    impl Sink for Written {
        fn put(&mut self, object: Value) -> Result<(), BoxError> {
            self.0.lock().expect("never poisoned").push(object);
            Ok(())
        }
        fn remove(&mut self, object: Value) -> Result<(), BoxError> {
            Err(format!("{} is not there", object["metadata"]["name"]).into())
        }
    }
    impl Written {
        fn count(&self) -> usize {
            self.0.lock().expect("never poisoned").len()
        }
    }

    fn player(name: &str) -> (Player<Written>, Written) {
        let written = Written::default();
        let recording = Recording::named(name).expect("it is built in");
        (Player::new(recording, Target::new("ns", "demo", []), written.clone()), written)
    }
    fn suspended(state: &Value) -> bool {
        let conditions = state["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == "Suspended" && c["status"] == "True")
    }

    #[test]
    fn states_are_written_one_by_one_until_the_recording_is_over() {
        let (mut player, written) = player("suspend");
        assert_eq!((player.remaining(), written.count()), (4, 0));
        assert_eq!(player.next().expect("there are four")["spec"]["operatingMode"], "Suspended");
        assert_eq!((player.remaining(), written.count()), (3, 1));
        assert!(suspended(&player.until("Suspended=True", suspended).expect("it ends so")));
        assert_eq!((player.remaining(), written.count()), (0, 4));
        assert_eq!(
            player.next().expect_err("it is over").to_string(),
            "fixtures/streams/suspend.jsonl:5: expected another state after this line, but the recording is over"
        );
    }
    #[test]
    fn asking_for_a_state_that_does_not_come_writes_nothing_and_says_where() {
        let (mut player, written) = player("create");
        player.next().expect("there are five");
        assert_eq!(
            player.until("Suspended=True", suspended).expect_err("a creation never says so").to_string(),
            "fixtures/streams/create.jsonl:3: expected a state with Suspended=True at or after this line, \
             but none of 4 has it"
        );
        assert_eq!((player.remaining(), written.count()), (4, 1));
    }
    #[test]
    fn a_sandbox_in_mid_stop_is_the_recorded_suspension_with_the_marks_of_a_stop_laid_over() {
        let (mut player, _) = player("suspend");
        let begun = markers::stop_begun(7).into_json();
        player.lay_over(begun.as_object().expect("annotations are an object").clone());
        let state = player.next().expect("there are four");
        assert_eq!(state["metadata"]["annotations"][BOOTSTRAPPING], "true");
        assert_eq!(state["metadata"]["annotations"][BOOTSTRAP_PHASE], "releasing");
        player.lay_over([(BOOTSTRAP_PHASE.to_owned(), json!("suspending"))]);
        let state = player.again().expect("one was played");
        assert_eq!(state["metadata"]["annotations"][BOOTSTRAP_PHASE], "suspending");
        assert_eq!(player.remaining(), 3, "a rewrite is no progress");
        let completed = markers::stop_completed().into_json();
        player.lay_over(completed.as_object().expect("annotations are an object").clone());
        let state = player.until("Suspended=True", suspended).expect("it ends so");
        assert_eq!(state["metadata"]["annotations"].get(BOOTSTRAPPING), None);
    }
    #[test]
    fn an_api_server_stores_the_states_as_they_are_under_fresh_revisions() {
        let server = photofinish_apiserver::ApiServer::builder().build();
        let recording = Recording::named("create").expect("it is built in");
        let target = Target::new("ns", "demo", []).uid("u9");
        let mut player = Player::new(recording, target, server.as_writer("replay"));
        let mut revisions = Vec::new();
        while player.remaining() > 0 {
            let mut written = player.next().expect("the server takes it");
            let stored = server.store().get("sandboxes", "ns", "demo").expect("it was stored");
            revisions.push(server.store().revision());
            written["metadata"]["resourceVersion"] = server.store().revision().to_string().into();
            assert_eq!(*stored, written);
        }
        assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
    }
    #[tokio::test(start_paused = true)]
    async fn at_the_recorded_pace_states_come_as_far_apart_as_they_were() {
        let (mut player, written) = player("create");
        let whole = player.recording.states().last().expect("never empty").at;
        assert!(whole > Duration::from_millis(200));
        let start = Instant::now();
        player.play().await.expect("all are taken");
        assert_eq!(written.count(), 5);
        assert_eq!(start.elapsed().as_millis(), whole.as_millis());
    }
    #[test]
    fn what_the_cluster_does_not_take_is_an_error_with_the_line() {
        let text = "{\"sandbox\":{\"name\":\"s1\"}}\n{\"ms\":0,\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"s1\"}}}";
        let recording = Recording::parse("f.jsonl", text).expect("it is one");
        let mut player = Player::new(recording, Target::new("ns", "demo", []), Written::default());
        assert_eq!(
            player.next().expect_err("it is refused").to_string(),
            "f.jsonl:2: the cluster did not take this state: \"demo\" is not there"
        );
    }
}
