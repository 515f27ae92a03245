//! The whole history as an oracle reads it once a run is over, for reports.

use std::sync::Arc;

use serde_json::Value;

use crate::store::Store;

/// The state of one object from a revision on.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The revision of the write.
    pub revision: u64,
    /// Plural name of the type.
    pub resource: String,
    /// Empty for types without.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The object in its storage version; `None`: the write removed it.
    pub object: Option<Arc<Value>>,
}

impl Store {
    /// Every write that has not been compacted away, of all types, by revision.
    pub fn past(&self) -> Vec<Past> {
        let history = self.lock();
        let mut all = Vec::new();
        for table in &history.tables {
            all.extend(table.since(0).map(|change| Past {
                revision: change.revision,
                resource: table.resource.plural.to_string(),
                namespace: change.key.rsplit_once('/').map_or("", |(namespace, _)| namespace).to_owned(),
                name: change.name().to_owned(),
                object: change.after.as_ref().map(|object| object.value().clone()),
            }));
        }
        all.sort_by_key(|past| past.revision);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiServer;

    #[test]
    fn every_write_is_told_in_order_with_the_state_it_made() {
        let api = ApiServer::builder().build();
        for name in ["one", "two"] {
            api.store().create_namespace(name);
        }
        let past = api.store().past();
        let namespaces: Vec<&Past> = past.iter().filter(|p| p.resource == "namespaces").collect();
        let names: Vec<&str> = namespaces.iter().map(|p| p.name.as_str()).collect();
        assert!(names.ends_with(&["one", "two"]), "{names:?}");
        assert!(past.is_sorted_by_key(|p| p.revision));
        let last = namespaces.last().expect("two were made");
        assert_eq!(last.object.as_ref().expect("it is there")["metadata"]["name"], "two");
    }
}
