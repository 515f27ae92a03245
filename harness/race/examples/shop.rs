//! A system of one's own, as small as it gets: a client orders at a shop and asks again when no answer comes.
//!
//! `cargo run -p photofinish --example shop -- run` races it; `-- run --as-reported` shows what happens without the fix.
//! `tests/shop.rs` makes both tests.
use std::process::ExitCode;
use std::time::Duration;

use futures::StreamExt;
use photofinish::property::Property;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, BoxError, Builtin, Cluster, Live, Setup, Stage, System, Verb};
use photofinish::temporal::after;
use photofinish::{Switch, SwitchKind};
use photofinish_sim::host::{HostCtx, HostSpec};
use photofinish_sim::wire::Wire;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tower_service::Service;

// The code under test: it knows wires and timers, and not that they are simulated.

async fn shop(ctx: HostCtx, by_number: bool) -> Result<(), BoxError> {
    let mut incoming = std::pin::pin!(ctx.wire.listen(80).await?);
    let mut sold = Vec::new();
    while let Some(connection) = incoming.next().await {
        let mut io = BufReader::new(connection?);
        let mut order = String::new();
        io.read_line(&mut order).await?;
        let order = order.trim().to_owned();
        if !(by_number && sold.contains(&order)) {
            ctx.trace.entry("log", "info").field("order", &order).text(format!("sold {order}")).record();
            sold.push(order);
        }
        // Packing takes its time, and the client may have hung up meanwhile: it will ask again.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let _ = io.get_mut().write_all(b"ok\n").await;
    }
    Ok(())
}

async fn order(wire: &Wire, number: u64) -> Result<(), BoxError> {
    let io = wire.connector().call("http://shop:80".parse()?).await?;
    let mut io = BufReader::new(io.into_inner());
    io.get_mut().write_all(format!("{number}\n").as_bytes()).await?;
    match io.read_line(&mut String::new()).await? {
        0 => Err("the shop hung up".into()),
        _ => Ok(()),
    }
}

// What the harness needs to know: hosts, verbs, properties, fixes, scenarios.

pub(crate) struct Shop;

pub(crate) static SHOP: Shop = Shop;

/// The running world's own state: where steps put the client's orders.
struct Till(UnboundedSender<u64>);

impl Live for Till {}

#[derive(Debug)]
struct Order(u64);

impl Action for Order {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        scene.live::<Till>().0.send(self.0).map_err(|_| StepError::impossible("the client is gone"))
    }
}

impl System for Shop {
    fn name(&self) -> &'static str {
        "shop"
    }
    fn switches(&self) -> &'static [Switch] {
        &[Switch {
            name: "order-numbers",
            kind: SwitchKind::Proposed { recommended: true },
            sentence: "The shop knows an order by its number.",
            from: "shop#1",
        }]
    }
    fn hosts(&self, _: &Cluster) -> Vec<String> {
        vec!["client".into(), "shop".into()]
    }
    fn verbs(&self) -> &'static [Verb] {
        &[Verb {
            name: "order",
            usage: "order: NUMBER",
            sentence: "The client orders, and asks again each second until it is answered.",
            parse: |node, _| Ok(Box::new(Order(node.number("a number")?))),
        }]
    }
    fn properties(&self) -> Vec<Property> {
        vec![Property::new(
            "one-order-one-sale",
            "What is ordered once is sold once.",
            after(|e| e.field("order").map(str::to_owned)).never(|order, e| {
                (e.field("order") == Some(order.as_str())).then(|| format!("order {order} was sold again"))
            }),
        )]
    }
    fn scenarios(&self) -> &'static [Builtin] {
        &[Builtin {
            name: "lost-answer",
            path: "examples/lost-answer.yaml",
            text: "scenario: lost-answer
summary: The shop's answer is lost, and the client orders again.
steps:
  - order: 1
  - run: 20ms                  # the shop has the order, and packs
  - reset: [client, shop]
  - run: 5s
check: [one-order-one-sale]
fails-without: {off: order-numbers, violates: [one-order-one-sale]}
",
        }]
    }
    fn assemble(&self, setup: &Setup, stage: &mut Stage<'_>) -> Result<Box<dyn Live>, BoxError> {
        let by_number = setup.on("order-numbers");
        stage.world.host("shop", HostSpec::new(), move |ctx| shop(ctx, by_number));
        let (orders, inbox) = unbounded_channel();
        let inbox = std::sync::Arc::new(tokio::sync::Mutex::new(inbox));
        stage.world.host("client", HostSpec::new(), move |ctx| {
            let inbox = inbox.clone();
            async move {
                while let Some(number) = inbox.lock().await.recv().await {
                    while order(&ctx.wire, number).await.is_err() {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
                Ok(())
            }
        });
        Ok(Box::new(Till(orders)))
    }
}

fn main() -> ExitCode {
    photofinish::cli::main(&SHOP)
}
