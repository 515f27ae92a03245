//! Clocks, timers and randomness inside a world, and outside.
mod support;

use photofinish_sim::host::HostSpec;
use photofinish_sim::state;
use photofinish_sim::world::{Stuck, World, WorldConfig, on_own_thread};
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};
use support::{in_world, ms, said, said_at, say, secs};

/// A world with one host that runs `main`, driven for a virtual hour or until it ends.
fn one_host<F>(config: WorldConfig, main: fn(photofinish_sim::host::HostCtx) -> F) -> (Vec<String>, Duration)
where
    F: Future<Output = ()> + Send + 'static,
{
    in_world(
        config,
        |b| {
            b.host("host", HostSpec::new(), move |ctx| {
                let main = main(ctx);
                async move {
                    main.await;
                    Ok(())
                }
            });
        },
        |w| {
            w.start_all();
            assert!(w.run_until(secs(4000), |w| !w.is_up("host").unwrap()).unwrap(), "the host ends");
            (said(w), w.now())
        },
    )
}

#[test]
fn std_and_tokio_clocks_follow_the_world() {
    let (said, now) = one_host(WorldConfig::default(), |ctx| async move {
        let (mono, tokio, wall) = (Instant::now(), tokio::time::Instant::now(), SystemTime::now());
        tokio::time::sleep(secs(3600)).await;
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let wall = wall.elapsed().expect("forwards");
        say(&ctx, format!("{:?} {:?} {wall:?} {epoch:?} {:?}", mono.elapsed(), tokio.elapsed(), state::now()));
    });
    assert_eq!(said, ["host: 3600s 3600s 3600s 1790003600s 3600s"]);
    assert_eq!(now, secs(3600));
}

#[test]
fn wall_clocks_are_skewed_per_host_and_monotonic_ones_are_not() {
    let told = in_world(
        WorldConfig::default(),
        |b| {
            for (name, skew) in [("early", 1_500_000_000), ("exact", 0), ("late", -2_000_000_000)] {
                b.host(name, HostSpec::new().skew_ns(skew), |ctx| async move {
                    let t = Instant::now();
                    tokio::time::sleep(secs(1)).await;
                    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
                    say(&ctx, format!("{} {:?}", wall.as_millis() as i64 - 1_790_000_000_000, t.elapsed()));
                    Ok(())
                });
            }
        },
        |w| {
            w.start_all();
            w.run_for(secs(2)).unwrap();
            said(w)
        },
    );
    assert_eq!(told, ["early: 2500 1s", "exact: 1000 1s", "late: -1000 1s"]);
}

#[test]
fn a_wall_clock_can_be_stepped_while_its_host_sleeps() {
    let told = in_world(
        WorldConfig::default(),
        |b| {
            b.host("stepped", HostSpec::new(), |ctx| async move {
                let (wall, mono) = (SystemTime::now(), Instant::now());
                tokio::time::sleep(secs(2)).await;
                let gone = SystemTime::now().duration_since(wall);
                say(&ctx, format!("{:?} {:?}", gone.map_err(|e| e.duration()), mono.elapsed()));
                Ok(())
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap();
            w.skew("stepped", -5_000_000_000).unwrap();
            w.run_for(secs(2)).unwrap();
            said(w)
        },
    );
    assert_eq!(told, ["stepped: Err(3s) 2s"]);
}

#[test]
fn a_tick_every_10_ms_stays_exact_beside_packets_at_odd_microseconds() {
    let told = in_world(
        WorldConfig::default(),
        |b| {
            support::echo_server(b);
            b.host("client", HostSpec::new(), |ctx| async move {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let mut io = ctx.wire.connect("server", 80).await?;
                tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(Duration::from_micros(3_700)).await;
                        if io.write_all(b"x").await.is_err() || io.read_u8().await.is_err() {
                            break;
                        }
                    }
                });
                let start = tokio::time::Instant::now();
                let mut ticks = tokio::time::interval(ms(10));
                for _ in 0..5 {
                    ticks.tick().await;
                    say(&ctx, format!("{:?}", start.elapsed().as_nanos().div_ceil(1_000_000)));
                }
                Ok(())
            });
        },
        |w| {
            w.start("server").unwrap();
            w.run_for(Duration::from_micros(400)).unwrap(); // the client's runtime is born off the grid
            w.start("client").unwrap();
            w.run_for(secs(1)).unwrap();
            said(w).into_iter().filter(|s| s.starts_with("client")).collect::<Vec<_>>()
        },
    );
    // tokio rounds up to its milliseconds: a tick may be up to one late, and the error must not add up
    let ticks: Vec<u64> = told.iter().map(|s| s.trim_start_matches("client: ").parse().unwrap()).collect();
    for (i, at) in ticks.iter().enumerate() {
        let exact = 10 * i as u64;
        assert!((exact..=exact + 1).contains(at), "{ticks:?}");
    }
    assert_eq!(ticks.len(), 5);
}

