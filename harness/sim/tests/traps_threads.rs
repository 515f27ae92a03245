//! Threads that code under test starts: refused by name, or run one at a time on the world's clock.
mod support;

use photofinish_sim::host::{BoxError, HostCtx, HostSpec};
use photofinish_sim::world::{Stuck, WorldConfig};
use std::sync::mpsc;
use std::time::Instant;
use support::{entries, in_world, ms, said_at, say, secs};

fn with_threads() -> WorldConfig {
    WorldConfig { foreign_threads: true, ..WorldConfig::default() }
}
fn run_host<F>(config: WorldConfig, main: fn(HostCtx) -> F) -> (Result<(), Stuck>, Vec<String>, String)
where
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    in_world(
        config,
        |b| {
            b.host("host", HostSpec::new(), main);
        },
        |w| {
            w.start_all();
            (w.run_for(secs(100)), said_at(w), w.trace().hash())
        },
    )
}

#[inline(never)]
fn open_a_database_with_a_worker() -> std::io::Result<()> {
    std::thread::Builder::new().spawn(|| ()).map(drop)
}

#[test]
fn a_thread_in_a_world_without_foreign_threads_ends_it_with_the_creators_name() {
    let (stuck, end) = in_world(
        WorldConfig::default(),
        |b| {
            b.host("host", HostSpec::new(), |ctx| async move {
                let refused = open_a_database_with_a_worker().is_err();
                say(&ctx, format!("refused: {refused}"));
                Ok(())
            });
        },
        |w| {
            w.start_all();
            (w.run_for(secs(1)).unwrap_err(), entries(w, "end"))
        },
    );
    let Stuck::ForeignThread { host, backtrace } = &stuck else { panic!("{stuck:?}") };
    assert_eq!(host, "host");
    assert!(backtrace.lines().next().unwrap().contains("open_a_database_with_a_worker"), "{backtrace}");
    assert!(end[0].starts_with("stuck host starts a thread"), "{end:?}");
}

#[test]
fn spawn_blocking_is_such_a_thread_too() {
    let (end, ..) = run_host(WorldConfig::default(), |_| async {
        tokio::task::spawn_blocking(|| ()).await?;
        Ok(())
    });
    let Err(Stuck::ForeignThread { backtrace, .. }) = end else { panic!("{end:?}") };
    assert!(backtrace.contains("spawn_blocking"), "{backtrace}");
}

async fn work_in_threads(ctx: HostCtx) -> Result<(), BoxError> {
    let tick = tokio::spawn(tokio::time::sleep(secs(9)));
    for i in 0..3 {
        tokio::task::spawn_blocking(|| std::hint::black_box((0..50_000u64).fold(0, |a, b| a ^ b))).await?;
        say(&ctx, format!("blocking {i}"));
    }
    // several at once, each of which answers through the host's own channel
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for i in 0..4 {
        let sender = sender.clone();
        tokio::task::spawn_blocking(move || sender.send(std::hint::black_box((0..10_000 * i).max().unwrap_or(i))));
    }
    drop(sender);
    while let Some(answer) = receiver.recv().await {
        say(&ctx, format!("answer {answer}"));
    }
    // threads that wake each other
    let (to_b, from_a) = mpsc::channel::<u32>();
    let (to_host, from_b) = mpsc::channel::<u32>();
    let b = std::thread::spawn(move || from_a.iter().for_each(|n| to_host.send(n * 2).expect("the host waits")));
    let a = std::thread::spawn(move || (0..5).for_each(|n| to_b.send(n).expect("b waits")));
    a.join().map_err(|_| "a panicked")?;
    b.join().map_err(|_| "b panicked")?;
    say(&ctx, format!("{:?}", from_b.iter().collect::<Vec<_>>()));
    tick.await?;
    say(&ctx, "tick");
    Ok(())
}

#[test]
fn threads_run_to_their_next_sleep_and_take_no_virtual_time() {
    let (end, said, _) = run_host(with_threads(), work_in_threads);
    assert_eq!(end, Ok(()));
    let now = ["blocking 0", "blocking 1", "blocking 2", "answer 0", "answer 9999", "answer 19999", "answer 29999"];
    let mut expected: Vec<String> = now.map(|s| format!("0 host: {s}")).into();
    expected.push("0 host: [0, 2, 4, 6, 8]".into());
    expected.push("9000 host: tick".into());
    assert_eq!(said, expected);
}

#[test]
fn two_hundred_worlds_with_threads_are_alike() {
    let first = run_host(with_threads(), work_in_threads).2;
    for i in 1..200 {
        assert_eq!(run_host(with_threads(), work_in_threads).2, first, "run {i}");
    }
}

#[test]
fn a_threads_clock_sleeps_and_timed_waits_are_the_worlds() {
    let (end, said, _) = run_host(with_threads(), |ctx| async move {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let slow = sender.clone();
        let start = Instant::now();
        std::thread::spawn(move || {
            std::thread::sleep(secs(30));
            let _ = slow.send(format!("slept {:?}", start.elapsed()));
        });
        std::thread::spawn(move || {
            let (_keep, never) = mpsc::channel::<()>();
            assert!(never.recv_timeout(secs(20)).is_err());
            let _ = sender.send(format!("waited {:?}", start.elapsed()));
        });
        while let Some(text) = receiver.recv().await {
            say(&ctx, text);
        }
        Ok(())
    });
    assert_eq!(end, Ok(()));
    assert_eq!(said, ["20000 host: waited 20s", "30000 host: slept 30s"]);
}

#[test]
fn a_host_that_blocks_on_a_thread_waits_in_virtual_time() {
    let (end, said, _) = run_host(with_threads(), |ctx| async move {
        std::thread::spawn(|| std::thread::sleep(secs(7))).join().map_err(|_| "panicked")?;
        say(&ctx, "joined");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            std::thread::sleep(ms(500));
            sender.send(()).expect("the host waits");
            std::thread::sleep(secs(50));
        });
        receiver.recv()?;
        say(&ctx, "received");
        Ok(())
    });
    assert_eq!(end, Ok(()));
    assert_eq!(said, ["7000 host: joined", "7500 host: received"]);
}

#[test]
fn threads_left_behind_by_a_crashed_host_do_not_disturb_the_world() {
    let said = in_world(
        with_threads(),
        |b| {
            b.host("host", HostSpec::new(), |ctx| async move {
                std::thread::spawn(|| std::thread::sleep(secs(1_000)));
                tokio::task::spawn_blocking(|| std::thread::sleep(secs(2_000)));
                say(&ctx, "up");
                std::future::pending().await
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap();
            w.restart("host").unwrap();
            w.run_for(secs(1)).unwrap();
            said_at(w)
        },
    );
    assert_eq!(said, ["0 host: up", "1000 host: up"]);
}

#[test]
fn a_thread_started_where_main_is_made_is_refused_under_that_hosts_name() {
    let stuck = in_world(
        WorldConfig::default(),
        |b| {
            b.host("quiet", HostSpec::new(), |_| std::future::pending());
            b.host("eager", HostSpec::new(), |_| {
                let refused = open_a_database_with_a_worker().is_err();
                async move { if refused { Err("no thread".into()) } else { Ok(()) } }
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap_err()
        },
    );
    assert!(matches!(&stuck, Stuck::ForeignThread { host, .. } if host == "eager"), "{stuck:?}");
}

#[test]
fn the_harness_itself_may_start_threads() {
    in_world(WorldConfig::default(), support::echo_server, |w| {
        w.start_all();
        w.run_for(secs(1)).unwrap();
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
        w.run_for(secs(1)).unwrap();
    });
}
