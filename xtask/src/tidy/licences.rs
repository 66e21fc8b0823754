//! Every package, ours and others', has a licence that we allow.

use crate::metadata::Metadata;

const ALLOWED: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CDLA-Permissive-2.0",
];

const ALLOWED_EXCEPTIONS: &[(&str, &str)] = &[("Apache-2.0", "LLVM-exception")];

pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    let verdict = |licence: &Option<String>| match licence {
        None => Some("states no licence".to_owned()),
        Some(text) => match allowed(text) {
            Some(true) => None,
            Some(false) => Some(format!("has the licence `{text}`, which is not allowed")),
            None => Some(format!("has the licence `{text}`, which is not an SPDX expression")),
        },
    };
    let packages = metadata.packages.iter();
    packages
        .filter_map(|package| {
            verdict(&package.license).map(|text| format!("{} {} {text}", package.name, package.version))
        })
        .collect()
}

/// Whether the allowed licences satisfy an SPDX expression; `None` if it is not one.
fn allowed(expression: &str) -> Option<bool> {
    // Before SPDX expressions, crates wrote "MIT/Apache-2.0" for a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0 };
    let answer = either(&mut words)?;
    (words.at == words.words.len()).then_some(answer)
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    fn take(&mut self, expected: &str) -> bool {
        let is = self.words.get(self.at) == Some(&expected);
        self.at += usize::from(is);
        is
    }
}

// WITH binds closest, then AND, then OR.
fn either(words: &mut Words<'_>) -> Option<bool> {
    let mut answer = both(words)?;
    while words.take("OR") {
        answer |= both(words)?;
    }
    Some(answer)
}

fn both(words: &mut Words<'_>) -> Option<bool> {
    let mut answer = single(words)?;
    while words.take("AND") {
        answer &= single(words)?;
    }
    Some(answer)
}

fn single(words: &mut Words<'_>) -> Option<bool> {
    if words.take("(") {
        let answer = either(words)?;
        return words.take(")").then_some(answer);
    }
    let id = words.next().filter(|word| !["OR", "AND", "WITH", ")"].contains(word))?;
    if words.take("WITH") {
        return Some(ALLOWED_EXCEPTIONS.contains(&(id, words.next()?)));
    }
    Some(ALLOWED.contains(&id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Package;

    #[test]
    fn expressions() {
        let table = [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("MIT OR GPL-3.0", Some(true)),
            ("MIT AND GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT AND ISC", Some(true)),
            ("(GPL-3.0 OR MIT) AND ISC", Some(true)),
            ("MIT OR Apache-2.0 AND GPL-3.0", Some(true)),
            ("(MIT OR Apache-2.0) AND GPL-3.0", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", Some(true)),
            ("GPL-2.0 WITH Classpath-exception-2.0", Some(false)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("MIT/Apache-2.0", Some(true)),
            ("GPL-3.0/LGPL-3.0", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT)", None),
            ("MIT Apache-2.0", None),
            ("MIT WITH", None),
        ];
        for (text, expected) in table {
            assert_eq!(allowed(text), expected, "{text}");
        }
    }

    #[test]
    fn a_package_without_or_with_a_bad_licence_is_found() {
        let package = |name, license: Option<&str>| Package {
            license: license.map(str::to_owned),
            ..Package::named(name)
        };
        let packages = vec![
            package("a", None),
            package("b", Some("GPL-3.0")),
            package("c", Some("?")),
            package("d", Some("MIT")),
        ];
        let found = check(&Metadata::of(packages, &[]));
        assert_eq!(
            found,
            [
                "a 1.0.0 states no licence",
                "b 1.0.0 has the licence `GPL-3.0`, which is not allowed",
                "c 1.0.0 has the licence `?`, which is not allowed"
            ]
        );
    }
}