#[test]
fn timers_beyond_fifty_days_fire() {
    let told = in_world(
        WorldConfig::default(),
        |b| {
            b.host("host", HostSpec::new(), |ctx| async move {
                tokio::time::sleep(secs(60 * 86_400)).await;
                say(&ctx, "awake");
                Ok(())
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(61 * 86_400)).unwrap();
            assert!(w.counts().steps < 100, "{:?}", w.counts());
            said_at(w)
        },
    );
    assert_eq!(told, ["5184000000 host: awake"]);
}

#[test]
fn a_task_that_only_yields_is_a_livelock() {
    let (stuck, end) = in_world(
        WorldConfig::default(),
        |b| {
            b.host("spinner", HostSpec::new(), |_| async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        },
        |w| {
            w.start_all();
            (w.run_for(secs(1)).unwrap_err(), support::entries(w, "end"))
        },
    );
    assert_eq!(stuck, Stuck::Livelock { host: "spinner".into() });
    assert_eq!(end, ["stuck livelock: spinner never gets idle, and no time passes"]);
}

#[test]
fn hosts_that_wake_each_other_without_end_are_a_livelock() {
    let stuck = in_world(
        WorldConfig { rounds: 1_000, ..WorldConfig::default() },
        |b| {
            let (ping, pong) = (std::sync::Arc::new(tokio::sync::Notify::new()), std::sync::Arc::default());
            for (name, mine, other) in [("a", &ping, &pong), ("b", &pong, &ping)] {
                let (mine, other) = (mine.clone(), other.clone());
                b.host(name, HostSpec::new(), move |_| {
                    let (mine, other) = (mine.clone(), std::sync::Arc::<tokio::sync::Notify>::clone(&other));
                    async move {
                        loop {
                            other.notify_one();
                            mine.notified().await;
                        }
                    }
                });
            }
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap_err()
        },
    );
    assert!(matches!(stuck, Stuck::Livelock { .. }), "{stuck:?}");
}

#[test]
fn a_client_that_asks_again_as_soon_as_it_is_answered_is_never_at_rest() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for (pause_ms, rests) in [(0, false), (100, true)] {
        let (end, told) = in_world(
            WorldConfig::default(),
            |b| {
                support::echo_server(b);
                b.host("client", HostSpec::new(), move |ctx| async move {
                    let mut io = ctx.wire.connect("server", 80).await?;
                    loop {
                        io.write_all(b"a").await?;
                        io.read_exact(&mut [0]).await?;
                        if pause_ms > 0 {
                            tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
                        }
                    }
                });
            },
            |w| {
                w.start_all();
                (w.run_for(secs(300)), support::entries(w, "end"))
            },
        );
        assert_eq!(matches!(end, Err(Stuck::Busy { steps: 150_000, .. })), !rests, "{end:?}");
        assert_eq!(told.len(), usize::from(!rests), "{told:?}");
    }
}

#[test]
fn a_task_woken_by_another_hosts_task_runs() {
    let told = in_world(
        WorldConfig::default(),
        |b| {
            let notify = std::sync::Arc::new(tokio::sync::Notify::new());
            let theirs = notify.clone();
            // the one that is woken comes first, so that its turn is over when the other one runs
            b.host("sleeper", HostSpec::new(), move |ctx| {
                let notify = theirs.clone();
                async move {
                    notify.notified().await;
                    say(&ctx, "woken");
                    Ok(())
                }
            });
            b.host("waker", HostSpec::new(), move |_| {
                let notify = notify.clone();
                async move {
                    tokio::time::sleep(ms(50)).await;
                    notify.notify_one();
                    std::future::pending().await
                }
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap();
            said_at(w)
        },
    );
    assert_eq!(told, ["50 sleeper: woken"]);
}

#[test]
fn a_loop_that_waits_for_the_clock_ends() {
    let (told, now) = one_host(WorldConfig::default(), |ctx| async move {
        let start = Instant::now();
        while start.elapsed() < ms(20) {}
        say(&ctx, "over");
    });
    assert_eq!(told, ["host: over"]);
    assert!(now >= ms(20) && now < ms(21), "{now:?}");
}

#[test]
fn blocking_sleeps_and_timed_waits_of_the_thread_take_virtual_time() {
    let (told, now) = one_host(WorldConfig::default(), |ctx| async move {
        std::thread::sleep(secs(100));
        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
        assert!(receiver.recv_timeout(secs(200)).is_err());
        let (lock, condition) = (std::sync::Mutex::new(()), std::sync::Condvar::new());
        let (_guard, waited) =
            condition.wait_timeout(lock.lock().expect("a lock of its own"), secs(300)).expect("not poisoned");
        assert!(waited.timed_out());
        std::thread::park_timeout(secs(400));
        // SAFETY: no memory is involved.
        unsafe { libc::usleep(500_000) };
        say(&ctx, "awake");
    });
    assert_eq!(told, ["host: awake"]);
    assert_eq!(now, ms(1_000_500));
}

fn hash_order(seed: u64, before: bool) -> String {
    on_own_thread(|| {
        if before {
            // maps made before the world must not spoil the ones made in it
            std::hint::black_box(HashMap::<u8, u8>::new());
        }
        let config = WorldConfig { seed, ..WorldConfig::default() };
        let mut builder =
            World::builder(config, photofinish_sim::trace::Trace::new(), photofinish_sim::choices::Choices::benign());
        builder.host("host", HostSpec::new(), |ctx| async move {
            let map: HashMap<u32, ()> = (0..16).map(|i| (i, ())).collect();
            say(&ctx, format!("{:?} {}", map.keys().collect::<Vec<_>>(), uuid::Uuid::new_v4()));
            Ok(())
        });
        let mut world = builder.build();
        world.start_all();
        world.run_for(secs(1)).unwrap();
        said(&world).join("")
    })
}

#[test]
fn hash_maps_and_uuids_follow_the_seed() {
    for before in [false, true] {
        assert_eq!(hash_order(1, before), hash_order(1, before));
        assert_ne!(hash_order(1, before), hash_order(2, before));
    }
}

#[test]
fn c_librarys_clocks_and_randomness_agree_with_the_world() {
    let (told, _) = one_host(WorldConfig::default(), |ctx| async move {
        tokio::time::sleep(ms(1500)).await;
        let mut tv = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let (mut a, mut b) = ([0u8; 16], [0u8; 16]);
        // SAFETY: all pointers are valid for what the calls write.
        let t = unsafe {
            libc::gettimeofday(&mut tv, std::ptr::null_mut());
            assert_eq!(libc::getentropy(a.as_mut_ptr().cast(), 16), 0);
            assert_eq!(libc::syscall(libc::SYS_getrandom, b.as_mut_ptr(), 16, 0), 16);
            libc::time(std::ptr::null_mut())
        };
        assert_ne!(a, b);
        say(&ctx, format!("{} {} {t}", tv.tv_sec, tv.tv_usec));
    });
    assert_eq!(told, ["host: 1790000001 500000 1790000001"]);
}

#[test]
fn outside_a_world_nothing_changes() {
    // another thread of this process is inside a world all the while
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let busy = std::thread::spawn(move || {
        while stopped.try_recv().is_err() {
            hash_order(1, false);
        }
    });
    assert!(!state::in_world() && state::now().is_zero() && state::current_host().is_none());
    let (mono, wall) = (Instant::now(), SystemTime::now());
    std::thread::sleep(ms(100));
    assert!(mono.elapsed() >= ms(100) && wall.elapsed().unwrap() >= ms(90));
    assert!(wall > SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let start = Instant::now();
    runtime.block_on(async {
        let sleeps: Vec<_> = (0..20).map(|i| tokio::spawn(tokio::time::sleep(ms(20 + i)))).collect();
        for sleep in sleeps {
            sleep.await.unwrap();
        }
        let name = tokio::task::spawn_blocking(|| std::fs::read("/proc/self/comm")).await.unwrap();
        assert!(!name.unwrap().is_empty());
        // a real socket
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    });
    assert!(start.elapsed() >= ms(39));
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let start = Instant::now();
    assert!(receiver.recv_timeout(ms(30)).is_err() && start.elapsed() >= ms(30));
    assert_ne!(uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    stop.send(()).unwrap();
    busy.join().unwrap();
}
