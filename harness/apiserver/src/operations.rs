//! The verbs, each from a routed request to an answer.

mod apply;
mod scale;
mod subresources;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::cache::Caches;
use crate::delete::{self, Deletion};
use crate::error::{ApiError, Cause};
use crate::history::History;
use crate::hooks::Hooks;
use crate::list;
use crate::object::{Object, View, show};
use crate::ownership::{Author, manager_of};
use crate::patch::PatchKind;
use crate::request::{Place, Query, Verb};
use crate::resource::{Held, Resource};
use crate::response::Body;
use crate::selector::Selector;
use crate::store::{Store, position};
use crate::write::{self, Part, Subject, Updated, Way};
use crate::{body, clock, pods, protobuf, table, typed};

/// What a request comes to.
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) body: Body,
    /// The revision that the request made.
    pub(crate) revision: Option<u64>,
}

impl Answer {
    pub(crate) fn bytes(code: StatusCode, bytes: Bytes, revision: Option<u64>) -> Answer {
        Answer { code, body: Body::full(bytes), revision }
    }

    fn status(code: StatusCode, status: &Value, revision: Option<u64>) -> Answer {
        Answer::bytes(code, status.to_string().into(), revision)
    }
}

/// A request whose path led to a resource.
pub(crate) struct Operation<'a> {
    pub(crate) store: &'a Store,
    pub(crate) caches: &'a Arc<Caches>,
    /// How many live events may wait for a watch that is not read.
    pub(crate) backlog: usize,
    pub(crate) hooks: &'a dyn Hooks,
    pub(crate) client: &'a str,
    pub(crate) table: usize,
    pub(crate) resource: &'a Resource,
    pub(crate) version: usize,
    pub(crate) place: Place<'a>,
    pub(crate) query: &'a Query,
    pub(crate) body: &'a [u8],
    pub(crate) accept: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) user_agent: &'a str,
    /// What the answer will warn of, found on the way.
    pub(crate) warnings: Mutex<Vec<String>>,
}

impl<'a> Operation<'a> {
    pub(crate) async fn run(&self, verb: Verb) -> Result<Answer, ApiError> {
        self.check_media(verb)?;
        self.check_options(verb)?;
        match self.resource.held {
            Held::Nothing if matches!(verb, Verb::Create | Verb::Update | Verb::Patch) => {
                return Err(ApiError::unsupported(format_args!("writes of {}", self.resource.qualified())));
            }
            Held::Unknown => {
                return Err(ApiError::unsupported(format_args!("the resource {}", self.resource.qualified())));
            }
            Held::Objects | Held::Nothing => {}
        }
        match (self.place.subresource, verb) {
            (None, Verb::Get) => self.get().await,
            (None, Verb::List) => self.list().await,
            (_, Verb::Watch) => self.watch(),
            (None, Verb::Create) if self.place.name.is_some() && !self.resource.custom => {
                Err(ApiError::method_not_allowed())
            }
            (None, Verb::Create) => self.create(),
            (None, Verb::Update | Verb::Patch) => self.update(verb, Part::Main),
            (None, Verb::Delete) => self.delete(),
            (None, Verb::DeleteCollection) => self.delete_collection(),
            (Some("status"), verb) if self.resource.has_status => match verb {
                Verb::Get => self.get().await,
                Verb::Update | Verb::Patch => self.update(verb, Part::Status),
                _ => Err(self.not_allowed(verb)),
            },
            (Some("scale"), verb) if let Some(paths) = self.resource.scale(self.version) => self.scale(verb, paths),
            (Some("eviction"), Verb::Create) if pods::graceful(self.resource) => self.evict(),
            (Some("binding"), verb) if pods::graceful(self.resource) => match verb {
                Verb::Create => self.bind(),
                _ => Err(ApiError::method_not_allowed()),
            },
            (Some("finalize"), Verb::Update) if self.is_namespace() => self.finalize(),
            (Some("token"), Verb::Create) if self.is_core("serviceaccounts") => self.token(),
            (Some("ephemeralcontainers"), verb) if pods::graceful(self.resource) => match verb {
                Verb::Get => self.get().await,
                Verb::Update | Verb::Patch => self.update(verb, Part::EphemeralContainers),
                _ => Err(ApiError::method_not_allowed()),
            },
            (Some("resize"), verb) if pods::graceful(self.resource) => match verb {
                Verb::Get => self.get().await,
                Verb::Update | Verb::Patch => self.update(verb, Part::Resize),
                _ => Err(ApiError::method_not_allowed()),
            },
            (Some("log"), Verb::Get) if pods::graceful(self.resource) => self.log(),
            (Some("attach" | "exec" | "portforward" | "proxy"), _) if pods::graceful(self.resource) => self.connect(),
            (Some(other), _) => self.no_subresource(other),
        }
    }

