//! Hosts: how they start, end, and start again.
mod support;

use photofinish_sim::choices::Choices;
use photofinish_sim::host::{HostSpec, RestartPolicy};
use photofinish_sim::trace::Trace;
use photofinish_sim::wire::Io;
use photofinish_sim::world::{World, WorldConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use support::{echo_server, entries, in_world, ms, said, said_at, say, secs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn the_end_of_main_ends_the_host_and_its_policy_decides_what_comes_next() {
    let (log, up) = in_world(
        WorldConfig::default(),
        |b| {
            let after = secs(10);
            b.host("done", HostSpec::new().restart(RestartPolicy::OnFailure { after }), |_| async { Ok(()) });
            b.host("fails", HostSpec::new().restart(RestartPolicy::OnFailure { after }), |_| async {
                tokio::time::sleep(secs(1)).await;
                Err(std::io::Error::other("out of luck").into())
            });
            b.host("panics", HostSpec::new(), |_| async {
                tokio::time::sleep(secs(2)).await;
                panic!("boom")
            });
            b.host("never", HostSpec::new(), |ctx| {
                assert!(ctx.env.contains_key("PORT"), "no port");
                async { Ok(()) }
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(11)).unwrap();
            let up: Vec<bool> = ["done", "fails", "panics", "never"].iter().map(|h| w.is_up(h).unwrap()).collect();
            (entries(w, "host"), up)
        },
    );
    assert_eq!(
        log,
        [
            "start done starts",
            "start fails starts",
            "start panics starts",
            "start never starts",
            "exit done exits",
            "exit never fails: panicked: no port",
            "exit fails fails: out of luck",
            "exit panics fails: panicked: boom",
            "start fails starts",
        ]
    );
    assert_eq!(up, [false, true, false, false]);
}

#[test]
fn what_a_host_writes_to_a_file_arrives_even_if_a_runtimes_waker_had_the_files_number() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("wakers");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.clone();
    in_world(
        WorldConfig::default(),
        |b| {
            // Hosts that end give the numbers of their wakers back.
            for n in 0..8 {
                b.host(&format!("short-{n}"), HostSpec::new(), |_| async { Ok(()) });
            }
            b.host("writer", HostSpec::new(), move |_| {
                let path = path.clone();
                async move {
                    tokio::time::sleep(secs(1)).await;
                    let mut files: Vec<std::fs::File> =
                        (0..32).map(|n| std::fs::File::create(path.join(n.to_string()))).collect::<Result<_, _>>()?;
                    for file in &mut files {
                        std::io::Write::write_all(file, &1u64.to_ne_bytes())?;
                    }
                    Ok(())
                }
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(2)).unwrap();
        },
    );
    for n in 0..32 {
        assert_eq!(std::fs::read(folder.join(n.to_string())).unwrap(), 1u64.to_ne_bytes(), "file {n}");
    }
}

#[test]
fn an_eventfd_outside_of_worlds_counts_as_ever() {
    // SAFETY: plain calls on a descriptor of our own.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_NONBLOCK);
        let mut value = 2u64;
        for _ in 0..2 {
            assert_eq!(libc::write(fd, (&raw const value).cast(), 8), 8);
        }
        assert_eq!(libc::read(fd, (&raw mut value).cast(), 8), 8);
        assert_eq!(value, 4);
        assert_eq!(libc::close(fd), 0);
    }
}

#[test]
fn the_end_of_main_ends_the_hosts_other_tasks() {
    let said = in_world(
        WorldConfig::default(),
        |b| {
            b.host("host", HostSpec::new(), |ctx| async move {
                tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(secs(1)).await;
                        say(&ctx, "task");
                    }
                });
                tokio::time::sleep(ms(2_500)).await;
                Ok(())
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(10)).unwrap();
            said(w)
        },
    );
    assert_eq!(said.len(), 2);
}

