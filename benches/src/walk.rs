//! The bound of comparing two texts of JSON whose members may stand in another order: both are walked side by side, no
//! tree is built, every digit counts. It is good enough for documents that are known to be JSON, and for nothing else.

/// The texts differ, or are not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Differs;

type Walked<T> = Result<T, Differs>;

/// Whether both texts say the same.
pub(crate) fn same(left: &[u8], right: &[u8]) -> bool {
    left == right || equal(&mut Side::new(left), &mut Side::new(right)).is_ok()
}

/// A text and how far it was walked.
#[derive(Clone, Copy)]
struct Side<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Side<'t> {
    fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&mut self) -> Walked<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied().ok_or(Differs)
    }

    fn take(&mut self, byte: u8) -> Walked<()> {
        if self.peek()? != byte {
            return Err(Differs);
        }
        self.at += 1;
        Ok(())
    }

    /// The inside of a string.
    fn string(&mut self) -> Walked<&'t [u8]> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            let rest = self.text.get(self.at..).ok_or(Differs)?;
            self.at += rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).ok_or(Differs)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Ok(&self.text[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    fn word(&mut self) -> &'t [u8] {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn skip(&mut self) -> Walked<()> {
        match self.peek()? {
            b'"' => drop(self.string()?),
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    match self.peek()? {
                        b'"' => drop(self.string()?),
                        byte => {
                            self.at += 1;
                            depth += usize::from(matches!(byte, b'{' | b'['));
                            depth -= usize::from(matches!(byte, b'}' | b']'));
                            if depth == 0 {
                                break;
                            }
                        }
                    }
                }
            }
            _ if self.word().is_empty() => return Err(Differs),
            _ => {}
        }
        Ok(())
    }

    /// Keys of an object, each with the place of its value.
    fn members(&mut self) -> Walked<Vec<(&'t [u8], usize)>> {
        let mut members = Vec::with_capacity(8);
        self.take(b'{')?;
        while self.peek()? != b'}' {
            if !members.is_empty() {
                self.take(b',')?;
            }
            let key = self.string()?;
            self.take(b':')?;
            members.push((key, self.at));
            self.skip()?;
        }
        self.at += 1;
        Ok(members)
    }
}

fn equal(left: &mut Side<'_>, right: &mut Side<'_>) -> Walked<()> {
    let kind = left.peek()?;
    match (kind, right.peek()?) {
        (b'{', b'{') => {
            let (ours, theirs) = (left.members()?, right.members()?);
            if ours.len() != theirs.len() {
                return Err(Differs);
            }
            for (index, (key, at)) in ours.iter().enumerate() {
                let here = theirs.get(index).filter(|(other, _)| other == key);
                let found = here.or_else(|| theirs.iter().find(|(other, _)| other == key));
                let (_, other) = found.ok_or(Differs)?;
                equal(&mut Side { at: *at, ..*left }, &mut Side { at: *other, ..*right })?;
            }
            Ok(())
        }
        (b'[', b'[') => {
            (left.at, right.at) = (left.at + 1, right.at + 1);
            while left.peek()? != b']' {
                equal(left, right)?;
                if left.peek()? == b',' {
                    left.at += 1;
                    right.take(b',')?;
                }
            }
            left.at += 1;
            right.take(b']')
        }
        (b'"', b'"') => check(left.string()? == right.string()?),
        _ => check(left.word() == right.word()),
    }
}

fn check(same: bool) -> Walked<()> {
    if same { Ok(()) } else { Err(Differs) }
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn order_of_members_does_not_matter() {
        for (left, right, expected) in [
            (r#"{"a":[1,{}],"b":"x\"y"}"#, r#"{ "b" : "x\"y", "a" : [ 1 , { } ] }"#, true),
            (r#"{"a":1,"b":2}"#, r#"{"b":1,"a":2}"#, false),
            ("[1,2]", "[2,1]", false),
            ("[1,2]", "[1]", false),
            ("[1]", "[1,2]", false),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#, false),
            ("true", "false", false),
            ("[", "[ ", false),
        ] {
            assert_eq!(same(left.as_bytes(), right.as_bytes()), expected, "{left} {right}");
        }
    }
}
