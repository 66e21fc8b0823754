//! No text names a place on somebody's machine.

use crate::tree::File;

/// Written by Cargo.
const EXEMPT: &[&str] = &["Cargo.lock"];

pub(crate) fn check(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(place) = place(line) {
                found.push(format!("{}:{}: `{place}` is a place on one machine", file.path, number + 1));
            }
        }
    }
    found
}

fn place(line: &str) -> Option<&'static str> {
    // Put together here, so that this file does not find itself.
    const WORK: &str = concat!("/wo", "rk/");
    const ROOT: &str = concat!("/ro", "ot/");
    const HOME: &str = concat!("/ho", "me/");
    const LIBRARY: &str = concat!(".lib", "rary");
    [WORK, ROOT, HOME, LIBRARY].into_iter().find(|pattern| {
        line.match_indices(pattern).any(|(at, _)| {
            // `x/home/` and `self.library` are parts of something longer.
            let starts = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.)}".contains(c));
            let after = line[at + pattern.len()..].chars().next();
            let goes_on = match *pattern {
                HOME => after.is_some_and(|c| c.is_ascii_lowercase()),
                LIBRARY => !after.is_some_and(char::is_alphanumeric),
                _ => true,
            };
            starts && goes_on
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found() {
        for (folder, rest) in [("/wo", "rk/x"), ("/ro", "ot/.cargo"), ("/ho", "me/ann"), (" .lib", "rary/x")]
        {
            let text = format!("fine\nsee \"{folder}{rest}\"\n");
            let found = check(&[File::new("docs/a.md", &text)]);
            assert!(found.len() == 1 && found[0].starts_with("docs/a.md:2: "), "{text}: {found:?}");
            assert!(check(&[File::new("Cargo.lock", &text)]).is_empty());
        }
        let fine = "self.library https://x.y/home/ann a/work/b $HOME/x homework/ .libraryx /home/USER\n";
        assert!(check(&[File::new("docs/a.md", fine)]).is_empty());
    }
}
