//! The verbs that only read: get, list and watch, as one server sees the history.

use http::StatusCode;
use tokio::time::{Instant, sleep};

use crate::cache::Caches;
use crate::error::ApiError;
use crate::hooks::Stream;
use crate::list::{self, At};
use crate::operations::{Answer, Operation};
use crate::resource::Resource;
use crate::response::Body;
use crate::store::Store;
use crate::watch::{self, FRESH_WITHIN, Watch};

/// Events are not kept in watch caches: whatever is asked about them, storage is asked.
pub(crate) fn uncached(resource: &Resource) -> bool {
    &*resource.plural == "events"
}

impl Operation<'_> {
    fn uncached(&self) -> bool {
        uncached(self.resource)
    }

    pub(crate) async fn get(&self) -> Result<Answer, ApiError> {
        let asked = self.query.text("resourceVersion");
        let cached = !asked.is_empty() && !self.uncached();
        if !asked.is_empty() {
            let revision: u64 = asked.parse().map_err(|_| ApiError::internal(list::bad_revision(asked)))?;
            self.wait_for(revision).await?;
        }
        let history = self.store.lock();
        let key = self.key();
        // A cache that is being filled passes single objects on to storage.
        let found = if cached && self.caches.ready(&history, self.table) {
            let seen = self.caches.seen(&history, self.table);
            history.tables[self.table].get_at(&key, seen.upto)
        } else {
            history.get(self.table, &key)
        };
        match found {
            Some(object) => Ok(Answer::bytes(StatusCode::OK, self.shown(object), None)),
            None => Err(ApiError::not_found(self.resource, self.name())),
        }
    }

    /// Waits until the server has this revision. Storage, which is asked about types without a cache, has no patience.
    async fn wait_for(&self, revision: u64) -> Result<(), ApiError> {
        if self.uncached() {
            let current = self.store.revision();
            return if revision <= current {
                Ok(())
            } else {
                Err(ApiError::future_revision_uncached(revision, current))
            };
        }
        if reached(self.store, self.caches, self.table, revision).await {
            return Ok(());
        }
        Err(ApiError::future_revision(revision, self.store.revision()))
    }

    pub(crate) async fn list(&self) -> Result<Answer, ApiError> {
        let selector = self.selector()?;
        let options = list::Options::parse(self.query)?;
        if !self.uncached() {
            let history = self.store.lock();
            // Pages and old snapshots are left to storage, everything else would be a burden on it.
            let burden = !matches!(options.at, At::Exact(_)) && (options.limit == 0 || !selector.is_empty());
            if burden && !self.caches.ready(&history, self.table) {
                return Err(ApiError::initializing());
            }
        }
        match options.at {
            At::NotOlderThan(revision) => self.wait_for(revision).await?,
            // Storage serves what the cache does not have yet.
            At::Exact(revision) if revision > self.store.revision() => self.wait_for(revision).await?,
            At::Exact(_) | At::Latest => {}
        }
        let history = self.store.lock();
        let page = list::page(&history, self.table, self.caches, self.namespace(), &selector, &options)?;
        Ok(Answer::bytes(StatusCode::OK, page.json(self.resource, self.view()).into(), None))
    }

    pub(crate) fn watch(&self) -> Result<Answer, ApiError> {
        let mut selector = self.selector()?;
        if self.place.watch
            && let Some(name) = self.place.name
        {
            selector = selector.and_name(name);
        }
        let options = watch::Options::parse(self.query)?;
        if !self.uncached() && !self.caches.ready(&self.store.lock(), self.table) {
            return Err(ApiError::initializing());
        }
        let stream = Stream { client: self.client, resource: &self.resource.plural, name: selector.name() };
        let expired = options.resumes() && self.hooks.expires(stream);
        let pipe = self.hooks.watch_stream(stream);
        let source = watch::Source {
            store: self.store.clone(),
            caches: self.caches.clone(),
            table: self.table,
            backlog: self.backlog,
        };
        let watch = Watch::new(source, self.view(), self.namespace(), selector, &options, expired, pipe);
        Ok(Answer { code: StatusCode::OK, body: Body::lines(watch.lines()), revision: None })
    }
}

/// Waits for a revision, as long as a real server would. False: it did not come.
pub(crate) async fn reached(store: &Store, caches: &Caches, table: usize, revision: u64) -> bool {
    let gives_up = Instant::now() + FRESH_WITHIN;
    loop {
        let next = {
            let history = store.lock();
            let seen = caches.seen(&history, table);
            // Whatever is not a change of this type has arrived with the change of it before.
            let complete = seen.upto >= history.tables[table].latest();
            let has = if complete { history.revision() } else { seen.upto };
            if has >= revision {
                return true;
            }
            seen.next
        };
        let now = Instant::now();
        if now >= gives_up {
            return false;
        }
        sleep(next.unwrap_or(gives_up).min(gives_up) - now).await;
    }
}
