//! What the tests of worlds share.
#![allow(dead_code, reason = "each test binary uses a part of it")]
use photofinish_sim::choices::Choices;
use photofinish_sim::host::{BoxError, HostCtx, HostSpec};
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{Builder, World, WorldConfig, on_own_thread};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) mod stub;

pub(crate) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}
pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Builds a world on a thread of its own, runs `f` in it, and gives back what `f` returns.
pub(crate) fn in_world<R: Send>(
    config: WorldConfig,
    hosts: impl FnOnce(&mut Builder) + Send,
    f: impl FnOnce(&mut World) -> R + Send,
) -> R {
    on_own_thread(|| {
        let mut builder = World::builder(config, Trace::new(), Choices::benign());
        hosts(&mut builder);
        let mut world = builder.build();
        f(&mut world)
    })
}

/// The trace's lines of `log` entries made by [`say`], as `host: text`.
pub(crate) fn said(world: &World) -> Vec<String> {
    world.trace().with(|entries| {
        let said = entries.iter().filter(|e| e.kind == "said");
        said.map(|e| format!("{}: {}", e.host, e.text)).collect()
    })
}
/// The same, with the time in front: milliseconds, rounded down to tens, as latencies are of no interest.
pub(crate) fn said_at(world: &World) -> Vec<String> {
    world.trace().with(|entries| {
        let said = entries.iter().filter(|e| e.kind == "said");
        said.map(|e| format!("{} {}: {}", e.at_ns / 10_000_000 * 10, e.host, e.text)).collect()
    })
}
pub(crate) fn say(ctx: &HostCtx, text: impl Into<String>) {
    ctx.trace.entry("said", "said").text(text).record();
}
/// Entries of a kind, as `name text`.
pub(crate) fn entries(world: &World, kind: &str) -> Vec<String> {
    world.trace().with(|all| all.iter().filter(|e| e.kind == kind).map(|e| format!("{} {}", e.name, e.text)).collect())
}

/// A host `server` that answers each byte with the same byte, on port 80.
pub(crate) fn echo_server(builder: &mut Builder) {
    builder.host("server", HostSpec::new(), echo);
}
pub(crate) async fn echo(ctx: HostCtx) -> Result<(), BoxError> {
    use futures::StreamExt;
    let mut incoming = ctx.wire.listen(80).await?;
    while let Some(io) = incoming.next().await {
        let (ctx, mut io) = (ctx.clone(), io?);
        tokio::spawn(async move {
            let mut b = [0; 1];
            while io.read_exact(&mut b).await.is_ok() {
                say(&ctx, format!("got {}", b[0] as char));
                if io.write_all(&b).await.is_err() {
                    break;
                }
            }
        });
    }
    Ok(())
}
