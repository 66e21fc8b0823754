//! A vendor's stream of server-sent events, within its bound (contract 11).

use countersign_driver::provider::ProviderError;
use countersign_protocol::code::Code;
use countersign_protocol::error::SseError;
use countersign_protocol::sse::Decoder;
use reqwest::Response;

use crate::http;

/// The most bytes of one streamed answer (contract 11).
const MAX_STREAM_BYTES: usize = 10_000_000;

/// The events of an answer, as they arrive. Dropping it closes the connection.
pub(crate) struct Events {
    response: Response,
    decoder: Decoder,
    bytes: usize,
}

impl Events {
    pub(crate) fn new(response: Response) -> Self {
        Self { response, decoder: Decoder::new(), bytes: 0 }
    }

    /// The data of the next event; `None` where the stream ends between two events. Whether it may end there is for the
    /// vendor to say.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, ProviderError> {
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return frame.map(|frame| Some(frame.data)).map_err(undecodable);
            }
            let Some(bytes) = self.response.chunk().await.map_err(http::cut)? else {
                self.decoder.finish().map_err(undecodable)?;
                return Ok(None);
            };
            self.bytes += bytes.len();
            if self.bytes > MAX_STREAM_BYTES {
                return Err(ProviderError::new(Code::RESPONSE_TOO_LARGE));
            }
            self.decoder.push(&bytes);
        }
    }
}

/// The stream ended where more had to come; `cause` is for the log.
pub(crate) fn incomplete(cause: &'static str) -> ProviderError {
    ProviderError::new(Code::INCOMPLETE_STREAM).with_source(cause)
}

fn undecodable(error: SseError) -> ProviderError {
    let code = match error {
        SseError::TooLarge { .. } => Code::RESPONSE_TOO_LARGE,
        SseError::Unterminated => Code::INCOMPLETE_STREAM,
        // The protocol's own code for this, INVALID_STREAM, would accuse our host.
        _ => Code::INVALID_PROVIDER_RESPONSE,
    };
    ProviderError::new(code).with_source(error)
}
