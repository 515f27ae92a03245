//! The command line, end to end, with the toy system: started with `TOY_PROGRAM` set, this test is the program.
mod authoring;
mod progress;
mod toy;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};

use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

fn main() -> ExitCode {
    match std::env::var("TOY_PROGRAM").as_deref() {
        Ok("target") => photofinish::testing::main(&toy::TOY),
        Ok(_) => return photofinish::cli::main(&toy::TOY),
        Err(_) if photofinish_sim::zygote::inside() => return photofinish::cli::main(&toy::TOY),
        Err(_) => {}
    }
    let tests: &[(&str, fn())] = &[
        ("all scenarios hold, one aligned line each, exit code 0", all_scenarios_hold),
        ("a violation is told with property, entry, cause and replay command, exit code 1", a_violation_is_told),
        ("the printed command replays the run from anywhere with the same trace", the_printed_command_replays),
        ("with --json stdout has one line a run and nothing else", json_has_one_line_a_run),
        ("seeds are summed up, the first failing ones with their commands", seeds_are_summed_up),
        ("bad input is exit code 2 and says what was expected", bad_input_is_exit_code_2),
        ("a mistake in a file is told with line, column and the nearest word", a_mistake_in_a_file),
        ("a file's run id carries its hash and refuses a changed file", a_files_run_id_carries_its_hash),
        ("a panic in a task violates no-panic and the run goes on", a_panic_violates_no_panic),
        ("a process that dies is a crash with its trace, and the next run is unaffected", a_dying_process_is_a_crash),
        ("a thread that sleeps takes virtual time", a_sleeping_thread_takes_virtual_time),
        ("a livelock and a deadlock are stuck, exit code 1", livelock_and_deadlock_are_stuck),
        ("a spinning run is hung at the wall limit, exit code 3 wins", a_spinning_run_is_hung),
        ("a failure that does not replay is nondeterministic, both sides are shown", a_difference_is_shown),
        ("a panic of the harness itself is exit code 3", a_panic_of_the_harness),
        ("what cannot be done behind a step that missed is missed as well", a_script_off_its_way),
        ("a property without anything to judge is vacuous, exit code 1", nothing_to_judge_is_vacuous),
        ("a step that waits in vain violates the script and the run goes on", a_missed_step_violates_the_script),
        ("pinned choices decide, wrong ones are told", pinned_choices_decide),
        ("every generic step acts on the world", every_generic_step_acts),
        ("turmoil runs the same scenarios", turmoil_runs_the_same_scenarios),
        ("a fault that turmoil lacks is refused by the step, exit code 2", a_fault_that_turmoil_lacks_is_refused),
        ("check prints ok lines and refuses what cannot fail", check_prints_ok_lines),
        ("with --trace every entry is printed, with --json they are in the line", trace_is_printed),
        ("a closed pipe is no panic", a_closed_pipe_is_no_panic),
        ("list and remedies print one line each", list_and_remedies),
    ];
    // A name that begins with a dash would be a flag to whoever runs a test by its name, as nextest does.
    let trials = tests.iter().chain(authoring::TESTS).chain(progress::TESTS).map(|(name, test)| {
        let test = *test;
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(args).env("TOY_PROGRAM", "1").env_remove("NO_COLOR");
    command
}

/// What the program did: exit code, standard output, standard error.
fn toy(args: &[&str]) -> (i32, String, String) {
    ended(program(args).output().expect("the program starts"))
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

fn json(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The only run's JSON line, and the exit code.
fn one(args: &[&str]) -> (i32, Value) {
    let (code, out, err) = toy(&[args, &["--json"]].concat());
    let mut lines = json(&out);
    assert_eq!(lines.len(), 1, "{out}{err}");
    (code, lines.remove(0))
}

/// A file with a scenario of these steps, in a folder that goes with the value.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        // Tests run side by side, and some call their files alike.
        static FILES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = FILES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let unique = std::env::temp_dir().join(format!("photofinish-{}-{n}-{name}", std::process::id()));
        std::fs::create_dir_all(&unique).expect("a folder");
        let path = unique.join(format!("{name}.yaml"));
        std::fs::write(&path, text).expect("a file");
        File(path)
    }
    fn steps(name: &str, check: &str, steps: &[&str]) -> File {
        let steps: String = steps.iter().map(|s| format!("  - {s}\n")).collect();
        File::new(name, &format!("scenario: {name}\nsummary: A test.\nsteps:\n{steps}check: [{check}]\n"))
    }
    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().expect("its folder"));
    }
}

