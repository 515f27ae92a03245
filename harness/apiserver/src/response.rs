//! Bodies of responses: bytes that are there, or the lines of a watch.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::{Frame, SizeHint};

/// The connection broke before the answer was complete: what a client sees of a server that dies, or of a network that
/// fails. As an error of the service no answer comes at all; as an error of a body it ends in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the API server was lost")]
pub struct Lost;

/// The body of a response. A watch ends only when the server ends it.
pub struct Body(Kind);

enum Kind {
    Full(Option<Bytes>),
    Lines(Pin<Box<dyn Stream<Item = Result<Bytes, Lost>> + Send>>),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Full(bytes) => f.debug_tuple("Full").field(&bytes.as_ref().map(Bytes::len)).finish(),
            Kind::Lines(_) => f.write_str("Lines"),
        }
    }
}

impl Body {
    pub(crate) fn full(bytes: Bytes) -> Body {
        Body(Kind::Full((!bytes.is_empty()).then_some(bytes)))
    }

    /// The body with its bytes made into others. A stream stays as it is.
    pub(crate) fn mapped(self, with: impl FnOnce(Bytes) -> Bytes) -> Body {
        match self.0 {
            Kind::Full(Some(bytes)) => Body::full(with(bytes)),
            other => Body(other),
        }
    }

    /// Each item becomes a frame of its own, and so an HTTP chunk.
    pub(crate) fn lines(lines: impl Stream<Item = Result<Bytes, Lost>> + Send + 'static) -> Body {
        Body(Kind::Lines(Box::pin(lines)))
    }

    /// The same answer in another shape: of the whole body, or of each line.
    pub(crate) fn map(
        self,
        whole: impl FnOnce(Bytes) -> Bytes,
        mut line: impl FnMut(Bytes) -> Bytes + Send + 'static,
    ) -> Body {
        match self.0 {
            Kind::Full(bytes) => Body(Kind::Full(bytes.map(whole))),
            Kind::Lines(lines) => Body::lines(lines.map(move |item| item.map(&mut line))),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Lost;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Lost>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Lines(lines) => lines.as_mut().poll_next(cx).map(|line| line.map(|line| line.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Lines(_) => SizeHint::default(),
        }
    }
}
