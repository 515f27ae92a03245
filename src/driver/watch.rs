//! WatchSandboxes: two producers, one channel.
//!
//! The watch task converts each event of the Sandbox watch, reads of dependencies included, before it takes the next.
//! The periodic task reconciles every 30 s and then pushes a snapshot of every sandbox. Nothing orders the two against
//! each other: an older list snapshot may follow a newer one of the watch.
use super::error::DriverError;
use super::names;
use super::resource::Sandbox;
use super::{Driver, Mode};
use crate::pb::compute::snapshot_origin::{Desired, Workload};
use crate::pb::compute::watch_sandboxes_event::Payload;
use crate::pb::compute::{
    DeletedEvent, DriverSandbox, PlatformEvent, SandboxEvent, SnapshotOrigin, WatchSandboxesEvent,
};
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tonic::Status;

/// Events that wait for the gateway before the producers do.
const CHANNEL: usize = 256;
const PERIOD: Duration = Duration::from_secs(30);

type Sender = mpsc::Sender<Result<WatchSandboxesEvent, Status>>;
/// The gateway hung up.
struct Closed;

impl Driver {
    /// Reconciles once, then opens the stream.
    pub(super) async fn watch_sandboxes(
        self: &Arc<Self>,
    ) -> Result<mpsc::Receiver<Result<WatchSandboxesEvent, Status>>, DriverError> {
        self.reconcile().await?;
        let (sender, receiver) = mpsc::channel(CHANNEL);
        tracing::debug!("snapshot stream opened");
        let (watching, periodic) = (self.clone(), self.clone());
        let (for_watch, for_period) = (sender.clone(), sender);
        self.spawn(async move { watching.watch(&for_watch).await });
        self.spawn(async move { periodic.reconcile_and_push(&for_period).await });
        Ok(receiver)
    }

    /// Every sandbox of this gateway as a snapshot, one after another, sorted by name and id.
    pub(super) async fn snapshots(&self) -> Result<Vec<DriverSandbox>, DriverError> {
        Ok(self.snapshots_and_origins().await?.into_iter().map(|(snapshot, _)| snapshot).collect())
    }

    async fn snapshots_and_origins(&self) -> Result<Vec<(DriverSandbox, Origin)>, DriverError> {
        let mut snapshots = Vec::new();
        for sandbox in self.find_all().await? {
            let snapshot = self.snapshot(&sandbox).await;
            snapshots.extend(snapshot.map(|snapshot| (snapshot, Origin::of(&sandbox, "list"))));
        }
        snapshots.sort_by(|(a, _), (b, _)| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Ok(snapshots)
    }

    async fn reconcile_and_push(&self, sender: &Sender) {
        let mut ticks = interval_at(Instant::now() + PERIOD, PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                () = sender.closed() => return,
                _ = ticks.tick() => {}
            }
            if let Err(e) = self.reconcile().await {
                tracing::warn!(error = %e, "sandboxes could not be listed for reconciliation");
            }
            match self.snapshots_and_origins().await {
                Ok(snapshots) => {
                    for (snapshot, origin) in snapshots {
                        if send_snapshot(sender, snapshot, origin).await.is_err() {
                            return;
                        }
                    }
                }
                Err(e) => tracing::warn!(error = %e, "sandboxes could not be listed"),
            }
        }
    }

    async fn watch(&self, sender: &Sender) {
        let mut sandboxes = match self.sandbox_events().await {
            Ok(events) => events,
            Err(e) => {
                // The gateway opens another watch.
                let _ = sender.send(Err(e.into())).await;
                return;
            }
        };
        let mut platform = self.platform_events();
        let mut ids = BTreeMap::new();
        loop {
            let sent = tokio::select! {
                biased;
                () = sender.closed() => return,
                event = sandboxes.next() => match event {
                    Some(Ok(event)) => self.sandbox_event(event, &mut ids, sender).await,
                    Some(Err(e)) => logged(&e),
                    None => return,
                },
                event = platform.next() => match event {
                    Some(Ok(Event::Apply(event))) => forward(&event, &ids, sender).await,
                    Some(Ok(_)) => Ok(()),
                    Some(Err(e)) => logged(&e),
                    None => return,
                },
            };
            if sent.is_err() {
                return;
            }
        }
    }

