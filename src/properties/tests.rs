//! Each property as a table: short traces, and what it says of them.
use super::*;
use photofinish::property::Verdict;

/// A trace in words, separated by `;`, at 1 s, 2 s ...:
/// `Ready>Stopped` a phase change (`!` behind it: by a snapshot, `?`: ComputeResourceMissing), `acc start` an accepted
/// request, `ask stop` and `ok stop` / `ok stop Stopped` / `no stop` a client's request and its answer, `sent stop` /
/// `got` a snapshot of that operation sent and received, `open` and `watch` a new watch at the driver and the gateway, `+70` seconds pass, `end` the end.
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
            ["acc", op] => log("request accepted op=..", &[("op", op), ("sandbox_name", "demo")]),
            ["ask", op] => {
                asked = entries.len();
                ("op", op.to_owned(), String::new(), owned(&[("sandbox", "demo")]))
            }
            ["ok", op, ref rest @ ..] => ("reply", op.to_owned(), String::new(), reply("0", asked, rest.first())),
            ["no", op] => ("reply", op.to_owned(), String::new(), reply("9", asked, None)),
            ["sent", op] => log("snapshot sent", &[("operation", op), ("sandbox_name", "demo")]),
            ["got"] => log("snapshot received", &[("sandbox_name", "demo")]),
            ["open"] => log("snapshot stream opened", &[]),
            ["watch"] => log("driver watch: opened", &[]),
            ["end"] => ("end", "time".to_owned(), String::new(), vec![]),
            [pause] if pause.starts_with('+') => {
                at_s += pause[1..].parse::<u64>().expect("seconds");
                ("step", "run".to_owned(), String::new(), vec![])
            }
            [change] => {
                let (old, new) = change.split_once('>').expect("a phase change");
                let by = if new.ends_with('!') { "snapshot" } else { "rpc" };
                let reason = if new.ends_with('?') { "ComputeResourceMissing" } else { "" };
                let new = new.trim_end_matches(['!', '?']);
                let fields =
                    [("sandbox_name", "demo"), ("old_phase", old), ("new_phase", new), ("by", by), ("reason", reason)];
                log("Sandbox phase changed old_phase=..", &fields)
            }
            _ => panic!("not a word of this table: {word}"),
        };
        entries.push(Entry {
            id: entries.len() as EntryId,
            at_ns: at_s * 1_000_000_000,
            host: "h".into(),
            kind: kind.into(),
            name: name.into(),
            text,
            fields,
            spans: vec![],
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
        ],
    );
}

#[test]
fn stop_is_idempotent_once_a_client_was_told_stopped() {
    check(
        "stop-is-idempotent",
        &[
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
            ("ask start; no start; end", "-"),
            ("ask stop; ok stop Stopped; acc delete; ask start; no start; end", "-"),
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
        ],
    );
}