/// A host that writes to its folder: at each start what it finds there, then what it does, and a destructor that spoils
/// it.
fn writer(builder: &mut photofinish_sim::world::Builder) {
    struct Spoil(std::path::PathBuf);
    impl Drop for Spoil {
        fn drop(&mut self) {
            std::fs::write(&self.0, "spoilt by a destructor").expect("the folder is there");
        }
    }
    builder.host("host", HostSpec::new(), |ctx| async move {
        let file = ctx.disk().join("rows");
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        say(&ctx, format!("finds {found:?}"));
        std::fs::write(&file, format!("{found}x"))?;
        let _spoil = Spoil(file);
        std::future::pending().await
    });
}

#[test]
fn the_folder_is_kept_as_it_was_at_the_crash() {
    let said = in_world(WorldConfig::default(), writer, |w| {
        w.start_all();
        w.run_for(secs(1)).unwrap();
        w.crash("host").unwrap();
        w.run_for(secs(1)).unwrap();
        w.start("host").unwrap();
        w.run_for(secs(1)).unwrap();
        w.power_off("host").unwrap();
        w.start("host").unwrap();
        w.run_for(secs(1)).unwrap();
        said(w)
    });
    assert_eq!(said, ["host: finds \"\"", "host: finds \"x\"", "host: finds \"xx\""]);
}

#[test]
fn a_paused_host_does_nothing_and_its_packets_and_timers_wait() {
    let said = in_world(
        WorldConfig::default(),
        |b| {
            b.host("server", HostSpec::new(), |ctx| async move {
                let ticks = ctx.clone();
                tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(secs(1)).await;
                        say(&ticks, "tick");
                    }
                });
                support::echo(ctx).await
            });
            b.host("client", HostSpec::new(), |ctx| async move {
                let mut io = ctx.wire.connect("server", 80).await?;
                tokio::time::sleep(secs(2)).await;
                io.write_all(b"a").await?;
                say(&ctx, format!("answered {}", io.read_u8().await? as char));
                std::future::pending().await
            });
        },
        |w| {
            w.start_all();
            w.run_for(ms(1_500)).unwrap();
            w.pause("server").unwrap();
            w.run_for(ms(3_000)).unwrap();
            w.resume("server").unwrap();
            w.run_for(ms(700)).unwrap();
            said_at(w)
        },
    );
    assert_eq!(said, ["1000 server: tick", "4500 server: got a", "4500 server: tick", "4500 client: answered a"]);
}

#[test]
fn a_crash_asked_for_after_a_durable_write_loses_the_reply() {
    let writes = Arc::new(AtomicU32::new(0));
    let counted = writes.clone();
    let said = in_world(
        WorldConfig::default(),
        move |b| {
            b.host("server", HostSpec::new().restart(RestartPolicy::Always { after: secs(1) }), move |ctx| {
                let writes = counted.clone();
                async move {
                    use futures::StreamExt;
                    let mut incoming = ctx.wire.listen(80).await?;
                    loop {
                        let mut io: Io = incoming.next().await.ok_or("endless")??;
                        let (writes, control) = (writes.clone(), ctx.control.clone());
                        tokio::spawn(async move {
                            while io.read_u8().await.is_ok() {
                                if writes.fetch_add(1, Relaxed) + 1 == 3 {
                                    control.crash("server");
                                }
                                // the same poll goes on: this must not reach the client
                                if io.write_u8(b'!').await.is_err() {
                                    break;
                                }
                            }
                        });
                    }
                }
            });
            b.host("client", HostSpec::new(), |ctx| async move {
                loop {
                    let Ok(mut io) = ctx.wire.connect("server", 80).await else {
                        tokio::time::sleep(ms(200)).await;
                        continue;
                    };
                    for _ in 0..5 {
                        if io.write_u8(b'?').await.is_err() || io.read_u8().await.is_err() {
                            say(&ctx, "no reply");
                            break;
                        }
                        say(&ctx, "reply");
                    }
                    tokio::time::sleep(secs(1)).await;
                }
            });
        },
        |w| {
            w.start_all();
            w.run_for(ms(1_900)).unwrap();
            said(w)
        },
    );
    assert_eq!(said[..3], ["client: reply", "client: reply", "client: no reply"]);
    assert_eq!(said[3..], ["client: reply"; 5], "it is back");
    assert_eq!(writes.load(Relaxed), 8);
}

