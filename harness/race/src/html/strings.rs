//! Each text of a page once: entries name the same hosts, paths and ids over and over.
use indexmap::IndexSet;
use serde::{Serialize, Serializer};

/// Texts by number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Strings(IndexSet<String>);

impl Strings {
    /// The number of this text.
    pub(super) fn number(&mut self, text: &str) -> usize {
        match self.0.get_index_of(text) {
            Some(number) => number,
            None => self.0.insert_full(text.to_owned()).0,
        }
    }
}

impl Serialize for Strings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_has_the_same_number() {
        let mut strings = Strings::default();
        assert_eq!(["a", "b", "a", ""].map(|text| strings.number(text)), [0, 1, 0, 2]);
        assert_eq!(serde_json::to_string(&strings).expect("strings"), r#"["a","b",""]"#);
    }
}