    async fn sandbox_event(
        &self,
        event: Event<Sandbox>,
        ids: &mut BTreeMap<String, String>,
        sender: &Sender,
    ) -> Result<(), Closed> {
        match event {
            Event::Apply(sandbox) | Event::InitApply(sandbox) => {
                ids.insert(sandbox.name().to_owned(), sandbox.id().to_owned());
                match self.snapshot(&sandbox).await {
                    Some(snapshot) => send_snapshot(sender, snapshot, Origin::of(&sandbox, "watch")).await,
                    None => Ok(()),
                }
            }
            Event::Delete(sandbox) => {
                ids.remove(sandbox.name());
                let deleted = DeletedEvent { sandbox_id: sandbox.id().to_owned() };
                send(sender, Payload::Deleted(deleted)).await
            }
            Event::Init | Event::InitDone => Ok(()),
        }
    }

    /// The Sandbox watch: in shared mode of the namespace, whosever the sandboxes are; else of this gateway's anywhere.
    async fn sandbox_events(&self) -> Result<BoxStream<'static, watcher::Result<Event<Sandbox>>>, DriverError> {
        let resource = self.version().await?.api_resource();
        let client = self.kube.client();
        let (api, selector) = match self.config.scope() {
            Some(ns) => (Api::namespaced_with(client, ns, &resource), names::any_gateway_selector()),
            None => (Api::all_with(client, &resource), names::gateway_selector(&self.config.gateway_id)),
        };
        Ok(watcher(api, watcher::Config::default().labels(&selector)).default_backoff().boxed())
    }

    /// Kubernetes Events of the namespace, in shared mode only.
    fn platform_events(&self) -> BoxStream<'static, watcher::Result<Event<CoreEvent>>> {
        match &self.config.mode {
            Mode::Managed { .. } => futures::stream::pending().boxed(),
            Mode::Shared { namespace } => {
                let api: Api<CoreEvent> = Api::namespaced(self.kube.client(), namespace);
                watcher(api, watcher::Config::default()).default_backoff().boxed()
            }
        }
    }
}

/// The resource that a snapshot was made from, for the log: the snapshot itself tells none of this.
struct Origin {
    operation: String,
    bootstrap_phase: String,
    resource_version: String,
    producer: &'static str,
}

impl Origin {
    fn of(sandbox: &Sandbox, producer: &'static str) -> Origin {
        let annotation = |key: &str| sandbox.annotation(key).unwrap_or_default().to_owned();
        Origin {
            operation: annotation(names::BOOTSTRAP_OPERATION),
            bootstrap_phase: annotation(names::BOOTSTRAP_PHASE),
            resource_version: sandbox.resource_version().to_owned(),
            producer,
        }
    }
}

