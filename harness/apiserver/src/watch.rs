//! Watches: where a stream starts, which changes it shows, and its life as the body of a response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::cache::{Caches, Life, Stage};
use crate::error::{ApiError, Cause};
use crate::history::{Change, EventType, event_line};
use crate::hooks::{Handed, WatchItem, WatchPipe};
use crate::list::bad_revision;
use crate::object::{Object, Shown, View};
use crate::reads::{reached, uncached};
use crate::request::Query;
use crate::resource::Resource;
use crate::response::Lost;
use crate::selector::Selector;
use crate::store::{Store, prefix};

/// What a watch asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    start: Start,
    bookmarks: bool,
    /// The streaming list's marker, or the one that a watch from the present sends without being asked.
    marker: bool,
    timeout: Duration,
}

/// Where the stream starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// With the present objects, in a state that is not older; without a revision, in the latest.
    State { not_older_than: Option<u64>, streaming: bool },
    /// With what comes after now.
    Now,
    /// With what came after that revision.
    After(u64),
}

/// A watch without `timeoutSeconds` lives between one and two times this long on a stock server.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
/// No clock reaches what some clients ask for.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A watch from the present that saw events gets its first bookmark this early.
const FIRST_BOOKMARK: Duration = Duration::from_millis(500);
/// Long watches get a bookmark this long before they end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// How long a server waits to reach a revision that it does not have yet.
pub(crate) const FRESH_WITHIN: Duration = Duration::from_secs(3);

