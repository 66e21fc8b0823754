//! [`Error`]: a run that never started because of how it was asked for. What a program does wrong is an
//! [`Ending`](crate::Ending).

/// The caller's mistake, or a machine without a thread to spare. Nothing ran.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A function's name is no identifier, is reserved, or is a global of the language.
    #[error("the function name {name:?} {why}")]
    FunctionName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two functions have one name.
    #[error("two functions are called {0:?}")]
    DuplicateFunction(String),
    /// A schema is not exact JSON.
    #[error("the {which} schema of {function} is not JSON: {why}")]
    Schema {
        /// The function.
        function: String,
        /// `input` or `output`.
        which: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A limit that the engine cannot keep.
    #[error("the limit {0}")]
    Limit(&'static str),
    /// The operating system gave no thread, or the engine could not start.
    #[error("the engine could not start: {0}")]
    Engine(String),
}
