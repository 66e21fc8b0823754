//! Numbers as exact decimals: which of them every reader can carry, when two are equal, and how RFC 8785 prints them.
//!
//! A number's identity is its decimal value, never a double. All work is linear in the text: digits stay slices of it,
//! and an exponent is read as far as it can matter.

use std::fmt::{self, Write as _};

/// Any double is identified by this many significant digits, and shortest printing never needs more.
const MAX_SHORTEST: usize = 17;
/// Decimal texts of this many digits are told apart by normal doubles, so shortest printing gives them back.
const ALWAYS_EXACT: usize = 15;
/// Texts up to this length are read as they are.
const ORDINARY_LENGTH: usize = 40;
/// Exponents with more digits than this do not fit our arithmetic.
const MAX_EXPONENT_DIGITS: usize = 17;

/// The value of a number text: 0.DIGITS × 10^point, without leading or trailing zeros. Zero has no digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal<'t> {
    negative: bool,
    /// The significant digits before and after the decimal point.
    digits: [&'t str; 2],
    point: i64,
}

impl<'t> Decimal<'t> {
    /// Reads a text that the scanner accepted. `None`: the exponent is too large to calculate with, and the value is
    /// not zero.
    pub(super) fn read(text: &'t str) -> Option<Self> {
        let (negative, magnitude) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, ""));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let significant = if whole.is_empty() { fraction.trim_start_matches('0') } else { fraction };
        if whole.is_empty() && significant.is_empty() {
            return Some(Self { negative: false, digits: ["", ""], point: 0 });
        }
        let point = if whole.is_empty() {
            // A text is shorter than 4 GiB, so its length fits.
            -((fraction.len() - significant.len()) as i64)
        } else {
            whole.len() as i64
        };
        let whole = if fraction.is_empty() { whole.trim_end_matches('0') } else { whole };
        Some(Self { negative, digits: [whole, significant], point: point + read_exponent(exponent)? })
    }

    /// Design 3: whether printing the double nearest to `text`, which this was read from, gives this value.
    fn is_interoperable(&self, text: &str) -> bool {
        let count = self.count();
        if count == 0 {
            return true;
        }
        // No double prints more digits, or lies outside 10^-324 .. 10^309. Hostile texts end here.
        if count > MAX_SHORTEST || !(-323..=309).contains(&self.point) {
            return false;
        }
        if count <= ALWAYS_EXACT && (-306..=308).contains(&self.point) {
            return true;
        }
        let Some(digits) =
            self.bytes().try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')))
        else {
            return false;
        };
        let exponent = self.point - count as i64;
        let nearest = if text.len() <= ORDINARY_LENGTH {
            text.parse::<f64>()
        } else {
            // The standard library reads only the first digits of an exponent such as 700001, so zeros that outweigh
            // one must be gone before it looks.
            format!("{digits}e{exponent}").parse::<f64>()
        };
        nearest.is_ok_and(|x| Shortest::of(x).is_some_and(|s| s.digits == digits && s.exponent == exponent))
    }

    /// Writes the value as ECMAScript prints numbers. For an interoperable one this is RFC 8785, because its digits
    /// are those of the shortest form; for others it is the same layout with all their digits.
    pub(super) fn write_canonical(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let (count, point) = (self.count() as i64, self.point);
        if count == 0 {
            return out.write_char('0');
        }
        if self.negative {
            out.write_char('-')?;
        }
        if (1..=21).contains(&point) {
            self.write_digits(0..point.min(count), out)?;
            write_zeros(point - count, out)?;
            if count > point {
                out.write_char('.')?;
                self.write_digits(point..count, out)?;
            }
            return Ok(());
        }
        if (-5..=0).contains(&point) {
            out.write_str("0.")?;
            write_zeros(-point, out)?;
            return self.write_digits(0..count, out);
        }
        self.write_digits(0..1, out)?;
        if count > 1 {
            out.write_char('.')?;
            self.write_digits(1..count, out)?;
        }
        write!(out, "e{:+}", point - 1)
    }

    /// The value as an integer, if it is one and fits.
    pub(super) fn as_integer(&self) -> Option<i64> {
        let zeros = self.point - self.count() as i64;
        if !(0..=18).contains(&zeros) {
            return (self.count() == 0).then_some(0);
        }
        let digits = self.bytes().chain(std::iter::repeat_n(b'0', zeros as usize));
        // Built negative, because the least i64 has no positive counterpart.
        let negative =
            digits.map(|d| i64::from(d - b'0')).try_fold(0i64, |n, d| n.checked_mul(10)?.checked_sub(d))?;
        if self.negative { Some(negative) } else { negative.checked_neg() }
    }

    fn count(&self) -> usize {
        self.digits[0].len() + self.digits[1].len()
    }

    fn bytes(&self) -> impl Iterator<Item = u8> + use<'t> {
        self.digits[0].bytes().chain(self.digits[1].bytes())
    }

    fn write_digits(&self, range: std::ops::Range<i64>, out: &mut dyn fmt::Write) -> fmt::Result {
        let (from, to) = (range.start as usize, range.end as usize);
        let [whole, fraction] = self.digits;
        out.write_str(whole.get(from.min(whole.len())..to.min(whole.len())).unwrap_or(""))?;
        let (from, to) = (from.saturating_sub(whole.len()), to.saturating_sub(whole.len()));
        out.write_str(fraction.get(from..to).unwrap_or(""))
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.negative, self.point, self.count()) == (other.negative, other.point, other.count())
            && self.bytes().eq(other.bytes())
    }
}

