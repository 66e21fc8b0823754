//! Strict reading of configuration objects from raw JSON, so that an error names the member and argument text stays
//! as it was written.
//!
//! serde's derive would name neither the path nor refuse `null` for an optional member, and a tree of values would
//! print arguments again.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::Error;

/// The members of one object that have not been taken yet.
pub(crate) struct Fields<'a> {
    path: String,
    members: Vec<(String, &'a RawValue)>,
}

/// One member: where it stands, and its text.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub(crate) path: String,
    raw: &'a RawValue,
}

impl<'a> Fields<'a> {
    /// Reads a whole text that must be one object.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Error> {
        let raw = serde_json::from_str(text)
            .map_err(|error| Error::config("configuration", format!("not JSON: {error}")))?;
        Field { path: String::new(), raw }.object()
    }

    /// Takes a member that may be absent.
    pub(crate) fn optional(&mut self, name: &str) -> Option<Field<'a>> {
        let at = self.members.iter().position(|(key, _)| key == name)?;
        let (_, raw) = self.members.remove(at);
        Some(Field { path: self.member(name), raw })
    }

    /// Takes a member that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Result<Field<'a>, Error> {
        self.optional(name).ok_or_else(|| Error::config(self.member(name), "is required"))
    }

    /// Takes every member that is left, in the order of the text: an object that is a map.
    pub(crate) fn rest(self) -> impl Iterator<Item = (String, Field<'a>)> {
        let Self { path, members } = self;
        members.into_iter().map(move |(key, raw)| {
            let path = format!("{path}[{key:?}]");
            (key, Field { path, raw })
        })
    }

    /// Ends an object whose members are all known.
    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.members.first() {
            None => Ok(()),
            Some((unknown, _)) => Err(Error::config(self.member(unknown), "unknown member")),
        }
    }

    fn member(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

impl<'a> Field<'a> {
    pub(crate) fn object(self) -> Result<Fields<'a>, Error> {
        let members: Members<'a> = self.read("an object without repeated members")?;
        Ok(Fields { path: self.path, members: members.0 })
    }

    pub(crate) fn array(self) -> Result<Vec<Self>, Error> {
        let items: Vec<&'a RawValue> = self.read("an array")?;
        Ok(items
            .into_iter()
            .enumerate()
            .map(|(at, raw)| Self { path: format!("{}[{at}]", self.path), raw })
            .collect())
    }

    pub(crate) fn string(&self) -> Result<String, Error> {
        self.owned("a string")
    }

    pub(crate) fn boolean(&self) -> Result<bool, Error> {
        self.owned("true or false")
    }

    /// An integer from 0 to `max`, written without a fraction or an exponent.
    pub(crate) fn integer(&self, max: u64) -> Result<u64, Error> {
        let wanted = format!("an integer from 0 to {max}");
        let value: u64 = self.owned(&wanted)?;
        if value <= max { Ok(value) } else { Err(self.expected(&wanted)) }
    }

    /// A finite number that is not negative.
    pub(crate) fn amount(&self) -> Result<f64, Error> {
        let value: f64 = self.owned("a number that is not negative")?;
        if value.is_finite() && value >= 0.0 {
            Ok(value)
        } else {
            Err(self.expected("a number that is not negative"))
        }
    }

    /// The text of an object, exactly as it was written.
    pub(crate) fn object_text(&self) -> Result<&'a str, Error> {
        let text = self.raw.get();
        if text.starts_with('{') { Ok(text) } else { Err(self.expected("an object")) }
    }

    pub(crate) fn expected(&self, wanted: &str) -> Error {
        let path = if self.path.is_empty() { "configuration" } else { &self.path };
        Error::config(path, format!("expected {wanted}"))
    }

    fn read<T: Deserialize<'a>>(&self, wanted: &str) -> Result<T, Error> {
        serde_json::from_str(self.raw.get()).map_err(|_| self.expected(wanted))
    }

    fn owned<T: DeserializeOwned>(&self, wanted: &str) -> Result<T, Error> {
        serde_json::from_str(self.raw.get()).map_err(|_| self.expected(wanted))
    }
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut seen = std::collections::HashSet::new();
                let mut members = Vec::new();
                while let Some((key, raw)) = map.next_entry::<String, &'de RawValue>()? {
                    if !seen.insert(key.clone()) {
                        return Err(serde::de::Error::custom("repeated member"));
                    }
                    members.push((key, raw));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}
