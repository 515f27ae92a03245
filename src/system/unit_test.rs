//! A unit test for a violation that comes down to one snapshot applied to one row: what `shrink --rust` prints.
use photofinish_sim::trace::{Entry, EntryId};
use std::fmt::Write;

/// The skeleton, if the entry that broke the property is a phase change by a snapshot.
pub(super) fn of(entries: &[Entry], broke: EntryId) -> Option<String> {
    let changed = entries.get(broke as usize).filter(|e| e.text.starts_with("Sandbox phase changed "))?;
    if !matches!(changed.field("by"), Some("snapshot" | "live" | "sweep")) {
        return None;
    }
    let (old, new, id) = (changed.field("old_phase")?, changed.field("new_phase")?, changed.field("sandbox_id")?);
    let before = || entries[..broke as usize].iter().rev().filter(|e| e.field("sandbox_id") == Some(id));
    let sent = before().find(|e| e.text.starts_with("snapshot sent"))?;
    let (operation, marker) = (sent.field("operation").unwrap_or(""), sent.field("bootstrap_phase").unwrap_or(""));
    let revision = sent.field("resource_version").unwrap_or("");
    let session = before().find_map(|e| match &e.text {
        text if text.starts_with("supervisor session: accepted") => Some(true),
        text if text.starts_with("supervisor session: closed") => Some(false),
        _ => None,
    });
    let word = |text: &str| if text.is_empty() { "none".to_owned() } else { text.replace('-', "_") };
    let mut test = String::new();
    let name = format!("a_snapshot_of_{}_{}_leaves_a_row_{}", word(operation), word(marker), old.to_lowercase());
    let (said, conditions) = match marker {
        "" => ("it has no bootstrap marker", r#"&[("Ready", "False", "DependenciesNotReady")]"#),
        _ => (
            "its bootstrap marker is set",
            r#"&[("Bootstrapping", "True", "SandboxRuntimeGenerationStarting"), ("Ready", "False", "DependenciesNotReady")]"#,
        ),
    };
    let lines = [
        "// For the tests of src/gateway/snapshot.rs.".to_owned(),
        "#[test]".to_owned(),
        format!("fn {name}() {{"),
        format!("    // The resource at version {revision:?}: operation {operation:?}, {said} ({marker:?})."),
        format!("    let snapshot = snapshot({conditions});"),
        format!("    let row = row({old});"),
        format!("    let cx = Context {{ session_connected: {}, ..Default::default() }};", session.unwrap_or(false)),
        format!("    assert_ne!(verdict(&row, &snapshot, &cx), Verdict::Phase({new}));"),
        "}".to_owned(),
    ];
    lines.iter().for_each(|line| writeln!(test, "{line}").expect("a text takes everything"));
    Some(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, fields: &[(&'static str, &str)]) -> Entry {
        let fields = fields.iter().map(|(k, v)| ((*k).into(), (*v).to_owned())).collect();
        let (host, kind, name) = ("gateway".into(), "log".into(), "info".into());
        Entry { id: 0, at_ns: 0, host, kind, name, text: text.into(), fields, spans: vec![], cause: None }
    }

    #[test]
    fn a_change_by_a_snapshot_is_a_row_a_snapshot_and_an_expectation() {
        let of_demo = ("sandbox_id", "id");
        let entries = |by| {
            [
                entry("supervisor session: closed", &[of_demo]),
                entry(
                    "snapshot sent x",
                    &[of_demo, ("operation", "stop"), ("bootstrap_phase", "suspending"), ("resource_version", "31")],
                ),
                entry("snapshot sent y", &[("sandbox_id", "other"), ("operation", "create")]),
                entry(
                    "Sandbox phase changed z",
                    &[of_demo, ("old_phase", "Stopped"), ("new_phase", "Provisioning"), ("by", by)],
                ),
            ]
        };
        let test = of(&entries("snapshot"), 3).expect("a test");
        for line in [
            "fn a_snapshot_of_stop_suspending_leaves_a_row_stopped() {",
            "let row = row(Stopped);",
            "session_connected: false",
            "Verdict::Phase(Provisioning));",
            "The resource at version \"31\": operation \"stop\"",
        ] {
            assert!(test.contains(line), "{line} in:\n{test}");
        }
        assert_eq!(of(&entries("rpc"), 3), None, "a request did it");
        assert_eq!(of(&entries("snapshot"), 1), None, "it is no change of a row");
    }
}
