//! What a person sees of a review, and how he answers it.

mod card;
mod escape;
mod layout;
mod prompt;
mod terminal;

pub(crate) use card::{Card, Extent};
pub(crate) use escape::{AtomKind, Quoting, atoms, inline, json_line, word_width};
pub(crate) use layout::{DIM, ESCAPE, cut, json};
pub(crate) use prompt::{Choices, Prompt, Reply};
pub(crate) use terminal::Screen;
