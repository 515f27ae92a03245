//! A world with an API server on a host of its own, `api`, which comes back two seconds after a crash, and which shows
//! all faults that a seed draws.

use std::time::Duration;

use photofinish_apiserver::sim::{SimHooks, faults::Enabled};
use photofinish_apiserver::{ApiServer, ConnInfo};
use photofinish_sim::choices::{Choices, Source};
use photofinish_sim::gate::Gates;
use photofinish_sim::host::{HostSpec, RestartPolicy};
use photofinish_sim::trace::Trace;
use photofinish_sim::wire::Io;
use photofinish_sim::world::{Builder, World, WorldConfig};

/// The world, to which hosts may be added, and its server.
pub(crate) fn with_all_faults(seed: u64) -> (Builder, ApiServer) {
    let trace = Trace::new();
    let choices = Choices::new(Source::Seed(seed), Default::default(), trace.clone());
    let gates = Gates::new(trace.clone(), choices.clone());
    let hooks = SimHooks::with_faults(trace.clone(), choices.clone(), gates, Enabled::all());
    let server = ApiServer::builder().hooks(hooks).build();
    let mut builder = World::builder(WorldConfig { seed, ..WorldConfig::default() }, trace, choices);
    let shared = server.clone();
    let restart = RestartPolicy::Always { after: Duration::from_secs(2) };
    builder.host("api", HostSpec::new().restart(restart), move |ctx| {
        let server = shared.clone();
        async move {
            let who = |io: &Io| ConnInfo {
                client: io.peer_host().map(|host| host.to_string()).unwrap_or_default(),
                connection: io.id(),
            };
            Ok(server.serve(ctx.wire.listen(80).await?, who).await?)
        }
    });
    (builder, server)
}
