//! The engine: QuickJS as a state machine that runs a program until it waits (design 5).
//!
//! [`Machine::step`] runs JavaScript until it is idle, done, over budget or stalled, and answers with the calls that the
//! program made. It executes none of them: whoever drives it does, and hands the outcomes back one at a time. Between
//! steps a machine holds no thread and may move to another.
//!
//! Invariant: after the guard's flag is up, nothing that the program does has an effect, and the machine is dropped.

mod bytecode;
mod ffi;
mod guard;
mod host;
mod inspect;
mod machine;
mod realm;
mod thrown;
mod walk;
mod world;

pub(crate) use bytecode::{Bytecode, NotCompiled, compile, engine_version, warm_up};
pub(crate) use guard::Stop;
pub(crate) use machine::{Failure, Machine, MachineOptions, NotStarted, Outcome, Refusal, Settlement, Step};
pub(crate) use thrown::{Thrown, ThrownKind};
pub(crate) use walk::NotJson;
pub(crate) use world::NewCall;
