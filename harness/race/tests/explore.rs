//! The commands that explore, end to end, with the toy system: started with `TOY_PROGRAM` set, this test is the program.
mod toy;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

fn main() -> ExitCode {
    if photofinish_sim::zygote::inside() || std::env::var_os("TOY_PROGRAM").is_some() {
        return photofinish::cli::main(&toy::TOY);
    }
    let tests: &[(&str, fn())] = &[
        ("choices lists each choice of the benign run with its alternatives", choices_lists_each_choice),
        ("a sweep groups what fails, and each printed run id replays", a_sweep_groups_what_fails),
        ("with --json a sweep has one line a run and a summary", a_sweep_ends_with_a_summary),
        ("a sweep that finds nothing says what that shows", a_sweep_that_finds_nothing),
        ("what failed is remembered and replayed first", what_failed_is_remembered),
        ("a corrupt remembered run is told, set aside, and not fatal", a_corrupt_remembered_run),
        ("shards of a sweep merge to the whole", shards_merge),
        ("a full disk for --out is told, and nothing found is lost", a_full_disk_for_out),
        ("Ctrl-C ends a sweep early and keeps what is there", an_interrupt_keeps_what_is_there),
        ("a sweep's time ends it", time_ends_a_sweep),
        ("shrink leaves the pins that matter and says the cause", shrink_leaves_what_matters),
        (
            "a shrunk run is written as a scenario that fails in the same way and holds by default",
            a_scenario_is_written,
        ),
        ("what a scenario cannot say is told, and no file is written", what_cannot_be_written),
        ("exhaust runs every alternative and certifies the list", exhaust_certifies),
        ("what exhaust leaves out shows the same as what it is like", what_is_left_out_is_audited),
        ("an audit sees that two failures are not alike", an_audit_sees_a_difference),
        ("exhaust counts schedules without running them", exhaust_counts),
        ("exhaust takes several scenarios, and says which have no certificate", exhaust_takes_several),
        ("SIGTERM, as Ctrl-C, ends exhaust without a certificate", an_interrupt_ends_exhaust),
        ("exhaust refuses more schedules than its budget, with their number", exhaust_refuses),
        ("flake-rate counts failing seeds as reported, with each remedy, and by default", flake_rates_are_counted),
        ("prove-determinism runs each id twice and shows where two runs part", determinism_is_proven),
        ("diff shows where a failing run parts from the nearest one that holds", diff_shows_the_parting),
        ("explain shows the causes of a violation", explain_shows_the_causes),
        ("explain --when shows after which entry a failure is certain", explain_shows_the_moment),
        ("each strategy has ids that replay", strategies_replay),
        ("pins still apply after an unrelated change, or it is told which are gone", pins_survive_a_change),
        ("a scenario may have its cluster drawn, and its ids name it", clusters_are_drawn),
        ("time-to-bug measures the strategies on what the script does not do by hand", time_to_bug_is_measured),
        ("bad input is exit code 2 and says what was expected", bad_input),
    ];
    let trials = tests.iter().map(|(name, test)| {
        let test = *test;
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// A folder of its own for a test, that goes with the value: commands run in it and remember there.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("photofinish-explore-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(args).env("TOY_PROGRAM", "1").env_remove("NO_COLOR").current_dir(&self.0);
        command
    }
    /// What the program did: exit code, standard output, standard error.
    fn toy(&self, args: &[&str]) -> (i32, String, String) {
        ended(self.command(args).output().expect("the program starts"))
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

fn json(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The program's arguments of a command that it printed.
fn replayed_id(out: &str) -> String {
    let at = out.find(" replay 'pf1:").unwrap_or_else(|| panic!("a replay command in:\n{out}"));
    out[at..].split('\'').nth(1).expect("a quoted id").to_owned()
}

fn remembered(folder: &Folder) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder.path(".photofinish")).map(|files| files.flatten().map(|f| f.path()).collect());
    let mut files: Vec<PathBuf> = files.unwrap_or_default();
    files.sort();
    files
}

fn choices_lists_each_choice() {
    let folder = Folder::new("choices");
    let (code, out, err) = folder.toy(&["choices", "lossy-line"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("lose/server/reply#1=no | yes  lost-reply, always"), "{out}");
    assert!(out.ends_with("lossy-line: 3 choices, 3 alternatives\n"), "{out}");
    let (code, out, _) = folder.toy(&["choices", "lossy-line", "--json"]);
    let lines = json(&out);
    assert_eq!((code, lines.len()), (0, 3));
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(line["key"], format!("lose/server/reply#{}", n + 1));
        assert_eq!(
            (&line["default"], &line["alternatives"][0], &line["legality"]),
            (&"no".into(), &"yes".into(), &"always".into())
        );
        assert!(line["at_ns"].as_u64().is_some_and(|at| at > 0) && line["contract"].is_string(), "{line}");
    }
}

const FAILING: [&str; 5] = ["sweep", "lossy-line", "--as-reported", "--seeds", "120"];

fn a_sweep_groups_what_fails() {
    let folder = Folder::new("groups");
    let (code, out, err) = folder.toy(&FAILING);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(out.contains("violated set-succeeds of client  lossy-line  ["), "{out}");
    assert!(out.contains(" of 120 runs ("), "{out}");
    assert!(out.contains("clean runs for 95 % confidence; first in run "), "{out}");
    assert!(out.contains("]\n  the set got code 14\n  found in "), "each says what went wrong: {out}");
    assert!(out.contains("\n120 runs in "), "{out}");
    let id = replayed_id(&out);
    assert!(id.starts_with("pf1:lossy-line:as-reported:w="), "{id}");
    let (code, out, _) = folder.toy(&["replay", &id, "--json"]);
    let run = json(&out).remove(0);
    assert_eq!((code, &run["property"]), (1, &"set-succeeds".into()), "{run}");
    assert_eq!(run["run_id"].as_str(), Some(id.as_str()));
    // A plain seed draws the same as `run` does.
    let folder = Folder::new("plain");
    let (code, out, _) = folder.toy(&["sweep", "lossy-line", "--as-reported", "--seeds", "1", "--strategy", "plain"]);
    assert_eq!((code, replayed_id(&out).as_str()), (1, "pf1:lossy-line:as-reported:s=1:"), "{out}");
}

fn a_sweep_ends_with_a_summary() {
    let folder = Folder::new("summary");
    let (code, out, _) = folder.toy(&[&FAILING[..], &["--json", "--jobs", "1"]].concat());
    let mut lines = json(&out);
    let summary = lines.pop().expect("a line");
    assert_eq!((code, lines.len()), (1, 120));
    let violated: Vec<&Value> = lines.iter().filter(|l| l["outcome"] == "violated").collect();
    assert_eq!((&summary["summary"], &summary["runs"]), (&"sweep".into(), &120.into()), "{summary}");
    assert_eq!(summary["violations"], violated.len());
    assert!(summary["seconds"].as_f64().is_some_and(|s| s > 0.0) && summary["ended"].is_null(), "{summary}");
    let finding = &summary["findings"][0];
    assert_eq!(finding["fingerprint"], violated[0]["fingerprint"]);
    let at = lines.iter().position(|l| l["outcome"] == "violated").expect("one") + 1;
    assert_eq!(finding["found_after_runs"], at);
    assert!(finding["found_after_seconds"].is_number() && finding["property"] == "set-succeeds", "{finding}");
    assert!(lines.iter().any(|l| l["run_id"] == finding["run_id"]), "{finding}");
}

fn a_sweep_that_finds_nothing() {
    let folder = Folder::new("nothing");
    let (code, out, err) = folder.toy(&["sweep", "lossy-line", "--seeds", "30", "--from", "100"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for says in [
        "\nfound in 0 of 30 runs: with 95 % confidence in less than 10.00 % (rule of three)\n",
        " choices of the benign runs were not as usual at least once\n",
    ] {
        assert!(out.contains(says), "{out}");
    }
    assert!(remembered(&folder).is_empty());
}

fn what_failed_is_remembered() {
    let folder = Folder::new("remembered");
    assert_eq!(folder.toy(&FAILING).0, 1);
    let files = remembered(&folder);
    assert!(!files.is_empty() && files.iter().all(|f| f.extension().is_some_and(|e| e == "json")), "{files:?}");
    let (code, out, _) =
        folder.toy(&["sweep", "lossy-line", "--as-reported", "--seeds", "1", "--from", "100000", "--json"]);
    let lines = json(&out);
    let kept: Value = serde_json::from_slice(&std::fs::read(&files[0]).expect("a file")).expect("JSON");
    assert_eq!((code, &lines[0]["run_id"]), (1, &kept["run_id"]), "{out}");
    let summary = lines.last().expect("a line");
    assert_eq!((&summary["replayed"], &summary["runs"]), (&files.len().into(), &(files.len() + 1).into()), "{summary}");
    // With the remedies it is replayed as well, and holds.
    let (code, out, _) = folder.toy(&["sweep", "lossy-line", "--seeds", "1", "--json"]);
    let lines = json(&out);
    assert_eq!((code, &lines[0]["outcome"]), (0, &"holds".into()), "{out}");
    assert_eq!(lines[0]["run_id"], kept["run_id"].as_str().expect("an id").replace("as-reported", ""));
    // Other scenarios have nothing to do with it.
    let (_, out, _) = folder.toy(&["sweep", "fresh-read", "--seeds", "1", "--json"]);
    assert_eq!(json(&out).last().expect("a line")["replayed"], 0);
}

fn a_corrupt_remembered_run() {
    let folder = Folder::new("corrupt");
    std::fs::create_dir_all(folder.path(".photofinish")).expect("a folder");
    std::fs::write(folder.path(".photofinish/x.json"), "{\"v\": 1, \"run").expect("a file");
    let sweep = ["sweep", "lossy-line", "--seeds", "1"];
    let (code, out, err) = folder.toy(&sweep);
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("x.json cannot be read: ") && err.contains("set aside as .photofinish/x.corrupt"), "{err}");
    assert_eq!(remembered(&folder), [folder.path(".photofinish/x.corrupt")]);
    assert_eq!(folder.toy(&sweep).2, "");
}

fn shards_merge() {
    let folder = Folder::new("shards");
    let ids = |out: &Path| -> Vec<String> {
        let mut ids: Vec<String> = json(&std::fs::read_to_string(out).expect("a file"))
            .iter()
            .map(|l| l["run_id"].as_str().expect("an id").to_owned())
            .collect();
        ids.sort();
        ids
    };
    for shard in ["1/2", "2/2"] {
        let out = ["--seeds", "5", "--shard", shard, "--out", "parts.jsonl"];
        assert_eq!(folder.toy(&[&["sweep", "lossy-line"], &out[..]].concat()).0, 0);
    }
    assert_eq!(folder.toy(&["sweep", "lossy-line", "--seeds", "5", "--out", "whole.jsonl"]).0, 0);
    let whole = ids(&folder.path("whole.jsonl"));
    assert_eq!(whole.len(), 5);
    assert_eq!(ids(&folder.path("parts.jsonl")), whole);
}

fn a_full_disk_for_out() {
    let folder = Folder::new("full");
    let (code, out, err) = folder.toy(&[&FAILING[..], &["--out", "/dev/full"]].concat());
    assert_eq!(code, 3, "{out}{err}");
    assert!(err.contains("error: /dev/full takes no more lines: No space left on device"), "{err}");
    assert_eq!(err.lines().count(), 1, "told once: {err}");
    assert!(out.contains("violated set-succeeds of client") && out.contains("\n120 runs in "), "{out}");
}

fn an_interrupt_keeps_what_is_there() {
    let folder = Folder::new("interrupt");
    let args = ["sweep", "lossy-line", "--as-reported", "--time", "1h", "--json"];
    let mut process = folder.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let mut all: Vec<String> = Vec::new();
    while !all.last().is_some_and(|line| line.contains("\"violated\"")) {
        all.push(lines.next().expect("a run"));
    }
    // SAFETY: sends a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(process.id() as i32, libc::SIGINT) }, 0);
    all.extend(lines);
    assert_eq!(process.wait().expect("it ends").code(), Some(1));
    let summary = json(&all.join("\n")).pop().expect("a line");
    assert_eq!((&summary["ended"], &summary["runs"]), (&"interrupted".into(), &(all.len() - 1).into()), "{summary}");
    assert_eq!(summary["findings"][0]["property"], "set-succeeds");
    assert!(!remembered(&folder).is_empty());
}

fn time_ends_a_sweep() {
    let folder = Folder::new("time");
    // How many seeds a second holds, and so whether one of them fails, is the machine's affair.
    let (code, out, err) = folder.toy(&["sweep", "lossy-line", "--time", "1s"]);
    assert!(code <= 1 && err.is_empty(), "{code} {out}{err}");
    assert!(out.contains("; the time is over\n"), "{out}");
}

const LOST: &str = "pf1:lossy-line:as-reported:benign:lose/server/reply#2=yes";

fn shrink_leaves_what_matters() {
    let folder = Folder::new("shrink");
    let (_, out, _) = folder.toy(&FAILING);
    let (code, out, err) = folder.toy(&["shrink", &replayed_id(&out)]);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(
        out.contains(", 1 left after ")
            && out.contains("set-succeeds fails on client because the choice lose/server/reply#"),
        "{out}"
    );
    let id = replayed_id(&out);
    assert!(id.starts_with("pf1:lossy-line:as-reported:benign:lose/server/reply#") && !id.contains(','), "{id}");
    assert_eq!(folder.toy(&["replay", &id]).0, 1);
    // What has no part in it is taken away.
    let more = format!("{LOST},lose/server/reply#3=yes");
    let (code, out, _) = folder.toy(&["shrink", &more, "--json"]);
    let line = json(&out).remove(0);
    assert_eq!(
        (code, line["run_id"].as_str(), &line["pins"], &line["choices"]),
        (1, Some(LOST), &1.into(), &2.into()),
        "{line}"
    );
}

fn a_scenario_is_written() {
    let folder = Folder::new("written");
    let (code, out, err) = folder.toy(&["shrink", LOST, "--scenario", "new.yaml"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("new.yaml fails in the same way, and holds by default"), "{err}");
    let text = std::fs::read_to_string(folder.path("new.yaml")).expect("a file");
    assert!(
        text.contains("scenario: lossy-line-shrunk\n")
            && text.contains("  - pin: {lose/server/reply#2: yes} # the choice"),
        "{text}"
    );
    assert!(text.contains("fails-without:\n  - {off: [proposed], violates: [set-succeeds]}\n"), "{text}");
    assert!(!text.contains("failing-seeds"), "{text}");
    let first = "# yaml-language-server: $schema=scenario.schema.json\n# Shrunk from a run that failed: pf1:";
    assert!(text.starts_with(first), "editors know its words: {text}");
    assert_eq!(folder.toy(&["fmt", "--check", "new.yaml"]), (0, String::new(), String::new()), "{text}");
    assert_eq!(folder.toy(&["check", "new.yaml"]).0, 0, "{text}");
    assert_eq!(folder.toy(&["run", "new.yaml"]).0, 0);
    let (code, out, _) = folder.toy(&["run", "new.yaml", "--as-reported", "--json"]);
    assert_eq!((code, &json(&out)[0]["property"]), (1, &"set-succeeds".into()));
    let (code, _, err) = folder.toy(&["shrink", LOST, "--scenario", "new.yaml"]);
    assert!(code == 2 && err.contains("there is a file already"), "{err}");
}

fn what_cannot_be_written() {
    let folder = Folder::new("unwritten");
    // It fails by a mutant and a remedy at once.
    let id = "pf1:fresh-read:+patience,+stale-get:benign:";
    let (code, out, err) = folder.toy(&["shrink", id, "--scenario", "new.yaml"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("without any fault, by the script alone"), "{out}");
    assert!(err.contains("cannot be written as a scenario: it needs `patience` and `stale-get` switched on"), "{err}");
    assert!(!folder.path("new.yaml").exists());
}

fn exhaust_certifies() {
    let folder = Folder::new("exhaust");
    let certificate = |args: &[&str]| {
        let (code, out, err) = folder.toy(&[&["exhaust", "lossy-line", "--json"], args].concat());
        assert_eq!(err, "");
        (code, json(&out).pop().expect("a line"))
    };
    let (code, one) = certificate(&["--as-reported"]);
    assert_eq!(code, 1, "{one}");
    let counts =
        |c: &Value| ["choice_points", "schedules", "pruned", "violations"].map(|k| c[k].as_u64().expect("a number"));
    assert_eq!(counts(&one), [3, 4, 0, 2], "either set may lose its reply: {one}");
    assert_eq!((&one["complete"], &one["findings"][0]["property"]), (&true.into(), &"set-succeeds".into()));
    let (code, fixed) = certificate(&[]);
    assert_eq!((code, counts(&fixed), &fixed["list_hash"]), (0, [3, 4, 0, 0], &one["list_hash"]));
    let (_, two) = certificate(&["--as-reported", "--faults", "2"]);
    assert_eq!(counts(&two)[..2], [3, 7]);
    assert_ne!(two["list_hash"], one["list_hash"]);
    let (code, out, _) = folder.toy(&["exhaust", "lossy-line"]);
    let expected = format!(
        "certificate: all 4 schedules of list {} were run, 0 violated, 0 of them a property of the system\n",
        one["list_hash"].as_str().expect("text")
    );
    assert!(code == 0 && out.ends_with(&expected), "{out}");
    assert!(one["processor_seconds"].as_f64().is_some_and(|s| s > 0.0 && s < 60.0), "{one}");
    let (code, out, err) = folder.toy(&["exhaust", "lossy-line", "--as-reported", "--markdown"]);
    let row = format!("| lossy-line | 3 | 4 | 0 | 2, 2 | `{}` | ", one["list_hash"].as_str().expect("text"));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[2].starts_with(&row) && lines[2].ends_with(" s |"), "{out}");
    assert_eq!((code, err.as_str(), lines.len()), (1, "", 3), "{out}");
    let (_, out, _) = folder.toy(&["exhaust", "lossy-line", "--markdown", "--time", "1ms"]);
    assert!(out.contains(" of 4 | 0 | 0, 0 | the time is over | "), "{out}");
}

fn scenario(folder: &Folder, name: &str, steps: &str) {
    let text = format!("scenario: {name}\nsummary: A test.\nsteps:\n{steps}check: [set-succeeds]\n");
    std::fs::write(folder.path(&format!("{name}.yaml")), text).expect("a file");
}

fn what_is_left_out_is_audited() {
    let folder = Folder::new("audited");
    // Each reply may be late, and after each there is time in which nothing happens.
    scenario(&folder, "quiet", &"  - set: 1\n  - await: {reply: set}\n  - run: 3s\n".repeat(2));
    for remedies in [&["--as-reported"][..], &[]] {
        let args = ["exhaust", "quiet.yaml", "--json", "--cluster", "change=slow-replies", "--audit", "100"];
        let (_, out, err) = folder.toy(&[&args, remedies].concat());
        let certificate = json(&out).pop().expect("a line");
        assert_eq!(err, "", "{out}");
        assert!(certificate["pruned"].as_u64().is_some_and(|n| n >= 2), "{certificate}");
        assert_eq!(certificate["audited"], certificate["pruned"], "all of it is legal: {certificate}");
        assert_eq!(certificate["audit_differs"], Value::Array(vec![]), "{certificate}");
        let late = &certificate["by_fault"]["late-reply"];
        assert_eq!(late["pruned"], certificate["pruned"], "{certificate}");
        assert_eq!(late["listed"].as_u64().zip(late["pruned"].as_u64()).map(|(l, p)| l + p), Some(8), "{late}");
    }
}

fn an_audit_sees_a_difference() {
    let folder = Folder::new("difference");
    let args = ["exhaust", "lossy-line", "--as-reported", "--cluster", "change=two-refusals"];
    let (code, out, _) = folder.toy(&[&args[..], &["--json"]].concat());
    let certificate = json(&out).pop().expect("a line");
    assert_eq!((code, &certificate["audited"]), (3, &3.into()), "{certificate}");
    let difference = &certificate["audit_differs"][0];
    assert_eq!((&difference["shows"], &difference["which_shows"]), (&"holds".into(), &"violated set-succeeds".into()));
    assert!(difference["run_id"].as_str().is_some_and(|id| id.ends_with("/500=yes")), "{difference}");
    let (code, out, _) = folder.toy(&args);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("3 of these were run all the same: 2 differ") && out.contains("not alike, though "), "{out}");
    // Nobody looks: nothing is seen.
    let (code, out, _) = folder.toy(&[&args[..], &["--audit", "0"]].concat());
    assert!(code == 1 && !out.contains("not alike"), "{out}");
}

fn exhaust_counts() {
    let folder = Folder::new("counts");
    let (code, out, err) = folder.toy(&["exhaust", "lossy-line", "--as-reported", "--count", "--faults", "2"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.ends_with("  7 schedules are left; of single faults:\n    3 of 3: lost-reply\n"), "{out}");
}

fn exhaust_takes_several() {
    let folder = Folder::new("several");
    let (code, out, err) = folder.toy(&["exhaust", "lossy-line", "fresh-read", "--json"]);
    let lines = json(&out);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let names: Vec<&Value> = lines.iter().map(|line| &line["scenario"]).collect();
    assert_eq!(names, ["lossy-line", "fresh-read"].map(Value::from).iter().chain([&Value::Null]).collect::<Vec<_>>());
    let all = &lines[2];
    assert_eq!((&all["scenarios"], &all["complete"], &all["hold"]), (&2.into(), &2.into(), &2.into()), "{all}");
    let sum = |field: &str| lines[..2].iter().map(|line| line[field].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(all["schedules"], sum("schedules"), "{out}");
    // What is over the budget is told, and the others are run all the same.
    let (code, out, err) = folder.toy(&["exhaust", "lossy-line", "fresh-read", "--budget", "3"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(err.contains("lossy-line: 4 schedules with at most 1 faults are more than the budget of 3"), "{err}");
    assert!(out.contains("2 scenarios, 1 with a certificate"), "{out}");
    // Time that is over after the first run.
    let (_, out, _) = folder.toy(&["exhaust", "lossy-line", "--time", "1ms", "--json"]);
    let certificate = json(&out).pop().expect("a line");
    assert_eq!((&certificate["complete"], &certificate["ended"]), (&false.into(), &"the time is over".into()), "{out}");
    let (_, out, _) = folder.toy(&["exhaust", "lossy-line", "--time", "1ms"]);
    assert!(
        out.contains("  no certificate: ") && out.ends_with(" of 4 schedules were run; the time is over\n"),
        "{out}"
    );
}

fn an_interrupt_ends_exhaust() {
    let folder = Folder::new("interrupted");
    // So many steps that its schedules take longer than the test has patience.
    scenario(&folder, "long", &"  - set: 1\n  - await: {reply: set}\n".repeat(60));
    let args = ["exhaust", "long.yaml", "--as-reported", "--faults", "2", "--json"];
    let mut process = folder.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    assert!(lines.next().is_some_and(|line| line.contains("\"violated\"")));
    // SAFETY: sends a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(process.id() as i32, libc::SIGTERM) }, 0);
    let last = lines.last().expect("a certificate");
    assert_eq!(process.wait().expect("it ends").code(), Some(1));
    let certificate = json(&last).pop().expect("a line");
    assert_eq!((&certificate["complete"], &certificate["ended"]), (&false.into(), &"interrupted".into()), "{last}");
    assert!(certificate["schedules"].as_u64() < certificate["listed"].as_u64(), "{last}");
}

fn flake_rates_are_counted() {
    let folder = Folder::new("flakes");
    let measure = ["flake-rate", "lossy-line", "--seeds", "40"];
    let (code, out, err) = folder.toy(&[&measure[..], &["--json"]].concat());
    let rows = json(&out);
    assert_eq!((code, err.as_str(), rows.len()), (0, "", 4), "{out}");
    let names: Vec<&str> = rows.iter().map(|row| row["with"].as_str().expect("text")).collect();
    assert_eq!(names, ["none (as reported)", "`retry`", "`patience`", "the recommended set"]);
    let failing: Vec<u64> = rows.iter().map(|row| row["failing"].as_u64().expect("a number")).collect();
    assert!(failing[0] > 0 && failing[2] == failing[0], "patience helps nobody: {out}");
    assert!(failing[1] < failing[0] && failing[3] == failing[1], "retry does: {out}");
    // As `run` counts them.
    let (_, out, _) = folder.toy(&["run", "lossy-line", "--as-reported", "--seeds", "1..40", "--json"]);
    let violated: Vec<Value> = json(&out).into_iter().filter(|run| run["outcome"] == "violated").collect();
    assert_eq!((violated.len() as u64, &violated[0]["seed"]), (failing[0], &rows[0]["first_failing_seed"]));
    let (_, out, _) = folder.toy(&[&measure[..], &["--remedies", "retry", "--markdown"]].concat());
    assert!(
        out.contains("Written by `photofinish flake-rate lossy-line --seeds 40 --remedies retry --markdown`"),
        "{out}"
    );
    assert!(out.contains(&format!("| none (as reported) | {} of 40 | ", failing[0])), "{out}");
    assert_eq!(out.lines().filter(|line| line.starts_with("| ")).count(), 4, "a head and three rows: {out}");
}

fn exhaust_refuses() {
    let folder = Folder::new("refuses");
    let (code, out, err) = folder.toy(&["exhaust", "lossy-line", "--faults", "2", "--budget", "6"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("lossy-line: 7 schedules with at most 2 faults are more than the budget of 6"), "{err}");
}

fn determinism_is_proven() {
    let folder = Folder::new("proven");
    let (code, out, err) = folder.toy(&["prove-determinism", "lossy-line", "--seeds", "4"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "5 of 5 run ids have the same trace in two processes\n", ""));
    let steps = "steps:\n  - misbehave: differ\n  - set: 1\n  - await: {reply: set}\n";
    let text = format!("scenario: differs\nsummary: A test.\n{steps}check: [set-succeeds]\n");
    std::fs::write(folder.path("differs.yaml"), text).expect("a file");
    let (code, out, _) = folder.toy(&["prove-determinism", "differs.yaml", "--seeds", "1"]);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("the traces part at entry ") && out.contains("another: "), "{out}");
    assert!(out.contains("  likely: numbers that the world does not give: a process id"), "{out}");
    assert!(out.ends_with("0 of 2 run ids have the same trace in two processes\n"), "{out}");
    let (code, out, _) = folder.toy(&["prove-determinism", "differs.yaml", "--seeds", "1", "--json"]);
    assert_eq!((code, json(&out)[0]["different"].as_array().map(Vec::len)), (3, Some(2)), "{out}");
}

fn diff_shows_the_parting() {
    let folder = Folder::new("diff");
    let (code, out, err) = folder.toy(&["diff", LOST]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("it holds without: the choice lose/server/reply#2 takes yes"), "{out}");
    assert!(out.contains("one      violated set-succeeds") && out.contains("another  holds"), "{out}");
    assert!(
        out.contains("they part at ")
            && out.contains("reply    set: unexpected end of file")
            && out.contains("reply    set: 2"),
        "{out}"
    );
    // Nothing was drawn: the nearest run that holds has a remedy more.
    let (code, out, err) = folder.toy(&["diff", "pf1:lost-reply:as-reported:benign:"]);
    assert!(code == 0 && err.is_empty() && out.starts_with("it holds with: retry\n"), "{out}{err}");
    assert!(out.contains("another  holds  pf1:lost-reply:as-reported,+retry:benign:\n"), "{out}");
    let (code, _, err) = folder.toy(&["diff", "pf1:fresh-read:+stale-get:benign:"]);
    assert!(code == 2 && err.contains("it has no passing sibling"), "{err}");
    let (code, out, _) = folder.toy(&["diff", LOST, LOST]);
    assert!(code == 0 && out.ends_with("the runs are alike, entry by entry\n"), "{out}");
    let (code, _, err) = folder.toy(&["diff", "pf1:lossy-line::benign:"]);
    assert!(code == 2 && err.contains("there is no failure in it"), "{err}");
}

fn explain_shows_the_causes() {
    let folder = Folder::new("explain");
    let (code, out, err) = folder.toy(&["explain", LOST]);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(out.starts_with("violated set-succeeds of client\n"), "{out}");
    for expected in ["op       set 2", "broken here: the set got code 14"] {
        assert!(out.contains(expected), "{expected:?} in:\n{out}");
    }
}

fn explain_shows_the_moment() {
    let folder = Folder::new("when");
    let (code, out, err) = folder.toy(&["explain", LOST, "--when", "--forks", "10"]);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(out.starts_with("set-succeeds of client\n"), "{out}");
    let here: Vec<&str> = out.lines().filter(|line| line.ends_with("<- here")).collect();
    assert!(
        matches!(here[..], [line] if line.starts_with(" 100 %") && line.contains("lose/server/reply#2=yes")),
        "{out}"
    );
    assert!(out.contains("the chance of failure rises most, from "), "{out}");
}

fn strategies_replay() {
    let folder = Folder::new("strategies");
    for (strategy, id) in [("pct", ":p=4.3."), ("delay", ":d=4.2."), ("swarm", ":w=4:"), ("plain", ":s=4:")] {
        let sweep = ["sweep", "lossy-line", "--seeds", "1", "--from", "4", "--json", "--strategy", strategy];
        let (code, out, err) = folder.toy(&sweep);
        let run = json(&out).remove(0);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        let run_id = run["run_id"].as_str().expect("an id");
        assert!(run_id.contains(id), "{run_id}");
        let (_, out, _) = folder.toy(&["replay", run_id, "--json"]);
        assert_eq!(json(&out)[0]["trace_hash"], run["trace_hash"], "{run_id}");
    }
}

fn pins_survive_a_change() {
    let folder = Folder::new("change");
    let after = |change: &str| LOST.replace("as-reported", &format!("as-reported,change={change}"));
    let (code, out, err) = folder.toy(&["replay", &after("unrelated"), "--json"]);
    assert_eq!((code, &json(&out)[0]["property"], err.as_str()), (1, &"set-succeeds".into(), ""), "{out}");
    let (code, out, err) = folder.toy(&["replay", &after("renamed")]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("nothing asked for the pinned choice `lose/server/reply#2`"), "{err}");
    assert!(err.contains("did you mean `lose/server/answer#2`?"), "{err}");
}

fn clusters_are_drawn() {
    let folder = Folder::new("drawn");
    let steps = "steps:\n  - set: 1\n  - await: {reply: set}\n";
    let text = format!("scenario: drawn\nsummary: A test.\ndraw: [speed]\n{steps}check: [set-succeeds]\n");
    std::fs::write(folder.path("drawn.yaml"), text).expect("a file");
    let clusters = |args: &[&str]| -> Vec<String> {
        let (_, out, err) = folder.toy(&[&["run", "drawn.yaml", "--json"], args].concat());
        let id = |line: &Value| line["run_id"].as_str().expect("an id").split(':').nth(2).expect("options").to_owned();
        assert_eq!(err, "");
        json(&out).iter().filter(|line| line["run_id"].is_string()).map(id).collect()
    };
    let drawn = clusters(&["--seeds", "1..20"]);
    assert!(drawn.iter().any(|c| c == "speed=slow") && drawn.iter().any(|c| c == "speed=fast"), "{drawn:?}");
    assert_eq!(clusters(&[]), [""], "a benign run has the scenario's own");
    let given = clusters(&["--seeds", "1..5", "--cluster", "speed=slow"]);
    assert!(given.iter().all(|c| c == "speed=slow"), "{given:?}");
}

fn time_to_bug_is_measured() {
    let folder = Folder::new("time-to-bug");
    let measure = ["time-to-bug", "lost-reply", "--masters", "2", "--budget", "40", "--out", "t.md"];
    let (code, out, err) = folder.toy(&measure);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let text = std::fs::read_to_string(folder.path("t.md")).expect("a file");
    let row =
        text.lines().find(|line| line.starts_with("| lost-reply |")).unwrap_or_else(|| panic!("a row in:\n{text}"));
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(cells[2], "set-succeeds");
    // Late replies alone lose none: only a strategy that makes things fail can find it.
    assert!(cells[4] == "not in 40 runs [0/2]" && cells[5] == "not in 40 runs [0/2]", "{row}");
    assert!(cells[6].ends_with(" s") && cells[6].contains(" runs, "), "exhaust finds every single fault: {row}");
}

fn bad_input() {
    let folder = Folder::new("bad");
    for (args, expected) in [
        (&["sweep", "lossy-lin"][..], "did you mean `lossy-line`?"),
        (&["sweep", "--shard", "3/2"], "expected i/n with 1 <= i <= n"),
        (&["sweep", "--legal", "often"], "expected always, ha or never"),
        (&["sweep", "--seeds", "0"], "0 is not in 1.."),
        (&["sweep", "--jobs", "0"], "0 is not in 1.."),
        (&["sweep", "--time", "soon"], "expected a duration such as 10s"),
        (&["sweep", "--out", "no/such/folder/x.jsonl"], "--out no/such/folder/x.jsonl: the file cannot be opened"),
        (&["sweep", "--with", "retri"], "did you mean `retry`?"),
        (&["sweep", "--strategy", "plain", "--legal", "ha"], "--strategy plain draws only what any cluster may do"),
        (&["sweep", "--strategy", "swarm", "--bound", "2"], "--strategy swarm has no bound"),
        (&["run", "lossy-line", "--cluster", "speed=slwo"], "did you mean `slow`?"),
        (&["run", "lossy-line", "--cluster", "sped=slow"], "did you mean `speed`?"),
        (&["run", "lossy-line", "--cluster", "speed"], "expected an option and its value"),
        (&["replay", "pf1:lossy-line:speed=slwo:benign:"], "did you mean `slow`?"),
        (&["explain", LOST, "--forks", "3"], "--when"),
        (&["choices", "lossy-lin"], "did you mean `lossy-line`?"),
        (&["choices"], "<NAME|FILE>"),
        (&["shrink", "pf1:lossy-line"], "`options` is missing"),
        (&["shrink", "pf1:lossy-line::benign:"], "there is no failure in it"),
        (&["explain", "nonsense"], "does not start with pf1:"),
        (&["diff", "nonsense"], "does not start with pf1:"),
        (&["exhaust", "lossy-lin"], "did you mean `lossy-line`?"),
        (&["flake-rate", "lossy-line", "--remedies", "retri"], "did you mean `retry`?"),
        (&["flake-rate", "lossy-line", "--remedies", "stale-get"], "unknown proposed remedy"),
        (&["exhaust", "lossy-line", "--faults", "x"], "invalid value 'x'"),
        (&["prove-determinism", "lossy-lin"], "did you mean `lossy-line`?"),
        (&["replay", "pf1:lossy-line::w=1.often:"], "expected benign or s=N, found `w=1.often`"),
    ] {
        let (code, out, err) = folder.toy(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {expected:?} in:\n{err}");
    }
}
