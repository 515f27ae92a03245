//! Pruning: members that the schema does not name are dropped.

use serde_json::Value;

use super::{Path, Schema};

impl Schema {
    /// Drops unknown members of a whole object, and returns where they were, in the order of the object.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        self.prune_at(object, &Path::Root, true, &mut unknown);
        unknown
    }

    /// Drops unknown members of a value, and says whether there were any.
    pub(super) fn prune_part(&self, value: &mut Value) -> bool {
        let mut unknown = Vec::new();
        self.prune_at(value, &Path::Root, false, &mut unknown);
        !unknown.is_empty()
    }

    fn prune_at(&self, value: &mut Value, path: &Path<'_>, whole: bool, unknown: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                let named = whole || self.embedded;
                let typed = |name: &str| named && matches!(name, "apiVersion" | "kind" | "metadata");
                if !self.preserve && self.additional.is_none() {
                    map.retain(|name, _| {
                        let known = self.properties.contains_key(name) || typed(name);
                        if !known {
                            unknown.push(path.member(name).to_string());
                        }
                        known
                    });
                }
                if self.properties.is_empty() && self.additional.is_none() {
                    return;
                }
                for (name, value) in map.iter_mut() {
                    if whole && typed(name) {
                        continue;
                    }
                    if let Some(schema) = self.member(name) {
                        schema.prune_at(value, &path.member(name), false, unknown);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for (at, value) in list.iter_mut().enumerate() {
                    items.prune_at(value, &path.element(at), false, unknown);
                }
            }
            _ => {}
        }
    }
}
