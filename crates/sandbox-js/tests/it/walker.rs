//! walker
