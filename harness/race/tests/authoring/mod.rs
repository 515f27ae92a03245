//! What the command line does for those who write scenarios, and how it prints.
use serde_json::{Value, json};

use super::{File, ended, json as lines, one, program, toy};

#[path = "../support/json_schema.rs"]
mod json_schema;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("colours are for terminals, --color decides otherwise", colours),
    ("with --quiet nothing is said of what holds", quiet),
    ("a failure fits on a screen, with a column for each host", a_failure_fits_on_a_screen),
    ("every --json line fits the printed schema", json_lines_fit_the_schema),
    ("the schema of scenarios knows exactly the keys that the parser knows", schema_knows_the_keys),
    ("the schema of scenarios fits the built-in ones and refuses what the parser refuses", schema_fits_scenarios),
    ("new writes a scenario that passes check and runs on both sides", new_scenario),
    ("check tells what a scenario does in vain", check_lints),
    ("fmt brings a file into its usual form, once and for all", fmt_files),
    ("completions and manual pages name every command", completions_and_man),
    ("the scenario target lists, filters and runs as libtest does", libtest_options),
];

fn schema(what: &str) -> Value {
    let (code, out, err) = toy(&["schema", what]);
    assert_eq!((code, err.as_str()), (0, ""), "{what}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

fn colours() {
    let escape = '\x1b';
    let (code, out, _) = toy(&["run", "fresh-read", "--color", "always"]);
    assert_eq!((code, out.contains(escape)), (0, true), "{out:?}");
    let plain = out.replace("\x1b[32m", "").replace("\x1b[2m", "").replace("\x1b[0m", "");
    assert!(plain.starts_with("holds            fresh-read "), "{plain:?}");
    for how in ["never", "auto"] {
        assert!(!toy(&["--color", how, "run", "lost-reply", "--as-reported"]).1.contains(escape), "{how}");
    }
    // Asked for by name, colours come even with NO_COLOR.
    let mut command = program(&["run", "fresh-read", "--color", "always"]);
    assert!(ended(command.env("NO_COLOR", "1").output().expect("it starts")).1.contains(escape));
    let (code, _, err) = toy(&["run", "no-such", "--color", "always"]);
    assert_eq!((code, err.contains(escape)), (2, true), "{err:?}");
    assert!(!toy(&["run", "no-such"]).2.contains(escape));
    assert!(toy(&["run", "--color", "sometimes"]).2.contains("expected auto, always or never"));
}

fn quiet() {
    assert_eq!(toy(&["run", "--quiet"]), (0, String::new(), String::new()));
    assert_eq!(toy(&["run", "lossy-line", "--seeds", "1..5", "-q"]), (0, String::new(), String::new()));
    let (code, out, _) = toy(&["run", "fresh-read", "lost-reply", "--as-reported", "-q"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("violated         lost-reply ") && !out.contains("holds"), "{out}");
    assert_eq!(toy(&["run", "--quiet", "--json"]).0, 2);
}

fn a_failure_fits_on_a_screen() {
    for args in [
        &["run", "lost-reply", "--as-reported"][..],
        &["run", "lossy-line", "--as-reported", "--seed", "1"],
        &["run", "fresh-read", "--with", "stale-get"],
    ] {
        let (code, out, _) = toy(args);
        assert_eq!(code, 1, "{args:?}");
        assert!(out.lines().count() <= photofinish::report::LINES, "{out}");
        assert!(out.lines().any(|l| l.starts_with("!          0  ")), "the violation is at zero:\n{out}");
        assert!(out.lines().any(|l| l.trim_start().starts_with("client")), "a column for the client:\n{out}");
        assert!(out.lines().last().is_some_and(|l| l.starts_with("  replay: ")), "{out}");
    }
}

fn json_lines_fit_the_schema() {
    let schema = schema("runs");
    let many = [
        &["run", "--json"][..],
        &["run", "--as-reported", "--json"],
        &["run", "lossy-line", "--seeds", "1..3", "--json"],
    ];
    for args in many.into_iter().chain([&["run", "lost-reply", "--as-reported", "--json", "--trace"][..]]) {
        for line in lines(&toy(args).1) {
            assert_eq!(json_schema::errors(&schema, &line), Vec::<String>::new(), "{args:?}: {line}");
            // What a schema does not name nobody can rely on.
            for field in line.as_object().expect("an object").keys() {
                assert!(schema["properties"].get(field).is_some(), "the schema says nothing of `{field}`");
            }
        }
    }
    let (_, mut line) = one(&["run", "fresh-read"]);
    line["outcome"] = json!("fine");
    assert_eq!(json_schema::errors(&schema, &line).len(), 1, "the test can fail");
}

const BASE: &str =
    "scenario: x\nsummary: A test.\nsteps:\n  - set: 1\n  - await: {reply: set}\ncheck: [set-succeeds]\n";

fn schema_knows_the_keys() {
    let schema = schema("scenario");
    let mut keys: Vec<&String> = schema["properties"].as_object().expect("a map").keys().collect();
    keys.sort_unstable();
    let file = File::new("x", &format!("{BASE}zzz: 1\n"));
    let (code, _, err) = toy(&["check", file.path()]);
    assert_eq!(code, 2);
    // The parser names all keys that it asks for, on one line or on two, which may part a key at its hyphen.
    let joined = err.lines().fold(String::new(), |told, line| match told.ends_with('-') {
        true => told + line.trim(),
        false => told + " " + line.trim(),
    });
    let told: String = joined.chars().map(|c| if c.is_ascii_lowercase() || c == '-' { c } else { ' ' }).collect();
    let told: Vec<&str> = told.split_whitespace().skip_while(|w| *w != "known").skip(1).collect();
    assert_eq!(told, keys, "{err}");
}

fn schema_fits_scenarios() {
    use photofinish::scenario::yaml::Node;
    use photofinish::system::System;
    let schema = schema("scenario");
    let errors = |text: &str| json_schema::errors(&schema, &Node::read(text).expect("YAML").json());
    for builtin in toy::TOY.scenarios() {
        assert_eq!(errors(builtin.text), Vec::<String>::new(), "{}", builtin.path);
    }
    assert_eq!(errors(BASE), Vec::<String>::new());
    for (from, to) in [
        ("set: 1", "sett: 1"),
        ("set: 1", "set: 1\n    get: value"),
        ("summary:", "sumary:"),
        ("set-succeeds", "set-suceeds"),
        ("summary:", "cluster: {speed: fsat}\nsummary:"),
        ("check:", "fails-without: [{off: [retyr], violates: [set-succeeds]}]\ncheck:"),
        ("check:", "fails-with: {mutant: retry, violates: [set-succeeds]}\ncheck:"),
        ("check:", "env: {nobody: {A: b}}\ncheck:"),
        ("scenario: x", "scenario: X"),
    ] {
        let text = BASE.replacen(from, to, 1);
        assert!(!errors(&text).is_empty(), "{to}");
        let file = File::new("x", &text);
        assert_eq!(toy(&["run", file.path()]).0, 2, "{to}");
    }
}

fn new_scenario() {
    let folder = File::new("folder", "");
    let path = folder.0.with_file_name("my-own-race.yaml");
    let path = path.to_str().expect("text");
    let (code, out, err) = toy(&["new", path]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains(&format!("photofinish run {path}")), "{out}");
    let text = std::fs::read_to_string(path).expect("a file");
    assert!(text.contains("\nscenario: my-own-race\n") && text.contains("#   set: NUMBER\n"), "{text}");
    assert_eq!(toy(&["check", path]).0, 0);
    assert_eq!(toy(&["run", path]).0, 0);
    assert_eq!(toy(&["run", path, "--as-reported"]).0, 1);
    let (code, _, err) = toy(&["new", path]);
    assert_eq!((code, err.contains("is there already")), (2, true), "never over another: {err}");
    assert_eq!(toy(&["new", "My Race"]).0, 2);
}

fn check_lints() {
    let red = "fails-without: [{off: [retry], violates: [set-succeeds]}]\n";
    for (steps, says) in [
        ("- set: 1\n  - await: {reply: set}\n  - run: 0s", "lets no time pass"),
        ("- hold: {link: client->server, as: x}\n  - release: x\n  - set: 1", "holds nothing yet"),
        ("- slow: {call: client/GET, by: 0s}\n  - set: 1", "no step before this one begins"),
        ("- set: 1\n  - await: {reply: set}\n  - crash: server", "nothing runs behind this `crash`"),
    ] {
        let file = File::new("x", &format!("{}{red}", BASE.replacen("- set: 1\n  - await: {reply: set}", steps, 1)));
        let (code, out, err) = toy(&["check", file.path()]);
        assert_eq!((code, out.as_str()), (2, ""), "{steps}");
        assert!(err.contains(says), "{says:?} in:\n{err}");
    }
    let file = File::new("x", &format!("{BASE}{red}"));
    assert_eq!(toy(&["check", "--quiet", file.path()]), (0, String::new(), String::new()));
}

fn fmt_files() {
    let text = "summary:  A test.\nscenario: x   \ncheck: [ set-succeeds ]\n\n\n# why\nsteps:\n- { set: 1 }  # first\n";
    let file = File::new("x", text);
    let (code, out, _) = toy(&["fmt", "--check", file.path()]);
    assert_eq!((code, out), (1, format!("not in the usual form: {}\n", file.path())));
    assert_eq!(std::fs::read_to_string(&file.0).expect("text"), text, "--check writes nothing");
    assert_eq!(toy(&["fmt", file.path()]).0, 0);
    let expected = "scenario: x\nsummary:  A test.\n\n# why\nsteps:\n  - {set: 1}  # first\ncheck: [set-succeeds]\n";
    assert_eq!(std::fs::read_to_string(&file.0).expect("text"), expected);
    assert_eq!(toy(&["fmt", "--check", file.path()]), (0, String::new(), String::new()));
    let wrong = File::new("x", "a: [\n");
    assert_eq!(toy(&["fmt", wrong.path()]).0, 2);
    assert_eq!(toy(&["fmt", "not/there.yaml"]).0, 2);
}

fn completions_and_man() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, out, err) = toy(&["completions", shell]);
        assert_eq!((code, err.as_str()), (0, ""), "{shell}");
        for command in ["replay", "sweep", "schema"] {
            assert!(out.contains(command), "{shell}: {command}");
        }
    }
    assert_eq!(toy(&["completions", "tcsh"]).0, 2);
    let (code, out, _) = toy(&["man"]);
    assert_eq!((code, out.contains("photofinish") && out.contains(".SH")), (0, true), "{out}");
    let (code, out, _) = toy(&["man", "run"]);
    assert_eq!((code, out.contains("seeds")), (0, true), "{out}");
    assert!(toy(&["man", "rnu"]).2.contains("did you mean `run`?"));
}

