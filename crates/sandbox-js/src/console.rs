//! [`Console`]: what a program printed, head and tail kept (design 8).

use std::collections::VecDeque;

/// One call of a console method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleLine {
    /// The method's level.
    pub level: Level,
    /// What it printed; may hold line breaks.
    pub text: String,
}

/// How important a program called a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// `console.debug`
    Debug,
    /// `console.log`, `console.dir`, `console.trace`
    Log,
    /// `console.info`
    Info,
    /// `console.warn`
    Warn,
    /// `console.error`
    Error,
}

impl Level {
    /// The method's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Log => "log",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The lines of a run, those of a failed one included (scenario W50). Half of [`crate::Limits::console`] is kept from
/// the beginning and half from the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Console {
    head: Vec<ConsoleLine>,
    tail: VecDeque<ConsoleLine>,
    head_bytes: usize,
    tail_bytes: usize,
    half: usize,
    omitted: usize,
}

/// What a line costs beside its text, so that empty lines are bounded too.
const LINE: usize = 1;

impl Console {
    pub(crate) fn new(max: usize) -> Self {
        Self { half: max / 2, ..Self::default() }
    }

    /// The lines that were kept, in order.
    pub fn lines(&self) -> impl Iterator<Item = &ConsoleLine> {
        self.head.iter().chain(&self.tail)
    }

    /// The lines before [`Console::omitted_bytes`] were left out.
    pub fn head(&self) -> &[ConsoleLine] {
        &self.head
    }

    /// Bytes that were left out between the head and the tail.
    pub fn omitted_bytes(&self) -> usize {
        self.omitted
    }

    pub(crate) fn push(&mut self, level: Level, mut text: String) {
        let size = text.len() + LINE;
        if self.tail.is_empty() && self.omitted == 0 && self.head_bytes + size <= self.half {
            self.head_bytes += size;
            self.head.push(ConsoleLine { level, text });
            return;
        }
        if size > self.half {
            let cut = text.floor_char_boundary(self.half.saturating_sub(LINE));
            self.omitted += text.len() - cut;
            text.truncate(cut);
        }
        self.tail_bytes += text.len() + LINE;
        self.tail.push_back(ConsoleLine { level, text });
        while self.tail_bytes > self.half
            && let Some(line) = self.tail.pop_front()
        {
            self.tail_bytes -= line.text.len() + LINE;
            self.omitted += line.text.len() + LINE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(console: &Console) -> Vec<&str> {
        console.lines().map(|line| line.text.as_str()).collect()
    }

    // Law 9: head and tail are kept, and what is missing is counted.
    #[test]
    fn head_and_tail() {
        let mut console = Console::new(20);
        for text in ["aaaa", "bbbb"] {
            console.push(Level::Log, text.to_owned());
        }
        assert_eq!((texts(&console), console.omitted_bytes()), (vec!["aaaa", "bbbb"], 0));
        for text in ["cccc", "dddd", "eeee"] {
            console.push(Level::Log, text.to_owned());
        }
        assert_eq!((texts(&console), console.omitted_bytes()), (vec!["aaaa", "bbbb", "dddd", "eeee"], 5));
        console.push(Level::Log, "f".repeat(100));
        assert_eq!(texts(&console), ["aaaa", "bbbb", "fffffffff"]);
        assert_eq!(console.omitted_bytes(), 5 + 10 + 91);
    }

    #[test]
    fn empty_lines_are_bounded() {
        let mut console = Console::new(8);
        for _ in 0..1_000 {
            console.push(Level::Log, String::new());
        }
        assert_eq!((texts(&console).len(), console.omitted_bytes()), (8, 992));
    }
}
