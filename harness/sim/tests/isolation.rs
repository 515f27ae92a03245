//! What a run's end, whatever it is, leaves behind: an outcome, its trace, and a zygote that goes on.

#[path = "support/in_zygotes.rs"]
#[macro_use]
mod in_zygotes;
#[path = "support/processes.rs"]
mod processes;

use photofinish_sim::choices::Choices;
use photofinish_sim::host::HostSpec;
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{World, WorldConfig};
use photofinish_sim::zygote::{self, Exit, Finished, Zygote};
use processes::{alive, children, kill, threads};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: photofinish_sim::heap::WorldHeap = photofinish_sim::heap::WorldHeap;

/// Enough for any run that ends by itself.
const PLENTY: Duration = Duration::from_secs(120);
/// For runs that do not.
const SHORT: Duration = Duration::from_secs(1);
/// Makes this executable play a parent of its own, for tests that need a second one.
const PARENT: &str = "PHOTOFINISH_TEST_PARENT";

/// What a host of a world does in these tests.
const DEEDS: [&str; 5] = ["panic", "abort", "overflow", "spin", "sleep-on-the-real-clock"];

/// The same inside a world: host `gateway` does it, one virtual second after its start.
fn in_a_world(deed: &'static str, trace: &Trace) {
    let mut builder = World::builder(WorldConfig::default(), trace.clone(), Choices::benign());
    builder.host("gateway", HostSpec::new(), move |ctx| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::spawn(async move { body(deed.as_bytes(), ctx.trace) }).await?;
        Ok(())
    });
    builder.host("neighbour", HostSpec::new(), |ctx| async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        ctx.trace.entry("log", "info").text("neighbour goes on").record();
        Ok(())
    });
    let mut world = builder.build();
    world.start_all();
    world.run_for(Duration::from_secs(3)).expect("the neighbour goes on");
}

/// What a run does, by its request; each first records that it began.
fn body(request: &[u8], trace: Trace) -> Vec<u8> {
    let request = String::from_utf8_lossy(request);
    trace.entry("log", "info").text(format!("begin {request}")).record();
    if let Some(deed) = request.strip_prefix("in a world: ") {
        in_a_world(DEEDS.iter().find(|d| **d == deed).expect("a known deed"), &trace);
        return Vec::new();
    }
    match &*request {
        "panic" => panic!("boom {}", 1 + 1),
        "panic-without-text" => std::panic::panic_any(7),
        "panic-in-task" => {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let task = runtime.spawn(async { panic!("in a task") });
            return runtime.block_on(task).unwrap_err().is_panic().to_string().into_bytes();
        }
        "panic-while-reading-the-trace" => trace.with(|entries| assert!(entries.is_empty(), "an oracle's own")),
        "abort" => std::process::abort(),
        "overflow" => return vec![overflow(&[1; 1024])],
        "segfault" => {
            // SAFETY: none: a fault is what the test asks for.
            unsafe { std::ptr::write_volatile(8 as *mut u8, 1) }
        }
        "spin" => loop {
            std::hint::spin_loop();
        },
        "sleep-on-the-real-clock" => sleep_past_libc(3600),
        "stop" => raise(libc::SIGSTOP),
        "killed" => raise(libc::SIGKILL),
        "exit-0" => std::process::exit(0),
        "exit-3" => std::process::exit(3),
        "blocked" => photofinish_sim::exit::leave(photofinish_sim::exit::BLOCKED, "blocked", "blocked at a lock"),
        "print" => {
            print!("to stdout, without an end");
            eprint!("to stderr, without an end");
        }
        "print-much" => (0..100_000).for_each(|n| println!("line {n}")),
        "report-much" => return vec![b'x'; 64 << 20],
        "leave-a-thread" => drop(std::thread::spawn(|| std::thread::sleep(PLENTY))),
        "leave-a-child" => {
            // SAFETY: the forked process only waits for its end.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                sleep_past_libc(3600);
            }
            return pid.to_string().into_bytes();
        }
        "hoard" => {
            // Zeroed memory that nobody touches takes none of the machine's.
            let mut hoard = Vec::new();
            loop {
                hoard.push(std::hint::black_box(vec![0u8; 256 << 20]));
            }
        }
        "flood" => (0..1_000_000).for_each(|_| {
            trace.entry("log", "info").text("x".repeat(1000)).record();
        }),
        "thread" => return format!("{:?}", std::thread::current().name()).into_bytes(),
        "places" => {
            let (stack, heap) = (0u8, Box::new(0u8));
            let map = hashbrown::HashMap::<u32, ()>::from_iter((0..32).map(|n| (n, ())));
            let order: Vec<_> = map.keys().collect();
            let text = format!("{:p} {:p} {order:?} {:?}", &stack, heap, body as *const ());
            trace.entry("log", "info").text(text).record();
        }
        "surroundings" => {
            let (env, dir): (Vec<_>, _) = (std::env::vars().collect(), std::env::current_dir());
            let mut files: Vec<_> =
                std::fs::read_dir("/proc/self/fd").unwrap().map(|e| e.unwrap().file_name()).collect();
            files.sort();
            return format!("{env:?} {dir:?} {files:?}").into_bytes();
        }
        other => return other.to_uppercase().into_bytes(),
    }
    Vec::new()
}