const SET: [&str; 2] = ["set: 1", "await: {reply: set}"];

fn all_scenarios_hold() {
    let (code, out, err) = toy(&["run"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    let names: Vec<&str> = lines.iter().filter_map(|l| l.strip_prefix("holds")?.split_whitespace().next()).collect();
    assert_eq!(names, ["lost-reply", "lost-reply@slow", "fresh-read", "lossy-line"]);
    assert_eq!(lines.last(), Some(&"4 scenarios hold"));
    let columns = |l: &str| [" run ", "s in "].map(|word| l.find(word));
    assert!(lines[..4].iter().all(|l| columns(l) == columns(lines[0])), "aligned: {out}");
    assert!(!out.contains('\x1b'), "no colours without a terminal");
}

fn a_violation_is_told() {
    let (code, out, _) = toy(&["run", "lost-reply", "--as-reported"]);
    assert_eq!(code, 1);
    for expected in [
        "violated         lost-reply",
        "set-succeeds: Every set is answered without an error.",
        "set 2\n",
        "broken here: the set got code 14",
        "!          0  ",
        "  set: connection refused\n",
        " replay 'pf1:lost-reply:as-reported:benign:'",
    ] {
        assert!(out.contains(expected), "{expected:?} in:\n{out}");
    }
    assert_eq!(toy(&["run", "lost-reply", "--as-reported", "--with", "retry"]).0, 0);
    assert_eq!(toy(&["run", "lost-reply", "--without", "retry"]).0, 1);
    assert_eq!(toy(&["run", "lost-reply@slow", "--without", "retry"]).0, 1);
}

fn the_printed_command_replays() {
    let (_, run) = one(&["run", "lossy-line", "--as-reported", "--seed", "1"]);
    let id = run["run_id"].as_str().expect("an id");
    assert_eq!(id, "pf1:lossy-line:as-reported:s=1:");
    let mut elsewhere = program(&["replay", id, "--json"]);
    elsewhere.current_dir("/").env("LANG", "de_DE").env("A_VARIABLE_MORE", "x".repeat(5000));
    let (code, out, _) = ended(elsewhere.output().expect("the program starts"));
    let replayed = &json(&out)[0];
    assert_eq!((code, &replayed["trace_hash"]), (1, &run["trace_hash"]));
    assert_eq!((&replayed["run_id"], &replayed["violations"]), (&run["run_id"], &run["violations"]));
}

fn json_has_one_line_a_run() {
    let (code, out, err) = toy(&["run", "--as-reported", "--json"]);
    assert_eq!((code, err.as_str()), (1, ""));
    let lines = json(&out);
    let outcomes: Vec<_> = lines.iter().map(|l| (l["scenario"].as_str(), l["outcome"].as_str())).collect();
    let expected =
        [("lost-reply", "violated"), ("lost-reply@slow", "violated"), ("fresh-read", "holds"), ("lossy-line", "holds")];
    assert_eq!(outcomes, expected.map(|(s, o)| (Some(s), Some(o))));
    let first = &lines[0];
    assert_eq!(first["v"], 1);
    assert_eq!(first["property"], "set-succeeds");
    assert_eq!(first["violations"][0]["property"], "set-succeeds");
    assert!(first["violations"][0]["entry"].is_u64() && first["violations"][0]["why"].is_string());
    assert_eq!(first["trace_hash"].as_str().map(str::len), Some(32));
    assert!(first["virtual_ms"].as_f64() > Some(100.0) && first["wall_ms"].as_f64() > Some(0.0));
    assert_eq!(lines[2]["property"], Value::Null);
    assert_eq!(lines[2]["violations"], Value::Array(vec![]));
}

fn seeds_are_summed_up() {
    let (code, out, _) = toy(&["run", "lossy-line", "--as-reported", "--seeds", "1..40", "--json"]);
    let lines = json(&out);
    assert_eq!(code, 1);
    assert_eq!(lines.iter().filter_map(|l| l["seed"].as_u64()).collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
    let failing: Vec<u64> =
        lines.iter().filter(|l| l["outcome"] == "violated").filter_map(|l| l["seed"].as_u64()).collect();
    assert!(!failing.is_empty() && failing.len() < 40, "{failing:?}");
    let (code, out, _) = toy(&["run", "lossy-line", "--as-reported", "--seeds", "1..40"]);
    assert_eq!(code, 1);
    let (k, hold) = (failing.len(), 40 - failing.len());
    assert!(out.contains("violated         lossy-line   40 runs "), "{out}");
    assert!(out.lines().next().is_some_and(|l| l.ends_with(&format!("  {hold} hold, {k} violated"))), "{out}");
    assert!(out.contains(&format!("replay 'pf1:lossy-line:as-reported:s={}:'", failing[0])), "{out}");
    assert!(out.contains("not as usual in this run: lose/server/reply#"), "{out}");
    let (code, out, _) = toy(&["run", "lossy-line", "--seeds", "1..40"]);
    assert_eq!((code, out.contains("  40 hold\n")), (0, true), "{out}");
}

fn bad_input_is_exit_code_2() {
    for (args, expected) in [
        (&["run", "lost-rply"][..], "did you mean `lost-reply`?"),
        (&["run", "lost-reply@slwo"], "did you mean `lost-reply@slow`?"),
        (&["run", "--with", "rety"], "did you mean `retry`?"),
        (&["run", "--with", "retry", "--without", "retry"], "at once"),
        (&["run", "--as-reported", "--bare"], "cannot be used with"),
        (&["run", "--seed", "1", "--seeds", "1..2"], "cannot be used with"),
        (&["run", "--seeds", "5..1"], "5 is more than 1"),
        (&["run", "--engine", "warp"], "expected jump or turmoil"),
        (&["run", "not/there.yaml"], "cannot be read"),
        (&["replay", "pf1:lost-reply"], "`options` is missing"),
        (&["replay", "pf1:lost-reply@fast::benign:"], "did you mean `lost-reply"),
        (&["replay", "pf1:lost-rply::benign:"], "unknown scenario `lost-rply`"),
        (&["replay", "pf1:fresh-read:+rety:benign:"], "did you mean `retry`?"),
        (&["replay", "pf9:fresh-read::benign:"], "version pf9"),
        (&["replay", "pf1:fresh-read::benign:", "--as-reported"], "unexpected argument"),
        (&["repaly"], "'replay'"),
    ] {
        let (code, out, err) = toy(args);
        assert_eq!(code, 2, "{args:?}: {out}{err}");
        assert!(err.contains(expected), "{args:?}: {expected:?} in:\n{err}");
        assert_eq!(out, "", "{args:?}");
    }
}

fn a_mistake_in_a_file() {
    let base = "scenario: x\nsummary: A test.\nsteps:\n  - set: 1\ncheck: [set-succeeds]\n";
    for (from, to, place, expected) in [
        ("set: 1", "sett: 1", "4:5", "did you mean `set`?"),
        ("set: 1", "run: 200", "4:10", "expected a duration with its unit"),
        ("set: 1", "crash: sever", "4:12", "did you mean `server`?"),
        ("set: 1", "release: late", "4:14", "unknown hold `late`"),
        ("set: 1", "hold: {link: server->clint, as: x}", "4:18", "did you mean `client`?"),
        ("set: 1", "hold: {watch: driver/pods, as: x}", "4:19", "unknown stream `driver/pods`"),
        ("set: 1", "await: {repl: set}", "4:13", "did you mean `reply`?"),
        ("set: 1", "cut: [client]", "4:10", "two different hosts"),
        ("set-succeeds", "set-suceeds", "5:9", "did you mean `set-succeeds`?"),
        ("- set: 1", "- hold: {link: client->server, as: x}\n  - release: {x: 2}", "5:18", "expected `all`"),
        (
            "set: 1",
            "hold: {link: client->server, as: x}\n  - hold: {link: client->server, as: x}",
            "5:38",
            "`x` is held already",
        ),
        ("set: 1", "heal: [client, server]", "4:11", "was not cut"),
        ("set: 1", "resume: client", "4:13", "no step before this one pauses client"),
        ("set: 1", "skew: {host: client, by: 2}", "4:30", "a duration with its unit"),
        ("set: 1", "skew: {host: client, by: -2h}", "4:30", "at most an hour"),
        ("check:", "chek:", "5:1", "did you mean `check`?"),
        ("summary:", "cluster: {speed: fsat}\nsummary:", "2:18", "did you mean `fast`?"),
        (
            "summary:",
            "fails-without: {of: slow, off: [retry], violates: [set-succeeds]}\nsummary:",
            "2:21",
            "unknown cluster of this scenario `slow`",
        ),
        ("summary:", "also: [{speed: fast}]\nsummary:", "2:8", "differs from `cluster`"),
        ("summary:", "summary: x\nsummary:", "3:1", "here twice"),
        (
            "check:",
            "fails-without: [{off: [retyr], violates: [set-succeeds]}]\ncheck:",
            "5:24",
            "did you mean `retry`?",
        ),
        ("check:", "fails-without: [{off: [retry], violates: [get-sees-set]}]\ncheck:", "5:43", "checked property"),
        ("scenario: x", "scenario: X y", "1:11", "a name of a-z"),
        ("steps:\n", "steps: [\n", "", "not YAML"),
    ] {
        let file = File::new("x", &base.replacen(from, to, 1));
        let (code, out, err) = toy(&["run", file.path()]);
        assert_eq!((code, out.as_str()), (2, ""), "{to}: {err}");
        assert!(err.contains(expected), "{to}: {expected:?} in:\n{err}");
        assert!(err.contains(&format!("{}:{place}", file.path())), "{to}: {place} in:\n{err}");
    }
}

fn a_files_run_id_carries_its_hash() {
    let file = File::steps("my-own", "set-succeeds", &SET);
    let (code, run) = one(&["run", file.path(), "--seed", "3"]);
    assert_eq!((code, run["outcome"].as_str()), (0, Some("holds")));
    let id = run["run_id"].as_str().expect("an id");
    assert!(id.starts_with(&format!("pf1:{}#", file.path())), "{id}");
    assert_eq!(one(&["replay", id]).1["trace_hash"], run["trace_hash"]);
    std::fs::write(&file.0, std::fs::read_to_string(&file.0).expect("text") + "# changed\n").expect("written");
    let (code, _, err) = toy(&["replay", id]);
    assert_eq!(code, 2);
    assert!(err.contains("has changed since this run"), "{err}");
}

fn a_panic_violates_no_panic() {
    let file = File::steps("panics", "set-succeeds", &["misbehave: panic", "run: 1s", SET[0], SET[1]]);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["outcome"].as_str(), run["property"].as_str()), (1, Some("violated"), Some("no-panic")));
    let why = run["violations"][0]["why"].as_str().expect("text");
    assert!(why.contains("client panicked: the toy is broken"), "{why}");
    // The set behind it was judged and held: only one violation, nothing vacuous.
    assert_eq!(
        (run["violations"].as_array().map(Vec::len), run["vacuous"].as_array().map(Vec::len)),
        (Some(1), Some(0))
    );
}

fn a_dying_process_is_a_crash() {
    for (how, said) in [("abort", "SIGABRT"), ("overflow", "SIG"), ("exit", "exit code 7")] {
        let file = File::steps("dies", "set-succeeds", &[SET[0], SET[1], &format!("misbehave: {how}"), "run: 1s"]);
        let (code, out, _) = toy(&["run", file.path(), "fresh-read", "--json", "--trace"]);
        let lines = json(&out);
        assert_eq!((code, lines[0]["outcome"].as_str()), (1, Some("crashed")), "{how}: {out}");
        let end = lines[0]["end"].as_str().expect("text");
        assert!(end.contains(said), "{how}: {end}");
        let trace = lines[0]["trace"].as_array().expect("a trace");
        let text = |e: &Value| e["text"].as_str().map(str::to_owned);
        assert!(trace.iter().any(|e| text(e).as_deref() == Some("set: 1")), "{how}: what came before is there");
        assert_eq!(trace.last().and_then(text).as_deref(), Some("run: 1s"), "{how}: up to its end");
        assert_eq!(lines[1]["outcome"], "holds", "{how}: the next run is unaffected");
    }
}

fn a_sleeping_thread_takes_virtual_time() {
    let file = File::steps("sleeps", "set-succeeds", &["misbehave: hold-the-thread", SET[0], SET[1]]);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["outcome"].as_str()), (0, Some("holds")));
    assert!(run["virtual_ms"].as_f64() >= Some(3000.0), "{run}");
}

