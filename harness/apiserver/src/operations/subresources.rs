//! What subresources do besides `status`: binding and eviction of pods, finalizing of namespaces.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Operation, carry_out};
use crate::delete;
use crate::error::{ApiError, Cause};
use crate::write::{self, Part};
use crate::{budgets, clock, ownership, pods, reviews, tokens};

impl Operation<'_> {
    /// `pods/binding`.
    pub(super) fn bind(&self) -> Result<Answer, ApiError> {
        let binding: Value = serde_json::from_slice(self.body)
            .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
        let node = binding["target"]["name"].as_str().filter(|name| !name.is_empty());
        let Some(node) = node else {
            let cause = Cause::required("target.name", "");
            return Err(ApiError::invalid_as("", "Binding", self.name(), &[cause]));
        };
        let mut history = self.store.lock();
        let key = self.key();
        let Some(pod) = history.get(self.table, &key).cloned() else {
            return Err(ApiError::not_found(self.resource, self.name()));
        };
        let stored = pod.value()["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(sent) = binding["metadata"]["uid"].as_str().filter(|sent| !sent.is_empty() && *sent != stored) {
            return Err(write::wrong_uid(self.subject(self.name()), sent, stored));
        }
        let bound = pods::bound(pod.value(), self.name(), node, clock::now())?;
        let revision = (!self.dry_run()).then(|| history.commit(self.table, &key, Some(bound)).revision);
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer::status(StatusCode::CREATED, &status, revision))
    }

    /// `pods/eviction`, which a disruption budget can forbid.
    pub(super) fn evict(&self) -> Result<Answer, ApiError> {
        let sent: Value = serde_json::from_slice(self.body)
            .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
        let options = match sent.get("deleteOptions") {
            Some(options) if options.is_object() => options.to_string(),
            _ => String::new(),
        };
        let options = delete::Options::parse(options.as_bytes(), self.query)?;
        let mut history = self.store.lock();
        let key = self.key();
        let Some(pod) = history.get(self.table, &key).cloned() else {
            return Err(ApiError::not_found(self.resource, self.name()));
        };
        delete::check_preconditions(self.resource, self.name(), pod.value(), &options)?;
        budgets::take(&mut history, pod.value(), options.dry_run)?;
        let mut revision = None;
        if !options.dry_run {
            let now = clock::now();
            let marked = match pods::disrupted(pod.value(), now) {
                Some(marked) => history.commit(self.table, &key, Some(marked)),
                None => pod,
            };
            let plan = delete::plan(self.resource, marked.value(), &options, now);
            revision =
                Some(carry_out(&mut history, self.table, &key, plan).map_or(marked.revision, |after| after.revision));
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer::status(StatusCode::CREATED, &status, revision))
    }

    /// `serviceaccounts/token`.
    pub(super) fn token(&self) -> Result<Answer, ApiError> {
        let history = self.store.lock();
        let account = history.get(self.table, &self.key()).map(|account| account.value());
        let account = account.map(|account| &**account);
        let now = clock::now();
        let mut made = tokens::request(&history, account, self.resource, self.name(), self.body, now)?;
        self.own_what_was_sent(&mut made, now);
        Ok(Answer::status(StatusCode::CREATED, &made, None))
    }

    /// Ownership of a request for a token: of what was asked for, and of the time that it then lives.
    fn own_what_was_sent(&self, made: &mut Value, now: u64) {
        let sent: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let mut asked = made.clone();
        if let Some(spec) = asked["spec"].as_object_mut() {
            spec.retain(|name, value| {
                name == "expirationSeconds" || sent["spec"].get(name).is_some() && !value.is_null()
            });
        }
        let manager = ownership::manager_of(self.query.text("fieldManager"), self.user_agent);
        reviews::own(&mut asked, "token", self.store.owners.then_some(manager), now);
        if let Some(owners) = asked["metadata"].get("managedFields") {
            made["metadata"]["managedFields"] = owners.clone();
        }
    }

    /// `pods/log`, where no kubelet writes any.
    pub(super) fn log(&self) -> Result<Answer, ApiError> {
        match self.host()? {
            Some(_) => Err(ApiError::internal("no preferred addresses found; known addresses: []")),
            None => Ok(Answer::bytes(StatusCode::NO_CONTENT, Bytes::new(), None)),
        }
    }

    /// `pods/exec` and whatever else asks for a connection to the pod's kubelet, which nobody plays on the wire.
    pub(super) fn connect(&self) -> Result<Answer, ApiError> {
        match self.host()? {
            Some(_) => Err(ApiError::internal("no preferred addresses found; known addresses: []")),
            None => Err(ApiError::bad_request(format!("pod {} does not have a host assigned", self.name()))),
        }
    }

    /// The node of the pod, if it is bound.
    fn host(&self) -> Result<Option<String>, ApiError> {
        let history = self.store.lock();
        let Some(pod) = history.get(self.table, &self.key()) else {
            return Err(ApiError::not_found(self.resource, self.name()));
        };
        let node = pod.value()["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        Ok(node.map(str::to_owned))
    }

    /// `namespaces/finalize`: the namespace's own finalizers, which are in its spec.
    pub(super) fn finalize(&self) -> Result<Answer, ApiError> {
        let sent = self.object()?;
        let mut history = self.store.lock();
        let key = self.key();
        let Some(existing) = history.get(self.table, &key).cloned() else {
            return Err(ApiError::not_found(self.resource, self.name()));
        };
        let mut next = Value::clone(existing.value());
        let left = sent["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        let terminating = next["metadata"].get("deletionTimestamp").is_some();
        if left.is_empty() {
            next["spec"] = json!({});
        } else {
            next["spec"]["finalizers"] = left.clone().into();
        }
        ownership::updated(
            self.subject(self.name()).scope(Part::Main, clock::now()),
            Some(existing.value()),
            &mut next,
        );
        if next == **existing.value() {
            return Ok(Answer::bytes(StatusCode::OK, self.shown(&existing), None));
        }
        if self.dry_run() {
            return Ok(Answer::bytes(StatusCode::OK, self.shown_unstored(next), None));
        }
        if terminating && left.is_empty() && next["metadata"].get("finalizers").is_none() {
            let gone = history.commit(self.table, &key, None);
            return Ok(Answer::bytes(StatusCode::OK, self.shown_unstored(next), Some(gone.revision)));
        }
        let object = history.commit(self.table, &key, Some(next));
        Ok(Answer::bytes(StatusCode::OK, self.shown(&object), Some(object.revision)))
    }
}
