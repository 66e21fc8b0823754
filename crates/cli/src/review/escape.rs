//! Makes text from outside safe and honest on a terminal (design 7; scenarios K1, K3, K5, K13).
//!
//! What could move the cursor, hide, reorder or look like nothing is shown as an escape such as `\u{202e}`; a long
//! run of one such character, or of blanks, is shown once with its count, as `·×3000`. The result is exact: `\` in
//! quoted text is always doubled, and a `·`, `×` or digit that could be taken for one of ours is itself escaped.

use std::fmt::Write as _;

use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_width::UnicodeWidthChar;

/// More blanks in a row than this are counted instead of shown.
const MAX_BLANKS: usize = 16;
/// More equal escapes in a row than this are counted instead of shown.
const MAX_ESCAPES: usize = 4;
/// Marks on one letter: no language needs more, and a flood of them paints over its neighbours.
const MAX_MARKS: usize = 2;

/// Which characters the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    /// UTF-8.
    Utf8,
    /// Everything else is escaped: in other encodings the bytes of UTF-8 may be control codes (K1, U+009B).
    Ascii,
}

/// How the text is marked off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quoting {
    /// Between `"`: as in JSON, `"` and `\` are escaped.
    Quoted,
    /// In running text.
    Bare,
}

/// What stays together on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Atom {
    /// Printable text.
    pub(crate) text: String,
    /// Columns that it takes.
    pub(crate) width: usize,
    pub(crate) kind: AtomKind,
}

