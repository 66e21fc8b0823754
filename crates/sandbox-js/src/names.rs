//! Similar names, for an agent that called what does not exist (scenario W48).

const MAX_SUGGESTIONS: usize = 3;

/// The names closest to `name`, the closest first. Case and underscores do not count, so `deleteFile` finds
/// `delete_file`.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted = plain(name);
    let most = (wanted.len() / 2).max(2);
    let mut found: Vec<(usize, &str)> = known
        .map(|candidate| (distance(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| {
            *distance <= most || plain(candidate).contains(&wanted) || wanted.contains(&plain(candidate))
        })
        .collect();
    found.sort();
    found.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
}

fn plain(name: &str) -> String {
    // A name of a program may be as long as its source.
    name.chars().filter(|c| c.is_alphanumeric()).take(64).flat_map(char::to_lowercase).collect()
}

/// Insertions, deletions and replacements that turn one into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn close_names_come_first() {
        let known = ["read_file", "delete_file", "delete_folder", "send_mail"];
        for (name, expected) in [
            ("deleteFile", &["delete_file", "read_file", "delete_folder"][..]),
            ("sendMail", &["send_mail"]),
            ("delete", &["delete_file", "delete_folder"]),
            ("xyz", &[]),
        ] {
            let found = nearest(name, known.into_iter());
            assert_eq!(found.first().map(String::as_str), expected.first().copied(), "{name}: {found:?}");
            assert!(found.iter().all(|found| expected.contains(&found.as_str())), "{name}: {found:?}");
        }
        assert!(nearest("", known.into_iter()).len() <= 3);
    }
}