#[expect(unconditional_recursion, reason = "to overflow the stack")]
fn overflow(on: &[u8; 1024]) -> u8 {
    let mut next = *on;
    next[0] = next[0].wrapping_add(1);
    std::hint::black_box(overflow(std::hint::black_box(&next))).wrapping_add(next[0])
}

fn raise(signal: i32) {
    // SAFETY: a signal to ourselves.
    unsafe { libc::raise(signal) };
}

/// A sleep that no symbol of libc sees.
fn sleep_past_libc(seconds: i64) {
    let time = libc::timespec { tv_sec: seconds, tv_nsec: 0 };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nanosleep only reads `time`.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") libc::SYS_nanosleep => _, in("rdi") &time, in("rsi") 0,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: nanosleep only reads `time`.
    unsafe {
        std::arch::asm!("svc 0", in("x8") libc::SYS_nanosleep, inlateout("x0") &raw const time => _, in("x1") 0,
            options(nostack));
    }
}

fn zygote() -> Zygote {
    Zygote::start(&zygote::this_test()).expect("this test serves its zygote")
}

fn run(zygote: &mut Zygote, request: &str, limit: Duration) -> Finished {
    zygote.run(request.as_bytes(), limit).expect("the zygote lives")
}

/// The texts of a run's trace.
fn texts(finished: &Finished) -> Vec<String> {
    finished.trace().into_iter().map(|entry| entry.text).collect()
}

/// Runs `request`, expects `exit` with what the run had recorded until then, and that the next run is as the one before.
fn ends(request: &str, limit: Duration, exit: Exit) -> Finished {
    let mut zygote = zygote();
    let before = run(&mut zygote, "next", PLENTY);
    let finished = run(&mut zygote, request, limit);
    assert_eq!(finished.exit, exit, "{}", String::from_utf8_lossy(&finished.stderr));
    assert_eq!(texts(&finished)[0], format!("begin {request}"));
    assert!(finished.report.is_empty());
    let after = run(&mut zygote, "next", PLENTY);
    assert_eq!((&after.exit, after.report.as_slice()), (&Exit::Done, b"NEXT".as_slice()));
    assert_eq!(after.trace_lines(), before.trace_lines());
    assert!(after.stdout.is_empty() && after.stderr.is_empty());
    finished
}

