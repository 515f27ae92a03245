//! The way of a watch's events through a world: the gate that can hold them, and the faults at its end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream as _;
use photofinish_sim::choices::key;
use photofinish_sim::gate::{GateReceiver, GateSender, Meta};
use photofinish_sim::legality::Fault;
use photofinish_sim::trace::Trace;

use super::{Questions, faults};
use crate::hooks::{Handed, WatchItem, WatchPipe};

/// What can happen to an event on its last step.
static KINDS: [&Fault; 6] = [
    &faults::WATCH_END,
    &faults::WATCH_RESET,
    &faults::WATCH_TORN,
    &faults::WATCH_DROP,
    &faults::WATCH_DUPLICATE,
    &faults::WATCH_SWAP,
];

/// `watch/<client>/<resource>/<object>`.
pub(super) fn watch_key(stream: &str, object: &str) -> String {
    let parts = ["watch"].into_iter().chain(stream.split('/')).chain([object]);
    key(&parts.filter(|part| !part.is_empty()).collect::<Vec<_>>())
}

/// An event, and the key of its point if it can come to something.
struct Sent {
    item: WatchItem,
    key: Option<String>,
}

pub(super) struct Gated {
    stream: String,
    trace: Trace,
    questions: Questions,
    sender: GateSender<Sent>,
    receiver: GateReceiver<Sent>,
    /// An event that waits for the next one to overtake it.
    overtaken: Option<WatchItem>,
    /// What comes before anything else of the gate.
    ready: VecDeque<WatchItem>,
}

impl Gated {
    pub(super) fn open(
        stream: String,
        trace: Trace,
        questions: Questions,
        gates: &photofinish_sim::gate::Gates,
    ) -> Gated {
        let (sender, receiver) = gates.open(&stream);
        Gated { stream, trace, questions, sender, receiver, overtaken: None, ready: VecDeque::new() }
    }

    fn hand(&self, item: WatchItem) -> Handed {
        let kind = item.kind.as_str();
        self.trace
            .entry("watch", kind)
            .text(format!("{}: {kind} {} at rv {}", self.stream, item.object, item.revision))
            .field("stream", &self.stream)
            .field("object", &item.object)
            .field("rv", item.revision)
            .record();
        Handed::Item(item)
    }

    /// What becomes of an event that is due. `None`: nothing, for now.
    fn fate(&mut self, Sent { item, key }: Sent) -> Option<Handed> {
        let Some(key) = key else { return Some(self.hand(item)) };
        let questions = self.questions.clone();
        let flip = |suffix: &str, fault| questions.flip(&format!("{key}/{suffix}"), fault);
        if flip("end", &faults::WATCH_END) {
            return Some(Handed::End);
        }
        if flip("reset", &faults::WATCH_RESET) {
            return Some(Handed::Reset);
        }
        if flip("torn", &faults::WATCH_TORN) {
            return Some(Handed::Torn(item));
        }
        if flip("drop", &faults::WATCH_DROP) {
            return None;
        }
        if flip("duplicate", &faults::WATCH_DUPLICATE) {
            self.ready.push_back(item.clone());
        }
        if flip("swap", &faults::WATCH_SWAP) && self.overtaken.is_none() {
            self.overtaken = Some(item);
            return None;
        }
        self.ready.extend(self.overtaken.take());
        Some(self.hand(item))
    }
}

impl WatchPipe for Gated {
    fn send(&mut self, item: WatchItem) {
        let meta =
            Meta { object: item.object.clone(), kind: item.kind.as_str().to_owned(), value: item.value.get().clone() };
        // Counted as the gate counts, which asks for the delay of the same event.
        let named = !item.object.is_empty() && self.questions.concerned("watch", &KINDS);
        let key = named.then(|| self.questions.numbered(watch_key(&self.stream, &item.object)));
        self.sender.send(meta, Sent { item, key });
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Handed> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Poll::Ready(self.hand(item));
            }
            match Pin::new(&mut self.receiver).poll_next(cx) {
                Poll::Ready(Some(sent)) => {
                    if let Some(handed) = self.fate(sent) {
                        return Poll::Ready(handed);
                    }
                }
                // The sender lives in this pipe: the stream cannot end before the pipe does.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}
