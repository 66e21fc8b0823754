//! Where a chain stands: the number and the hash of a line.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// SHA-256 of the bytes of one line without its newline. In text 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineHash([u8; 32]);

impl LineHash {
    /// What the first line has as `prev`: 64 zeros.
    pub const GENESIS: Self = Self([0; 32]);

    /// How many digits the text has.
    pub(crate) const DIGITS: usize = 64;

    pub(crate) fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }

    /// The text. By hand, as this is done for each line.
    pub(crate) fn digits(&self) -> [u8; Self::DIGITS] {
        let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        let mut digits = [0; Self::DIGITS];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        digits
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The digits are ASCII.
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl fmt::Debug for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LineHash {
    type Err = InvalidHead;

    fn from_str(text: &str) -> Result<Self, InvalidHead> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(InvalidHead),
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut hash = [0; 32];
        if pairs.len() != hash.len() || !rest.is_empty() {
            return Err(InvalidHead);
        }
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(hash))
    }
}

/// The last line of a file: note it elsewhere, and a later rewrite or cut can be seen (`N:HASH` in text).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The number of the line; 0 if there is none.
    pub n: u64,
    /// The hash of the line; [`LineHash::GENESIS`] if there is none.
    pub hash: LineHash,
}

impl Head {
    pub(crate) const GENESIS: Self = Self { n: 0, hash: LineHash::GENESIS };
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.n, self.hash)
    }
}

/// A head that was noted elsewhere, to verify against: `N:HASH`, or `HASH` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The number of the line, if it was noted.
    pub n: Option<u64>,
    /// The hash of the line.
    pub hash: LineHash,
}

impl From<Head> for Anchor {
    fn from(head: Head) -> Self {
        Self { n: Some(head.n), hash: head.hash }
    }
}

impl FromStr for Anchor {
    type Err = InvalidHead;

    fn from_str(text: &str) -> Result<Self, InvalidHead> {
        let (n, hash) = match text.split_once(':') {
            Some((n, hash)) => (Some(number(n).ok_or(InvalidHead)?), hash),
            None => (None, text),
        };
        Ok(Self { n, hash: hash.parse()? })
    }
}

/// Reads a line number in the one spelling in which it is written.
pub(crate) fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// The text is not a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a head is 64 lower-case hex digits, or N:HASH as `audit verify` prints it")]
pub struct InvalidHead;
