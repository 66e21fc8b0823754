//! The question on a terminal, and the one line that answers it.
//!
//! The line is read in a thread of its own, straight from the terminal: the run's events keep coming meanwhile, and
//! when the review ends elsewhere, dropping the prompt ends the thread.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::oneshot;

use super::layout::prose;

/// The longest line that a terminal hands over at once.
const MAX_LINE: usize = 4096;

/// What a person typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `a`.
    Approve,
    /// `d`.
    Deny,
    /// `c`.
    Cancel,
    /// The end of the input, which cancels.
    End,
    /// `v`: show everything.
    View,
    /// Anything else, an empty line too: there is no default.
    Unclear,
}

/// What a person said to a question that any text answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remark {
    /// The text without its ends; may be empty.
    Said(String),
    /// Not a whole line of text, or more than a terminal hands over.
    Unclear,
    /// The end of the input, which cancels.
    End,
}

/// What is offered to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choices {
    /// All of the call is shown.
    All,
    /// So many lines are not: they are seen before it can be approved.
    Unseen(usize),
    /// The host takes no decision of this token.
    CancelOnly,
}

impl Choices {
    /// The question in lines of at most `width` columns.
    fn question(self, width: usize) -> String {
        let (said, choices): (_, &[&str]) = match self {
            Self::All => (None, &["[a] approve", "[d] deny", "[c] cancel the run >"]),
            Self::Unseen(lines) => (
                Some(format!("{lines} lines are not shown. They are, with v, before you can approve.")),
                &["[v] view whole", "[d] deny", "[c] cancel the run >"],
            ),
            Self::CancelOnly => (None, &["[c] cancel the run >"]),
        };
        let mut text: String =
            said.iter().flat_map(|said| prose(said, width, 0)).map(|line| line + "\n").collect();
        let mut column = 0;
        for choice in choices {
            if column > 0 && column + 2 + choice.len() >= width {
                text.push('\n');
                column = 0;
            }
            if column > 0 {
                text.push_str("  ");
                column += 2;
            }
            text.push_str(choice);
            column += choice.len();
        }
        text + " "
    }

    /// What is said to whoever typed something else.
    pub(crate) const fn help(self) -> &'static str {
        match self {
            Self::All => "Please type a, d or c, and Enter.",
            Self::Unseen(_) => "Please type v, d or c, and Enter.",
            Self::CancelOnly => "Please type c and Enter.",
        }
    }
}

/// An open question. Dropping it withdraws it.
pub(crate) struct Prompt {
    line: oneshot::Receiver<Vec<u8>>,
    _withdraw: PipeWriter,
}

impl Prompt {
    /// Asks. What was typed before the question stood there does not answer it: it is thrown away first.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub(crate) fn ask(out: &mut impl Write, choices: Choices, width: usize) -> io::Result<Self> {
        Self::open(out, &choices.question(width))
    }

    /// Asks a question that any text answers, in lines of at most `width` columns.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub(crate) fn ask_for_text(out: &mut impl Write, question: &str, width: usize) -> io::Result<Self> {
        Self::open(out, &(prose(question, width, 0).join("\n") + " > "))
    }

    fn open(out: &mut impl Write, question: &str) -> io::Result<Self> {
        out.flush()?;
        let stdin = io::stdin();
        tcflush(&stdin, QueueSelector::IFlush)?;
        write!(out, "{question}")?;
        out.flush()?;
        let (withdrawn, withdraw) = io::pipe()?;
        let (answer, answered) = oneshot::channel();
        thread::Builder::new().name("prompt".into()).spawn(move || {
            if let Some(line) = line(&withdrawn) {
                // Nobody waits for it if the question was withdrawn meanwhile.
                let _ = answer.send(line);
            }
        })?;
        Ok(Self { line: answered, _withdraw: withdraw })
    }

    /// The answer to [`Prompt::ask`]. A terminal that cannot be read any more cancels, as its end does.
    pub(crate) async fn reply(&mut self) -> Reply {
        reply(&(&mut self.line).await.unwrap_or_default())
    }

    /// The answer to [`Prompt::ask_for_text`].
    pub(crate) async fn text(&mut self) -> Remark {
        remark((&mut self.line).await.unwrap_or_default())
    }
}