fn livelock_and_deadlock_are_stuck() {
    let file = File::steps("lives", "set-succeeds", &[SET[0], SET[1], "misbehave: livelock", "run: 1s"]);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["outcome"].as_str()), (1, Some("stuck")));
    assert!(run["end"].as_str().is_some_and(|e| e.contains("livelock: client")), "{run}");
    // Nobody asks for anything, and the script waits: the toy is silent for ever.
    let file = File::steps("dead", "set-succeeds", &[SET[0], SET[1], "await: {reply: get}"]);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["outcome"].as_str()), (1, Some("stuck")));
    let end = run["end"].as_str().expect("text");
    assert!(end.contains("deadlock") && end.contains("open: a toy"), "{end}");
}

fn a_spinning_run_is_hung() {
    let file = File::steps("spins", "set-succeeds", &[SET[0], SET[1], "misbehave: spin", "run: 1s"]);
    let (code, out, _) = toy(&["run", file.path(), "lost-reply", "--as-reported", "--json", "--wall-limit", "3s"]);
    let outcomes: Vec<_> = json(&out).iter().map(|l| l["outcome"].as_str().map(str::to_owned)).collect();
    assert_eq!(outcomes, ["hung", "violated"].map(|o| Some(o.to_owned())));
    assert_eq!(code, 3, "the highest wins");
    let (_, out, _) = toy(&["run", file.path(), "--wall-limit", "1s"]);
    // On a busy machine it is given four times as long once more.
    let limit = ["hung: no end after 1s of wall time", "hung: no end after 4s of wall time"];
    assert!(limit.iter().any(|told| out.contains(told)) && out.contains("the last entries:"), "{out}");
}

