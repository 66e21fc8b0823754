//! What a person sees of a review, and how he answers it.

mod card;
mod escape;
mod layout;
mod prompt;
mod terminal;

pub(crate) use card::{Card, Extent, Proposal};
pub(crate) use escape::{AtomKind, Charset, Quoting, atoms, inline, json_line, word_width};
pub(crate) use layout::{DIM, ESCAPE, Line, cut, excerpt, json, text};
pub(crate) use prompt::{Choices, Prompt, Remark, Reply};
pub(crate) use terminal::Screen;
