//! The host over real bytes: raw HTTP on in-memory pipes and on loopback sockets.

mod bodies;
mod catalog;
mod config;
mod decisions;
mod headers;
mod order;
mod runs;
mod shutdown;
mod streams;
mod support;
