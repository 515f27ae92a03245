//! Defaults: absent members get the values that the schema gives them.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Fills in defaults, from the outside in: an object that a default made gets the defaults inside of it too.
    pub(crate) fn fill(&self, value: &mut Value) {
        if !self.fills {
            return;
        }
        match value {
            Value::Object(map) => {
                for (name, schema) in self.properties.iter().filter(|(_, s)| s.fills || s.default.is_some()) {
                    if let Some(default) = &schema.default {
                        match map.get(name) {
                            None => {
                                map.insert(name.clone(), default.clone());
                            }
                            // Null stands for absent where it is no value.
                            Some(Value::Null) if !schema.nullable => {
                                map.insert(name.clone(), default.clone());
                            }
                            Some(_) => {}
                        }
                    }
                    if let Some(value) = map.get_mut(name) {
                        schema.fill(value);
                    }
                }
                if let Some(additional) = &self.additional {
                    for (name, value) in map.iter_mut() {
                        if !self.properties.contains_key(name) {
                            additional.fill(value);
                        }
                    }
                }
            }
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    list.iter_mut().for_each(|value| items.fill(value));
                }
            }
            _ => {}
        }
    }
}
