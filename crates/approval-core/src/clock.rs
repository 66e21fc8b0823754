//! Time: read by the edges, handed to the core as an argument.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment on the wall clock, to the millisecond, UTC. On the wire RFC 3339 with three decimals and `Z` (contract 3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    millis: i64,
}

/// The greatest moment that has a four-digit year, in milliseconds since 1970.
const MAX_MILLIS: i64 = 253_402_300_799_999;
/// 0001-01-01T00:00:00Z: clients refuse the year 0000 (contract 10.2).
const MIN_MILLIS: i64 = -62_135_596_800_000;

impl Timestamp {
    /// The latest moment that can be written with a four-digit year.
    pub const MAX: Self = Self { millis: MAX_MILLIS };

    /// Milliseconds since 1970-01-01T00:00:00Z; held within the years 0001 to 9999.
    pub const fn from_millis(millis: i64) -> Self {
        let millis = if millis > MAX_MILLIS {
            MAX_MILLIS
        } else if millis < MIN_MILLIS {
            MIN_MILLIS
        } else {
            millis
        };
        Self { millis }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn as_millis(self) -> i64 {
        self.millis
    }

    /// This moment plus a duration, cut to whole milliseconds; stops at [`Timestamp::MAX`].
    pub fn saturating_add(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.millis.saturating_add(millis))
    }

    /// Reads what a client accepts (contract 10.2): `YYYY-MM-DDTHH:MM:SS[.digits](Z|+HH:MM|-HH:MM)`, a real date,
    /// seconds up to 59, upper-case `T` and `Z`, year not 0000. Digits below the millisecond are cut.
    pub fn parse(text: &str) -> Option<Self> {
        let zone_at = zone_of(text.as_bytes())?;
        // The shape is ASCII. Three decimals are kept.
        let (moment, zone) = text.split_at_checked(zone_at)?;
        let moment = moment.get(..moment.len().min(HEAD.len() + 4))?;
        let civil: DateTime = moment.parse().ok()?;
        let millis = i64::try_from(civil.duration_since(EPOCH).as_millis()).ok()? - offset_millis(zone)?;
        (MIN_MILLIS..=MAX_MILLIS).contains(&millis).then_some(Self { millis })
    }
}

/// Sums are done on the calendar: jiff's own timestamps end a day before the year 9999 does.
const EPOCH: DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

/// Date and time up to the seconds; `d` stands for a digit.
const HEAD: &[u8] = b"dddd-dd-ddTdd:dd:dd";

/// Where the zone begins, if the bytes have the one shape that clients accept; the calendar is checked afterwards.
fn zone_of(text: &[u8]) -> Option<usize> {
    let fits = |pattern: &[u8], bytes: &[u8]| {
        pattern.len() == bytes.len()
            && pattern.iter().zip(bytes).all(|(p, b)| if *p == b'd' { b.is_ascii_digit() } else { p == b })
    };
    let (head, tail) = text.split_at_checked(HEAD.len())?;
    if !fits(HEAD, head) || head.starts_with(b"0000") || head.ends_with(b":60") {
        return None;
    }
    let decimals = match tail.strip_prefix(b".") {
        Some(rest) => match rest.iter().take_while(|b| b.is_ascii_digit()).count() {
            0 => return None,
            digits => digits + 1,
        },
        None => 0,
    };
    let zone = &tail[decimals..];
    let offset = (fits(b"+dd:dd", zone) || fits(b"-dd:dd", zone))
        && zone[1..3] <= b"23"[..]
        && zone[4..6] <= b"59"[..];
    (zone == b"Z" || offset).then_some(HEAD.len() + decimals)
}

/// How far a zone of that shape is ahead of UTC.
fn offset_millis(zone: &str) -> Option<i64> {
    let Some((hours, minutes)) = zone.get(1..)?.split_once(':') else { return Some(0) };
    let millis = (hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?) * 60_000;
    Some(if zone.starts_with('-') { -millis } else { millis })
}

/// The shape that is written; `0` stands for a digit.
const SHAPE: [u8; 24] = *b"0000-00-00T00:00:00.000Z";

impl Timestamp {
    /// Calls `write` with the text. Every event and record has one, so the digits are set by hand.
    fn with_text<R>(self, write: impl FnOnce(&str) -> R) -> Option<R> {
        // Cannot fail within the years 0001 to 9999.
        let civil = EPOCH.checked_add(SignedDuration::from_millis(self.millis)).ok()?;
        let mut text = SHAPE;
        let mut set = |at: usize, digits: usize, value: i16| {
            let mut left = value.unsigned_abs();
            for place in text[at..at + digits].iter_mut().rev() {
                *place += (left % 10) as u8;
                left /= 10;
            }
        };
        set(0, 4, civil.year());
        set(5, 2, civil.month().into());
        set(8, 2, civil.day().into());
        set(11, 2, civil.hour().into());
        set(14, 2, civil.minute().into());
        set(17, 2, civil.second().into());
        set(20, 3, civil.millisecond());
        std::str::from_utf8(&text).ok().map(write)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text)).unwrap_or(Err(fmt::Error))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
            .unwrap_or_else(|| Err(serde::ser::Error::custom("a time outside the years 0001 to 9999")))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("expected an RFC 3339 time"))
    }
}

/// Both clocks at one moment. Either of them expires a review; neither extends one (design 4, Expiry).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// What a person's clock shows.
    pub wall: Timestamp,
    /// Time since some fixed start; it never goes back.
    pub monotonic: Duration,
}

/// Reads both clocks. The core never calls it: it takes [`Now`] as an argument.
pub trait Clock: Send + Sync {
    /// Both clocks, now.
    fn now(&self) -> Now;
}
