//! The README as doctests. The tests of the whole are in `tests/it`.
#![doc = include_str!("../../README.md")]