impl Atom {
    /// A count of ours stands in it; no other escape holds the sign of one.
    pub(crate) fn is_count(&self) -> bool {
        self.kind != AtomKind::Shown && self.text.contains(['×', '*'])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomKind {
    /// The character itself.
    Shown,
    /// Written by us in place of a character.
    Escape,
    /// As `Escape`, for a line break: what follows stands on a line of its own.
    Break,
}

/// Splits text into atoms.
pub(crate) fn atoms(text: &str, quoting: Quoting, charset: Charset) -> Vec<Atom> {
    let mut out: Vec<Atom> = Vec::with_capacity(text.len());
    let mut marks = 0;
    let mut after_count = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let mut times = 1;
        let mut rest = chars.clone();
        while rest.next_if_eq(&c).is_some() {
            times += 1;
        }
        marks = if is_mark(c) { marks + 1 } else { 0 };
        let after_ours = out.last().is_some_and(|atom| atom.kind != AtomKind::Shown);
        let form =
            form(c, chars.peek().copied(), Context { quoting, charset, marks, after_ours, after_count });
        after_count = false;
        let (unit, kind, limit) = match form {
            Form::Shown if c == ' ' => ("·".to_owned(), AtomKind::Shown, MAX_BLANKS),
            Form::Shown => (String::new(), AtomKind::Shown, usize::MAX),
            Form::Escape(unit) if c == '\n' => (unit, AtomKind::Break, MAX_ESCAPES),
            Form::Escape(unit) => (unit, AtomKind::Escape, MAX_ESCAPES),
        };
        if times > limit {
            let unit = if charset == Charset::Ascii && c == ' ' { r"\u{20}" } else { &unit };
            let kind = if kind == AtomKind::Shown { AtomKind::Escape } else { kind };
            let sign = if charset == Charset::Ascii { "*" } else { "×" };
            out.push(atom(format!("{unit}{sign}{times}"), kind));
            chars = rest;
            after_count = true;
        } else if kind == AtomKind::Shown {
            out.push(atom(c.to_string(), kind));
        } else {
            out.push(atom(unit, kind));
        }
    }
    out
}

/// Columns up to the next blank or line break: what had better stay on one line.
pub(crate) fn word_width(atoms: &[Atom]) -> usize {
    let ends = |atom: &&Atom| atom.text != " " && atom.kind != AtomKind::Break;
    atoms.iter().take_while(ends).map(|atom| atom.width).sum()
}

/// The text on one line, safe to print.
pub(crate) fn inline(text: &str) -> String {
    atoms(text, Quoting::Bare, Charset::Utf8).into_iter().map(|atom| atom.text).collect()
}

/// A JSON text as the same JSON value, with `\u` escapes for what [`inline`] would not show: a line of JSON is for
/// programs, but it may well reach a terminal.
pub(crate) fn json_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside strings JSON is printable ASCII, and inside them any character may be written so.
        if c.is_ascii_graphic() || c == ' ' || !is_unseen(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

struct Context {
    quoting: Quoting,
    charset: Charset,
    /// How many marks stand on the letter, this one included.
    marks: usize,
    after_ours: bool,
    /// A count of ours stands before it.
    after_count: bool,
}

enum Form {
    Shown,
    Escape(String),
}

fn form(c: char, next: Option<char>, context: Context) -> Form {
    let code = || Form::Escape(format!("\\u{{{:x}}}", u32::from(c)));
    match c {
        '"' | '\\' if context.quoting == Quoting::Quoted => Form::Escape(format!("\\{c}")),
        '\n' => Form::Escape("\\n".into()),
        '\r' => Form::Escape("\\r".into()),
        '\t' => Form::Escape("\\t".into()),
        // Only we write a count behind a sign of ours.
        '×' if context.after_ours => code(),
        '*' if context.after_ours && context.charset == Charset::Ascii => code(),
        '0'..='9' if context.after_count => code(),
        '·' if next == Some('×') => code(),
        ' '..='~' => Form::Shown,
        _ if context.charset == Charset::Ascii || is_unseen(c) => code(),
        _ if is_mark(c) && (context.marks > MAX_MARKS || context.after_ours) => code(),
        _ => Form::Shown,
    }
}

/// Characters that a terminal obeys, or that a person cannot see or tell from a blank.
fn is_unseen(c: char) -> bool {
    use GeneralCategory as Is;
    let category = matches!(
        get_general_category(c),
        Is::Control
            | Is::Format
            | Is::Surrogate
            | Is::PrivateUse
            | Is::Unassigned
            | Is::LineSeparator
            | Is::ParagraphSeparator
            | Is::SpaceSeparator
    );
    // Ignorable by default but in another category, and the blank Braille pattern.
    let ignorable = matches!(c,
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{1d159}' | '\u{e0000}'..='\u{e0fff}');
    category || ignorable
}

fn is_mark(c: char) -> bool {
    use GeneralCategory as Is;
    matches!(get_general_category(c), Is::NonspacingMark | Is::EnclosingMark)
}

fn atom(text: String, kind: AtomKind) -> Atom {
    let width = text.chars().map(|c| c.width().unwrap_or(1)).sum();
    Atom { text, width, kind }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quoted(text: &str) -> String {
        atoms(text, Quoting::Quoted, Charset::Utf8).into_iter().map(|atom| atom.text).collect()
    }

    // K1, K3, K5, K13.
    #[test]
    fn nothing_hides() {
        for (text, shown) in [
            ("plain text, no tricks: {}[]", "plain text, no tricks: {}[]"),
            ("Grüße, 東京, עברית", "Grüße, 東京, עברית"),
            ("ls\r\u{1b}[2K\u{1b}[1Arm -rf /", r"ls\r\u{1b}[2K\u{1b}[1Arm -rf /"),
            ("\u{1b}]8;;http://x\u{7}y\u{8}\u{7f}\0", r"\u{1b}]8;;http://x\u{7}y\u{8}\u{7f}\u{0}"),
            ("\u{9b}2J\u{85}", r"\u{9b}2J\u{85}"),
            ("abc\u{202e}fed\u{2066}\u{61c}", r"abc\u{202e}fed\u{2066}\u{61c}"),
            ("a\u{200b}b\u{feff}c\u{ad}d\u{115f}e\u{3164}f", r"a\u{200b}b\u{feff}c\u{ad}d\u{115f}e\u{3164}f"),
            ("\u{e0100}\u{e0041}\u{fe0f}\u{ffa0}\u{34f}", r"\u{e0100}\u{e0041}\u{fe0f}\u{ffa0}\u{34f}"),
            ("a\u{2028}b\u{2029}c\u{a0}d\u{3000}e\u{2800}", r"a\u{2028}b\u{2029}c\u{a0}d\u{3000}e\u{2800}"),
            ("\u{e000}\u{fffe}\u{378}\u{10ffff}", r"\u{e000}\u{fffe}\u{378}\u{10ffff}"),
            ("say \"hi\" \\u{202e}", r#"say \"hi\" \\u{202e}"#),
            ("one\n\ttwo", r"one\n\ttwo"),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }

    // K5: a flood is counted, so that what follows it is near.
    #[test]
    fn floods_are_counted() {
        let flood = |c: char, times: usize| format!("a{}z", c.to_string().repeat(times));
        for (text, shown) in [
            (flood(' ', 16), flood(' ', 16)),
            (flood(' ', 17), "a·×17z".into()),
            (flood(' ', 3000) + "&& rm -rf ~", "a·×3000z&& rm -rf ~".into()),
            (flood('\n', 4), r"a\n\n\n\nz".into()),
            (flood('\n', 5), r"a\n×5z".into()),
            (flood('\t', 40), r"a\t×40z".into()),
            (flood('\u{200b}', 500), r"a\u{200b}×500z".into()),
            (" ".repeat(30) + "05", r"·×30\u{30}5".into()),
        ] {
            assert_eq!(quoted(&text), shown);
        }
    }

    // K3: two marks are a letter of some language, five hundred are paint.
    #[test]
    fn marks_beyond_two_are_escaped() {
        assert_eq!(quoted("e\u{301}\u{323}x"), "e\u{301}\u{323}x");
        assert_eq!(quoted("e\u{301}\u{323}\u{300}x"), "e\u{301}\u{323}\\u{300}x");
        let flood = "\u{301}".repeat(500);
        let shown = quoted(&format!("e{flood}x"));
        assert_eq!(shown, "e\u{301}\u{301}\\u{301}×498x");
        // On an escape a mark would change how the escape looks.
        assert_eq!(quoted("\u{202e}\u{301}"), r"\u{202e}\u{301}");
    }

    // Law 3: no two texts look alike because of what we write.
    #[test]
    fn our_own_signs_cannot_be_forged() {
        let forgeries = [
            ("·×3000".to_owned(), " ".repeat(3000)),
            ("\n×5".to_owned(), "\n".repeat(5)),
            ("\u{202e}×9".to_owned(), "\u{202e}".repeat(9)),
            (r"\u{202e}".to_owned(), "\u{202e}".to_owned()),
            (r"\n".to_owned(), "\n".to_owned()),
            (" ".repeat(17) + "×2", " ".repeat(17)),
        ];
        for (forged, real) in forgeries {
            let (forged, real) = (quoted(&forged), quoted(&real));
            assert!(forged != real && !forged.starts_with(&format!("{real}×")), "{forged} against {real}");
        }
        assert_eq!(quoted("3·4 × 5"), "3·4 × 5");
    }

    // K1: the bytes of UTF-8 hold C1 controls for a terminal of another encoding.
    #[test]
    fn a_terminal_without_utf8_gets_ascii() {
        let shown: String = atoms(&format!("ś{} *é*", " ".repeat(20)), Quoting::Quoted, Charset::Ascii)
            .into_iter()
            .map(|atom| atom.text)
            .collect();
        assert_eq!(shown, r"\u{15b}\u{20}*21\u{2a}\u{e9}\u{2a}");
        assert!(shown.is_ascii());
    }

    /// Reads what we wrote back. Not a parser of anything else.
    fn unescape(shown: &str) -> String {
        let mut out = String::new();
        let mut rest = shown;
        while let Some(c) = rest.chars().next() {
            let (unit, length) = match c {
                '\\' if rest.starts_with("\\u{") => {
                    let end = rest.find('}').unwrap();
                    (char::from_u32(u32::from_str_radix(&rest[3..end], 16).unwrap()).unwrap(), end + 1)
                }
                '\\' => {
                    let unit = match rest.as_bytes()[1] {
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        other => char::from(other),
                    };
                    (unit, 2)
                }
                '·' if rest.starts_with("·×") => (' ', c.len_utf8()),
                c => (c, c.len_utf8()),
            };
            rest = &rest[length..];
            let ours = c == '\\' || (c == '·' && unit == ' ');
            let mut times = 1;
            if ours && let Some(count) = rest.strip_prefix('×') {
                let digits = count.find(|c: char| !c.is_ascii_digit()).unwrap_or(count.len());
                times = count[..digits].parse().unwrap();
                rest = &count[digits..];
            }
            out.extend(std::iter::repeat_n(unit, times));
        }
        out
    }

    proptest! {
        // Law 3: what is shown tells exactly what is there, and nothing in it is obeyed.
        #[test]
        fn what_is_shown_can_be_read_back(
            parts in prop::collection::vec(
                (prop_oneof![
                    any::<char>(),
                    prop::sample::select("a05 \"\\·×*\n\r\t\u{1b}\u{9b}\u{202e}\u{301}\u{200b}é東n{}".chars().collect::<Vec<_>>()),
                ], prop_oneof![Just(1_usize), Just(2), 3_usize..40]),
                0..20,
            ),
        ) {
            let text: String = parts.iter().flat_map(|(c, times)| std::iter::repeat_n(*c, *times)).collect();
            let shown = quoted(&text);
            prop_assert!(shown.chars().all(|c| !c.is_control() && !is_unseen(c) || c == ' '), "{shown:?}");
            prop_assert_eq!(unescape(&shown), text);
        }
    }

    // K1, K3: what a terminal obeys or nobody sees is escaped, above the BMP as a pair; the value stays the same.
    #[test]
    fn a_line_of_json_is_safe_on_a_terminal() {
        for (text, line) in [
            ("{\"a b\":[1,\"\\n\\\\ 東京 é\"]}", "{\"a b\":[1,\"\\n\\\\ 東京 é\"]}"),
            ("\"\u{9b}2J\u{7f}\u{80}\u{9f}\"", r#""\u009b2J\u007f\u0080\u009f""#),
            (
                "\"\u{202e}\u{2066}\u{61c}\u{200b}\u{ad}\u{2028}\"",
                r#""\u202e\u2066\u061c\u200b\u00ad\u2028""#,
            ),
            ("\"\u{fe0f}\u{3164}\u{115f}\u{feff}\"", r#""\ufe0f\u3164\u115f\ufeff""#),
            ("{\"\u{e0041}\":\"😀\u{e0100}\u{10ffff}\"}", r#"{"\udb40\udc41":"😀\udb40\udd00\udbff\udfff"}"#),
        ] {
            assert_eq!(json_line(text), line);
        }
    }

    proptest! {
        // Law 3: a program reads from the line exactly what it would have read without the escapes.
        #[test]
        fn a_line_of_json_keeps_its_value(text in any::<String>()) {
            let line = json_line(&serde_json::to_string(&text).unwrap());
            prop_assert!(line.chars().all(|c| c == ' ' || !is_unseen(c)), "{line:?}");
            prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        }
    }

    #[test]
    fn width_counts_columns() {
        let width =
            |text| atoms(text, Quoting::Bare, Charset::Utf8).iter().map(|atom| atom.width).sum::<usize>();
        assert_eq!((width("ab"), width("東京"), width("e\u{301}"), width("\u{202e}")), (2, 4, 1, 8));
    }
}
