//! Client, host and driver together.
mod contract;
mod crowd;
mod encodings;
mod loopback;
mod slow_sink;
mod support;
