//! The wire types of the Countersign protocol, version 1.0: pure encoding and decoding, no input or output.
//!
//! A host reads [`RunRequest::decode`](request::RunRequest::decode) and writes [`event::Event`]s with
//! [`sse::encode_frame`]; a client writes a `RunRequest`, feeds bytes to [`sse::Decoder`] and frames to
//! [`stream::StreamCheck`], which is as strict as every client of this protocol. Errors of both sides carry a
//! [`code::Code`]. "The contract" in these pages is the specification of the protocol; "the design" is what Countersign
//! adds to it.
//!
//! ```
//! use countersign_approval_core::ids::{ModelId, ProviderId};
//! use countersign_protocol::request::RunRequest;
//! use countersign_protocol::sse::Decoder;
//! use countersign_protocol::stream::{Expectation, StreamCheck};
//!
//! let request = RunRequest::new(ProviderId::parse("p")?, ModelId::parse("m")?, "Hello");
//! let mut check = StreamCheck::new(Expectation::of(&request));
//! let mut decoder = Decoder::new();
//! decoder.push(
//!     br#"data: {"type":"run.started","runId":"6f0c2d1e-0000-4000-8000-000000000000","sequence":1,
//! data: "timestamp":"2026-01-02T03:04:05.678Z","provider":"p","model":"m"}
//!
//! "#,
//! );
//! while let Some(frame) = decoder.next_frame() {
//!     let event = check.accept(&frame?.data)?.expect("not an event to skip");
//!     assert_eq!(event.type_name(), "run.started");
//! }
//! assert_eq!(check.finish().unwrap_err().code().as_str(), "INCOMPLETE_STREAM");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: nothing that a peer sends makes this crate panic, and no error text repeats a value that a peer sent.

pub mod code;
pub mod error;
pub mod event;
pub mod provider_info;
pub mod request;
pub mod result;
mod shape;
pub mod sse;
pub mod stream;
pub mod tool_execution;
pub mod version;

pub use shape::{body_text, decode};
