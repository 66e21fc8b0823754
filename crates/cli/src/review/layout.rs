//! Lays JSON and text out in lines of a given width, without changing a value (design 7).
//!
//! Numbers and literals stand as they are written; strings are decoded and escaped anew, so that one value has one
//! look; what is empty says so (K13). A line break in a string is shown as `\n` and goes on in the next line.

use anstyle::{AnsiColor, Style};
use countersign_approval_core::json::{Document, Node};

use unicode_width::UnicodeWidthStr;

use super::escape::{Atom, AtomKind, Charset, Quoting, atoms, word_width};

/// How escapes look where there are colours.
pub(crate) const ESCAPE: Style = AnsiColor::Yellow.on_default().bold();
/// How our own remarks look.
pub(crate) const DIM: Style = Style::new().dimmed();

/// One line, with styles in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    /// Characters of the value that it shows, counted as shown.
    pub(crate) chars: usize,
    /// It shows a count such as `·×3000` in place of what is counted.
    pub(crate) counts: bool,
    whose: Whose,
}

/// Who says what stands in a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Whose {
    #[default]
    Agent,
    Ours,
}

impl Line {
    /// As it is printed: what the agent wrote behind the bar, a remark of ours before it.
    pub(crate) fn behind(&self, gutter: &str) -> String {
        match self.whose {
            Whose::Agent => format!("  {DIM}{gutter}{DIM:#}{}", self.text),
            Whose::Ours => format!("  {}", self.text),
        }
    }
}

