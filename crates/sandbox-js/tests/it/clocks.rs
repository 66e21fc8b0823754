//! clocks
