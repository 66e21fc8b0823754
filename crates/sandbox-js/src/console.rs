//! [`Console`]: what a program printed, head and tail kept (design 8).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// One call of a console method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleLine {
    /// The method's level.
    pub level: Level,
    /// What it printed; may hold line breaks.
    pub text: String,
}

/// How important a program called a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

    /// Adds what one step printed, as if it had been printed here line by line. Both keep as much.
    pub(crate) fn append(&mut self, step: Self) {
        for line in step.head {
            self.push(line.level, line.text);
        }
        if step.omitted > 0 {
            // What stands between is missing: whatever was at the end is not next to what follows. The step's head
            // was full, so ours is, too.
            self.omit(self.tail_bytes.saturating_add(step.omitted));
            self.tail.clear();
            self.tail_bytes = 0;
        }
        for line in step.tail {
            self.push(line.level, line.text);
        }
    }

    /// Takes it apart: head, omitted bytes, tail.
    pub(crate) fn into_parts(self) -> (Vec<ConsoleLine>, usize, VecDeque<ConsoleLine>) {
        (self.head, self.omitted, self.tail)
    }

    /// The opposite of [`Console::into_parts`], with at most `max` bytes, whatever the parts are.
    pub(crate) fn of_parts(
        max: usize,
        head: Vec<ConsoleLine>,
        omitted: usize,
        tail: VecDeque<ConsoleLine>,
    ) -> Self {
        let mut console = Self::new(max);
        for line in head {
            console.push(line.level, line.text);
        }
        console.omit(omitted);
        for line in tail {
            console.push(line.level, line.text);
        }
        console
    }

    /// Counts what is left out. (A worker may claim any number.)
    fn omit(&mut self, bytes: usize) {
        self.omitted = self.omitted.saturating_add(bytes);
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
            self.omit(text.len() - cut);
            text.truncate(cut);
        }
        self.tail_bytes += text.len() + LINE;
        self.tail.push_back(ConsoleLine { level, text });
        while self.tail_bytes > self.half
            && let Some(line) = self.tail.pop_front()
        {
            self.tail_bytes -= line.text.len() + LINE;
            self.omit(line.text.len() + LINE);
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

    // A run's console is put together from those of its steps, and nobody sees where they were joined.
    #[test]
    fn joined_steps_are_one_console() {
        let sizes = [0, 1, 7, 30, 3, 90, 250, 2, 2, 40, 0, 0, 600, 5, 33, 1, 98, 99, 100, 101, 17];
        for start in 0..sizes.len() {
            for cuts in [1, 2, 3, 5, 8] {
                let lines: Vec<String> =
                    (0..40).map(|i| "x".repeat(sizes[(start + i * cuts) % sizes.len()])).collect();
                let (mut whole, mut joined) = (Console::new(200), Console::new(200));
                for lines in lines.chunks(cuts) {
                    let mut step = Console::new(200);
                    for line in lines {
                        whole.push(Level::Log, line.clone());
                        step.push(Level::Log, line.clone());
                    }
                    let (head, omitted, tail) = step.into_parts();
                    joined.append(Console::of_parts(200, head, omitted, tail));
                }
                let printed: usize = lines.iter().map(|line| line.len() + LINE).sum();
                let kept =
                    |console: &Console| console.lines().map(|line| line.text.len() + LINE).sum::<usize>();
                assert_eq!(texts(&joined), texts(&whole), "{start} {cuts}");
                assert_eq!(joined.omitted, whole.omitted, "{start} {cuts}");
                assert!(kept(&whole) + whole.omitted >= printed, "{start} {cuts}");
            }
        }
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
