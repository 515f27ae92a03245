//! The wire: what arrives when, and what breaks how.
mod support;

use photofinish_sim::host::{BoxError, HostCtx, HostSpec, RestartPolicy};
use photofinish_sim::world::{Builder, Stuck, World, WorldConfig};
use std::time::Duration;
use support::{echo, echo_server, entries, in_world, ms, said, said_at, say, secs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A host `client` that runs `main`; when it returns, it says how.
fn client<F: Future<Output = Result<(), BoxError>> + Send + 'static>(b: &mut Builder, main: fn(HostCtx) -> F) {
    b.host("client", HostSpec::new(), move |ctx| {
        let work = main(ctx.clone());
        async move {
            match work.await {
                Ok(()) => say(&ctx, "done"),
                Err(e) => say(&ctx, format!("error: {e}")),
            }
            Ok(())
        }
    });
}
/// Asks the echo server once a second, for ever.
async fn ask_every_second(ctx: HostCtx) -> Result<(), BoxError> {
    let mut io = ctx.wire.connect("server", 80).await?;
    say(&ctx, "connected");
    for n in b'a'.. {
        io.write_all(&[n]).await?;
        say(&ctx, format!("got {}", io.read_u8().await? as char));
        tokio::time::sleep(secs(1)).await;
    }
    Ok(())
}
fn echo_world<R: Send>(f: impl FnOnce(&mut World) -> R + Send) -> R {
    in_world(
        WorldConfig::default(),
        |b| {
            echo_server(b);
            client(b, ask_every_second);
        },
        |w| {
            w.start_all();
            f(w)
        },
    )
}
fn client_said(w: &World) -> Vec<String> {
    said_at(w).into_iter().filter(|s| s.contains("client")).collect()
}

#[test]
fn a_stream_survives_a_delay_that_ends_while_packets_are_under_way() {
    async fn reader(ctx: HostCtx) -> Result<(), BoxError> {
        let mut io = ctx.wire.connect("server", 80).await?;
        let mut all = Vec::new();
        io.read_to_end(&mut all).await?;
        assert!(all.iter().enumerate().all(|(i, b)| *b == (i / 1000) as u8), "bytes are in order");
        say(&ctx, format!("{} bytes", all.len()));
        Ok(())
    }
    async fn writer(ctx: HostCtx) -> Result<(), BoxError> {
        use futures::StreamExt;
        let mut io = ctx.wire.listen(80).await?.next().await.ok_or("a connection")??;
        for i in 0..100 {
            io.write_all(&[i; 1000]).await?;
            tokio::time::sleep(ms(1)).await;
        }
        io.shutdown().await?;
        std::future::pending().await
    }
    let (said, now) = in_world(
        WorldConfig::default(),
        |b| {
            b.host("server", HostSpec::new(), writer);
            client(b, reader);
        },
        |w| {
            w.start_all();
            w.run_for(ms(20)).unwrap();
            w.delay("server", "client", secs(2)).unwrap();
            w.run_for(ms(20)).unwrap();
            w.delay("server", "client", Duration::ZERO).unwrap();
            w.run_until(secs(60), |w| !w.is_up("client").unwrap()).unwrap();
            (said(w), w.now())
        },
    );
    assert_eq!(said, ["client: 100000 bytes", "client: done"]);
    assert!(now > secs(2) && now < secs(3), "later packets wait for the delayed ones: {now:?}");
}