impl Options {
    pub(crate) fn parse(query: &Query) -> Result<Options, ApiError> {
        let asked = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let initial = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
        let timeout = query.integer("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        check(matching, initial)?;
        let named = match asked {
            "" => None,
            text => Some(text.parse::<u64>().map_err(|_| ApiError::internal(bad_revision(text)))?),
        };
        let revision = named.unwrap_or(0);
        let bookmarks = query.flag("allowWatchBookmarks");
        let start = match (initial, revision) {
            (Some(true), _) => Start::State { not_older_than: named, streaming: true },
            (None, 0) => Start::State { not_older_than: named, streaming: false },
            (Some(false), 0) => Start::Now,
            (_, revision) => Start::After(revision),
        };
        Ok(Options {
            marker: bookmarks && matches!(start, Start::State { .. }),
            start,
            bookmarks,
            timeout: timeout
                .map_or(DEFAULT_TIMEOUT, |seconds| Duration::from_secs(seconds.unsigned_abs()).min(LONGEST)),
        })
    }

    /// Whether it goes on from a revision that was seen.
    pub(crate) fn resumes(&self) -> bool {
        matches!(self.start, Start::After(_))
    }
}

fn check(matching: &str, initial: Option<bool>) -> Result<(), ApiError> {
    const FIELD: &str = "resourceVersionMatch";
    let mut causes = Vec::new();
    match initial {
        None if !matching.is_empty() => causes.push(Cause::forbidden(
            FIELD,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        Some(_) if matching != "NotOlderThan" => {
            causes.push(Cause::forbidden(
                FIELD,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
            if !matching.is_empty() {
                causes.push(Cause::unsupported(FIELD, format_args!("{matching:?}"), &["NotOlderThan"]));
            }
        }
        _ => {}
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid_options("ListOptions", &causes)) }
}

/// How a change looks through a selector: entering is ADDED, leaving is DELETED.
pub(crate) fn seen_as(change: &Change, selector: &Selector) -> Option<EventType> {
    let matched = |object: &Option<Arc<Object>>| match object {
        Some(object) => selector.is_empty() || selector.matches(object.value()),
        None => false,
    };
    match (matched(&change.before), matched(&change.after)) {
        (false, false) => None,
        (false, true) => Some(EventType::Added),
        (true, true) => Some(EventType::Modified),
        (true, false) => Some(EventType::Deleted),
    }
}

/// Where a watch gets its events from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) store: Store,
    pub(crate) caches: Arc<Caches>,
    pub(crate) table: usize,
    /// How many live events may wait while nobody reads.
    pub(crate) backlog: usize,
}

/// One open watch.
pub(crate) struct Watch {
    source: Source,
    resource: Arc<Resource>,
    view: View,
    prefix: String,
    selector: Selector,
    pipe: Box<dyn WatchPipe>,
    news: tokio::sync::watch::Receiver<u64>,
    life: tokio::sync::watch::Receiver<Life>,
    /// The process, and the definition of the type, that the watch belongs to.
    born: (u64, u64),
    phase: Phase,
    bookmarks: bool,
    /// The next bookmark is the early one of a watch from the present, which only comes after live events.
    early: bool,
    /// Live events were sent.
    stirred: bool,
    next_bookmark: Instant,
    deadline: Instant,
    /// When the next change arrives at this server, if one is on its way.
    arrival: Option<Instant>,
    alarm: std::pin::Pin<Box<Sleep>>,
}

enum Phase {
    /// Nothing was sent yet.
    Opening(Start, bool),
    /// Sends what comes after this revision.
    Following(u64),
    /// An ERROR is on its way.
    Failing,
    /// Too much was waiting: what is in the pipe is the last that comes.
    Dropped,
    /// The connection breaks.
    Broken,
    /// Nothing more will come.
    Over,
}

impl Watch {
    pub(crate) fn new(
        source: Source,
        view: View,
        namespace: &str,
        selector: Selector,
        options: &Options,
        expired: bool,
        pipe: Box<dyn WatchPipe>,
    ) -> Watch {
        let history = source.store.lock();
        let table = &history.tables[source.table];
        let resource = table.resource.clone();
        let news = table.subscribe();
        let mut life = source.caches.life();
        let born = (life.borrow_and_update().number, table.epoch());
        // "Now" is when the request came, not when somebody first reads the body.
        let start = match options.start {
            Start::Now => Start::After(history.revision()),
            Start::State { not_older_than: None, streaming } => {
                Start::State { not_older_than: Some(history.revision()), streaming }
            }
            other => other,
        };
        drop(history);
        let now = Instant::now();
        let deadline = now + options.timeout;
        let early = matches!(start, Start::State { streaming: false, .. });
        let bookmarks = options.bookmarks && !uncached(&resource);
        let first = now + if early { FIRST_BOOKMARK } else { BOOKMARK_PERIOD };
        let next_bookmark = if bookmarks { first } else { deadline };
        let mut watch = Watch {
            source,
            view,
            prefix: prefix(&resource, namespace),
            resource,
            selector,
            pipe,
            news,
            life,
            born,
            phase: Phase::Opening(start, options.marker),
            bookmarks,
            early,
            stirred: false,
            next_bookmark,
            deadline,
            arrival: None,
            alarm: Box::pin(sleep_until(next_bookmark.min(deadline))),
        };
        if let (true, Start::After(revision)) = (expired, start) {
            let current = watch.source.store.revision();
            watch.fail(&ApiError::expired(format!("too old resource version: {revision} ({current})")));
        }
        watch
    }

    /// The lines of the stream, one event each.
    pub(crate) fn lines(self) -> impl Stream<Item = Result<Bytes, Lost>> + Send {
        // Boxed, since the stream moves it with every line.
        stream::unfold(Box::new(self), |mut watch| async move { Some((watch.next().await?, watch)) })
    }

    async fn next(&mut self) -> Option<Result<Bytes, Lost>> {
        if let Phase::Opening(start, marker) = self.phase {
            self.open(start, marker).await;
        }
        loop {
            match self.phase {
                Phase::Over => return None,
                Phase::Broken => {
                    self.phase = Phase::Over;
                    return Some(Err(Lost));
                }
                _ => {}
            }
            let life = *self.life.borrow_and_update();
            if life.number != self.born.0 || life.stage == Stage::Dead {
                self.phase = Phase::Broken;
                continue;
            }
            if let Stage::Stopping(ends) = life.stage {
                // Not a word more, and a clean end.
                tokio::select! {
                    () = sleep_until(ends.min(self.deadline)) => self.phase = Phase::Over,
                    _ = self.life.changed() => {}
                }
                continue;
            }
            // What is ready goes first: nothing that is read now could overtake it.
            if let Poll::Ready(handed) = poll_fn(|cx| Poll::Ready(self.pipe.poll_next(cx))).await {
                if let Some(line) = self.hand_over(handed) {
                    return Some(line);
                }
                continue;
            }
            if matches!(self.phase, Phase::Dropped) {
                self.phase = Phase::Over;
                continue;
            }
            self.news.borrow_and_update();
            self.follow();
            if matches!(self.phase, Phase::Dropped) {
                continue;
            }
            self.set_alarm();
            let Watch { pipe, news, life, alarm, .. } = self;
            tokio::select! {
                biased;
                handed = poll_fn(|cx| pipe.poll_next(cx)) => {
                    if let Some(line) = self.hand_over(handed) {
                        return Some(line);
                    }
                }
                _ = news.changed() => {}
                _ = life.changed() => {}
                () = alarm => self.ring(),
            }
        }
    }

    fn hand_over(&mut self, handed: Handed) -> Option<Result<Bytes, Lost>> {
        match handed {
            Handed::Item(item) => {
                if item.kind == EventType::Error {
                    self.phase = Phase::Over;
                }
                Some(Ok(item.line))
            }
            Handed::End => {
                self.phase = Phase::Over;
                None
            }
            Handed::Reset => {
                self.phase = Phase::Broken;
                None
            }
            Handed::Torn(item) => {
                self.phase = Phase::Broken;
                Some(Ok(item.line.slice(..item.line.len() / 2)))
            }
        }
    }

    /// Sends what the stream starts with.
    async fn open(&mut self, start: Start, marker: bool) {
        let Source { store, caches, table, .. } = &self.source;
        let revision = match start {
            Start::State { not_older_than, .. } => {
                let asked = not_older_than.unwrap_or(0);
                if !uncached(&self.resource) && !reached(store, caches, *table, asked).await {
                    let current = store.revision();
                    return self.fail(&ApiError::future_revision(asked, current));
                }
                self.present()
            }
            Start::After(revision) => {
                let mut history = store.lock();
                if uncached(&self.resource) {
                    let oldest = history.compacted();
                    drop(history);
                    if revision < oldest {
                        let text = "The resourceVersion for the provided watch is too old.";
                        return self.fail(&ApiError::expired(text));
                    }
                } else {
                    let oldest = caches.window(&mut history, *table);
                    drop(history);
                    if revision < oldest {
                        let text = format!("too old resource version: {revision} ({oldest})");
                        return self.fail(&ApiError::expired(text));
                    }
                }
                revision
            }
            Start::Now => unreachable!("replaced by a revision when the watch was made"),
        };
        self.phase = Phase::Following(revision);
        if marker {
            self.bookmark(true, revision);
        }
        // What was stored before the watch began is a replay, and no measure of how fast its client reads.
        self.send_changes(usize::MAX);
    }

    /// Sends the present objects, as this server has them. Returns the revision of that state.
    fn present(&mut self) -> u64 {
        let Source { store, caches, table, .. } = &self.source;
        let history = store.lock();
        let prefix = &self.prefix;
        let t = &history.tables[*table];
        let upto = if uncached(&self.resource) { u64::MAX } else { caches.seen(&history, *table).upto };
        let older;
        let state = if upto < t.latest() {
            older = t.at(upto);
            &older
        } else {
            &t.live
        };
        for (key, object) in state.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(prefix)) {
            if self.selector.is_empty() || self.selector.matches(object.value()) {
                let form = object.form(&self.resource, self.view);
                self.pipe.send(WatchItem {
                    kind: EventType::Added,
                    object: key.rsplit('/').next().unwrap_or_default().to_owned(),
                    revision: object.revision,
                    value: Shown::of(object, self.view),
                    line: form.line(EventType::Added),
                });
            }
        }
        if upto < t.latest() { upto } else { history.revision() }
    }

    /// Sends the changes that have arrived since. A client that has left too many unread is given up.
    fn follow(&mut self) {
        if !self.send_changes(self.source.backlog) {
            self.phase = Phase::Dropped;
        }
    }

    /// False: there are more than `most`.
    fn send_changes(&mut self, most: usize) -> bool {
        let Phase::Following(revision) = self.phase else { return true };
        let mut latest = revision;
        let mut sent = 0;
        let Source { store, caches, table, .. } = &self.source;
        let history = store.lock();
        let t = &history.tables[*table];
        if self.born.1 < t.over() {
            // The type was defined anew.
            self.phase = Phase::Dropped;
            return true;
        }
        let seen = caches.seen(&history, *table);
        let (upto, next) = if uncached(&self.resource) { (u64::MAX, None) } else { (seen.upto, seen.next) };
        self.arrival = next;
        for change in t.since(revision).take_while(|change| change.revision <= upto) {
            latest = change.revision;
            if !change.key.starts_with(&self.prefix) {
                continue;
            }
            let Some(kind) = seen_as(change, &self.selector) else { continue };
            if sent == most {
                return false;
            }
            sent += 1;
            let subject = change.subject(&self.resource, kind);
            self.stirred = true;
            self.pipe.send(WatchItem {
                kind,
                object: change.name().to_owned(),
                revision: change.revision,
                line: change.line(&self.resource, kind, self.view),
                value: Shown::of(subject, self.view),
            });
        }
        self.phase = Phase::Following(latest);
        true
    }

    fn set_alarm(&mut self) {
        let at = self.next_bookmark.min(self.deadline).min(self.arrival.unwrap_or(self.deadline));
        if self.alarm.deadline() != at {
            self.alarm.as_mut().reset(at);
        }
    }

    /// A bookmark is due, or the end.
    fn ring(&mut self) {
        let now = Instant::now();
        if now >= self.deadline {
            self.phase = Phase::Over;
            return;
        }
        if self.bookmarks && now >= self.next_bookmark {
            if !self.early || self.stirred {
                self.follow();
                if let Some(complete) = self.complete() {
                    self.bookmark(false, complete);
                }
            }
            self.early = false;
            let last = self.deadline - LAST_BOOKMARK;
            self.next_bookmark = now + BOOKMARK_PERIOD;
            if now < last && last < self.next_bookmark {
                self.next_bookmark = last;
            }
        }
    }

    /// A revision up to which the stream is complete. `None` before the revision that it starts from.
    fn complete(&self) -> Option<u64> {
        let Phase::Following(sent) = self.phase else { return None };
        let Source { store, caches, table, .. } = &self.source;
        let history = store.lock();
        let behind = caches.seen(&history, *table).upto < history.tables[*table].latest();
        let complete = if behind || history.tables[*table].latest() > sent { sent } else { history.revision() };
        (complete >= sent).then_some(complete)
    }

    fn bookmark(&mut self, marker: bool, revision: u64) {
        // Everything up to this revision went into the pipe before the bookmark does.
        let Phase::Following(_) = self.phase else { return };
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if marker {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.view.metadata_only {
            true => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            false => (&*self.resource.kind, self.resource.api_version(self.view.version)),
        };
        let mut value = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        if uncached(&self.resource) && !self.view.metadata_only {
            // An empty Event has members that are never left out.
            value["involvedObject"] = json!({});
            value["source"] = json!({});
            for time in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                value[time] = Value::Null;
            }
            value["reportingComponent"] = "".into();
            value["reportingInstance"] = "".into();
        }
        self.send(EventType::Bookmark, revision, value);
    }

    fn fail(&mut self, error: &ApiError) {
        let status = error.status.as_deref().cloned().unwrap_or(Value::Null);
        self.phase = Phase::Failing;
        self.send(EventType::Error, 0, status);
    }

    fn send(&mut self, kind: EventType, revision: u64, value: Value) {
        let line = event_line(kind, value.to_string().as_bytes());
        self.pipe.send(WatchItem { kind, object: String::new(), revision, value: value.into(), line });
    }
}

#[cfg(test)]
mod tests;