fn a_difference_is_shown() {
    let steps = ["misbehave: differ", "set: 1", "run: 100us", "reset: [client, server]", "run: 1s"];
    let file = File::steps("differs", "set-succeeds", &steps);
    let (code, out, _) = toy(&["run", file.path(), "--as-reported"]);
    assert_eq!(code, 3, "{out}");
    for expected in ["nondeterministic", "the traces part at entry", "    one:     ", "    another: ", "process "] {
        assert!(out.contains(expected), "{expected:?} in:\n{out}");
    }
}

fn a_panic_of_the_harness() {
    let file = File::steps("panics-itself", "set-succeeds", &["misbehave: panic-in-the-world"]);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["outcome"].as_str()), (3, Some("failed")));
    assert!(run["end"].as_str().is_some_and(|e| e.contains("the harness's own code is wrong")), "{run}");
}

fn a_script_off_its_way() {
    let file = File::steps("too-much", "set-succeeds", &[SET[0], "run: 1s", "misbehave: ask-too-much"]);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["outcome"].as_str()), (3, Some("failed")), "{run}");
    assert!(run["end"].as_str().is_some_and(|e| e.contains("there is no such thing")), "{run}");
    let steps = [SET[0], "run: {until: 1ms}", "misbehave: ask-too-much", "run: 1s"];
    let file = File::steps("astray", "set-succeeds", &steps);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!(
        (code, run["outcome"].as_str(), run["property"].as_str()),
        (1, Some("violated"), Some("script")),
        "{run}"
    );
    assert_eq!(run["end"], serde_json::Value::Null);
    let (_, out, _) = toy(&["run", file.path(), "--trace"]);
    assert!(out.contains("misbehave: ask-too-much: there is no such thing") && out.contains("  run: 1s"), "{out}");
}

