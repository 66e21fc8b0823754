//! How a Rust file looks: it says what it is, it is short, nothing in it is left open, and it reads no clock that is
//! not one of the listed borders.

use super::code;
use crate::tree::File;

const FOLDERS: &[&str] = &["benches/", "crates/", "xtask/", "examples/", "tests/", "fuzz/"];
const MAX_LINES: usize = 800;

/// What stands for work not done.
const OPEN: &[&str] = &["todo!", "unimplemented!", "#[ignore"];

const CLOCKS: &[&str] =
    &["SystemTime::now", "Instant::now", "Timestamp::now", "Zoned::now", "UNIX_EPOCH.elapsed"];

/// The files in crates/*/src that may read a clock, and why. Everything else takes `now` or a `Clock` (law 6 is tested
/// with a fake one).
const CLOCK_READERS: &[(&str, &str)] = &[
    ("crates/driver/src/system.rs", "the `Clock` of real programs: everybody else is given one"),
    ("crates/host/src/body.rs", "heartbeats of a stream, by tokio's timer"),
    ("crates/host/src/discovery.rs", "how old an answer of a vendor is, by tokio's timer"),
    ("crates/host/src/seats.rs", "how often the log tells of a full host, by tokio's timer"),
    ("crates/host/src/service.rs", "the grid that the heartbeats of all streams share, by tokio's timer"),
    ("crates/host/src/wire.rs", "when the bytes of a request arrived, by tokio's timer"),
    ("crates/sandbox-js/src/clock.rs", "when a run begins; its budget and its expiries by tokio's clock"),
    (
        "crates/sandbox-js/src/engine/guard.rs",
        "engine time, on a thread of its own that tokio's clock does not see",
    ),
    ("crates/sandbox-js/src/pool.rs", "the watchdog of engine threads"),
    ("crates/sandbox-js/src/worker/workers.rs", "how long a worker computed, as its host sees it"),
    ("crates/testkit/src/clock.rs", "the fake clock runs on tokio's paused time"),
];

pub(crate) fn check(files: &[File]) -> Vec<String> {
    with_readers(files, CLOCK_READERS)
}

fn with_readers(files: &[File], readers: &[(&str, &str)]) -> Vec<String> {
    let rust = |file: &&File| {
        file.path.ends_with(".rs") && FOLDERS.iter().any(|folder| file.path.starts_with(folder))
    };
    let mut found: Vec<String> = files.iter().filter(rust).flat_map(shape).collect();
    found.extend(clocks(files, readers));
    found
}

fn shape(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let path = &file.path;
    if !file.text.starts_with("//!") {
        found.push(format!("{path}:1: the file must open with `//!`"));
    }
    let lines = file.text.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{path}: {lines} lines, more than {MAX_LINES}"));
    }
    for (number, line) in code::only(&file.text).lines().enumerate() {
        for open in OPEN.iter().filter(|open| line.contains(**open)) {
            found.push(format!("{path}:{}: `{open}` is work not done", number + 1));
        }
    }
    found
}

fn clocks(files: &[File], readers: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    let mut used = Vec::new();
    let source = |file: &&File| {
        file.path.starts_with("crates/") && file.path.contains("/src/") && file.path.ends_with(".rs")
    };
    for file in files.iter().filter(source) {
        let code = code::only(&file.text);
        // Unit tests stand last in a file; they may measure.
        let lines = code.lines().enumerate().take_while(|(_, line)| line.trim_end() != "#[cfg(test)]");
        for (number, line) in lines {
            let Some(clock) = CLOCKS.iter().find(|clock| line.contains(**clock)) else { continue };
            if readers.iter().any(|(path, _)| *path == file.path) {
                used.push(file.path.as_str());
            } else {
                found.push(format!("{}:{}: `{clock}` outside the listed borders", file.path, number + 1));
            }
        }
    }
    for (path, _) in readers.iter().filter(|(path, _)| !used.contains(path)) {
        found.push(format!("{path} reads no clock: take it out of the table of clock readers"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Vec<String> {
        with_readers(&[File::new(path, text)], &[])
    }

    #[test]
    fn a_file_opens_with_its_purpose() {
        for path in [
            "crates/a/src/lib.rs",
            "crates/a/tests/it/main.rs",
            "xtask/src/main.rs",
            "examples/a/src/main.rs",
        ] {
            assert_eq!(one(path, "fn main() {}\n"), [format!("{path}:1: the file must open with `//!`")]);
            assert!(one(path, "//! A.\n").is_empty());
        }
    }

    #[test]
    fn a_file_is_not_too_long() {
        let text = |lines: usize| format!("//! A.\n{}", "\n".repeat(lines - 1));
        assert_eq!(one("crates/a/src/lib.rs", &text(801)), ["crates/a/src/lib.rs: 801 lines, more than 800"]);
        assert!(one("crates/a/src/lib.rs", &text(800)).is_empty());
    }

    #[test]
    fn open_work_is_found() {
        let text = "//! todo!()\nfn f() { todo!(\"x\") }\nfn g() { unimplemented!() }\n#[ignore = \"slow\"]\nfn h() { p(\"todo!\") }\n";
        let expected: Vec<String> = [(2, "todo!"), (3, "unimplemented!"), (4, "#[ignore")]
            .map(|(line, open)| format!("crates/a/src/lib.rs:{line}: `{open}` is work not done"))
            .into();
        assert_eq!(one("crates/a/src/lib.rs", text), expected);
    }

    #[test]
    fn a_clock_is_read_at_the_borders_only() {
        let text = "//! A.\nfn f() { std::time::Instant::now(); }\n#[cfg(test)]\nmod tests { fn g() { SystemTime::now(); } }\n";
        let expected = "crates/a/src/lib.rs:2: `Instant::now` outside the listed borders";
        assert_eq!(one("crates/a/src/lib.rs", text), [expected]);
        assert!(one("crates/a/tests/it/main.rs", text).is_empty());
        for clock in CLOCKS {
            assert_eq!(one("crates/a/src/lib.rs", &format!("//! A.\nlet now = {clock}();\n")).len(), 1);
        }
        let files = [File::new("crates/a/src/lib.rs", text)];
        assert!(clocks(&files, &[("crates/a/src/lib.rs", "why")]).is_empty());
        assert_eq!(clocks(&files[..0], &[("crates/a/src/lib.rs", "why")]).len(), 1, "a stale entry");
    }
}