    /// 405, which custom resources word by verb.
    fn not_allowed(&self, verb: Verb) -> ApiError {
        if self.resource.custom {
            ApiError::not_supported_on(self.resource, verb.as_str())
        } else {
            ApiError::method_not_allowed()
        }
    }

    fn no_subresource(&self, name: &str) -> Result<Answer, ApiError> {
        let known = match &*self.resource.plural {
            "services" | "nodes" => &["proxy"][..],
            _ => &[][..],
        };
        Err(if known.contains(&name) {
            ApiError::unsupported(format_args!("the subresource {}/{name}", self.resource.plural))
        } else if self.resource.custom {
            ApiError::not_found(self.resource, self.name())
        } else {
            ApiError::no_such_resource()
        })
    }

    fn is_core(&self, plural: &str) -> bool {
        self.resource.group.is_empty() && self.resource.plural == plural
    }

    fn is_namespace(&self) -> bool {
        self.is_core("namespaces")
    }

    /// Types whose deletion answers with the object rather than with a `Status`.
    fn shows_deleted(&self) -> bool {
        let core = ["namespaces", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts", "services"];
        core.iter().any(|plural| self.is_core(plural))
    }

    pub(crate) fn namespace(&self) -> &'a str {
        self.place.namespace.unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &'a str {
        self.place.name.unwrap_or_default()
    }

    pub(crate) fn key(&self) -> String {
        self.resource.key(self.namespace(), self.name())
    }

    fn subject<'s>(&'s self, name: &'s str) -> Subject<'s> {
        let author = Author {
            manager: manager_of(self.query.text("fieldManager"), self.user_agent),
            subresource: self.place.subresource.unwrap_or_default(),
            tracked: self.store.owners,
        };
        Subject { resource: self.resource, version: self.version, namespace: self.namespace(), name, author }
    }

    /// The answer must be acceptable in a format that this server has, and a body must be in one that it reads.
    fn check_media(&self, verb: Verb) -> Result<(), ApiError> {
        let mut lacking = None;
        let accepted = self.accept.is_empty()
            || self.accept.split(',').map(str::trim).any(|media| {
                let base = media.split(';').next().unwrap_or_default().trim();
                if media.contains("as=") && !partial(media) && !table::asked(media) {
                    lacking = Some(media);
                    return false;
                }
                if base == protobuf::MEDIA {
                    if protobuf::shows(self.resource, self.version) && !table::asked(media) {
                        return true;
                    }
                    lacking.get_or_insert(media);
                }
                // Streams are never YAML.
                matches!(base, "application/json" | "*/*" | "application/*")
                    || base == "application/yaml" && verb != Verb::Watch
            });
        match (accepted, lacking) {
            (true, _) => {}
            (false, Some(protobuf::MEDIA)) => return Err(ApiError::no_protobuf()),
            (false, Some(media)) => return Err(ApiError::unsupported(format_args!("answers as {media}"))),
            (false, None) if verb == Verb::Watch && self.accept.contains("application/yaml") => {
                return Err(ApiError::no_such_stream());
            }
            (false, None) => return Err(ApiError::not_acceptable(matches!(verb, Verb::Watch | Verb::List))),
        }
        let sent = self.content_type.split(';').next().unwrap_or_default().trim();
        match (verb, sent) {
            (
                Verb::Create | Verb::Update | Verb::Delete | Verb::DeleteCollection,
                "" | "application/json" | "application/yaml" | "*/*",
            ) => Ok(()),
            (Verb::Create | Verb::Update | Verb::Delete | Verb::DeleteCollection, protobuf::MEDIA)
                if !self.body.is_empty() =>
            {
                Err(protobuf::refusal(self.resource, self.body))
            }
            (Verb::Delete | Verb::DeleteCollection, protobuf::MEDIA) => Ok(()),
            (Verb::Create | Verb::Update, _) | (Verb::Delete | Verb::DeleteCollection, "application/cbor") => Err(
                ApiError::unsupported_media("application/json, application/yaml, application/vnd.kubernetes.protobuf"),
            ),
            _ => Ok(()),
        }
    }