fn nothing_to_judge_is_vacuous() {
    let file = File::steps("silent", "set-succeeds, get-sees-set", &SET);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["outcome"].as_str(), run["property"].as_str()), (1, Some("vacuous"), Some("get-sees-set")));
    let (_, out, _) = toy(&["run", file.path()]);
    assert!(out.contains("its trigger never came"), "{out}");
}

fn a_missed_step_violates_the_script() {
    let steps =
        ["cut: [client, server]", "set: 1", "await: {reply: set, within: 2s}", "heal: [client, server]", SET[1]];
    let file = File::steps("waits", "set-succeeds", &steps);
    let (code, run) = one(&["run", file.path()]);
    assert_eq!((code, run["property"].as_str()), (1, Some("script")));
    let why = run["violations"][0]["why"].as_str().expect("text");
    assert_eq!(why, "await: {reply: set, within: 2s}: no reply to set within 2s");
    assert_eq!(run["violations"].as_array().map(Vec::len), Some(1), "the reply that came after the heal was judged");
}

fn pinned_choices_decide() {
    let (code, run) = one(&["replay", "pf1:lossy-line:as-reported:benign:lose/server/reply#2=yes"]);
    assert_eq!((code, run["outcome"].as_str()), (1, Some("violated")));
    let (code, out, err) = toy(&["replay", "pf1:lossy-line::benign:lose/server/reply#2=perhaps"]);
    assert_eq!(code, 2, "{err}");
    assert!(out.contains("refused") && !out.contains("holds"), "no verdict about another run: {out}");
    assert!(err.contains("expected `yes` or `no`"), "{err}");
    let (code, _, err) = toy(&["replay", "pf1:lossy-line::benign:lose/server/repply#2=yes"]);
    assert_eq!(code, 0);
    assert!(err.contains("did you mean `lose/server/reply#2`?"), "{err}");
    let file = File::steps("pins", "set-succeeds", &["pin: {lose/server/reply#1: yes}", SET[0], SET[1]]);
    assert_eq!(one(&["run", file.path(), "--as-reported"]).1["outcome"], "violated");
    assert_eq!(one(&["run", file.path()]).1["outcome"], "holds");
}

