//! `scenarios/scenario.schema.json` is what the program prints, and every scenario file fits it and names it.
use crate::json_schema;
use photofinish::scenario::yaml::Node;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How editors find the schema.
const MODELINE: &str = "# yaml-language-server: $schema=scenario.schema.json";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn printed() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_photofinish")).args(["schema", "scenario"]).output();
    String::from_utf8(output.expect("it starts").stdout).expect("text")
}

#[test]
fn the_schema_beside_the_scenarios_is_the_programs() {
    let path = folder().join("scenario.schema.json");
    let made = printed();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &made).expect("the schema");
    }
    let kept = std::fs::read_to_string(&path).expect("scenarios/scenario.schema.json");
    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert!(json(&kept) == json(&made), "the program prints another schema: run this test with BLESS=1");
}

#[test]
fn every_scenario_file_fits_the_schema_and_names_it() {
    let schema = serde_json::from_str(&printed()).expect("JSON");
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).expect("scenarios/") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        files += 1;
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(text.lines().next(), Some(MODELINE), "{}", path.display());
        let value = Node::read(&text).expect("YAML").json();
        assert_eq!(json_schema::errors(&schema, &value), Vec::<String>::new(), "{}", path.display());
    }
    assert!(files > 20, "{files} files");
}

#[test]
fn every_scenario_file_passes_check_and_is_in_the_usual_form() {
    let files = std::fs::read_dir(folder()).expect("scenarios/").map(|entry| entry.expect("an entry").path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    for args in [&["check", "--quiet"][..], &["fmt", "--check"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_photofinish")).args(args).args(&files).output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}