    /// Options that all writes share.
    fn check_options(&self, verb: Verb) -> Result<(), ApiError> {
        let kind = match verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => return Ok(()),
        };
        let mut causes = Vec::new();
        causes
            .extend(delete::bad_dry_run(&self.query.get("dryRun").map(str::to_owned).into_iter().collect::<Vec<_>>()));
        if verb == Verb::Patch && self.query.flag("force") && !self.content_type.starts_with("application/apply-patch")
        {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        causes.extend(self.bad_manager(verb));
        match self.query.text("fieldValidation") {
            "" | "Ignore" | "Strict" | "Warn" => {}
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                causes.push(Cause::unsupported("fieldValidation", format_args!("{other:?}"), &known));
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid_options(kind, &causes)) }
    }

    /// An apply needs a manager's name; any name is short and printable.
    fn bad_manager(&self, verb: Verb) -> Option<Cause> {
        const FIELD: &str = "fieldManager";
        let name = self.query.text(FIELD);
        if name.is_empty() {
            let apply = verb == Verb::Patch && self.content_type.starts_with("application/apply-patch");
            return apply.then(|| Cause::required(FIELD, "is required for apply patch"));
        }
        if name.len() > 128 {
            let message = "Too long: may not be more than 128 bytes".into();
            return Some(Cause { reason: "FieldValueTooLong", message, field: FIELD.into() });
        }
        let odd = name.char_indices().find(|(_, c)| c.is_control());
        odd.map(|_| Cause::invalid(FIELD, &name.into(), "should only contain printable characters"))
    }

    /// The body as it came.
    fn sent(&self) -> body::Sent<'a> {
        body::Sent { bytes: self.body, yaml: self.content_type.starts_with("application/yaml") }
    }

    /// The body as an object of the type.
    fn object(&self) -> Result<Value, ApiError> {
        let (object, problems) = body::object(self.resource, self.version, self.sent())?;
        self.weigh(problems, |what| body::unfit(self.resource, self.version, what))?;
        Ok(object)
    }

    /// What `fieldValidation` makes of unknown and doubled fields: nothing, warnings, or a refusal.
    fn weigh(&self, problems: Vec<String>, refusal: impl FnOnce(&str) -> ApiError) -> Result<(), ApiError> {
        match self.query.text("fieldValidation") {
            _ if problems.is_empty() => {}
            "Ignore" => {}
            "Strict" => return Err(refusal(&format!("strict decoding error: {}", problems.join(", ")))),
            _ => self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(problems),
        }
        Ok(())
    }

    fn dry_run(&self) -> bool {
        !self.query.text("dryRun").is_empty()
    }

    /// What the client asked to see.
    pub(crate) fn view(&self) -> View {
        View { version: self.version, metadata_only: wants_metadata(self.accept) }
    }

    pub(crate) fn shown(&self, object: &Object) -> Bytes {
        object.form(self.resource, self.view()).shared_json()
    }

    /// How an object would look that is not stored.
    fn shown_unstored(&self, stored: Value) -> Bytes {
        show(self.resource, self.view(), &stored).to_string().into()
    }

    pub(crate) fn selector(&self) -> Result<Selector, ApiError> {
        let (labels, fields) = (self.query.text("labelSelector"), self.query.text("fieldSelector"));
        Selector::parse(self.resource, self.version, labels, fields)
    }

    fn create(&self) -> Result<Answer, ApiError> {
        if self.resource.namespaced && self.place.namespace.is_none() {
            return Err(ApiError::method_not_allowed());
        }
        let mut sent = self.object()?;
        write::check_namespace(self.resource, self.namespace(), write::metadata_mut(&mut sent))?;
        if sent["metadata"].get("resourceVersion").is_some_and(|revision| revision != "0" && revision != "") {
            return Err(ApiError::internal("resourceVersion should not be set on objects to be created"));
        }
        self.create_in(&mut self.store.lock(), sent, Way::Whole)
    }

    fn create_in(&self, history: &mut History, mut sent: Value, way: Way) -> Result<Answer, ApiError> {
        let generated = sent["metadata"].get("name").is_none();
        let mut name = write::name(self.resource, &mut sent, clock::suffix)?;
        check_namespace_open(history, self.resource, self.namespace(), &name)?;
        if generated {
            // A real server lets a taken name fail; with 27^5 names that is as good as never.
            while history.get(self.table, &self.resource.key(self.namespace(), &name)).is_some() {
                write::metadata_mut(&mut sent).remove("name");
                name = write::name(self.resource, &mut sent, clock::suffix)?;
            }
        }
        if self.is_core("pods") {
            self.check_account(history, &name, &sent)?;
        }
        let key = self.resource.key(self.namespace(), &name);
        let stored = write::created(self.subject(&name), sent, way, clock::now(), || next_address(history))?;
        if let Some(existing) = history.get(self.table, &key) {
            let terminating = existing.value()["metadata"].get("deletionTimestamp").is_some();
            return Err(ApiError::already_exists(self.resource, &name, terminating));
        }
        if self.dry_run() {
            return Ok(Answer::bytes(StatusCode::CREATED, self.shown_unstored(stored), None));
        }
        let object = history.commit(self.table, &key, Some(stored));
        Ok(Answer::bytes(StatusCode::CREATED, self.shown(&object), Some(object.revision)))
    }

    /// A pod's ServiceAccount must be there. The `default` one is taken for granted: no controller makes it here.
    fn check_account(&self, history: &History, name: &str, pod: &Value) -> Result<(), ApiError> {
        let of = |field: &str| pod["spec"][field].as_str().filter(|account| !account.is_empty());
        let account = of("serviceAccountName").or(of("serviceAccount")).unwrap_or("default");
        let Some(table) = position(history, "serviceaccounts") else { return Ok(()) };
        let namespace = self.namespace();
        if account == "default" || history.get(table, &format!("{namespace}/{account}")).is_some() {
            return Ok(());
        }
        let why =
            format!("error looking up service account {namespace}/{account}: serviceaccount {account:?} not found");
        Err(ApiError::forbidden(self.resource, name, why, None))
    }

    /// PUT and PATCH.
    fn update(&self, verb: Verb, part: Part) -> Result<Answer, ApiError> {
        let patch = match verb {
            Verb::Patch => {
                let media = self.content_type.split(';').next().unwrap_or_default().trim();
                Some(PatchKind::of(media, self.resource.custom)?)
            }
            _ => None,
        };
        if patch == Some(PatchKind::Apply) {
            return self.apply(part);
        }
        let sent = match patch {
            None => Some(self.object()?),
            Some(_) => None,
        };
        let mut history = self.store.lock();
        let Some(existing) = history.get(self.table, &self.key()).cloned() else {
            return Err(ApiError::not_found(self.resource, self.name()));
        };
        let (incoming, way) = match (sent, patch) {
            (Some(sent), _) => (sent, Way::Whole),
            (None, Some(patch)) => {
                let current = existing.form(self.resource, self.whole()).value();
                let mut patched = patch.apply(current, self.body)?;
                body::check_metadata(self.resource, self.version, &mut patched)?;
                self.check_patched_kind(current, &patched)?;
                let refused = |why: &str| match patch.apply(current, self.body) {
                    Ok(unfit) => ApiError::unfit_patch(&typed::ordered(self.resource, current, &unfit), why),
                    Err(error) => error,
                };
                match body::fit(self.resource, self.version, &mut patched) {
                    Ok(unknown) => self.weigh(unknown, refused)?,
                    Err(misfit) => return Err(refused(&misfit.0)),
                }
                (patched, Way::Patch)
            }
            (None, None) => unreachable!("a request that is no patch has a body that was read"),
        };
        self.store_update(&mut history, &existing, incoming, part, way)
    }

    /// The whole object in the version of the request.
    fn whole(&self) -> View {
        View { version: self.version, metadata_only: false }
    }

    fn store_update(
        &self,
        history: &mut History,
        existing: &Object,
        incoming: Value,
        part: Part,
        way: Way,
    ) -> Result<Answer, ApiError> {
        let key = self.key();
        match write::updated(self.subject(self.name()), part, existing, incoming, way, clock::now())? {
            Updated::Unchanged => Ok(Answer::bytes(StatusCode::OK, self.shown(existing), None)),
            Updated::Changed(next) | Updated::Released(next) if self.dry_run() => {
                Ok(Answer::bytes(StatusCode::OK, self.shown_unstored(next), None))
            }
            Updated::Changed(next) => {
                let object = history.commit(self.table, &key, Some(next));
                Ok(Answer::bytes(StatusCode::OK, self.shown(&object), Some(object.revision)))
            }
            Updated::Released(last) => {
                let gone = history.commit(self.table, &key, None);
                Ok(Answer::bytes(StatusCode::OK, self.shown_unstored(last), Some(gone.revision)))
            }
        }
    }

    fn check_patched_kind(&self, current: &Value, patched: &Value) -> Result<(), ApiError> {
        for member in ["kind", "apiVersion"] {
            if current[member] != patched[member] {
                return Err(ApiError::bad_request(format!(
                    "the {member} of the patched object ({}) does not match the expected {member} ({})",
                    patched[member], current[member]
                )));
            }
        }
        Ok(())
    }

    fn delete(&self) -> Result<Answer, ApiError> {
        let options = delete::Options::parse(self.body, self.query)?;
        let mut history = self.store.lock();
        let key = self.key();
        let Some(existing) = history.get(self.table, &key).cloned() else {
            return Err(ApiError::not_found(self.resource, self.name()));
        };
        if self.is_namespace() && matches!(self.name(), "default" | "kube-system" | "kube-public") {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden(self.resource, self.name(), why, None));
        }
        delete::check_preconditions(self.resource, self.name(), existing.value(), &options)?;
        let plan = delete::plan(self.resource, existing.value(), &options, clock::now());
        if options.dry_run {
            let body = match plan {
                Deletion::Pending => self.shown(&existing),
                Deletion::Mark(next) | Deletion::Remove { mark: Some(next) } => self.shown_unstored(next),
                Deletion::Remove { mark: None } if self.shows_deleted() => self.shown(&existing),
                Deletion::Remove { mark: None } => self.deleted_status(&existing),
            };
            return Ok(Answer::bytes(StatusCode::OK, body, None));
        }
        let marked = matches!(plan, Deletion::Remove { mark: Some(_) });
        Ok(match carry_out(&mut history, self.table, &key, plan) {
            None => Answer::bytes(StatusCode::OK, self.shown(&existing), None),
            Some(after) if marked || history.get(self.table, &key).is_some() || self.shows_deleted() => {
                Answer::bytes(StatusCode::OK, self.shown(&after), Some(after.revision))
            }
            Some(gone) => Answer::bytes(StatusCode::OK, self.deleted_status(&existing), Some(gone.revision)),
        })
    }

    fn deleted_status(&self, object: &Object) -> Bytes {
        let mut details =
            json!({"name": object.name(), "kind": &*self.resource.plural, "uid": object.value()["metadata"]["uid"]});
        if !self.resource.group.is_empty() {
            details["group"] = Value::from(&*self.resource.group);
        }
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        status.to_string().into()
    }

    fn delete_collection(&self) -> Result<Answer, ApiError> {
        if self.resource.namespaced && self.place.namespace.is_none() {
            return Err(ApiError::method_not_allowed());
        }
        if self.is_namespace() {
            return Err(ApiError::method_not_allowed());
        }
        let options = delete::Options::parse(self.body, self.query)?;
        let selector = self.selector()?;
        let listed = list::Options::parse(&Query::default())?;
        let mut history = self.store.lock();
        let page = list::page(&history, self.table, self.caches, self.namespace(), &selector, &listed)?;
        let mut revision = None;
        if !options.dry_run {
            for object in page.items() {
                let key = self.resource.key(self.namespace(), object.name());
                delete::check_preconditions(self.resource, object.name(), object.value(), &options)?;
                let plan = delete::plan(self.resource, object.value(), &options, clock::now());
                revision = carry_out(&mut history, self.table, &key, plan).map(|after| after.revision).or(revision);
            }
        }
        Ok(Answer::bytes(StatusCode::OK, page.json(self.resource, self.view()).into(), revision))
    }
}

