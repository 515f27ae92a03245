//! The same hosts on both engines.
mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use photofinish_sim::host::{HostSpec, RestartPolicy};
use photofinish_sim::world::{Builder, Engine, Refused, WorldConfig};
use std::time::{Duration, Instant, SystemTime};
use support::{entries, in_world, ms, said, say, secs, stub};

const BOTH: [Engine; 2] = [Engine::Jump, Engine::Turmoil];

fn on(engine: Engine) -> WorldConfig {
    WorldConfig { engine, ..WorldConfig::default() }
}

fn hosts(b: &mut Builder) {
    b.host("api", HostSpec::new(), stub::api);
    b.host("driver", HostSpec::new().skew_ns(-7_000_000_000), |ctx| async move {
        let client = ctx.wire.kube("http://api:80", "d");
        let map = kube::Api::<ConfigMap>::default_namespaced(client).get("a").await?;
        let data = map.data.unwrap_or_default();
        say(&ctx, format!("agent {} peer {} connection {}", data["agent"], data["peer"], data["connection"]));
        let from_a_task = ctx.clone();
        tokio::spawn(async move { say(&from_a_task, "from a task") }).await?;
        Ok(())
    });
    b.host("clock", HostSpec::new().skew_ns(5_000_000_000), |ctx| async move {
        let (std, tokio, wall) = (Instant::now(), tokio::time::Instant::now(), SystemTime::now());
        tokio::time::sleep(secs(60)).await;
        let ms = |d: Duration| (d.as_millis() + 5) / 10 * 10; // a tick is 1 ms
        say(&ctx, format!("{} {} {}", ms(std.elapsed()), ms(tokio.elapsed()), ms(wall.elapsed()?)));
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        say(&ctx, format!("{}", ms(epoch)));
        Err("over".into())
    });
}

#[test]
fn the_same_hosts_do_the_same_on_both_engines() {
    for engine in BOTH {
        let (said, log, connects) = in_world(on(engine), hosts, |w| {
            w.start_all();
            assert_eq!(w.run_until(secs(100), |w| !w.is_up("clock").unwrap()), Ok(true));
            assert!(!w.is_up("driver").unwrap() && w.is_up("api").unwrap());
            assert!(w.now() >= secs(60) && w.now() <= ms(60_002), "{:?}", w.now());
            (said(w), entries(w, "host"), entries(w, "net"))
        });
        assert_eq!(
            said,
            [
                "driver: agent driver peer driver connection 1",
                "driver: from a task",
                "clock: 60000 60000 60000",
                "clock: 1790000065000",
            ],
            "{engine:?}"
        );
        assert_eq!(log[3..], ["exit driver exits", "exit clock fails: over"], "{engine:?}");
        assert_eq!(connects, ["connect driver connects to api:80 (connection 1)"], "{engine:?}");
    }
}

#[test]
fn clocks_that_are_read_often_stand_still_within_an_instant_on_both_engines() {
    for engine in BOTH {
        let said = in_world(
            on(engine),
            |b| {
                b.host("reader", HostSpec::new(), |ctx| async move {
                    for _ in 0..5 {
                        let now = Instant::now();
                        let last = (0..6_000).map(|_| Instant::now()).max();
                        say(&ctx, format!("{:?}", last.map(|last| last - now)));
                        tokio::time::sleep(secs(1)).await;
                    }
                    Ok(())
                });
            },
            |w| {
                w.start_all();
                w.run_for(secs(6)).unwrap();
                said(w)
            },
        );
        assert_eq!(said, ["reader: Some(0ns)"; 5], "{engine:?}");
    }
}

#[test]
fn restart_policies_hold_on_both_engines() {
    for engine in BOTH {
        let log = in_world(
            on(engine),
            |b| {
                let restart = RestartPolicy::OnFailure { after: secs(2) };
                b.host("host", HostSpec::new().restart(restart), |_| async {
                    tokio::time::sleep(secs(1)).await;
                    panic!("boom")
                });
            },
            |w| {
                w.start_all();
                w.run_for(ms(4_500)).unwrap();
                assert!(w.now() >= ms(4_500) && w.now() <= ms(4_501));
                entries(w, "host")
            },
        );
        let (start, fail) = ("start host starts", "exit host fails: panicked: boom");
        assert_eq!(log, [start, fail, start, fail], "{engine:?}");
    }
}

#[test]
fn what_turmoil_cannot_do_is_not_on_this_engine() {
    in_world(on(Engine::Turmoil), hosts, |w| {
        w.start_all();
        let refused = [
            w.crash("api"),
            w.power_off("api"),
            w.pause("api"),
            w.resume("api"),
            w.restart("api"),
            w.delay("api", "driver", secs(1)),
            w.cut("api", "driver"),
            w.heal("api", "driver"),
            w.reset("api", "driver"),
            w.blackhole("api", "driver"),
            w.hold("api", "driver"),
            w.release("api", "driver"),
        ];
        for result in refused {
            assert!(matches!(result, Err(Refused::NotOnThisEngine { .. })), "{result:?}");
        }
        assert_eq!(w.cut("api", "driver").unwrap_err().to_string(), "cut: not on this engine (turmoil)");
    });
}
