//! The events of a run as they arrive.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use countersign_protocol::error::EventError;
use countersign_protocol::event::Event;
use countersign_protocol::sse::Decoder;
use countersign_protocol::stream::{Expectation, StreamCheck};
use futures_core::Stream;

use crate::error::Error;
use crate::transport::BodyStream;

/// The checked events of one run (contract 10.2), made by [`Client::stream`](crate::Client::stream).
///
/// It ends after the run's terminal event or after the first error, and the connection is closed then. Dropping it
/// earlier closes the connection at once, and the host cancels the run. Nothing is read ahead: a consumer that does
/// not ask lets the host wait.
#[must_use = "dropping the stream cancels the run"]
pub struct EventStream {
    /// Absent once the stream has ended.
    open: Option<Open>,
}

struct Open {
    body: BodyStream,
    decoder: Decoder,
    check: StreamCheck,
}

impl EventStream {
    pub(crate) fn new(body: BodyStream, expect: Expectation) -> Self {
        Self { open: Some(Open { body, decoder: Decoder::new(), check: StreamCheck::new(expect) }) }
    }

    /// The next event; `None` after the terminal event or after an error.
    ///
    /// Dropping the future loses nothing: the next call goes on where it was.
    ///
    /// # Errors
    /// [`Error`], once; the stream has ended then.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for EventStream {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(open) = &mut self.open else { return Poll::Ready(None) };
        let item = ready!(open.poll_event(cx));
        if item.as_ref().map_or(true, Event::is_terminal) {
            self.open = None;
        }
        Poll::Ready(Some(item))
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("ended", &self.open.is_none()).finish_non_exhaustive()
    }
}

impl Open {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        loop {
            while let Some(frame) = self.decoder.next_frame() {
                let event = frame
                    .map_err(Error::Frame)
                    .and_then(|frame| self.check.accept(&frame.data).map_err(Error::Event));
                // An event to skip is no item.
                if let Some(event) = event.transpose() {
                    return Poll::Ready(event);
                }
            }
            match ready!(self.body.as_mut().poll_next(cx)) {
                Some(Ok(bytes)) => self.decoder.push(&bytes),
                Some(Err(error)) => return Poll::Ready(Err(Error::BrokenStream(error))),
                None => return Poll::Ready(Err(self.cut())),
            }
        }
    }

    /// Why the end of the input is too early. It always is: after the terminal event nothing is read.
    fn cut(&self) -> Error {
        match self.decoder.finish() {
            Err(error) => Error::Frame(error),
            Ok(()) => Error::Event(EventError::Incomplete),
        }
    }
}