/// Whether a media type asks for `PartialObjectMetadata`, alone or in a list.
fn partial(media: &str) -> bool {
    media.contains("as=PartialObjectMetadata") && media.contains("g=meta.k8s.io")
}

/// Whether that is what the first acceptable media type asks for.
fn wants_metadata(accept: &str) -> bool {
    let known = |media: &&str| partial(media) || !media.contains("as=");
    accept.split(',').map(str::trim).find(known).is_some_and(partial)
}

/// Carries a deletion out. `None`: nothing to do. Otherwise the state after it, or the last state of the object.
fn carry_out(history: &mut History, table: usize, key: &str, plan: Deletion) -> Option<Arc<Object>> {
    match plan {
        Deletion::Pending => None,
        Deletion::Mark(next) => Some(history.commit(table, key, Some(next))),
        Deletion::Remove { mark } => {
            if let Some(mark) = mark {
                history.commit(table, key, Some(mark));
            }
            Some(history.commit(table, key, None))
        }
    }
}

/// Objects can only be made in a namespace that is there and stays.
fn check_namespace_open(history: &History, resource: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
    if !resource.namespaced {
        return Ok(());
    }
    let Some(namespaces) = position(history, "namespaces") else { return Ok(()) };
    let Some(object) = history.get(namespaces, namespace) else {
        return Err(ApiError::not_found(&history.tables[namespaces].resource, namespace));
    };
    if object.value()["metadata"].get("deletionTimestamp").is_none() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let causes = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    Err(ApiError::forbidden(resource, name, why, Some(causes)))
}

/// The next free address of the service range 10.0.0.0/16.
fn next_address(history: &History) -> String {
    let Some(services) = position(history, "services") else { return String::new() };
    let taken: std::collections::BTreeSet<Cow<'_, str>> = history.tables[services]
        .live
        .values()
        .filter_map(|service| service.value()["spec"]["clusterIP"].as_str().map(|ip| ip.to_owned().into()))
        .collect();
    (1u32..65_535)
        .map(|n| format!("10.0.{}.{}", n >> 8, n & 255))
        .find(|ip| !taken.contains(ip.as_str()))
        .unwrap_or_default()
}
