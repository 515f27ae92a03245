//! Server-side apply: a configuration becomes a create or an update.

use serde_json::Value;

use super::{Answer, Operation};
use crate::error::ApiError;
use crate::write::{self, Part, Way};
use crate::{body, clock, ownership, yaml};

impl Operation<'_> {
    /// A PATCH with an apply patch.
    pub(super) fn apply(&self, part: Part) -> Result<Answer, ApiError> {
        let mut config = self.configuration()?;
        let unfit = |what: &str| {
            let (namespace, name) = (self.namespace(), self.name());
            let api_version = self.resource.api_version(self.version);
            let group = if api_version.contains('/') { api_version } else { format!("/{api_version}") };
            ApiError::internal(format!(
                "failed to create typed patch object ({namespace}/{name}; {group}, Kind={}): {what}",
                self.resource.kind
            ))
        };
        let unknown = body::fit(self.resource, self.version, &mut config).map_err(|misfit| unfit(&misfit.0))?;
        match unknown.first().filter(|_| !self.resource.custom) {
            Some(first) => {
                let field = first.trim_start_matches("unknown field ").trim_matches('"');
                return Err(unfit(&format!(".{field}: field not declared in schema")));
            }
            None => self.weigh(unknown, |what| ApiError::unfit_patch(&config.to_string(), what))?,
        }
        let force = self.query.flag("force");
        let now = clock::now();
        let scope = self.subject(self.name()).scope(part, now);
        let mut history = self.store.lock();
        let existing = history.get(self.table, &self.key()).cloned();
        let Some(existing) = existing else {
            if part == Part::Status {
                return Err(ApiError::not_found(self.resource, self.name()));
            }
            let made = ownership::applied(scope, None, &config, force)?;
            let made = self.checked(made)?;
            return self.create_in(&mut history, made, Way::Apply);
        };
        let live = existing.form(self.resource, self.whole()).value();
        let next = ownership::applied(scope, Some(live), &config, force)?;
        let next = self.checked(next)?;
        self.store_update(&mut history, &existing, next, part, Way::Apply)
    }

    /// The body, which is YAML or JSON, and says what type it is.
    fn configuration(&self) -> Result<Value, ApiError> {
        let config: Value = match serde_json::from_slice(self.body) {
            Ok(config) => config,
            Err(_) => {
                let text = String::from_utf8_lossy(self.body);
                yaml::parse(&text).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?
            }
        };
        let text = |key: &str| config[key].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != self.resource.api_version(self.version) || kind != self.resource.kind {
            // A group and a version, where the core group has no name.
            let shown = match api_version {
                "" => "/".to_owned(),
                core if !core.contains('/') => format!("/{core}"),
                other => other.to_owned(),
            };
            return Err(ApiError::bad_request(format!("invalid object type: {shown}, Kind={kind}")));
        }
        Ok(config)
    }

    /// The merged object has the identity of the path, and what all rules rely on.
    fn checked(&self, mut object: Value) -> Result<Value, ApiError> {
        body::check_metadata(self.resource, self.version, &mut object)?;
        let metadata = write::metadata_mut(&mut object);
        match metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) {
            Some(name) if name != self.name() => {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    self.name()
                )));
            }
            _ => metadata.insert("name".into(), self.name().into()),
        };
        write::check_namespace(self.resource, self.namespace(), metadata)?;
        Ok(object)
    }
}