/// Our own words in lines of at most `width` columns, if no word is longer; each line begins with `indent` blanks.
pub(crate) fn prose(text: &str, width: usize, indent: usize) -> Vec<String> {
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split(' ') {
        let column = lines.last().map_or(0, |line| line.width());
        if column + 1 + word.width() > width && column > indent {
            lines.push(" ".repeat(indent));
        }
        if let Some(line) = lines.last_mut() {
            if line.len() > indent {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// The value of a JSON text in lines of at most `width` columns (at least [`MIN_WIDTH`]).
pub(crate) fn json(text: &str, width: usize, charset: Charset) -> Vec<Line> {
    let mut flow = Flow::new(width, charset);
    match Document::parse(text) {
        Ok(document) => flow.value(document.root(), 0),
        // Only JSON that passed a gate comes here; anything else is still shown, as text.
        Err(_) => flow.atoms(&atoms(text, Quoting::Bare, charset), 0),
    }
    flow.finish()
}

/// A string, quoted and escaped, in lines of at most `width` columns; `lead` stands before it.
pub(crate) fn string(lead: &str, text: &str, width: usize, charset: Charset) -> Vec<Line> {
    let mut flow = Flow::new(width, charset);
    flow.ours(lead);
    flow.string(text, lead.chars().count());
    flow.finish()
}

/// A text in lines of at most `width` columns; its own line breaks end lines.
pub(crate) fn text(text: &str, width: usize, charset: Charset) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let mut flow = Flow::new(width, charset);
        flow.atoms(&atoms(line, Quoting::Bare, charset), 0);
        lines.extend(flow.finish());
    }
    lines
}

/// One line of a source with a mark under the `column`th UTF-16 unit, from 1; `lead` stands before it. Of a line that is
/// too wide, the part around the column.
pub(crate) fn excerpt(lead: &str, line: &str, column: usize, width: usize, charset: Charset) -> Vec<Line> {
    let mut units = 0;
    let before: String = line
        .chars()
        .take_while(|c| {
            units += c.len_utf16();
            units < column
        })
        .collect();
    let after = &line[before.len()..];
    let trimmed = before.trim_start();
    let room = width.saturating_sub(lead.chars().count()).max(MIN_WIDTH);
    let columns = |atoms: &[Atom]| atoms.iter().map(|atom| atom.width).sum::<usize>();
    let before = atoms(trimmed, Quoting::Bare, charset);
    let mut from = 0;
    while columns(&before[from..]) > room / 2 {
        from += 1;
    }
    let cut = if from > 0 { "..." } else { "" };
    let mut flow = Flow::new(usize::MAX, charset);
    flow.ours(lead);
    flow.ours(cut);
    flow.atoms(&before[from..], 0);
    let at = flow.column;
    let after = atoms(after, Quoting::Bare, charset);
    let mut to = after.len();
    while columns(&after[..to]) + 3 > room - columns(&before[from..]) - cut.len() && to > 0 {
        to -= 1;
    }
    flow.atoms(&after[..to], 0);
    if to < after.len() {
        flow.ours("...");
    }
    let mut lines = flow.finish();
    lines.push(Line { text: format!("{:at$}^", ""), ..Line::default() });
    lines
}

/// The least width that is laid out for: the longest escape with its count fits.
pub(crate) const MIN_WIDTH: usize = 18;

/// Leaves the middle out: the end is where something is hidden that should not be seen (K5).
pub(crate) fn cut(lines: Vec<Line>, room: usize) -> (Vec<Line>, usize) {
    if lines.len() <= room {
        return (lines, 0);
    }
    let (head, tail) = (room / 2, room - room / 2 - 1);
    let middle = &lines[head..lines.len() - tail];
    let (count, chars) = (middle.len(), middle.iter().map(|line| line.chars).sum::<usize>());
    let text = format!("{DIM}[{count} lines, {chars} characters hidden]{DIM:#}");
    let remark = Line { text, whose: Whose::Ours, ..Line::default() };
    let shown =
        lines[..head].iter().cloned().chain([remark]).chain(lines[lines.len() - tail..].iter().cloned());
    (shown.collect(), count)
}

struct Flow {
    lines: Vec<Line>,
    current: Line,
    column: usize,
    /// Nothing but indentation stands in the current line.
    fresh: bool,
    width: usize,
    charset: Charset,
}

impl Flow {
    fn new(width: usize, charset: Charset) -> Self {
        let width = width.max(MIN_WIDTH);
        Self { lines: Vec::new(), current: Line::default(), column: 0, fresh: true, width, charset }
    }

    fn finish(mut self) -> Vec<Line> {
        self.lines.push(self.current);
        self.lines
    }

    fn value(&mut self, node: Node<'_>, indent: usize) {
        if let Some(text) = node.as_str() {
            return self.string(&text, indent);
        }
        let (open, close, count) = match (node.as_object(), node.as_array()) {
            (Some(members), _) => ("{", "}", members.count()),
            (_, Some(elements)) => ("[", "]", elements.count()),
            (None, None) => return self.atoms(&atoms(node.raw(), Quoting::Bare, self.charset), indent),
        };
        if count == 0 {
            self.token(&format!("{open}{close}"), indent);
            return self.remark(" (empty)");
        }
        if let Some(line) = self.on_one_line(node)
            && self.column + line.iter().map(|atom| atom.width).sum::<usize>() < self.width
        {
            return self.atoms(&line, indent);
        }
        self.token(open, indent);
        let inner = indent + 2;
        let mut left = count;
        let mut after = |flow: &mut Self| {
            left -= 1;
            if left > 0 {
                flow.token(",", inner);
            }
        };
        if let Some(members) = node.as_object() {
            for (key, value) in members {
                self.newline(inner);
                self.string(&key, inner);
                self.token(": ", inner);
                self.value(value, inner);
                after(self);
            }
        }
        if let Some(elements) = node.as_array() {
            for value in elements {
                self.newline(inner);
                self.value(value, inner);
                after(self);
            }
        }
        self.newline(indent);
        self.token(close, indent);
    }

    /// An array of plain values, if nothing in it needs a line or a remark of its own.
    fn on_one_line(&self, node: Node<'_>) -> Option<Vec<Atom>> {
        let mut line = vec![shown("[")];
        for (at, value) in node.as_array()?.enumerate() {
            if value.as_object().is_some() || value.as_array().is_some() || at > self.width {
                return None;
            }
            if at > 0 {
                line.push(shown(", "));
            }
            match value.as_str() {
                Some(text) if text.is_empty() || text.len() > 4 * self.width || text.contains('\n') => {
                    return None;
                }
                Some(text) => {
                    line.push(shown("\""));
                    line.extend(atoms(&text, Quoting::Quoted, self.charset));
                    line.push(shown("\""));
                }
                None => line.extend(atoms(value.raw(), Quoting::Bare, self.charset)),
            }
        }
        line.push(shown("]"));
        Some(line)
    }

    fn string(&mut self, text: &str, indent: usize) {
        if text.is_empty() {
            self.token("\"\"", indent);
            return self.remark(" (empty)");
        }
        self.token("\"", indent);
        self.atoms(&atoms(text, Quoting::Quoted, self.charset), indent);
        self.token("\"", indent);
    }

    fn token(&mut self, text: &str, indent: usize) {
        self.atoms(&[shown(text)], indent);
    }

    fn atoms(&mut self, atoms: &[Atom], indent: usize) {
        let mut left = atoms;
        let mut at_word = false;
        while let Some((atom, rest)) = left.split_first() {
            // A word that fits a line of its own is not torn; no character is lost either way.
            let word = if at_word { word_width(left) } else { 0 };
            let needed = if word <= self.width / 2 { word.max(atom.width) } else { atom.width };
            // A blank may hang into the margin, so that no line begins with one that belongs to the line before.
            let hangs = atom.text == " " && self.column == self.width;
            if self.column + needed > self.width && !self.fresh && !hangs {
                self.newline(indent + 2);
            }
            self.put(atom);
            at_word = atom.text == " ";
            left = rest;
            if atom.kind == AtomKind::Break && !rest.is_empty() {
                self.newline(indent + 2);
            }
        }
    }

    fn put(&mut self, atom: &Atom) {
        self.current.chars += atom.text.chars().count();
        self.current.counts |= atom.is_count();
        self.column += atom.width;
        self.fresh = false;
        match atom.kind {
            AtomKind::Shown => self.current.text.push_str(&atom.text),
            AtomKind::Escape | AtomKind::Break => {
                self.current.text.push_str(&format!("{ESCAPE}{}{ESCAPE:#}", atom.text));
            }
        }
    }

    /// What we say about a value, never confused with it: strings are quoted.
    fn remark(&mut self, text: &str) {
        self.current.text.push_str(&format!("{DIM}{text}{DIM:#}"));
        self.column += text.len();
    }

    fn ours(&mut self, text: &str) {
        self.current.text.push_str(text);
        self.column += text.chars().count();
    }

    /// Deep nesting is not allowed to push the values out of the window; the brackets tell the depth.
    fn newline(&mut self, indent: usize) {
        let indent = indent.min(self.width / 3);
        let next = Line { text: " ".repeat(indent), ..Line::default() };
        self.lines.push(std::mem::replace(&mut self.current, next));
        self.column = indent;
        self.fresh = true;
    }
}

fn shown(text: &str) -> Atom {
    Atom { text: text.to_owned(), width: text.len(), kind: AtomKind::Shown }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn plain(text: &str, width: usize) -> Vec<String> {
        let strip = |line: Line| anstream::adapter::strip_str(&line.text).to_string();
        json(text, width, Charset::Utf8).into_iter().map(strip).collect()
    }

    fn check(text: &str, width: usize, expected: Expect) {
        expected.assert_eq(&plain(text, width).join("\n"));
    }

    // K11: all of it, exactly: numbers and literals in their own tokens.
    #[test]
    fn every_value_is_shown_as_it_is() {
        check(
            r#"{"title":"Clay","n":1.0,"e":1e3,"z":-0,"yes":true,"nothing":null,"to":["ann","bob",3],"deep":{"a":[{"b":1}]}}"#,
            60,
            expect![[r#"
                {
                  "title": "Clay",
                  "n": 1.0,
                  "e": 1e3,
                  "z": -0,
                  "yes": true,
                  "nothing": null,
                  "to": ["ann", "bob", 3],
                  "deep": {
                    "a": [
                      {
                        "b": 1
                      }
                    ]
                  }
                }"#]],
        );
    }

    // K13.
    #[test]
    fn what_is_empty_says_so() {
        check(
            r#"{"argv":[],"path":"","env":{},"list":[""]}"#,
            60,
            expect![[r#"
                {
                  "argv": [] (empty),
                  "path": "" (empty),
                  "env": {} (empty),
                  "list": [
                    "" (empty)
                  ]
                }"#]],
        );
        check("{}", 60, expect!["{} (empty)"]);
    }

    #[test]
    fn line_breaks_show_and_long_text_wraps_without_loss() {
        check(
            r#"{"body":"First line\nSecond, which is longer than the window is wide\n\n","x":"東京東京東京東京東京"}"#,
            24,
            expect![[r#"
                {
                  "body": "First line\n
                    Second, which is 
                    longer than the 
                    window is wide\n
                    \n",
                  "x": "東京東京東京東京
                    東京"
                }"#]],
        );
    }

    // K5: no line is wider than the window, whatever stands in it, so the terminal never wraps one itself.
    #[test]
    fn no_line_is_too_wide() {
        let deep = format!("{}\"{}\"{}", "[".repeat(60), "x\u{202e}東".repeat(40), "]".repeat(60));
        let wide = format!(r#"{{"{}":"{}"}}"#, "k".repeat(300), "\u{e0100}a".repeat(99));
        for text in [deep.as_str(), &wide, r#"["a","b",{"c":["",[],{}]}]"#] {
            for width in [MIN_WIDTH, 40, 80] {
                let lines = plain(text, width);
                // A remark of ours (8 columns) is not torn off its value.
                let widest = lines.iter().map(|line| line.width()).max().unwrap();
                assert!(widest <= width + 8, "{widest} columns of {width}");
            }
        }
    }
}