#[test]
fn a_reader_that_starts_late_gets_everything() {
    async fn reader(ctx: HostCtx) -> Result<(), BoxError> {
        let mut io = ctx.wire.connect("server", 80).await?;
        tokio::time::sleep(secs(5)).await;
        let (mut buf, mut got) = ([0; 8192], 0);
        while got < 300_000 {
            got += io.read(&mut buf).await?;
        }
        say(&ctx, format!("{got} bytes"));
        Ok(())
    }
    async fn writer(ctx: HostCtx) -> Result<(), BoxError> {
        use futures::StreamExt;
        let mut io = ctx.wire.listen(80).await?.next().await.ok_or("a connection")??;
        io.write_all(&vec![7; 300_000]).await?;
        std::future::pending().await
    }
    let hosts = |b: &mut Builder| {
        b.host("server", HostSpec::new(), writer);
        client(b, reader);
    };
    let said = in_world(WorldConfig::default(), hosts, |w| {
        w.start_all();
        assert!(w.run_until(secs(60), |w| !w.is_up("client").unwrap()).unwrap());
        said(w)
    });
    assert_eq!(said, ["client: 300000 bytes", "client: done"]);
}

#[test]
fn nobody_listening_is_refused_at_once_and_an_unknown_host_is_named() {
    let (said, net) = in_world(
        WorldConfig::default(),
        |b| {
            b.host("server", HostSpec::new(), |_| std::future::pending());
            client(b, |ctx| async move {
                let refused = ctx.wire.connect("server", 81).await.unwrap_err();
                say(&ctx, format!("{:?}", refused.kind()));
                let unknown = ctx.wire.connect("sever", 80).await.unwrap_err();
                say(&ctx, format!("{:?}: {unknown}", unknown.kind()));
                Ok(())
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap();
            (said_at(w), entries(w, "net"))
        },
    );
    assert_eq!(
        said,
        [
            "0 client: ConnectionRefused",
            "0 client: NotFound: no host named `sever` in this world; there are server, client",
            "0 client: done"
        ]
    );
    assert_eq!(net[0], "connect client cannot connect to server:81: connection refused");
}

#[test]
fn a_lost_syn_is_sent_again_and_after_127_s_the_connector_gives_up() {
    let said = echo_world(|w| {
        w.blackhole("client", "server").unwrap();
        w.run_for(secs(300)).unwrap();
        client_said(w)
    });
    assert_eq!(said, ["127000 client: error: connection timed out"]);

    let said = echo_world(|w| {
        w.blackhole("client", "server").unwrap();
        w.run_for(secs(10)).unwrap();
        w.heal("client", "server").unwrap();
        w.run_for(ms(5_500)).unwrap();
        client_said(w)
    });
    assert_eq!(said, ["15000 client: connected", "15000 client: got a"], "the fourth retry is sent after 15 s");
}

#[test]
fn a_cut_holds_packets_in_order_and_delivers_them_after_the_heal() {
    let (before, after, server) = echo_world(|w| {
        w.run_for(ms(1_500)).unwrap();
        w.cut("client", "server").unwrap();
        w.run_for(secs(60)).unwrap();
        let before = client_said(w);
        w.heal("client", "server").unwrap();
        w.run_for(ms(10)).unwrap();
        (before, client_said(w), said(w).into_iter().filter(|s| s.starts_with("server")).collect::<Vec<_>>())
    });
    assert_eq!(before, ["0 client: connected", "0 client: got a", "1000 client: got b"]);
    assert_eq!(after[3..], ["61500 client: got c"]);
    assert_eq!(server, ["server: got a", "server: got b", "server: got c"]);
}

#[test]
fn a_packet_under_way_when_the_link_is_cut_arrives_after_the_heal_before_later_ones() {
    async fn talker(ctx: HostCtx) -> Result<(), BoxError> {
        let mut io = ctx.wire.connect("server", 80).await?;
        for n in b"abcdef" {
            io.write_all(&[*n]).await?;
            tokio::time::sleep(ms(10)).await;
        }
        std::future::pending().await
    }
    let hosts = |b: &mut Builder| {
        echo_server(b);
        client(b, talker);
    };
    let said = in_world(WorldConfig::default(), hosts, |w| {
        w.delay("client", "server", ms(15)).unwrap();
        w.start_all();
        w.run_for(ms(45)).unwrap(); // some letters are under way
        w.cut("client", "server").unwrap();
        w.run_for(ms(100)).unwrap();
        let held = said(w).len();
        assert!((1..6).contains(&held), "{held}");
        w.heal("client", "server").unwrap();
        w.run_for(secs(1)).unwrap();
        said(w)
    });
    assert_eq!(said, ["a", "b", "c", "d", "e", "f"].map(|c| format!("server: got {c}")));
}

#[test]
fn unacknowledged_data_behind_a_cut_kills_the_connection_after_fifteen_minutes() {
    let said = echo_world(|w| {
        w.run_for(ms(1_500)).unwrap();
        w.cut("client", "server").unwrap();
        w.run_for(secs(3_600)).unwrap();
        client_said(w)
    });
    // the third letter is sent after 2 s
    assert_eq!(said[3..], ["902000 client: error: connection reset"]);
}

#[test]
fn a_reset_reaches_both_ends_of_every_connection_between_two_hosts() {
    let (said, server) = echo_world(|w| {
        w.run_for(ms(1_500)).unwrap();
        w.reset("server", "client").unwrap();
        w.run_for(ms(1_000)).unwrap();
        (client_said(w), entries(w, "net"))
    });
    assert_eq!(said[3..], ["2000 client: error: connection reset"]);
    assert_eq!(server[1], "reset connections between server and client are reset");
}

#[test]
fn a_held_direction_keeps_order_and_the_other_one_goes_on() {
    let (held, released) = echo_world(|w| {
        w.run_for(ms(1_500)).unwrap();
        w.hold("server", "client").unwrap();
        w.run_for(secs(5)).unwrap();
        let held = said_at(w);
        w.release("server", "client").unwrap();
        w.run_for(ms(10)).unwrap();
        (held, said_at(w))
    });
    assert_eq!(held.last().unwrap(), "2000 server: got c", "requests arrive");
    assert_eq!(released.last().unwrap(), "6500 client: got c", "the reply only when it is released");
}

#[test]
fn a_server_that_crashes_behind_a_cut_starts_again_on_its_port() {
    let (said, up) = in_world(
        WorldConfig::default(),
        |b| {
            let after = secs(1);
            b.host("server", HostSpec::new().restart(RestartPolicy::Always { after }), echo);
            client(b, |ctx| async move {
                loop {
                    if let Err(e) = ask_every_second(ctx.clone()).await {
                        say(&ctx, format!("{e}"));
                    }
                }
            });
        },
        |w| {
            w.start_all();
            w.run_for(ms(2_500)).unwrap();
            w.cut("client", "server").unwrap();
            w.crash("server").unwrap();
            w.run_for(secs(5)).unwrap();
            let up = w.is_up("server").unwrap();
            w.heal("client", "server").unwrap();
            w.run_for(ms(2_500)).unwrap();
            (client_said(w), up && w.is_up("server").unwrap())
        },
    );
    assert!(up, "its port was free");
    let after_the_heal: Vec<_> = said.iter().skip_while(|s| !s.starts_with("750")).map(|s| &**s).collect();
    assert_eq!(
        after_the_heal,
        [
            "7500 client: unexpected end of file",
            "7500 client: connected",
            "7500 client: got a",
            "8500 client: got b",
            "9500 client: got c"
        ]
    );
}

/// A client that gives up while its SYN waits behind a cut leaves a half-open connection at the server, whose port must
/// be free after a crash all the same.
#[test]
fn half_open_connections_do_not_hold_the_port_over_a_restart() {
    let up = in_world(
        WorldConfig::default(),
        |b| {
            echo_server(b);
            client(b, |ctx| async move {
                let attempt = tokio::time::timeout(secs(5), ctx.wire.connect("server", 80)).await;
                assert!(attempt.is_err(), "the link is cut");
                Ok(())
            });
        },
        |w| {
            w.start_all();
            w.cut("client", "server").unwrap();
            w.run_for(secs(10)).unwrap();
            w.heal("client", "server").unwrap();
            w.run_for(secs(1)).unwrap();
            w.restart("server").unwrap();
            w.run_for(secs(1)).unwrap();
            w.is_up("server").unwrap()
        },
    );
    assert!(up);
}

#[test]
fn data_lost_in_a_blackhole_resets_the_connection_when_the_link_heals() {
    let said = echo_world(|w| {
        w.run_for(ms(1_500)).unwrap();
        w.blackhole("client", "server").unwrap();
        w.run_for(secs(10)).unwrap();
        assert_eq!(client_said(w).len(), 3, "nothing comes back, nothing breaks yet");
        w.heal("client", "server").unwrap();
        w.run_for(ms(10)).unwrap();
        client_said(w)
    });
    assert_eq!(said[3..], ["11500 client: error: connection reset"]);
}

#[test]
fn a_host_without_power_is_silent_and_answers_with_resets_when_it_is_back() {
    let (off, said) = echo_world(|w| {
        w.run_for(ms(1_500)).unwrap();
        w.power_off("server").unwrap();
        w.run_for(secs(30)).unwrap();
        let off = client_said(w);
        w.start("server").unwrap();
        w.run_for(ms(10)).unwrap();
        (off, client_said(w))
    });
    assert_eq!(off.len(), 3, "the client hears nothing: {off:?}");
    assert_eq!(said[3..], ["31500 client: error: connection reset"]);
}

#[test]
fn a_crash_tells_the_other_side_what_was_written_and_then_that_it_is_over() {
    async fn writer(ctx: HostCtx) -> Result<(), BoxError> {
        use futures::StreamExt;
        let mut io = ctx.wire.listen(80).await?.next().await.ok_or("a connection")??;
        struct Farewell(photofinish_sim::wire::Io);
        impl Drop for Farewell {
            fn drop(&mut self) {
                // a destructor that says goodbye must not be heard from a killed process
                let write = self.0.write_all(b"goodbye");
                let _ = futures::FutureExt::now_or_never(write);
            }
        }
        io.write_all(b"hello").await?;
        let _io = Farewell(io);
        ctx.control.crash_here().await;
        Ok(())
    }
    let said = in_world(
        WorldConfig::default(),
        |b| {
            b.host("server", HostSpec::new(), writer);
            client(b, |ctx| async move {
                let mut io = ctx.wire.connect("server", 80).await?;
                let mut text = String::new();
                let end = io.read_to_string(&mut text).await;
                say(&ctx, format!("{text:?}, then {:?}", end.map_err(|e| e.kind())));
                Ok(())
            });
        },
        |w| {
            w.start_all();
            w.run_for(secs(1)).unwrap();
            said(w)
        },
    );
    assert_eq!(said, ["client: \"hello\", then Ok(5)", "client: done"]);
}

#[test]
fn waiting_for_what_can_never_happen_is_a_deadlock() {
    let stuck = in_world(
        WorldConfig::default(),
        |b| {
            b.host("server", HostSpec::new(), echo);
        },
        |w| {
            w.start_all();
            assert_eq!(w.run_for(secs(10)), Ok(()), "quiet is no failure");
            (w.run_until(secs(10), |_| false), w.now(), entries(w, "end"))
        },
    );
    assert_eq!(stuck.0, Err(Stuck::Deadlock));
    assert_eq!(stuck.1, secs(10));
    assert_eq!(stuck.2, [format!("stuck {}", Stuck::Deadlock)]);
}

#[test]
fn unknown_hosts_are_errors_that_name_the_known_ones() {
    let errors = in_world(WorldConfig::default(), echo_server, |w| {
        [w.cut("server", "driver"), w.crash("diver"), w.hold("x", "server"), w.is_up("y").map(drop)]
    });
    for (error, name) in errors.into_iter().zip(["driver", "diver", "x", "y"]) {
        assert_eq!(error.unwrap_err().to_string(), format!("no host named `{name}`; there are server"));
    }
}
