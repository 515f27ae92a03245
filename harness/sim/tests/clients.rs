//! Real clients and servers over the simulated wire.
mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use photofinish_sim::host::HostSpec;
use photofinish_sim::world::WorldConfig;
use std::time::Duration;
use support::{in_world, said, say, secs, stub};

#[test]
fn a_kube_client_talks_to_a_server_in_the_world() {
    let (said, connects, now) = in_world(
        WorldConfig::default(),
        |b| {
            b.host("api", HostSpec::new(), stub::api);
            b.host("driver", HostSpec::new(), |ctx| async move {
                let client = ctx.wire.kube("http://api:80", "d");
                for _ in 0..3 {
                    let map = kube::Api::<ConfigMap>::default_namespaced(client.clone()).get("a").await?;
                    let data = map.data.unwrap_or_default();
                    say(
                        &ctx,
                        format!("agent {} peer {} connection {}", data["agent"], data["peer"], data["connection"]),
                    );
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
                Ok(())
            });
        },
        |w| {
            w.start_all();
            assert!(w.run_until(secs(10), |w| !w.is_up("driver").unwrap()).unwrap());
            (said(w), support::entries(w, "net"), w.now())
        },
    );
    assert_eq!(said, ["driver: agent driver peer driver connection 1"; 3]);
    assert_eq!(connects, ["connect driver connects to api:80 (connection 1)"]);
    assert!(now > Duration::from_millis(750) && now < Duration::from_millis(760), "{now:?}");
}
