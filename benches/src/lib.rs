//! What the programs of the benchmark share: how a client speaks to the product and to the bounds, what the load client
//! is asked to do, and how figures are summed up.
//!
//! `cargo xtask bench approvals` builds all of them and starts `countersign-bench`, which starts the servers and the
//! load client as processes of their own; `cargo xtask bench sandbox` likewise, with one process an engine. A bound is the least code that does the job: no authentication, no audit, no
//! expiry, no validation.

pub mod job;
pub mod peer;
pub mod process;
pub mod sandbox;
pub mod stats;
pub mod wire;
