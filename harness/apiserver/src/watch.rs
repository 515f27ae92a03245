//! Watches: where a stream starts, which changes it shows, and its life as the body of a response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::error::{ApiError, Cause};
use crate::history::{Change, EventType, event_line};
use crate::hooks::{WatchItem, WatchPipe};
use crate::list::bad_revision;
use crate::object::{Object, View};
use crate::request::Query;
use crate::resource::Resource;
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
    /// With the present objects, in a state that is not older.
    State { not_older_than: u64, streaming: bool },
    /// With what comes after now.
    Now,
    /// With what came after that revision.
    After(u64),
}

/// A watch without `timeoutSeconds` lives between one and two times this long on a stock server.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
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
        let revision = match asked {
            "" => 0,
            text => text.parse::<u64>().map_err(|_| ApiError::internal(bad_revision(text)))?,
        };
        let bookmarks = query.flag("allowWatchBookmarks");
        let start = match (initial, revision) {
            (Some(true), _) => Start::State { not_older_than: revision, streaming: true },
            (None, 0) => Start::State { not_older_than: 0, streaming: false },
            (Some(false), 0) => Start::Now,
            (_, revision) => Start::After(revision),
        };
        Ok(Options {
            marker: bookmarks && matches!(start, Start::State { .. }),
            start,
            bookmarks,
            timeout: timeout.map_or(DEFAULT_TIMEOUT, |seconds| Duration::from_secs(seconds.unsigned_abs())),
        })
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
pub(crate) fn seen(change: &Change, selector: &Selector) -> Option<EventType> {
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

/// One open watch.
pub(crate) struct Watch {
    store: Store,
    table: usize,
    resource: Arc<Resource>,
    view: View,
    prefix: String,
    selector: Selector,
    pipe: Box<dyn WatchPipe>,
    news: tokio::sync::watch::Receiver<u64>,
    phase: Phase,
    bookmarks: bool,
    /// The next bookmark is the early one of a watch from the present, which only comes after live events.
    early: bool,
    /// Live events were sent.
    stirred: bool,
    next_bookmark: Instant,
    deadline: Instant,
    alarm: std::pin::Pin<Box<Sleep>>,
}

enum Phase {
    /// Nothing was sent yet.
    Opening(Start, bool),
    /// Sends what comes after this revision.
    Following(u64),
    /// An ERROR is on its way.
    Failing,
    /// Nothing more will come.
    Over,
}

impl Watch {
    pub(crate) fn new(
        store: Store,
        table: usize,
        view: View,
        namespace: &str,
        selector: Selector,
        options: &Options,
        pipe: Box<dyn WatchPipe>,
    ) -> Watch {
        let history = store.lock();
        let resource = history.tables[table].resource.clone();
        let news = history.tables[table].subscribe();
        // "Now" is when the request came, not when somebody first reads the body.
        let start = match options.start {
            Start::Now => Start::After(history.revision()),
            other => other,
        };
        drop(history);
        let now = Instant::now();
        let deadline = now + options.timeout;
        let early = matches!(start, Start::State { streaming: false, .. });
        let first = now + if early { FIRST_BOOKMARK } else { BOOKMARK_PERIOD };
        let next_bookmark = if options.bookmarks { first } else { deadline };
        Watch {
            store,
            table,
            view,
            prefix: prefix(&resource, namespace),
            resource,
            selector,
            pipe,
            news,
            phase: Phase::Opening(start, options.marker),
            bookmarks: options.bookmarks,
            early,
            stirred: false,
            next_bookmark,
            deadline,
            alarm: Box::pin(sleep_until(next_bookmark.min(deadline))),
        }
    }

    /// The lines of the stream, one event each.
    pub(crate) fn lines(self) -> impl Stream<Item = Bytes> + Send {
        // Boxed, since the stream moves it with every line.
        stream::unfold(Box::new(self), |mut watch| async move { Some((watch.next().await?, watch)) })
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Phase::Opening(start, marker) = self.phase {
            self.open(start, marker).await;
        }
        loop {
            if matches!(self.phase, Phase::Over) {
                return None;
            }
            // What is ready goes first: nothing that is read now could overtake it.
            if let Poll::Ready(item) = poll_fn(|cx| Poll::Ready(self.pipe.poll_next(cx))).await {
                return Some(self.hand_over(item));
            }
            self.news.borrow_and_update();
            self.follow();
            let Watch { pipe, news, alarm, .. } = self;
            tokio::select! {
                biased;
                item = poll_fn(|cx| pipe.poll_next(cx)) => return Some(self.hand_over(item)),
                _ = news.changed() => {}
                () = alarm => self.ring(),
            }
        }
    }

    fn hand_over(&mut self, item: WatchItem) -> Bytes {
        if item.kind == EventType::Error {
            self.phase = Phase::Over;
        }
        item.line
    }

    /// Sends what the stream starts with.
    async fn open(&mut self, start: Start, marker: bool) {
        let revision = match start {
            Start::State { not_older_than, .. } => {
                if !reached(&self.store, not_older_than).await {
                    let current = self.store.revision();
                    return self.fail(&ApiError::future_revision(not_older_than, current));
                }
                self.present()
            }
            Start::After(revision) => {
                let oldest = self.store.lock().window();
                if revision < oldest {
                    let text = format!("too old resource version: {revision} ({oldest})");
                    return self.fail(&ApiError::expired(text));
                }
                revision
            }
            Start::Now => unreachable!("replaced by a revision when the watch was made"),
        };
        self.phase = Phase::Following(revision);
        if marker {
            self.bookmark(true);
        }
    }

    /// Sends the present objects. Returns the revision at which they were read.
    fn present(&mut self) -> u64 {
        let history = self.store.lock();
        let prefix = &self.prefix;
        let table = &history.tables[self.table];
        for (_, object) in table.live.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(prefix)) {
            if self.selector.is_empty() || self.selector.matches(object.value()) {
                let form = object.form(&self.resource, self.view);
                self.pipe.send(WatchItem {
                    kind: EventType::Added,
                    object: object.name().to_owned(),
                    revision: object.revision,
                    value: form.value().clone(),
                    line: event_line(EventType::Added, form.json()),
                });
            }
        }
        history.revision()
    }

    /// Sends the changes that were made since.
    fn follow(&mut self) {
        let Phase::Following(revision) = self.phase else { return };
        let mut latest = revision;
        let history = self.store.lock();
        for change in history.tables[self.table].since(revision) {
            latest = change.revision;
            if !change.key.starts_with(&self.prefix) {
                continue;
            }
            let Some(kind) = seen(change, &self.selector) else { continue };
            let subject = change.subject(&self.resource, kind);
            self.stirred = true;
            self.pipe.send(WatchItem {
                kind,
                object: subject.name().to_owned(),
                revision: change.revision,
                value: subject.form(&self.resource, self.view).value().clone(),
                line: change.line(&self.resource, kind, self.view),
            });
        }
        self.phase = Phase::Following(latest);
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
                self.bookmark(false);
            }
            self.early = false;
            let last = self.deadline - LAST_BOOKMARK;
            self.next_bookmark = now + BOOKMARK_PERIOD;
            if now < last && last < self.next_bookmark {
                self.next_bookmark = last;
            }
        }
        let at = self.next_bookmark.min(self.deadline);
        self.alarm.as_mut().reset(at);
    }

    fn bookmark(&mut self, marker: bool) {
        // Everything up to this revision went into the pipe before the bookmark does.
        let Phase::Following(_) = self.phase else { return };
        let revision = self.store.revision();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if marker {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.view.metadata_only {
            true => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            false => (&*self.resource.kind, self.resource.api_version(self.view.version)),
        };
        let value = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        self.send(EventType::Bookmark, revision, value);
    }

    fn fail(&mut self, error: &ApiError) {
        let status = error.status.as_deref().cloned().unwrap_or(Value::Null);
        self.phase = Phase::Failing;
        self.send(EventType::Error, 0, status);
    }

    fn send(&mut self, kind: EventType, revision: u64, value: Value) {
        let line = event_line(kind, value.to_string().as_bytes());
        self.pipe.send(WatchItem { kind, object: String::new(), revision, value: Arc::new(value), line });
    }
}

/// Waits for a revision, as long as a real server would.
pub(crate) async fn reached(store: &Store, revision: u64) -> bool {
    if revision <= store.revision() {
        return true;
    }
    sleep(FRESH_WITHIN).await;
    revision <= store.revision()
}
