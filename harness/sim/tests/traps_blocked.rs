//! Waits of the world's only thread that nobody can end: the process ends, and its trace says who waits.
mod support;

use photofinish_sim::choices::Choices;
use photofinish_sim::exit;
use photofinish_sim::host::{BoxError, HostCtx, HostSpec};
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{World, WorldConfig};
use photofinish_sim::zygote::{self, Exit, Zygote};
use support::{say, secs};

#[inline(never)]
fn wait_for_a_message_that_never_comes() {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _ = receiver.recv();
}
#[inline(never)]
fn join_a_thread_that_waits_for_ever() {
    let _ = std::thread::spawn(wait_for_a_message_that_never_comes).join();
}

async fn host(ctx: HostCtx) -> Result<(), BoxError> {
    tokio::time::sleep(secs(5)).await;
    say(&ctx, "before");
    match &*ctx.env["wait"] {
        "message" => wait_for_a_message_that_never_comes(),
        "join" => join_a_thread_that_waits_for_ever(),
        _ => {}
    }
    say(&ctx, "behind");
    Ok(())
}

fn body(request: &[u8], trace: Trace) -> Vec<u8> {
    let config = WorldConfig { foreign_threads: request == b"join", ..WorldConfig::default() };
    let mut builder = World::builder(config, trace, Choices::benign());
    builder.host("gateway", HostSpec::new().env("wait", String::from_utf8_lossy(request)), host);
    let mut world = builder.build();
    world.start_all();
    world.run_for(secs(60)).expect("it goes on");
    Vec::new()
}

#[test]
fn an_endless_wait_ends_the_run_with_the_waiters_name_and_the_next_run_is_well() {
    if zygote::inside() {
        zygote::serve(body)
    }
    let mut zygote = Zygote::start(&zygote::this_test()).unwrap();
    let mut run = |request: &str| zygote.run(request.as_bytes(), secs(60)).unwrap();
    for (request, function) in
        [("message", "wait_for_a_message_that_never_comes"), ("join", "join_a_thread_that_waits_for_ever")]
    {
        let finished = run(request);
        assert_eq!(finished.exit, Exit::Code(exit::BLOCKED), "{}", String::from_utf8_lossy(&finished.stderr));
        let trace = finished.trace();
        let end = trace.last().expect("the trace survives");
        assert_eq!((&*end.kind, &*end.name, end.at_ns), ("end", "stuck", 5_000_000_000));
        assert!(end.text.starts_with("gateway blocks its only thread for ever:\n"), "{}", end.text);
        assert!(end.text.contains(function), "{}", end.text);
        assert!(trace.iter().any(|e| e.text == "before") && !trace.iter().any(|e| e.text == "behind"));
    }
    assert_eq!(run("nothing").exit, Exit::Done);
}