/// Waits for a line or for the end of the question, whichever comes first. No bytes: the input has ended.
fn line(withdrawn: &PipeReader) -> Option<Vec<u8>> {
    let stdin = io::stdin();
    let mut buffer = [0; MAX_LINE];
    loop {
        let mut ready = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(withdrawn, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return Some(Vec::new()),
        }
        let [input, end] = &ready;
        if !end.revents().is_empty() {
            return None;
        }
        if !input.revents().is_empty() {
            return match read(&stdin, &mut buffer) {
                Ok(length) => Some(buffer[..length].to_vec()),
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => Some(Vec::new()),
            };
        }
    }
}

fn reply(line: &[u8]) -> Reply {
    if line.is_empty() {
        return Reply::End;
    }
    // Without its end (^D in the middle, a terminal that closes) a line was not finished.
    let Some(line) = line.strip_suffix(b"\n") else { return Reply::Unclear };
    match line.trim_ascii() {
        b"a" => Reply::Approve,
        b"d" => Reply::Deny,
        b"c" => Reply::Cancel,
        b"v" => Reply::View,
        _ => Reply::Unclear,
    }
}

fn remark(mut line: Vec<u8>) -> Remark {
    if line.is_empty() {
        return Remark::End;
    }
    // A line of that length has lost its end on the way.
    if line.len() >= MAX_LINE || line.pop() != Some(b'\n') {
        return Remark::Unclear;
    }
    String::from_utf8(line).map_or(Remark::Unclear, |text| Remark::Said(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_breaks_between_its_choices() {
        for (choices, width, text) in [
            (Choices::All, 80, "[a] approve  [d] deny  [c] cancel the run > "),
            (Choices::All, 40, "[a] approve  [d] deny\n[c] cancel the run > "),
            (
                Choices::Unseen(88),
                80,
                "88 lines are not shown. They are, with v, before you can approve.\n\
                 [v] view whole  [d] deny  [c] cancel the run > ",
            ),
            (Choices::CancelOnly, 40, "[c] cancel the run > "),
        ] {
            assert_eq!(choices.question(width), text);
        }
    }

    // There is no default, and no word that merely begins like an answer is one (scenario O3).
    #[test]
    fn only_the_offered_letters_answer() {
        for (line, expected) in [
            ("a\n", Reply::Approve),
            (" a \r\n", Reply::Approve),
            ("d\n", Reply::Deny),
            ("c\n", Reply::Cancel),
            ("v\n", Reply::View),
            ("\n", Reply::Unclear),
            ("A\n", Reply::Unclear),
            ("y\n", Reply::Unclear),
            ("yes\n", Reply::Unclear),
            ("approve\n", Reply::Unclear),
            ("aa\n", Reply::Unclear),
            ("a", Reply::Unclear),
            ("\u{1b}[Aa\n", Reply::Unclear),
            ("a d\n", Reply::Unclear),
            ("", Reply::End),
        ] {
            assert_eq!(reply(line.as_bytes()), expected, "{line:?}");
        }
    }

    // Law 3: a reason that did not come whole is no reason.
    #[test]
    fn a_remark_comes_whole_or_not() {
        for (line, expected) in [
            (b"too old \n".to_vec(), Remark::Said("too old".into())),
            (b"\n".to_vec(), Remark::Said(String::new())),
            (b"cut".to_vec(), Remark::Unclear),
            (b"\xff\n".to_vec(), Remark::Unclear),
            ([&[b'x'; MAX_LINE - 1][..], b"\n"].concat(), Remark::Unclear),
            (Vec::new(), Remark::End),
        ] {
            assert_eq!(remark(line), expected);
        }
    }
}