/// What the gateway judges a snapshot by, besides its age, for the log: of two that say the same the older one is no step back.
fn says(sandbox: &DriverSandbox) -> String {
    let origin = sandbox.origin.as_ref();
    let desired = match origin.map(SnapshotOrigin::desired) {
        Some(Desired::Running) => "on",
        Some(Desired::Off) => "off",
        _ => "?",
    };
    let workload = match origin.map(SnapshotOrigin::workload) {
        Some(Workload::Present) => "pod",
        Some(Workload::Absent) => "no-pod",
        _ => "?",
    };
    let mut words = vec![desired.to_owned(), workload.to_owned()];
    if let Some(status) = &sandbox.status {
        words.extend(status.deleting.then(|| "deleting".to_owned()));
        words.extend(status.conditions.iter().map(|c| format!("{}={}/{}", c.r#type, c.status, c.reason)));
    }
    words.join(",")
}

/// Logs right behind the send, with no await in between: the log has the order of the channel.
async fn send_snapshot(sender: &Sender, sandbox: DriverSandbox, origin: Origin) -> Result<(), Closed> {
    let (id, name, says) = (sandbox.id.clone(), sandbox.name.clone(), says(&sandbox));
    send(sender, Payload::Sandbox(SandboxEvent { sandbox: Some(sandbox) })).await?;
    tracing::debug!(
        sandbox_id = %id, sandbox_name = %name, producer = %origin.producer, operation = %origin.operation,
        bootstrap_phase = %origin.bootstrap_phase, resource_version = %origin.resource_version, says = %says, "snapshot sent"
    );
    Ok(())
}

async fn send(sender: &Sender, payload: Payload) -> Result<(), Closed> {
    sender.send(Ok(WatchSandboxesEvent { payload: Some(payload) })).await.map_err(|_| Closed)
}

/// The watcher starts over by itself, after its backoff.
fn logged(e: &watcher::Error) -> Result<(), Closed> {
    tracing::warn!(error = %e, "watch failed");
    Ok(())
}

/// A Kubernetes Event about a known sandbox's resource or Pods goes on to the gateway.
async fn forward(event: &CoreEvent, ids: &BTreeMap<String, String>, sender: &Sender) -> Result<(), Closed> {
    let Some(sandbox_id) = concerns(event.involved_object.name.as_deref().unwrap_or_default(), ids) else {
        return Ok(());
    };
    let reason = event.reason.as_deref().unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    let event = PlatformEvent { sandbox_id: sandbox_id.to_owned(), event: format!("{reason}: {message}") };
    send(sender, Payload::PlatformEvent(event)).await
}

/// The sandbox that an object of this name belongs to: resource and workload Pod bear the resource's name, the
/// supervisor Pod the sandbox's id.
fn concerns<'a>(object: &'a str, ids: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let supervised = || object.strip_prefix("os-supervisor-").filter(|id| ids.values().any(|known| known == id));
    ids.get(object).map(String::as_str).or_else(supervised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::compute::{DriverCondition, DriverSandboxStatus};

    #[test]
    fn the_log_tells_what_a_snapshot_says_of_compute_and_conditions() {
        let condition = |status: &str| DriverCondition {
            r#type: "Ready".into(),
            status: status.into(),
            reason: "Because".into(),
            message: "in other words each time".into(),
            ..Default::default()
        };
        let snapshot = |desired: Desired, workload: Workload, deleting, ready: &str| DriverSandbox {
            origin: Some(SnapshotOrigin {
                resource_version: "7".into(),
                desired: desired.into(),
                workload: workload.into(),
                ..Default::default()
            }),
            status: Some(DriverSandboxStatus { deleting, conditions: vec![condition(ready)], ..Default::default() }),
            ..Default::default()
        };
        for (sandbox, expected) in [
            (snapshot(Desired::Running, Workload::Present, false, "True"), "on,pod,Ready=True/Because"),
            (snapshot(Desired::Running, Workload::Present, false, "False"), "on,pod,Ready=False/Because"),
            (snapshot(Desired::Off, Workload::Absent, true, "True"), "off,no-pod,deleting,Ready=True/Because"),
            (snapshot(Desired::Off, Workload::Unknown, false, "True"), "off,?,Ready=True/Because"),
            (DriverSandbox::default(), "?,?"),
        ] {
            assert_eq!(says(&sandbox), expected);
        }
    }

    #[test]
    fn an_event_concerns_the_sandbox_whose_resource_or_pod_it_names() {
        let ids = BTreeMap::from([("team--demo".to_owned(), "id-1".to_owned())]);
        for (object, id) in [
            ("team--demo", Some("id-1")),
            ("os-supervisor-id-1", Some("id-1")),
            ("os-supervisor-id-2", None),
            ("team--other", None),
            ("", None),
        ] {
            assert_eq!(concerns(object, &ids), id, "{object}");
        }
    }
}
