//! Isolation in a program, and under libtest-mimic (`harness = false`): the zygote is asked for before arguments are read.

use libtest_mimic::{Arguments, Failed, Trial};
use photofinish_sim::trace::Trace;
use photofinish_sim::zygote::{self, Exit, Zygote};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn body(request: &[u8], trace: Trace) -> Vec<u8> {
    trace
        .entry("log", "info")
        .text(format!("{:?} {:?}", std::env::args().collect::<Vec<_>>(), std::thread::current().name()))
        .record();
    assert_ne!(request, b"panic", "as asked");
    request.iter().rev().copied().collect()
}

fn expect(holds: bool, what: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn main() {
    if zygote::inside() {
        zygote::serve(body)
    }
    let trials = vec![
        Trial::test("a_run_reports_and_leaves_its_trace", || {
            let mut zygote = Zygote::start(&[])?;
            let finished = zygote.run(b"abc", LIMIT)?;
            expect(finished.exit == Exit::Done && finished.report == b"cba", "the report")?;
            let text = &finished.trace()[0].text;
            expect(text == r#"["photofinish"] Some("world")"#, text)
        }),
        Trial::test("a_panic_is_an_outcome_and_the_next_run_is_as_ever", || {
            let mut zygote = Zygote::start(&[])?;
            expect(
                matches!(zygote.run(b"panic", LIMIT)?.exit, Exit::Panicked(m) if m.contains("as asked")),
                "the panic",
            )?;
            expect(zygote.run(b"abc", LIMIT)?.report == b"cba", "the next run")
        }),
        Trial::test("zygotes_on_several_threads_do_not_meet", || {
            let run = |n: u8| -> std::io::Result<bool> {
                let mut zygote = Zygote::start(&[])?;
                let all: std::io::Result<Vec<_>> = (0..20).map(|i| zygote.run(&[n, i], LIMIT)).collect();
                Ok(all?.iter().zip(0..).all(|(finished, i)| finished.report == [i, n]))
            };
            let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(move || run(n))).collect();
            threads
                .into_iter()
                .try_for_each(|t| expect(t.join().is_ok_and(|r| matches!(r, Ok(true))), "each its own reports"))
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}