in_zygotes! { zygote::serve(body);
    fn a_run_that_returns_is_done_with_report_and_trace() {
        let finished = run(&mut zygote(), "hello", PLENTY);
        assert_eq!((finished.exit.clone(), finished.report.as_slice()), (Exit::Done, b"HELLO".as_slice()));
        assert_eq!(texts(&finished), ["begin hello"]);
        assert_eq!(finished.trace_hash(), photofinish_sim::trace::hash_of_lines(finished.trace_lines()));
    }

    fn a_panic_ends_the_run_with_message_and_place() {
        let mut zygote = zygote();
        let finished = run(&mut zygote, "panic", PLENTY);
        let Exit::Panicked(message) = &finished.exit else { panic!("{:?}", finished.exit) };
        assert!(message.starts_with("boom 2 (") && message.contains("isolation.rs:"), "{message}");
        let trace = finished.trace();
        assert_eq!((&*trace[1].kind, trace[1].field("message"), trace[1].field("host")), ("panic", Some("boom 2"), Some("world")));
        assert!(trace[1].field("location").unwrap().contains("isolation.rs:"));
        assert!(String::from_utf8_lossy(&finished.stderr).contains("boom 2"));
        assert_eq!(run(&mut zygote, "next", PLENTY).exit, Exit::Done);
    }

    fn a_panic_without_text_is_told_as_such() {
        let finished = run(&mut zygote(), "panic-without-text", PLENTY);
        assert!(matches!(&finished.exit, Exit::Panicked(m) if m.starts_with("a panic without a text (")), "{:?}", finished.exit);
    }

    fn a_panic_in_a_task_is_an_entry_and_the_run_goes_on() {
        let finished = run(&mut zygote(), "panic-in-task", PLENTY);
        assert_eq!((finished.exit.clone(), finished.report.as_slice()), (Exit::Done, b"true".as_slice()));
        assert_eq!(finished.trace()[1].field("message"), Some("in a task"));
    }

    fn a_panic_of_somebody_who_reads_the_trace_is_an_entry_too() {
        let finished = run(&mut zygote(), "panic-while-reading-the-trace", PLENTY);
        assert!(matches!(finished.exit, Exit::Panicked(_)));
        assert_eq!(finished.trace()[1].field("message"), Some("an oracle's own"));
    }

    fn whatever_a_host_of_a_world_does_its_trace_tells_when_and_where_it_began() {
        let mut zygote = zygote();
        let exits = [Exit::Done, Exit::Signal(libc::SIGABRT), Exit::Signal(libc::SIGABRT), Exit::WallLimit, Exit::WallLimit];
        for (deed, exit) in DEEDS.into_iter().zip(exits) {
            let limit = if exit == Exit::WallLimit { SHORT } else { PLENTY };
            let finished = run(&mut zygote, &format!("in a world: {deed}"), limit);
            assert_eq!(finished.exit, exit, "{deed}: {}", String::from_utf8_lossy(&finished.stderr));
            let trace = finished.trace();
            let begin = trace.iter().find(|e| e.text == format!("begin {deed}")).expect("the host got so far");
            assert_eq!((&*begin.host, begin.at_ns), ("gateway", 1_000_000_000), "{deed}");
            assert_eq!(trace.iter().any(|e| e.text == "neighbour goes on"), deed == "panic", "{deed}");
            let panics: Vec<_> = trace.iter().filter(|e| e.kind == "panic").map(|e| (&*e.host, e.field("message"))).collect();
            assert_eq!(panics, if deed == "panic" { vec![("gateway", Some("boom 2"))] } else { vec![] });
        }
        assert_eq!(run(&mut zygote, "next", PLENTY).report, b"NEXT");
    }

    fn an_abort_is_an_outcome() {
        ends("abort", PLENTY, Exit::Signal(libc::SIGABRT));
    }

    fn a_stack_overflow_is_an_outcome() {
        let finished = ends("overflow", PLENTY, Exit::Signal(libc::SIGABRT));
        assert!(String::from_utf8_lossy(&finished.stderr).contains("overflowed its stack"));
    }

    fn a_fault_is_an_outcome() {
        ends("segfault", PLENTY, Exit::Signal(libc::SIGSEGV));
    }

    fn memory_without_end_is_an_outcome() {
        let finished = ends("hoard", PLENTY, Exit::Signal(libc::SIGABRT));
        assert!(String::from_utf8_lossy(&finished.stderr).contains("memory allocation of 268435456 bytes failed"));
    }

    fn an_endless_loop_is_killed_at_the_limit() {
        ends("spin", SHORT, Exit::WallLimit);
    }

    fn a_run_that_was_killed_while_it_waited_is_told_from_one_that_worked() {
        assert!(ends("sleep-on-the-real-clock", SHORT, Exit::WallLimit).starved);
        // Beside other work it may not have a processor for half of any one time.
        let busy = (0..20).map(|n| run(&mut zygote(), "spin", SHORT * (1 + n)));
        assert!(busy.into_iter().any(|finished| !finished.starved));
    }

    fn a_sleep_on_the_real_clock_is_killed_at_the_limit() {
        let finished = ends("sleep-on-the-real-clock", SHORT, Exit::WallLimit);
        assert!(finished.wall >= SHORT);
    }

    fn a_process_that_stops_itself_is_killed_at_the_limit() {
        ends("stop", SHORT, Exit::WallLimit);
    }

    fn a_process_that_somebody_kills_is_an_outcome() {
        ends("killed", PLENTY, Exit::Signal(libc::SIGKILL));
    }

    fn a_process_that_leaves_by_itself_is_not_done() {
        ends("exit-0", PLENTY, Exit::Code(0));
        let finished = ends("exit-3", PLENTY, Exit::Code(3));
        assert_eq!(finished.exit.to_string(), "the code under test ended the process with exit code 3");
    }

    fn a_world_that_cannot_go_on_says_why_in_its_trace_and_leaves() {
        let finished = ends("blocked", PLENTY, Exit::Code(photofinish_sim::exit::BLOCKED));
        let trace = finished.trace();
        assert_eq!((&*trace[1].kind, &*trace[1].name, &*trace[1].text), ("end", "blocked", "blocked at a lock"));
        assert_eq!(finished.stderr, b"blocked at a lock\n");
        assert_eq!(finished.exit.to_string(), "the code under test blocks the only thread of its world for ever");
    }

    fn output_is_the_runs_own_and_whole() {
        let mut zygote = zygote();
        let finished = run(&mut zygote, "print", PLENTY);
        assert_eq!(finished.stdout, b"to stdout, without an end");
        assert_eq!(finished.stderr, b"to stderr, without an end");
        let finished = run(&mut zygote, "print-much", PLENTY);
        assert!(finished.stdout.starts_with(b"line 0\nline 1\n") && finished.stdout.ends_with(b"line 99999\n"));
        assert!(run(&mut zygote, "quiet", PLENTY).stdout.is_empty());
    }

    fn a_huge_report_arrives_whole() {
        let mut zygote = zygote();
        let finished = run(&mut zygote, "report-much", PLENTY);
        assert!(finished.exit == Exit::Done && finished.report.len() == 64 << 20 && finished.report.iter().all(|&b| b == b'x'));
        assert_eq!(run(&mut zygote, "small", PLENTY).report, b"SMALL");
    }

    fn a_huge_request_arrives_whole_and_changes_nothing_for_the_next_run() {
        let mut zygote = zygote();
        let before = run(&mut zygote, "places", PLENTY);
        let huge = "x".repeat(32 << 20);
        assert_eq!(run(&mut zygote, &huge, PLENTY).report, huge.to_uppercase().as_bytes());
        assert_eq!(run(&mut zygote, "places", PLENTY).trace_lines(), before.trace_lines());
    }

    fn what_a_run_leaves_running_ends_with_it() {
        let mut zygote = zygote();
        assert_eq!(run(&mut zygote, "leave-a-thread", PLENTY).exit, Exit::Done);
        let left = run(&mut zygote, "leave-a-child", PLENTY);
        let pid = String::from_utf8(left.report).unwrap().parse().unwrap();
        let start = Instant::now();
        while alive(pid) {
            assert!(start.elapsed() < PLENTY, "process {pid} of the run is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn a_trace_that_fills_its_memory_ends_with_an_entry_that_says_so() {
        let mut zygote = Zygote::start_with_memory(&zygote::this_test(), 1 << 20).unwrap();
        let finished = run(&mut zygote, "flood", PLENTY);
        assert_eq!(finished.exit, Exit::Done);
        let trace = finished.trace();
        assert!((900..1100).contains(&trace.len()));
        assert_eq!(&*trace.last().unwrap().name, "trace-full");
        assert_eq!(texts(&run(&mut zygote, "next", PLENTY)), ["begin next"]);
    }

    fn the_body_runs_on_a_thread_called_world() {
        assert_eq!(run(&mut zygote(), "thread", PLENTY).report, br#"Some("world")"#);
    }

    fn two_zygotes_give_the_same_bytes_down_to_addresses_and_the_hash_orders_that_hang_on_them() {
        let (mut a, mut b) = (zygote(), zygote());
        let first = run(&mut a, "places", PLENTY);
        assert_eq!(run(&mut a, "places", PLENTY).trace_lines(), first.trace_lines());
        if a.addresses_are_fixed() {
            run(&mut b, "something else before", PLENTY);
            assert_eq!(run(&mut b, "places", PLENTY).trace_lines(), first.trace_lines());
        }
    }

    fn another_environment_and_another_folder_change_nothing() {
        let mut ours = zygote();
        if std::env::var_os(PARENT).is_some() {
            let places = run(&mut ours, "places", PLENTY);
            let surroundings = run(&mut ours, "surroundings", PLENTY);
            // On a line of its own: libtest prints the test's name without an end before.
            println!("\n{}", String::from_utf8_lossy(&surroundings.report));
            println!("{}", places.trace_hash());
            return;
        }
        let elsewhere = |dir: &str, filler: &str| {
            let mut command = parent();
            command.env("FILLER", filler).current_dir(dir);
            let output = command.output().unwrap();
            assert!(output.status.success());
            let text = String::from_utf8(output.stdout).unwrap();
            let lines = text.lines().skip_while(|line| !line.contains("PHOTOFINISH_ZYGOTE"));
            lines.take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let (one, two) = (elsewhere("/", ""), elsewhere("/tmp", &"x".repeat(5000)));
        assert_eq!(one.len(), 2, "{one:?}");
        if ours.addresses_are_fixed() {
            assert_eq!(one[1], two[1]);
            assert_eq!(one[1], run(&mut ours, "places", PLENTY).trace_hash());
        }
        assert_eq!(one[0], two[0]);
        assert!(!one[0].contains("FILLER"));
    }

    fn a_zygote_is_small_when_it_forks_and_does_not_grow() {
        let mut zygote = zygote();
        let before = zygote.resident().unwrap();
        assert!(before < 20 << 20, "{before} bytes resident");
        run(&mut zygote, &"x".repeat(8 << 20), PLENTY);
        run(&mut zygote, "report-much", PLENTY);
        let after = zygote.resident().unwrap();
        assert!(after < before + (1 << 20), "grew from {before} to {after} bytes");
        println!("zygote: {} KiB resident", after >> 10);
    }

    fn zygotes_work_side_by_side_in_one_process() {
        let workers: Vec<_> = (0..3)
            .map(|n| {
                let mut zygote = zygote();
                std::thread::spawn(move || {
                    for i in 0..50 {
                        let request = format!("run {n} {i}");
                        let finished = run(&mut zygote, &request, PLENTY);
                        assert_eq!(finished.report, request.to_uppercase().as_bytes());
                        assert_eq!(texts(&finished), [format!("begin {request}")]);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }

    fn a_thousand_runs_leave_no_descriptor_and_no_process_behind() {
        let mut zygote = zygote();
        let count = |zygote: &Zygote| std::fs::read_dir(format!("/proc/{}/fd", zygote.pid())).unwrap().count();
        run(&mut zygote, "warm", PLENTY);
        let before = count(&zygote);
        for _ in 0..1000 {
            assert_eq!(run(&mut zygote, "again", PLENTY).exit, Exit::Done);
        }
        assert_eq!(count(&zygote), before);
        assert_eq!(children(zygote.pid()), Vec::<u32>::new());
    }

    fn a_zygote_that_is_killed_is_an_error_and_no_hang() {
        let mut zygote = zygote();
        kill(zygote.pid(), libc::SIGKILL);
        let error = zygote.run(b"next", PLENTY).unwrap_err();
        assert!(zygote.run(b"next", PLENTY).is_err(), "{error}");
    }

    fn the_parents_death_ends_the_zygote_and_its_run() {
        if std::env::var_os(PARENT).is_some() {
            let mut zygote = zygote();
            println!("\nzygote {}", zygote.pid());
            std::io::stdout().flush().unwrap();
            drop(run(&mut zygote, "spin", Duration::from_secs(3600)));
            return;
        }
        let mut parent = parent().stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let zygote = lines.map(Result::unwrap).find_map(|line| line.strip_prefix("zygote ")?.parse::<u32>().ok()).unwrap();
        let start = Instant::now();
        let child = loop {
            if let [child] = children(zygote)[..] {
                break child;
            }
            assert!(start.elapsed() < PLENTY, "the run begins");
            std::thread::sleep(Duration::from_millis(10));
        };
        parent.kill().unwrap();
        parent.wait().unwrap();
        while alive(zygote) || alive(child) {
            assert!(start.elapsed() < PLENTY, "zygote and run end with their parent");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn an_executable_that_does_not_serve_is_an_error_that_says_so() {
        let error = Zygote::start(&["--list".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("did not call zygote::serve: it ended with exit status: 0"), "{error}");
    }
}

/// Signals that interrupt system calls reach a zygote whose program handles them.
#[test]
fn signals_in_mid_run_do_no_harm() {
    if zygote::inside() {
        extern "C" fn ignore(_: i32) {}
        // SAFETY: a handler that does nothing, without SA_RESTART: interrupted calls answer EINTR.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        }
        zygote::serve(body)
    }
    let mut zygote = zygote();
    let pid = zygote.pid();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let pest = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                threads(pid).into_iter().for_each(|tid| kill(tid, libc::SIGUSR1));
                kill(pid, libc::SIGSTOP);
                kill(pid, libc::SIGCONT);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    for _ in 0..50 {
        assert_eq!(run(&mut zygote, "next", PLENTY).report, b"NEXT");
    }
    assert_eq!(run(&mut zygote, "spin", SHORT).exit, Exit::WallLimit);
    assert_eq!(run(&mut zygote, "exit-3", PLENTY).exit, Exit::Code(3));
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    pest.join().unwrap();
}

/// This executable, in this test, as a parent of its own.
fn parent() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(zygote::this_test()).env(PARENT, "1");
    command
}
