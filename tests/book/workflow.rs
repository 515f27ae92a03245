//! `docs/ci/github.yml` is a workflow: its form is as GitHub documents it ("Workflow syntax for GitHub Actions"), and the
//! program takes the options that it uses.
use std::path::Path;
use std::process::Command;

use photofinish::scenario::yaml::Node;
use serde_json::Value;

fn workflow() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ci/github.yml");
    let text = std::fs::read_to_string(path).expect("docs/ci/github.yml");
    Node::read(&text).expect("YAML").json()
}

fn keys(of: &Value) -> Vec<&str> {
    of.as_object().expect("a mapping").keys().map(String::as_str).collect()
}

/// Are all keys among these?
fn known(of: &Value, what: &str, known: &[&str]) {
    for key in keys(of) {
        assert!(known.contains(&key), "{what} has no key `{key}`");
    }
}

/// All steps, each with the name of its job.
fn steps(workflow: &Value) -> Vec<(String, Value)> {
    let jobs = workflow["jobs"].as_object().expect("jobs");
    let of = |(name, job): (&String, &Value)| {
        let steps = job["steps"].as_array().unwrap_or_else(|| panic!("{name} has steps"));
        steps.iter().map(|step| (name.clone(), step.clone())).collect::<Vec<_>>()
    };
    jobs.iter().flat_map(of).collect()
}

#[test]
fn the_workflow_has_the_form_that_github_documents() {
    let workflow = workflow();
    known(&workflow, "a workflow", &["name", "on", "permissions", "env", "concurrency", "defaults", "jobs"]);
    known(&workflow["on"], "`on`", &["pull_request", "push", "schedule", "workflow_dispatch"]);
    for entry in workflow["on"]["schedule"].as_array().expect("a list of times") {
        assert_eq!(entry["cron"].as_str().map(|cron| cron.split(' ').count()), Some(5), "{entry}");
    }
    for (name, job) in workflow["jobs"].as_object().expect("jobs") {
        known(
            job,
            name,
            &["name", "if", "needs", "runs-on", "timeout-minutes", "strategy", "env", "steps", "permissions"],
        );
        assert!(job["runs-on"].as_str().is_some_and(|image| image.starts_with("ubuntu-")), "{name}: Linux is needed");
    }
    let steps = steps(&workflow);
    assert!(steps.len() > 6, "{steps:?}");
    for (job, step) in &steps {
        known(
            step,
            &format!("a step of {job}"),
            &["name", "id", "if", "uses", "with", "run", "env", "working-directory"],
        );
        let (uses, runs) = (step["uses"].as_str(), step["run"].as_str());
        assert!(uses.is_some() != runs.is_some(), "{job}: a step uses an action or runs a command: {step}");
        assert!(uses.is_none_or(|action| action.contains('/') && action.contains("@v")), "{job}: {step}");
    }
}

#[test]
fn the_program_takes_the_options_that_the_workflow_gives() {
    let mut ran = 0;
    for (job, step) in steps(&workflow()) {
        let Some(args) = step["run"].as_str().and_then(|run| run.strip_prefix("target/release/photofinish ")) else {
            continue;
        };
        // What GitHub fills in is a number.
        let mut words = args.to_owned();
        while let Some((before, after)) = words.clone().split_once("${{") {
            let (_, after) = after.split_once("}}").expect("an expression is closed");
            words = format!("{before}1{after}");
        }
        // With --help behind them the options are read, and nothing is run.
        let help =
            Command::new(env!("CARGO_BIN_EXE_photofinish")).args(words.split_whitespace()).arg("--help").output();
        let help = help.expect("it starts");
        let said = String::from_utf8_lossy(&help.stderr).into_owned();
        assert_eq!((help.status.code(), said.as_str()), (Some(0), ""), "{job}: {args}");
        ran += 1;
    }
    assert!(ran >= 2, "the workflow runs the program");
}
