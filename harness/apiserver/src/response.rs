//! Bodies of responses: bytes that are there, or the lines of a watch.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};

/// The body of a response. A watch ends only when the server ends it.
pub struct Body(Kind);

enum Kind {
    Full(Option<Bytes>),
    Lines(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
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

    /// Each item becomes a frame of its own, and so an HTTP chunk.
    pub(crate) fn lines(lines: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body(Kind::Lines(Box::pin(lines)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Lines(lines) => lines.as_mut().poll_next(cx).map(|line| line.map(|line| Ok(Frame::data(line)))),
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
