//! Fakes for the tests of Countersign. Not published.
//!
//! [`FakeClock`] is a wall clock that a test can set while its monotonic part follows tokio's (paused) time;
//! [`CountingIds`] gives the same ids in every run; [`RecordingSink`] keeps audit records and can be told to fail.
//! With the feature `client`, `MemoryTransport` joins the real client to a real host without a network.

#![allow(clippy::panic, reason = "a fake sink panics when it is told to")]

mod clock;
mod ids;
mod sink;
#[cfg(feature = "client")]
mod transport;

pub use clock::FakeClock;
pub use ids::CountingIds;
pub use sink::{Answer, PRIVATE, RecordingSink};
#[cfg(feature = "client")]
pub use transport::MemoryTransport;
