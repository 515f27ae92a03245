//! The part of JSONPath that printer columns use: members, indices, `[*]`, and filters by equality.

use serde_json::Value;

/// The values that a path finds.
pub(super) fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps(path) {
        found = found.into_iter().flat_map(|value| step.take(value)).collect();
    }
    found
}

#[derive(Debug, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    All,
    /// `[?(@.path==value)]`; the second is true for `!=`.
    Where(String, bool, String),
    Nothing,
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let elements = || value.as_array().map(|list| list.iter().collect::<Vec<_>>()).unwrap_or_default();
        match self {
            Step::Member(name) => value.get(name).into_iter().collect(),
            Step::Index(at) => {
                let list = elements();
                let at = if *at < 0 { *at + list.len() as i64 } else { *at };
                usize::try_from(at).ok().and_then(|at| list.get(at).copied()).into_iter().collect()
            }
            Step::All => match value {
                Value::Object(map) => map.values().collect(),
                _ => elements(),
            },
            Step::Where(path, not, wanted) => {
                let fits = |element: &&Value| find(element, path).iter().any(|v| text(v) == *wanted) != *not;
                elements().into_iter().filter(fits).collect()
            }
            Step::Nothing => Vec::new(),
        }
    }
}

/// A value as it stands in a cell.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn steps(path: &str) -> Vec<Step> {
    let path = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let Some(end) = closing(inner) else {
                steps.push(Step::Nothing);
                break;
            };
            steps.push(bracket(inner[..end].trim()));
            rest = &inner[end + 1..];
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let (mut name, mut end) = (String::new(), rest.len());
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        rest = &rest[end..];
        match name.as_str() {
            "" => {}
            "*" => steps.push(Step::All),
            _ => steps.push(Step::Member(name)),
        }
    }
    steps
}

/// Where the bracket closes that was opened before the text; brackets in quotes do not count.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Step {
    let unquoted = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    if inner == "*" {
        return Step::All;
    }
    if let Ok(index) = inner.parse() {
        return Step::Index(index);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        for (sign, not) in [("==", false), ("!=", true)] {
            if let Some((path, value)) = filter.split_once(sign) {
                return Step::Where(path.trim().trim_start_matches('@').to_owned(), not, unquoted(value));
            }
        }
        return Step::Nothing;
    }
    if inner.starts_with(['"', '\'']) { Step::Member(unquoted(inner)) } else { Step::Nothing }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_what_the_table_says() {
        let object = json!({
            "spec": {"replicas": 3, "list": [{"n": "a"}, {"n": "b"}]},
            "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
        });
        let table: [(&str, &[&str]); 10] = [
            (".spec.replicas", &["3"]),
            ("{.spec.replicas}", &["3"]),
            (".spec.list[0].n", &["a"]),
            (".spec.list[-1].n", &["b"]),
            (".spec.list[*].n", &["a", "b"]),
            (".metadata.labels['a.b/c']", &["x"]),
            (".metadata.labels.a\\.b/c", &["x"]),
            (".status.conditions[?(@.type==\"Ready\")].status", &["True"]),
            (".status.conditions[?(@.type!='Ready')].status", &["False"]),
            (".spec.nothing[0].here", &[]),
        ];
        for (path, expected) in table {
            let found: Vec<String> = find(&object, path).into_iter().map(text).collect();
            assert_eq!(found, expected, "{path}");
        }
    }
}
