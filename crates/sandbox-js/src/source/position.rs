//! Places in a program, as a person and an editor count them.

use std::fmt;
use std::sync::Arc;

/// A place in the program's source as it was given: line and column from 1, columns in UTF-16 units (design 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// From 1, in UTF-16 units.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A source and where its lines begin, as the engine counts them: a line ends with LF.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    text: Arc<str>,
    starts: Arc<[usize]>,
}

impl Lines {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let after = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(after).collect();
        Self { text, starts }
    }

    /// The source.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The position of a byte offset.
    pub(crate) fn position(&self, offset: usize) -> Option<Position> {
        let (line, column) = self.line_and_byte(offset)?;
        self.position_of((line, column))
    }

    /// Line and byte column, from 1, of a byte offset.
    pub(crate) fn line_and_byte(&self, offset: usize) -> Option<(u32, u32)> {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.checked_sub(1)?)?;
        Some((u32::try_from(line).ok()?, u32::try_from(offset - start + 1).ok()?))
    }

    /// The position of a line and a byte column, as the engine gives them. A place in the lines around the program (the
    /// engine may blame its closing bracket) becomes the program's last character.
    pub(crate) fn position_of(&self, (line, column): (u32, u32)) -> Option<Position> {
        let index = (line.checked_sub(1)? as usize).min(self.starts.len() - 1);
        let start = *self.starts.get(index)?;
        let end = self.starts.get(index + 1).copied().unwrap_or(self.text.len());
        let within =
            if (line as usize) > self.starts.len() { end - start } else { column.checked_sub(1)? as usize };
        let mut offset = (start + within).min(end);
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let units = self.text.get(start..offset)?.encode_utf16().count();
        Some(Position { line: u32::try_from(index + 1).ok()?, column: u32::try_from(units + 1).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_utf16_units() {
        let lines = Lines::new("a\n\u{e9}\u{1f600}x\n");
        for ((line, byte), expected) in [
            ((1, 1), Some((1, 1))),
            ((1, 2), Some((1, 2))),
            ((2, 1), Some((2, 1))),
            ((2, 3), Some((2, 2))),
            ((2, 7), Some((2, 4))),
            ((2, 99), Some((2, 6))),
            ((3, 1), Some((3, 1))),
            ((4, 5), Some((3, 1))),
            ((0, 1), None),
            ((1, 0), None),
        ] {
            let expected = expected.map(|(line, column)| Position { line, column });
            assert_eq!(lines.position_of((line, byte)), expected, "{line}:{byte}");
        }
    }
}
