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

/// The longest line that a terminal hands over at once.
const MAX_LINE: usize = 4096;

/// What a person typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `a`.
    Approve,
    /// `d`.
    Deny,
    /// `c`, or the end of the input.
    Cancel,
    /// `v`: show everything.
    View,
    /// Anything else, an empty line too: there is no default.
    Unclear,
}

/// An open question. Dropping it withdraws it.
pub(crate) struct Prompt {
    reply: oneshot::Receiver<Reply>,
    _withdraw: PipeWriter,
}

impl Prompt {
    /// Asks. What was typed before the question stood there does not answer it: it is thrown away first.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub(crate) fn ask(out: &mut impl Write, left_out: usize) -> io::Result<Self> {
        out.flush()?;
        let stdin = io::stdin();
        tcflush(&stdin, QueueSelector::IFlush)?;
        if left_out > 0 {
            writeln!(out, "{left_out} lines are not shown: v shows them.")?;
        }
        write!(out, "[a] approve  [d] deny  [c] cancel the run  [v] view whole > ")?;
        out.flush()?;
        let (withdrawn, withdraw) = io::pipe()?;
        let (answer, reply) = oneshot::channel();
        thread::Builder::new().name("prompt".into()).spawn(move || {
            if let Some(reply) = line(&withdrawn) {
                // Nobody waits for it if the question was withdrawn meanwhile.
                let _ = answer.send(reply);
            }
        })?;
        Ok(Self { reply, _withdraw: withdraw })
    }

    /// The answer. A terminal that cannot be read any more cancels, as its end does.
    pub(crate) async fn reply(&mut self) -> Reply {
        (&mut self.reply).await.unwrap_or(Reply::Cancel)
    }
}

/// Waits for a line or for the end of the question, whichever comes first.
fn line(withdrawn: &PipeReader) -> Option<Reply> {
    let stdin = io::stdin();
    let mut buffer = [0; MAX_LINE];
    loop {
        let mut ready = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(withdrawn, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return Some(Reply::Cancel),
        }
        let [input, end] = &ready;
        if !end.revents().is_empty() {
            return None;
        }
        if !input.revents().is_empty() {
            return match read(&stdin, &mut buffer) {
                Ok(0) => Some(Reply::Cancel),
                Ok(length) => Some(reply(&buffer[..length])),
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => Some(Reply::Cancel),
            };
        }
    }
}

fn reply(line: &[u8]) -> Reply {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(reply(line.as_bytes()), expected, "{line:?}");
        }
    }
}