/// Whether the number text passes [`super::Numbers::Interoperable`].
pub(super) fn is_interoperable(text: &str) -> bool {
    // Most numbers: too short to need more than fifteen digits, and without an exponent.
    if text.len() <= ALWAYS_EXACT && !text.bytes().any(|byte| byte | 0x20 == b'e') {
        return true;
    }
    Decimal::read(text).is_some_and(|decimal| decimal.is_interoperable(text))
}

/// Whether two number texts have the same decimal value. Beyond calculable exponents (only where numbers pass as
/// written) the spelling decides.
pub(super) fn equal(a: &str, b: &str) -> bool {
    a == b || matches!((Decimal::read(a), Decimal::read(b)), (Some(a), Some(b)) if a == b)
}

/// Writes a number text in canonical form; one with an exponent beyond calculation as it is written.
pub(super) fn write_canonical(text: &str, out: &mut dyn fmt::Write) -> fmt::Result {
    match Decimal::read(text) {
        Some(decimal) => decimal.write_canonical(out),
        None => out.write_str(text),
    }
}

/// The RFC 8785 text of a double, or `None` for NaN and the infinities, which JSON does not have.
///
/// Use this, not `format!`, to hand a computed double to the gate: where two shortest decimals are equally near, the
/// standard library takes the upper one and ECMAScript the even one, and the gate accepts only the latter.
///
/// ```
/// use countersign_approval_core::json::number_text;
/// assert_eq!(number_text(1424953923781206.25).as_deref(), Some("1424953923781206.2"));
/// assert_eq!(number_text(-0.0).as_deref(), Some("0"));
/// assert_eq!(number_text(f64::NAN), None);
/// ```
pub fn number_text(value: f64) -> Option<String> {
    let shortest = Shortest::of(value)?;
    let sign = if value < 0.0 { "-" } else { "" };
    let text = format!("{sign}{}e{}", shortest.digits, shortest.exponent);
    let mut out = String::new();
    Decimal::read(&text)?.write_canonical(&mut out).ok()?;
    Some(out)
}

/// The magnitude of a double as its shortest decimal, digits × 10^exponent, without trailing zeros.
#[derive(Debug, PartialEq, Eq)]
struct Shortest {
    digits: u64,
    exponent: i64,
}

impl Shortest {
    fn of(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let mut text = Fixed::default();
        write!(text, "{:e}", value.abs()).ok()?;
        let (mantissa, exponent) = text.as_str().split_once('e')?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = whole.bytes().chain(fraction.bytes()).fold(0, |n, d| n * 10 + u64::from(d - b'0'));
        let exponent = exponent.parse::<i64>().ok()? - fraction.len() as i64;
        Some(Self { digits, exponent }.with_even_tie(value.abs()))
    }

    /// Two shortest decimals can be equally near to a double (1424953923781206.25). ECMAScript and RFC 8785 then take
    /// the even one, the standard library does not.
    fn with_even_tie(self, value: f64) -> Self {
        if self.digits.is_multiple_of(2) {
            return self;
        }
        let Some(exact) = exact_at(value, self.exponent - 1) else { return self };
        let even = match self.digits * 10 {
            d if exact == d - 5 => self.digits - 1,
            d if exact == d + 5 => self.digits + 1,
            _ => return self,
        };
        let reads_back = format!("{even}e{}", self.exponent).parse() == Ok(value);
        if reads_back { Self { digits: even, ..self } } else { self }
    }
}

/// The integer `n` with `value` = n × 10^exponent exactly, if `value` is an odd multiple of 2^exponent (a tie at that
/// digit always is) and the integer is small enough for one.
fn exact_at(value: f64, exponent: i64) -> Option<u64> {
    let fives = u32::try_from(-exponent).ok()?;
    let bits = value.to_bits();
    let (stored, fraction) = ((bits >> 52) as i64, bits & ((1 << 52) - 1));
    let (mantissa, power) = if stored == 0 { (fraction, -1074) } else { (fraction | 1 << 52, stored - 1075) };
    let zeros = mantissa.trailing_zeros();
    if power + i64::from(zeros) != exponent {
        return None;
    }
    (mantissa >> zeros).checked_mul(5u64.checked_pow(fives)?)
}

fn read_exponent(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.trim_start_matches('0');
    if digits.len() > MAX_EXPONENT_DIGITS {
        return None;
    }
    let magnitude = digits.bytes().fold(0, |n, d| n * 10 + i64::from(d - b'0'));
    Some(if negative { -magnitude } else { magnitude })
}

fn write_zeros(count: i64, out: &mut dyn fmt::Write) -> fmt::Result {
    (0..count).try_for_each(|_| out.write_char('0'))
}

/// A small text on the stack, enough for any `{:e}` of a double.
#[derive(Default)]
struct Fixed {
    bytes: [u8; 32],
    used: usize,
}

impl Fixed {
    fn as_str(&self) -> &str {
        self.bytes.get(..self.used).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("")
    }
}

impl fmt::Write for Fixed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.used + text.len();
        self.bytes.get_mut(self.used..to).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.used = to;
        Ok(())
    }
}
