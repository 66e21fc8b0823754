//! The HTTP host: a [driver](countersign_driver) behind protocol 1.0 (contract 1, 6), on hyper.
//!
//! It authenticates, bounds and frames; every decision is the driver's. Start at [`serve()`], which listens on a
//! socket, or at [`Service`], which speaks the protocol over any connection that it is handed (the border at which
//! tests put in-memory pipes, design 2). [`HostConfig`] reads the configuration file and [`configured_driver`]
//! builds the driver that it describes.
//!
//! With [`Options::tls`] (feature `tls`, on by default) it speaks TLS and may listen anywhere; without, on loopback only.
//!
//! Invariants: only `respond` names an HTTP status; only this crate names hyper; identity comes from the token
//! (law 4); the next event is asked of a run only once the frame before it was written to the connection.
//!
//! ```
//! use std::sync::Arc;
//! use countersign_host::{Options, Token, serve};
//! use secrecy::SecretString;
//! # async fn example(driver: countersign_driver::Driver) -> Result<(), countersign_host::StartError> {
//! let host = serve(
//!     driver,
//!     Options {
//!         port: 0,
//!         tokens: vec![Token {
//!             token: SecretString::from("0123456789abcdef0123456789abcdef"),
//!             subject: "application-user-42".into(),
//!             providers: vec!["mock".into()],
//!             tools: vec!["save_proposal".into()],
//!             approve_tools: vec!["save_proposal".into()],
//!             application_tools: Vec::new(),
//!         }],
//!         ..Options::default()
//!     },
//! )
//! .await?;
//! println!("listening on {}", host.url());
//! host.close().await;
//! # Ok(())
//! # }
//! ```

mod auth;
mod body;
pub mod config;
mod configured;
mod connection;
mod discovery;
mod error;
mod log;
mod metrics;
mod options;
mod payload;
mod respond;
mod router;
mod routes;
mod seats;
mod serve;
mod service;
mod slots;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
mod wire;

pub use config::{Answer, HostConfig, Probed};
pub use configured::{Extras, configured_driver};
pub use error::StartError;
pub use metrics::MetricsAccess;
pub use options::{ApplicationToolGrant, Concurrency, Options, Queue, Token};
pub use serve::{Host, serve};
pub use service::Service;
pub use tls::Tls;
