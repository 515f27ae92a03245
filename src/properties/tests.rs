//! Each property as a table: short traces, and what it says of them.
use super::*;
use photofinish::property::Verdict;

/// A trace in words, separated by `;`, at 1 s, 2 s ...:
/// `Ready>Stopped` a phase change (`!` behind it: by a snapshot, `?`: by the sweep, the resource is missing), `acc start` an accepted
/// request (`refuse start`: a refused one), `ask stop` and `ok stop` / `ok stop Stopped` / `no stop` / `no create 6` a client's
/// request and its answer (by code), `sent stop` /
/// `got` a snapshot of that operation sent and received (`sent stop 7`: made from version 7 of the resource), `open` and
/// `watch` a new watch at the driver and the gateway, `+70` seconds pass, `end` the end. `~` behind a change: by the
/// recovery of a failed request. `commit attempt` a write of the row with an unsettled start (`commit -`: without).
/// `exits Provisioning - 0` what the row admits and its deadline, `gone` the row is removed,
/// `session` and `closed` a supervisor's, `crash` of the gateway, `seen Stopped` what a client's watch shows. Of the
/// gateway: `exit i` a supervisor's report, `>Error&` a change by a session, `>Error%` by an exit, `row` and `row-by-watch`
/// the first commit of a row, `unapplied` a lost snapshot, `sweeps` and `sweep-fails`, `waited 6000` ms for a row's lock,
/// `resume` of the gateway; of the driver `suspends`, `begins driver-2` and `ends driver-2` a start, or `dies driver-2`. Of the
/// cluster: `cr on`, `cr off stop/suspending`, `cr gone`, `workload Running run1`, `workload ending`, `supervisor gone`, `claim`,
/// `claim gone`, and `del driver sandboxes demo` a deletion that the API server carried out.
fn trace(words: &str) -> Vec<Entry> {
    let mut at_s = 0;
    let mut asked = 0;
    let mut entries: Vec<Entry> = Vec::new();
    for word in words.split(';').map(str::trim) {
        at_s += 1;
        let parts: Vec<&str> = word.split(' ').collect();
        let log =
            |text: &str, fields: &[(&'static str, &str)]| ("log", "info".to_owned(), text.to_owned(), owned(fields));
        let (kind, name, text, fields) = match parts[..] {
            ["acc", op] => log("request accepted op=..", &[("op", op), ("sandbox_name", "demo"), ("sandbox_id", "id")]),
            ["ask", op] => {
                asked = entries.len();
                ("op", op.to_owned(), String::new(), owned(&[("sandbox", "demo")]))
            }
            ["ok", op, ref rest @ ..] => ("reply", op.to_owned(), String::new(), reply("0", asked, rest.first())),
            ["no", op] => ("reply", op.to_owned(), String::new(), reply("9", asked, None)),
            ["no", op, code] => ("reply", op.to_owned(), String::new(), reply(code, asked, None)),
            ["refuse", op] => log("request refused op=..", &[("op", op), ("sandbox_name", "demo")]),
            ["sent", op] => log("snapshot sent", &[("operation", op), ("sandbox_name", "demo")]),
            ["got"] => log("snapshot received", &[("sandbox_name", "demo")]),
            ["open"] => log("snapshot stream opened", &[]),
            ["watch"] => log("driver watch: opened", &[]),
            ["sent", op, version] => log(
                "snapshot sent",
                &[("operation", op), ("sandbox_name", "demo"), ("sandbox_id", "id"), ("resource_version", version)],
            ),
            ["sent", op, version, says] => log(
                "snapshot sent",
                &[
                    ("operation", op),
                    ("sandbox_name", "demo"),
                    ("sandbox_id", "id"),
                    ("resource_version", version),
                    ("says", says),
                ],
            ),
            ["exits", phase, admits, deadline] => log(
                "row exits phase=..",
                &[
                    ("sandbox_id", "id"),
                    ("sandbox_name", "demo"),
                    ("phase", phase),
                    ("admits", admits.trim_matches('-')),
                    ("deadline_ms", deadline),
                ],
            ),
            ["commit", attempt] => log(
                "store commit op=x",
                &[("id", "id"), ("phase", "Stopped"), ("start_attempt", attempt.trim_matches('-'))],
            ),
            ["gone"] => log("store commit op=delete", &[("id", "id"), ("phase", "")]),
            ["session", instance] => {
                log("supervisor session: accepted", &[("sandbox_id", "id"), ("instance_id", instance)])
            }
            ["exit", instance] => {
                log("main process exit reported", &[("sandbox_id", "id"), ("instance_id", instance), ("code", "1")])
            }
            ["noted"] => log("store commit op=exit", &[("op", "exit"), ("id", "id"), ("phase", "Starting")]),
            ["row" | "row-by-watch"] => log("store commit op=create", &[("id", "id"), ("resource_version", "1")]),
            ["unapplied"] => log("a snapshot of the driver was not applied", &[("sandbox_id", "id")]),
            ["sweeps"] => ("span", "sweep.sandbox".to_owned(), String::new(), owned(&[("sandbox_id", "id")])),
            ["sweep-fails"] => log("the sweep ended early", &[]),
            ["waited", ms] => log("a row's lock is waited for", &[("sandbox_id", "id"), ("waited_ms", ms)]),
            ["resume"] => ("host", "resume".to_owned(), String::new(), vec![]),
            ["dies", _] => ("host", "crash".to_owned(), String::new(), vec![]),
            [edge @ ("begins" | "ends"), _] => {
                let kind = if edge == "begins" { "span" } else { "span-end" };
                (kind, "kubernetes.start_sandbox".to_owned(), String::new(), owned(&[("sandbox_id", "id")]))
            }
            ["suspends"] => log("sandbox is suspended", &[("sandbox_id", "id")]),
            ["session"] => log("supervisor session: accepted", &[("sandbox_id", "id"), ("instance_id", "i")]),
            ["closed"] => log("supervisor session: closed", &[("sandbox_id", "id"), ("instance_id", "i")]),
            ["crash"] => ("host", "crash".to_owned(), String::new(), vec![]),
            ["seen", phase] => {
                ("seen", "watch".to_owned(), String::new(), owned(&[("sandbox", "demo"), ("phase", phase)]))
            }
            ["seen", call, phase, version] => {
                let fields = owned(&[("sandbox", "demo"), ("phase", phase), ("version", version)]);
                ("seen", call.to_owned(), String::new(), fields)
            }
            ["version", version, ref attempt @ ..] => {
                let attempt = attempt.first().unwrap_or(&"");
                let fields = [("phase", "Starting"), ("resource_version", version), ("start_attempt", attempt)];
                log("store commit op=x", &[&[("id", "id")][..], &fields].concat())
            }
            ["cr-of", uid, state] => (
                oracle::STATE,
                "resource".to_owned(),
                String::new(),
                owned(&[("sandbox", "demo"), ("sandbox_id", "id"), ("uid", uid), ("run", state), ("marker", "")]),
            ),
            ["cr", state, ref marker @ ..] => (
                oracle::STATE,
                "resource".to_owned(),
                String::new(),
                owned(&[
                    ("object", "demo"),
                    ("sandbox", "demo"),
                    ("sandbox_id", "id"),
                    ("uid", "u"),
                    ("gateway", "gateway-0"),
                    ("run", state),
                    ("marker", marker.first().unwrap_or(&"")),
                    ("gone", if state == "gone" { "true" } else { "false" }),
                ]),
            ),
            [role @ ("workload" | "supervisor"), state, ref run @ ..] => (
                oracle::STATE,
                "pod".to_owned(),
                String::new(),
                owned(&[
                    ("sandbox", "demo"),
                    ("sandbox_id", "id"),
                    ("uid", run.get(1).unwrap_or(&role)),
                    ("role", role),
                    ("phase", if state == "ending" { "Running" } else { state }),
                    ("ending", if state == "ending" { "true" } else { "false" }),
                    ("run", run.first().unwrap_or(&"run1")),
                    ("gone", if state == "gone" { "true" } else { "false" }),
                ]),
            ),
            ["claim", ref gone @ ..] => (
                oracle::STATE,
                "claim".to_owned(),
                String::new(),
                owned(&[
                    ("object", "workspace-demo"),
                    ("uid", "v"),
                    ("owner", "u"),
                    ("gone", if gone.is_empty() { "false" } else { "true" }),
                ]),
            ),
            ["del", client, plural, name] => {
                let path = format!("/api/v1/namespaces/ns/{plural}/{name}");
                let fields = owned(&[("client", client), ("path", &path), ("status", "200")]);
                ("http", "delete".to_owned(), String::new(), fields)
            }
            ["end"] => ("end", "time".to_owned(), String::new(), vec![]),
            [pause] if pause.starts_with('+') => {
                at_s += pause[1..].parse::<u64>().expect("seconds");
                ("step", "run".to_owned(), String::new(), vec![])
            }
            [change] => {
                let (old, new) = change.split_once('>').expect("a phase change");
                let by = match new.chars().last() {
                    Some('!') => "snapshot",
                    Some('~') => "recovery",
                    Some('?') => "missing",
                    Some('&') => "session",
                    Some('%') => "exit",
                    _ => "rpc",
                };
                let new = new.trim_end_matches(['!', '?', '~', '&', '%']);
                let fields = [
                    ("sandbox_name", "demo"),
                    ("sandbox_id", "id"),
                    ("old_phase", old),
                    ("new_phase", new),
                    ("by", by),
                ];
                log("Sandbox phase changed old_phase=..", &fields)
            }
            _ => panic!("not a word of this table: {word}"),
        };
        entries.push(Entry {
            id: entries.len() as EntryId,
            at_ns: at_s * 1_000_000_000,
            host: match parts[..] {
                ["begins" | "ends" | "dies", host] => host.to_owned().into(),
                _ => "gateway".into(),
            },
            kind: kind.into(),
            name: name.into(),
            text,
            fields,
            spans: if word == "row-by-watch" { vec!["driver_watch.sandbox_updated".into()] } else { vec![] },
            cause: None,
        });
    }
    entries
}

type Fields = Vec<(std::borrow::Cow<'static, str>, String)>;

fn owned(fields: &[(&'static str, &str)]) -> Fields {
    fields.iter().map(|(k, v)| ((*k).into(), (*v).to_owned())).collect()
}
fn reply(code: &str, asked: usize, phase: Option<&&str>) -> Fields {
    let mut fields = owned(&[("sandbox", "demo"), ("code", code), ("asked", &asked.to_string()), ("message", "text")]);
    fields.extend(phase.map(|p| ("phase".into(), (*p).to_owned())));
    fields
}

/// `+`: holds, `-`: vacuous, a number: violated at that entry.
fn check(property: &str, cases: &[(&str, &str)]) {
    let all = all();
    let property = all.iter().find(|p| p.name == property).expect("a property of that name");
    for (words, expected) in cases {
        let verdict = match property.judge(&trace(words)) {
            Verdict::Holds { .. } => "+".to_owned(),
            Verdict::Vacuous => "-".to_owned(),
            Verdict::Violated(v) => v.entry.to_string(),
        };
        assert_eq!(&verdict, expected, "{}: {words}", property.name);
    }
}

#[test]
fn stopped_is_stable_until_a_start_or_delete_is_accepted() {
    check(
        "stopped-is-stable",
        &[
            ("Ready>Stopping; end", "-"),
            ("Stopping>Stopped; end", "+"),
            ("Stopping>Stopped; Stopped>Provisioning!; end", "1"),
            ("Stopping>Stopped; acc start; Stopped>Starting; end", "+"),
            ("Stopping>Stopped; acc delete; Stopped>Deleting; end", "+"),
            ("Stopping>Stopped; acc stop; Stopped>Provisioning!; end", "2"),
            ("Stopping>Stopped; Stopped>Error?; end", "+"),
            ("Stopping>Stopped; Stopped>Error!; end", "1"),
            ("Stopping>Stopped; acc start; Starting>Stopped; Stopped>Ready!; end", "3"),
            ("acc start; commit attempt; Starting>Stopped; Stopped>Provisioning!; end", "-"),
            ("acc start; commit attempt; commit -; Starting>Stopped; Stopped>Provisioning!; end", "4"),
        ],
    );
}

#[test]
fn a_ready_row_has_a_session_and_was_not_told_to_stop() {
    check(
        "ready-has-a-session",
        &[
            ("acc create; session; Provisioning>Ready!; +200; end", "+"),
            ("acc create; Provisioning>Ready!; end", "1"),
            ("acc create; Provisioning>Ready; session; +200; end", "+"),
            ("acc create; session; Provisioning>Ready; closed; +200; end", "4"),
            ("acc create; session; Provisioning>Ready; closed; Ready>Provisioning; +200; end", "+"),
            ("acc create; session; Provisioning>Ready; acc stop; Ready>Stopping; Stopping>Ready!; end", "5"),
            ("acc create; session; Provisioning>Ready; acc stop; Ready>Stopping; Stopping>Ready~; end", "+"),
            (
                "acc create; session; acc stop; Provisioning>Stopping; Stopping>Provisioning~; Provisioning>Ready; end",
                "+",
            ),
            ("acc create; session; acc stop; Provisioning>Stopping; Stopping>Stopped~; Stopped>Ready; end", "5"),
            ("acc create; session; crash; +40; Provisioning>Ready!; Ready>Provisioning!; end", "+"),
            ("acc create; session; crash; +50; Provisioning>Ready!; end", "4"),
        ],
    );
}

#[test]
fn a_row_that_waits_does_so_for_480_s_at_most() {
    check(
        "nothing-waits-for-ever",
        &[
            ("acc create; exits Provisioning - 300; +470; end", "+"),
            ("acc create; exits Provisioning - 300; +490; end", "2"),
            ("acc create; exits Provisioning - 300; +400; Provisioning>Ready!; +400; end", "+"),
            ("Ready>Stopping; +400; acc stop; +400; end", "+"),
            ("Ready>Provisioning!; +400; Provisioning>Stopping; +100; end", "3"),
            ("Ready>Provisioning!; +400; gone; +400; end", "+"),
        ],
    );
}

#[test]
fn a_row_that_no_call_can_move_is_a_dead_end_unless_a_deadline_is_armed() {
    check(
        "no-dead-end",
        &[
            ("exits Provisioning - 0; cr off; +200; end", "2"),
            ("exits Provisioning - 0; cr off; +180; end", "+"),
            ("exits Provisioning stop 0; cr off; +900; end", "+"),
            ("exits Provisioning - 300; cr off; +900; end", "+"),
            ("exits Provisioning - 0; cr off stop/suspending; +200; end", "+"),
            ("exits Provisioning - 0; cr off; workload Running; +200; end", "+"),
            ("exits Provisioning - 0; cr on; +490; end", "2"),
            ("exits Provisioning - 0; cr off; +100; Provisioning>Stopped!; exits Stopped start,stop 0; +200; end", "+"),
            ("exits Error - 0; +200; end", "1"),
            ("exits Error stop 0; +900; end", "+"),
            // Its Pods still end, for as long as their node says nothing; then it is time to let it start.
            ("workload Running; workload ending; exits Error - 0; +900; end", "+"),
            ("workload ending; exits Error - 0; +900; workload gone; +180; end", "+"),
            ("workload ending; exits Error - 0; +900; workload gone; +200; end", "4"),
            ("workload ending; exits Provisioning - 0; +490; end", "2"),
            ("workload Running; exits Error - 0; +200; end", "2"),
            ("exits Deleting - 0; +900; end", "+"),
        ],
    );
}

#[test]
fn no_snapshot_revives_what_is_being_deleted_and_it_goes() {
    check(
        "deleting-is-final",
        &[
            ("acc delete; Ready>Deleting; +60; gone; +900; end", "+"),
            ("acc delete; Ready>Deleting; Deleting>Stopped!; end", "2"),
            ("acc delete; Ready>Deleting; Deleting>Ready~; +900; end", "+"),
            ("acc delete; Ready>Deleting; +490; end", "2"),
            ("Provisioning>Ready; end", "-"),
        ],
    );
}

#[test]
fn a_stopped_sandbox_comes_to_rest() {
    check(
        "stopped-is-at-rest",
        &[
            ("cr on; workload Running; Stopping>Stopped; +190; end", "3"),
            ("cr off; Stopping>Stopped; +900; end", "+"),
            ("cr off stop/suspending; Stopping>Stopped; +100; cr off; +900; end", "+"),
            ("cr off stop/suspending; Stopping>Stopped; +190; end", "2"),
            ("cr off; supervisor Running; Stopping>Stopped; +190; end", "3"),
            ("cr off; supervisor Running; Stopping>Stopped; +90; supervisor gone; +900; end", "+"),
            ("cr on; workload Running; Stopping>Stopped; acc start; Stopped>Starting; +900; end", "+"),
        ],
    );
}

#[test]
fn a_resource_without_a_row_goes() {
    check(
        "no-orphan",
        &[
            ("acc create; cr on; gone; +430; end", "3"),
            ("acc create; cr on; gone; +400; cr gone; +100; end", "+"),
            ("cr on; +100; acc create; +900; end", "+"),
        ],
    );
}

#[test]
fn a_sandbox_has_one_pod_of_each_kind_and_both_of_one_run() {
    check(
        "one-of-each",
        &[
            ("workload Running a; supervisor Running a; Provisioning>Ready; end", "+"),
            ("workload Running a; supervisor Running b; Provisioning>Ready; end", "2"),
            ("workload Running a w1; workload Pending a w2; end", "1"),
            ("workload Running a w1; workload gone a w1; workload Pending a w2; end", "+"),
        ],
    );
}

#[test]
fn no_workload_runs_after_stopped_was_reported() {
    check(
        "stopped-does-not-run",
        &[
            ("acc stop; ask stop; workload Running; ok stop Stopped; end", "3"),
            ("acc stop; workload gone; ask stop; ok stop Stopped; workload Running; end", "4"),
            ("acc stop; workload gone; ask stop; ok stop Stopped; acc start; workload Running; end", "+"),
            ("workload Running; ask get; ok get Stopped; end", "-"),
        ],
    );
}

#[test]
fn a_volume_that_was_in_use_stays_until_a_delete_is_accepted() {
    let up = "acc create; Provisioning>Ready; cr on; claim";
    let case = |rest: &str| format!("{up}; {rest}; end");
    let cases = [
        ("run", "+"),
        ("del driver sandboxes demo; cr gone; del gc persistentvolumeclaims workspace-demo; claim gone", "7"),
        (
            "acc delete; del driver sandboxes demo; cr gone; del gc persistentvolumeclaims workspace-demo; claim gone",
            "+",
        ),
        // somebody else has deleted it
        ("cr gone; del gc persistentvolumeclaims workspace-demo; claim gone", "+"),
        ("del controller persistentvolumeclaims workspace-demo; claim gone", "5"),
    ]
    .map(|(rest, expected)| (case(rest.trim_start_matches("run")).replace("; ; ", "; "), expected));
    check("volume-survives", &cases.iter().map(|(words, expected)| (&**words, *expected)).collect::<Vec<_>>());
    let reaped = "acc create; cr off create/preparing; claim; del driver sandboxes demo; cr gone; \
                  del gc persistentvolumeclaims workspace-demo; claim gone; end";
    check("volume-survives", &[(reaped, "+")]);
    let another = "acc create; cr on; claim; Provisioning>Ready; cr gone; cr-of u2 on; del driver sandboxes demo; \
                   del gc persistentvolumeclaims workspace-demo; claim gone; end";
    check("volume-survives", &[(another, "+")]);
}

#[test]
fn an_older_snapshot_moves_nothing_after_a_newer_one() {
    check(
        "causal-order",
        &[
            ("sent stop 5; sent stop 7; got; got; Provisioning>Stopped!; end", "+"),
            ("sent stop 7; sent stop 5; got; got; Stopped>Provisioning!; end", "4"),
            ("sent stop 7; sent stop 5; got; Stopped>Provisioning!; got; end", "+"),
            ("sent stop 7; sent stop 5; got; got; Stopped>Starting; end", "+"),
            // what it says is what the newest one says: something else has changed
            ("sent stop 7 Ready; sent stop 5 Ready; got; got; Ready>Provisioning!; end", "+"),
            ("sent stop 7 Ready; sent stop 5 Starting; got; got; Ready>Provisioning!; end", "4"),
            ("sent stop 7 Ready; sent start 5 Ready; got; got; Ready>Provisioning!; end", "4"),
            (
                "sent stop 7 Ready; sent stop 5 Starting; sent stop 5 Ready; got; got; got; Ready>Provisioning!; end",
                "+",
            ),
        ],
    );
}

#[test]
fn a_row_without_its_resource_does_not_stay() {
    check(
        "no-ghost",
        &[
            ("Provisioning>Ready; cr on; cr gone; +480; end", "3"),
            ("Provisioning>Ready; cr on; cr gone; +470; end", "+"),
            ("Provisioning>Ready; cr on; +400; cr gone; +181; end", "4"),
            ("Provisioning>Ready; cr on; +400; cr gone; +170; sweep-fails; +170; end", "+"),
            ("Provisioning>Ready; cr on; +400; cr gone; +170; sweep-fails; +181; end", "6"),
            ("Provisioning>Ready; cr on; cr gone; +300; gone; +300; end", "+"),
            ("Provisioning>Ready; cr on; cr gone; +300; Ready>Error!; +300; end", "+"),
            ("Provisioning>Ready; cr on; cr gone; +100; cr on; +500; end", "+"),
            ("Provisioning>Ready; +500; end", "+"),
        ],
    );
}

#[test]
fn only_a_stop_that_is_done_ends_a_stop() {
    check(
        "stop-ends-off",
        &[
            ("cr on stop/releasing; cr off stop/suspending; cr off; end", "+"),
            ("cr on stop/releasing; cr on; end", "1"),
            ("cr off stop/suspending; cr on restart/preparing; end", "1"),
            ("cr off stop/suspending; cr off; cr on restart/preparing; end", "+"),
            ("cr on stop/releasing; cr gone; cr on; end", "-"),
            ("cr on create/released; cr on; end", "-"),
        ],
    );
}

#[test]
fn a_sandbox_keeps_its_resource() {
    let other = "cr-of other on";
    check(
        "never-made-anew",
        &[
            ("cr on; cr off; cr on; end", "+"),
            (&format!("cr on; cr gone; {other}; end"), "2"),
            (&format!("cr on; acc delete; cr gone; {other}; end"), "+"),
        ],
    );
}

#[test]
fn a_client_that_saw_stopped_sees_no_provisioning_before_a_start_is_accepted() {
    check(
        "seen-stopped-stays",
        &[
            ("seen Stopped; seen Provisioning; end", "1"),
            ("ask stop; ok stop Stopped; seen Provisioning; end", "2"),
            ("ask stop; ok stop Stopped; ask get; ok get Provisioning; end", "3"),
            ("seen Stopped; acc start; seen Starting; seen Provisioning; end", "+"),
            ("seen Provisioning; seen Ready; end", "-"),
            ("seen list Stopped 4; seen watch Provisioning 5; end", "1"),
            ("seen watch Stopped 4; seen list Provisioning 5; end", "1"),
            // A state from before the one that was seen already, by another call: it was on its way.
            ("seen list Stopped 4; seen watch Provisioning 3; end", "+"),
            // The same of a start: Stopped was on its way when the start was accepted.
            ("version 5; acc start; seen watch Stopped 4; seen watch Starting 5; seen watch Provisioning 6; end", "-"),
            ("version 5; acc start; seen watch Stopped 6; seen watch Provisioning 7; end", "3"),
            // A start that failed and may still be seen, and the same once it is settled.
            ("version 5; acc start; version 6 open; seen watch Stopped 6; seen watch Provisioning 7; end", "-"),
            (
                "version 5; acc start; version 6 open; seen watch Stopped 6; version 7; seen get Stopped 7; \
                 seen watch Provisioning 8; end",
                "6",
            ),
        ],
    );
}

#[test]
fn row_and_resource_agree_once_all_is_quiet() {
    check(
        "row-and-resource-agree",
        &[
            ("cr on; workload Running; supervisor Running; Provisioning>Ready; +900; end", "+"),
            ("cr on; workload Running; Provisioning>Ready; +250; end", "3"),
            ("cr off; Ready>Provisioning!; +250; end", "2"),
            ("cr off; Ready>Provisioning!; +200; Provisioning>Stopped!; +900; end", "+"),
            ("cr off; exits Starting start 300; +290; end", "+"),
            ("cr off; exits Starting start 300; +290; exits Starting start 0; +250; end", "4"),
        ],
    );
}

#[test]
fn stop_is_idempotent_once_a_client_was_told_stopped() {
    check(
        "stop-is-idempotent",
        &[
            ("cr on; ask stop; ok stop Stopped; cr gone; ask stop; no stop; end", "-"),
            ("cr on; ask stop; cr gone; ok stop Stopped; ask stop; no stop; end", "-"),
            ("cr on; cr gone; ask get; ok get Stopped; cr on; ask stop; ok stop Stopped; ask stop; no stop; end", "8"),
            ("ask stop; ok stop Stopped; end", "-"),
            ("ask stop; ok stop Stopped; ask stop; ok stop Stopped; end", "+"),
            ("ask stop; ok stop Stopped; ask stop; no stop; end", "3"),
            ("ask get; ok get Stopped; ask stop; no stop; end", "3"),
            ("ask get; ok get Ready; ask stop; no stop; end", "-"),
            ("ask stop; ok stop Stopped; acc start; ask stop; no stop; end", "-"),
        ],
    );
}

#[test]
fn a_start_of_a_sandbox_reported_stopped_is_accepted() {
    check(
        "start-from-stopped-is-accepted",
        &[
            ("ask stop; ok stop Stopped; end", "-"),
            ("ask stop; ok stop Stopped; ask start; acc start; ok start Starting; end", "+"),
            ("ask stop; ok stop Stopped; ask start; no start; end", "3"),
            ("ask stop; ok stop Stopped; ask start; no start 13; end", "3"),
            ("ask stop; ok stop Stopped; ask start; acc start; no start 13; end", "+"),
            ("ask start; no start; end", "-"),
            ("ask stop; ok stop Stopped; acc delete; ask start; no start; end", "-"),
            ("ask stop; ok stop Stopped; ask start; acc delete; no start 5; end", "-"),
        ],
    );
}

#[test]
fn an_accepted_start_leads_to_ready() {
    check(
        "start-reaches-ready",
        &[
            ("end", "-"),
            ("acc start; Starting>Ready; end", "+"),
            ("acc start; Starting>Provisioning; end", "2"),
            ("acc start; acc stop; Starting>Stopping; end", "-"),
        ],
    );
}

#[test]
fn a_snapshot_of_the_stop_moves_no_stopped_row() {
    check(
        "stop-snapshot-is-inert",
        &[
            ("sent create; got; Provisioning>Ready!; end", "-"),
            ("sent stop; got; end", "+"),
            ("sent stop; got; Stopped>Provisioning!; end", "2"),
            ("sent stop; got; Stopping>Stopped!; end", "+"),
            ("sent stop; got; Stopped>Starting; end", "+"),
            // which snapshot moved the row is told by order, not by time
            ("sent restart; sent stop; got; Stopped>Provisioning!; got; end", "+"),
            ("sent restart; sent stop; got; got; Stopped>Provisioning!; end", "4"),
            ("sent stop; open; sent restart; watch; got; Stopped>Provisioning!; end", "-"),
            ("sent stop; got; open; sent stop; watch; got; Stopped>Provisioning!; end", "6"),
        ],
    );
}

#[test]
fn a_start_that_fell_back_leaves_stopped_within_a_sweep_of_its_snapshot() {
    check(
        "start-leaves-stopped",
        &[
            ("acc start; Starting>Stopped; +70; end", "-"),
            ("acc start; Starting>Stopped; sent restart; got; Stopped>Provisioning!; +70; end", "+"),
            ("acc start; Starting>Stopped; sent restart; got; +70; end", "4"),
            ("acc start; Starting>Stopped; sent restart; got; +30; end", "+"),
            ("acc start; Starting>Stopped; sent stop; got; +70; end", "-"),
            ("acc start; Starting>Stopped; acc stop; sent restart; got; +70; end", "-"),
            ("Starting>Stopped; sent restart; got; +70; end", "-"),
            ("acc start; cr on restart/preparing; Starting>Stopped; sent restart; got; +70; end", "5"),
            ("acc start; cr on restart/preparing; Starting>Stopped; sent restart; got; cr off; +70; end", "+"),
            ("acc start; cr on restart/preparing; cr off; Starting>Stopped; sent restart; got; +70; end", "-"),
        ],
    );
}

mod intake;