fn every_generic_step_acts() {
    let file = File::steps(
        "all-steps",
        "set-succeeds",
        &[
            "run: 10ms",
            "run: {until: 120ms}",
            "skew: {host: server, by: -500ms}",
            "delay: {link: client->server, by: 20ms}",
            SET[0],
            SET[1],
            "delay: {link: client->server, by: 0s}",
            "cut: [client, server]",
            "heal: [client, server]",
            "blackhole: [client, server]",
            "heal: [client, server]",
            "reset: [client, server]",
            "hold: {link: client->server, as: x}",
            "release: {x: all}",
            "pause: server",
            "resume: server",
            "slow: {call: client/GET/values, by: 1s}",
            "crash: server",
            "restart: server",
            "power-off: server",
            "restart: server",
            "run: 10ms",
            SET[0],
            SET[1],
        ],
    );
    let (code, out, _) = toy(&["run", file.path(), "--json", "--trace"]);
    let line = &json(&out)[0];
    assert_eq!((code, line["outcome"].as_str()), (0, Some("holds")), "{out}");
    let trace = line["trace"].as_array().expect("a trace");
    for (kind, names) in [
        ("net", &["delay", "cut", "heal", "blackhole", "reset", "hold", "release", "slow"][..]),
        ("host", &["pause", "resume", "crash", "power-off", "start"]),
    ] {
        for name in names {
            assert!(trace.iter().any(|e| e["kind"] == kind && e["name"] == *name), "{kind} {name}");
        }
    }
    // The host's own entries have the step as their cause.
    let crash = trace.iter().find(|e| e["kind"] == "host" && e["name"] == "crash").expect("it crashed");
    let cause = &trace[crash["cause"].as_u64().expect("a cause") as usize];
    assert_eq!((cause["kind"].as_str(), cause["text"].as_str()), (Some("step"), Some("crash: server")));
}