#[test]
fn a_host_has_an_environment_of_its_own() {
    let said = in_world(
        WorldConfig::default(),
        |b| {
            for (name, value) in [("a", "1"), ("b", "2")] {
                b.host(name, HostSpec::new().env("N", value), |ctx| async move {
                    say(&ctx, ctx.env["N"].clone());
                    Ok(())
                });
            }
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap();
            said(w)
        },
    );
    assert_eq!(said, ["a: 1", "b: 2"]);
}

#[test]
fn a_real_socket_is_refused_and_the_trace_says_so() {
    let log = in_world(
        WorldConfig::default(),
        |b| {
            b.host("host", HostSpec::new(), |ctx| async move {
                let e = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap_err();
                say(&ctx, format!("{:?}", e.kind()));
                std::future::pending().await
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap();
            [entries(w, "host"), said(w)].concat()
        },
    );
    assert!(log[1].starts_with("real-socket host is refused a socket: host registers a real IPv4 socket"), "{log:?}");
    assert_eq!(log[2], "host: PermissionDenied");
}

#[test]
fn what_a_host_does_is_caused_by_what_the_sender_of_its_packet_did_last() {
    let chain = in_world(
        WorldConfig::default(),
        |b| {
            echo_server(b);
            b.host("client", HostSpec::new(), |ctx| async move {
                let mut io = ctx.wire.connect("server", 80).await?;
                tokio::time::sleep(secs(1)).await;
                say(&ctx, "asks");
                io.write_all(b"q").await?;
                io.read_u8().await?;
                say(&ctx, "is answered");
                tokio::time::sleep(secs(1)).await;
                say(&ctx, "goes on by itself");
                Ok(())
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(5)).unwrap();
            w.trace().with(|all| {
                let text = |id: u64| all[id as usize].text.clone();
                let said = all.iter().filter(|e| e.kind == "said");
                said.map(|e| (e.text.clone(), e.cause.map(text))).collect::<Vec<_>>()
            })
        },
    );
    let because = |what: &str, why: Option<&str>| (what.to_owned(), why.map(str::to_owned));
    assert_eq!(
        chain,
        [
            because("asks", None),
            because("got q", Some("asks")),
            because("is answered", Some("got q")),
            because("goes on by itself", None),
        ]
    );
}

#[test]
fn oracles_run_after_every_step_outside_any_host() {
    let seen = in_world(WorldConfig::default(), echo_server, |w| {
        let seen = Arc::new(AtomicU32::new(0));
        let counter = seen.clone();
        w.on_step(move || {
            assert!(photofinish_sim::state::current_host().is_none());
            counter.fetch_add(1, Relaxed);
        });
        w.start_all();
        w.run_for(secs(1)).unwrap();
        (u64::from(seen.load(Relaxed)), w.counts().steps)
    });
    assert_eq!(seen.0, seen.1);
    assert!(seen.0 > 0);
}

#[test]
fn seeders_are_called_with_the_worlds_seed_inside_it() {
    photofinish_sim::world::on_own_thread(|| {
        let config = WorldConfig { seed: 42, ..WorldConfig::default() };
        let mut builder = World::builder(config, Trace::new(), Choices::benign());
        let seen = Arc::new(AtomicU32::new(0));
        let seed = seen.clone();
        builder.at_entry(move |s| {
            assert!(photofinish_sim::state::in_world());
            seed.store(s as u32, Relaxed);
        });
        let world = builder.build();
        assert_eq!(seen.load(Relaxed), 42);
        drop(world);
        assert!(!photofinish_sim::state::in_world(), "dropping the world leaves it");
    });
}
