//! Public watches: every committed row is published to those who watch its sandbox in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use crate::pb::openshell::Sandbox;

use super::record::Row;

/// Commits that a slow watcher may fall behind before it is sent the present row instead.
const BACKLOG: usize = 256;

/// What a watcher is told. The row is absent once the sandbox is removed.
pub(crate) type Change = Option<Arc<Sandbox>>;

/// The in-process notification bus, a channel a sandbox id.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    channels: Mutex<BTreeMap<String, broadcast::Sender<Change>>>,
}

impl Notify {
    pub(crate) fn subscribe(&self, id: &str) -> broadcast::Receiver<Change> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.entry(id.into()).or_insert_with(|| broadcast::channel(BACKLOG).0).subscribe()
    }
    pub(crate) fn publish(&self, row: &Sandbox) {
        self.send(row.id(), || Some(Arc::new(row.clone())));
    }
    pub(crate) fn removed(&self, id: &str) {
        self.send(id, || None);
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
    fn send(&self, id: &str, change: impl FnOnce() -> Change) {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(channel) = channels.get(id) else { return };
        if channel.receiver_count() == 0 {
            channels.remove(id);
        } else {
            // Receivers may go away in between; then nobody needs it.
            let _ = channel.send(change());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str) -> Sandbox {
        let mut row = Sandbox::default();
        row.meta_mut().id = id.into();
        row
    }

    #[test]
    fn a_watcher_is_told_of_its_own_sandbox_and_of_its_end() {
        let bus = Notify::default();
        let mut watcher = bus.subscribe("a");
        bus.publish(&row("b"));
        bus.publish(&row("a"));
        bus.removed("a");
        assert_eq!(watcher.try_recv().unwrap().unwrap().id(), "a");
        assert_eq!(watcher.try_recv().unwrap(), None);
        assert!(watcher.try_recv().is_err());
    }

    #[test]
    fn a_channel_without_watchers_is_forgotten() {
        let bus = Notify::default();
        drop(bus.subscribe("a"));
        bus.publish(&row("a"));
        assert!(bus.channels.lock().unwrap().is_empty());
    }
}