fn turmoil_runs_the_same_scenarios() {
    for (args, code, outcome) in [
        (&["run", "fresh-read"][..], 0, "holds"),
        (&["run", "lossy-line", "--as-reported", "--seed", "1"], 1, "violated"),
    ] {
        let (jump, turmoil) = (one(args), one(&[args, &["--engine", "turmoil"]].concat()));
        assert_eq!((jump.0, jump.1["outcome"].as_str()), (code, Some(outcome)), "{args:?}");
        assert_eq!((turmoil.0, &turmoil.1["outcome"]), (code, &jump.1["outcome"]), "{}", turmoil.1);
        assert_eq!(turmoil.1["property"], jump.1["property"]);
        let id = turmoil.1["run_id"].as_str().expect("an id");
        assert!(id.contains("turmoil:"), "{id}");
        assert_eq!(one(&["replay", id]).1["trace_hash"], turmoil.1["trace_hash"], "{id}");
    }
}

fn a_fault_that_turmoil_lacks_is_refused() {
    for step in [
        "cut: [client, server]",
        "blackhole: [client, server]",
        "reset: [client, server]",
        "delay: {link: client->server, by: 20ms}",
        "hold: {link: client->server, as: x}",
        "crash: server",
        "power-off: server",
        "pause: server",
        "restart: server",
    ] {
        let file = File::steps("refused", "set-succeeds", &["run: 1ms", step, SET[0], SET[1]]);
        let (code, out, err) = toy(&["run", file.path(), "--engine", "turmoil"]);
        assert_eq!((code, err.as_str()), (2, ""), "{step}: {out}");
        assert!(out.starts_with("refused "), "{out}");
        assert!(out.contains(&format!("refused: not on this engine (turmoil): line 5, `{step}`\n")), "{out}");
    }
    let file = File::steps("refused", "set-succeeds", &[SET[0], SET[1], "cut: [client, server]"]);
    let (code, run) = one(&["run", file.path(), "--engine", "turmoil"]);
    assert_eq!((code, run["outcome"].as_str()), (2, Some("refused")));
    assert_eq!(run["end"], "not on this engine (turmoil): line 6, `cut: [client, server]`");
    assert_eq!((&run["violations"], &run["vacuous"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    let (code, out, _) = toy(&["run", file.path(), "fresh-read", "--engine", "turmoil"]);
    assert_eq!((code, out.lines().last()), (2, Some("1 scenarios hold, 1 are not for this engine")), "{out}");
}

fn check_prints_ok_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/toy/scenarios/");
    let (code, out, err) = toy(&["check", &format!("{folder}lost-reply.yaml"), &format!("{folder}lossy-line.yaml")]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().filter(|l| l.starts_with("ok  ")).count(), 2, "{out}");
    let cannot_fail = File::steps("cannot-fail", "set-succeeds", &SET);
    let wrong = File::steps("wrong", "set-succeeds", &["sett: 1"]);
    let (code, out, err) = toy(&["check", wrong.path(), cannot_fail.path(), &format!("{folder}fresh-read.yaml")]);
    assert_eq!(code, 2);
    assert!(err.contains("did you mean `set`?") && err.contains("says nowhere how it can fail"), "{err}");
    assert_eq!(out.lines().count(), 1, "those behind a mistake are checked, too: {out}");
}

fn trace_is_printed() {
    let (_, line) = one(&["run", "fresh-read", "--trace"]);
    let entries = line["trace"].as_array().map_or(0, Vec::len);
    let (code, out, _) = toy(&["run", "fresh-read", "--trace"]);
    assert_eq!(code, 0);
    assert!(entries > 10 && out.lines().count() == entries + 1, "{entries} entries:\n{out}");
    assert!(out.contains("client      op       set 5"), "{out}");
}

fn a_closed_pipe_is_no_panic() {
    let mut command = program(&["run", "lossy-line", "--seeds", "1..200", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    drop(child.stdout.take());
    let (code, _, err) = ended(child.wait_with_output().expect("it ends"));
    assert_eq!((code, err.as_str()), (0, ""));
}

fn list_and_remedies() {
    let (code, out, _) = toy(&["list"]);
    assert_eq!((code, out.lines().count()), (0, 4));
    assert!(out.lines().any(|l| l.starts_with("fresh-read       guard      toy#2  A read sees")), "{out}");
    let (code, out, _) = toy(&["remedies"]);
    assert_eq!((code, out.lines().count()), (0, 3));
    assert!(out.lines().any(|l| l.starts_with("retry      proposed, on ")), "{out}");
}