/// The scenario target of the toy, as `cargo test` or nextest calls it.
fn target(args: &[&str]) -> (i32, String, String) {
    ended(program(args).env("TOY_PROGRAM", "target").output().expect("the program starts"))
}

fn libtest_options() {
    let (code, all, _) = target(&["--list", "--format", "terse"]);
    let names: Vec<&str> = all.lines().map(|l| l.strip_suffix(": test").unwrap_or_else(|| panic!("{l:?}"))).collect();
    assert_eq!(code, 0);
    for name in ["lost-reply", "lost-reply::as-reported", "lost-reply@slow", "fresh-read::fails-with::stale-get"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    // nextest asks for the ignored ones apart: there are none.
    assert_eq!(target(&["--list", "--format", "terse", "--ignored"]), (0, String::new(), String::new()));
    // One test a process, as nextest does it.
    let (code, out, _) = target(&["--exact", "lost-reply", "--nocapture"]);
    assert_eq!((code, out.contains("1 passed; 0 failed")), (0, true), "{out}");
    let (code, out, _) = target(&["lost-reply::", "--skip", "closed-by"]);
    assert_eq!((code, out.contains("1 passed; 0 failed")), (0, true), "{out}");
    let (code, out, _) = target(&["--exact", "lost"]);
    assert_eq!((code, out.contains("0 passed; 0 failed")), (0, true), "{out}");
}
