//! Which of several gateways on one store runs the loops: watch, sweep, restarts, deadlines.
//!
//! The lease is a row that its holder renews. It is advice, not a fence: a holder that has lost it stops its loops at
//! their next await, but what it has already asked of the driver goes on, and rows are guarded by their versions alone.
//! Times are the holders' wall clocks, so clocks that differ can make two believe that they hold it.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::core::Gateway;

/// How long a lease is believed after it was renewed, milliseconds.
pub const TTL_MS: i64 = 30_000;
/// Time between two renewals.
const RENEW: Duration = Duration::from_secs(10);
/// Time between two tries of one that does not hold it.
const RETRY: Duration = Duration::from_secs(5);

/// Takes the lease and renews it, for ever, and tells [`while_held`]. A gateway that is alone holds it without asking.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    if !gateway.config.shared {
        return std::future::pending().await;
    }
    loop {
        let holds = match gateway.rows.store.lease(&gateway.holder, gateway.rows.now_ms(), TTL_MS) {
            Ok(holds) => holds,
            Err(error) => {
                warn!(%error, "the reconciler lease was not renewed");
                false
            }
        };
        if gateway.holds_lease.send_replace(holds) != holds {
            info!(replica = %gateway.config.replica, holds, "reconciler lease");
        }
        tokio::time::sleep(if holds { RENEW } else { RETRY }).await;
    }
}

/// Runs `loops` whenever this process holds the lease, for ever. They are dropped at an await once it is lost.
pub(crate) async fn while_held<F: Future<Output = ()>>(gateway: Arc<Gateway>, loops: impl Fn(Arc<Gateway>) -> F) {
    let mut holds = gateway.holds_lease.subscribe();
    loop {
        // The sender is part of the gateway, so it cannot be gone.
        let _ = holds.wait_for(|holds| *holds).await;
        tokio::select! {
            biased;
            _ = holds.wait_for(|holds| !*holds) => {}
            () = loops(gateway.clone()) => {}
        }
    }
}
