//! What is known of the terminal.

use std::env;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthStr;

use super::escape::Charset;
use super::layout::prose;

/// Where cards are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Columns.
    pub(crate) width: usize,
    /// Lines, if what is printed is seen through a window.
    pub(crate) height: Option<usize>,
    /// What it can show.
    pub(crate) charset: Charset,
}

impl Screen {
    /// The window that `fd` is; for anything else 80 columns without an end.
    pub(crate) fn of(fd: impl AsFd) -> Self {
        let charset = charset();
        match tcgetwinsize(fd) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Self { width: size.ws_col.into(), height: Some(size.ws_row.into()), charset }
            }
            _ => Self { width: 80, height: None, charset },
        }
    }

    /// The mark before every line of text that the agent wrote.
    pub(crate) const fn gutter(&self) -> &'static str {
        match self.charset {
            Charset::Utf8 => "│ ",
            Charset::Ascii => "| ",
        }
    }

    /// Words of ours on lines that a window does not break itself. Where there is no window, nothing is broken.
    pub(crate) fn wrap(&self, text: &str) -> Vec<String> {
        let text_only = text.trim_start_matches(' ');
        match self.height {
            Some(_) if text.width() >= self.width => {
                prose(text_only, self.width.saturating_sub(1), text.len() - text_only.len())
            }
            _ => vec![text.to_owned()],
        }
    }

    /// A line across.
    pub(crate) fn rule(&self) -> String {
        let dash = match self.charset {
            Charset::Utf8 => "─",
            Charset::Ascii => "-",
        };
        dash.repeat(self.width.clamp(1, 100) - 1)
    }
}

/// The first of these that is set and not empty decides, as in POSIX. Where none is, UTF-8 is what terminals speak.
fn charset() -> Charset {
    let set = |name| env::var(name).ok().filter(|value: &String| !value.is_empty());
    charset_of(set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).as_deref())
}

fn charset_of(locale: Option<&str>) -> Charset {
    match locale.map(str::to_ascii_lowercase) {
        Some(name) if !name.contains("utf-8") && !name.contains("utf8") => Charset::Ascii,
        _ => Charset::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_what_can_be_shown() {
        for (locale, charset) in [
            (None, Charset::Utf8),
            (Some("en_GB.UTF-8"), Charset::Utf8),
            (Some("C.utf8"), Charset::Utf8),
            (Some("UTF-8"), Charset::Utf8),
            (Some("C"), Charset::Ascii),
            (Some("POSIX"), Charset::Ascii),
            (Some("de_DE.ISO-8859-1"), Charset::Ascii),
        ] {
            assert_eq!(charset_of(locale), charset, "{locale:?}");
        }
    }
}
