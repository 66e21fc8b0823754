//! Reading members by name and type, with the path of each in every error.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use countersign_approval_core::json::Node;

use crate::error::StartError;

/// A value with its path.
pub(super) struct Field<'d> {
    node: Node<'d>,
    path: String,
}

impl<'d> Field<'d> {
    pub(super) const fn node(&self) -> Node<'d> {
        self.node
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn invalid(&self, reason: impl Into<String>) -> StartError {
        StartError::invalid(&self.path, reason)
    }

    pub(super) fn object(&self) -> Result<Object<'d>, StartError> {
        let members = self.node.as_object().ok_or_else(|| self.invalid("expected an object"))?;
        Ok(Object { path: self.path.clone(), members: members.collect() })
    }

    /// The elements of an array whose length is in `lengths`.
    pub(super) fn array(&self, lengths: RangeInclusive<usize>) -> Result<Vec<Self>, StartError> {
        let elements = self.node.as_array().ok_or_else(|| self.invalid("expected an array"))?;
        let fields: Vec<_> = elements
            .enumerate()
            .map(|(index, node)| Self { node, path: format!("{}[{index}]", self.path) })
            .collect();
        if !lengths.contains(&fields.len()) {
            let (least, most) = (lengths.start(), lengths.end());
            return Err(self.invalid(format!("expected {least} to {most} elements, found {}", fields.len())));
        }
        Ok(fields)
    }

    /// A string of a length in `units`, counted in UTF-16.
    pub(super) fn string(&self, units: RangeInclusive<usize>) -> Result<String, StartError> {
        let text = self.node.as_str().ok_or_else(|| self.invalid("expected a string"))?;
        if !units.contains(&text.encode_utf16().count()) {
            return Err(self.invalid(format!("expected {} to {} characters", units.start(), units.end())));
        }
        Ok(text.into_owned())
    }

    pub(super) fn integer(&self, range: RangeInclusive<i64>) -> Result<i64, StartError> {
        let expected =
            || self.invalid(format!("expected an integer from {} to {}", range.start(), range.end()));
        self.node.as_integer().filter(|value| range.contains(value)).ok_or_else(expected)
    }

    /// An integer of a range that fits `T`.
    pub(super) fn number<T: TryFrom<i64>>(&self, range: RangeInclusive<i64>) -> Result<T, StartError> {
        T::try_from(self.integer(range)?).map_err(|_| self.invalid("out of range"))
    }

    pub(super) fn boolean(&self) -> Result<bool, StartError> {
        self.node.as_bool().ok_or_else(|| self.invalid("expected true or false"))
    }
}

/// The members of an object that have not been read yet.
pub(super) struct Object<'d> {
    path: String,
    members: Vec<(Cow<'d, str>, Node<'d>)>,
}

impl<'d> Object<'d> {
    /// The whole configuration.
    pub(super) fn top(node: Node<'d>) -> Result<Self, StartError> {
        let members = node.as_object().ok_or_else(|| StartError::text("expected a JSON object"))?;
        Ok(Self { path: String::new(), members: members.collect() })
    }

    pub(super) fn optional(&mut self, name: &str) -> Option<Field<'d>> {
        let at = self.members.iter().position(|(key, _)| key == name)?;
        let (_, node) = self.members.remove(at);
        Some(Field { node, path: self.path_of(name) })
    }

    pub(super) fn required(&mut self, name: &str) -> Result<Field<'d>, StartError> {
        self.optional(name).ok_or_else(|| StartError::invalid(self.path_of(name), "required"))
    }

    /// All that is left, for an object whose keys are data.
    pub(super) fn members(self) -> impl Iterator<Item = (String, Field<'d>)> {
        let paths: Vec<_> = self.members.iter().map(|(key, _)| self.path_of(key)).collect();
        let fields = self.members.into_iter().zip(paths);
        fields.map(|((key, node), path)| (key.into_owned(), Field { node, path }))
    }

    /// Refuses members of the contract that this version does not serve.
    pub(super) fn refuse(&self, names: &[&str]) -> Result<(), StartError> {
        match self.members.iter().find(|(key, _)| names.contains(&&**key)) {
            Some((key, _)) => Err(StartError::invalid(self.path_of(key), "not served by this version")),
            None => Ok(()),
        }
    }

    /// Refuses what nobody read.
    pub(super) fn finish(self) -> Result<(), StartError> {
        match self.members.first() {
            Some((key, _)) => Err(StartError::invalid(self.path_of(key), "unknown member")),
            None => Ok(()),
        }
    }

    fn path_of(&self, name: &str) -> String {
        // A key is not limited by anything but the file's size, and it ends on one line of a terminal.
        let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }
}
