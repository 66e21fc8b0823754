//! The table in `main.rs` is true: each row is there, and each test that it names.

use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("main.rs");

#[test]
fn every_row_names_tests_that_exist() {
    let mut rows = Vec::new();
    for line in TABLE.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let (row, tests) = line.split_once(" | ").unwrap();
        if row.starts_with("contract ") || row == "---" {
            continue;
        }
        let named: Vec<&str> = tests.split('`').filter(|name| name.contains("::")).collect();
        assert!(!named.is_empty(), "{row} has no test");
        for name in named {
            assert!(exists(name), "{row}: there is no test {name}");
        }
        rows.push(row);
    }
    // 17 sequences of 3.4; 4.4; 4.11; and tables whose rows have no number.
    let expected_444 = ["1", "2", "3", "4", "5", "6", "7", "7b"];
    let expected_411 = (1..=23).map(|row| row.to_string());
    assert!(rows.len() > 17 + expected_444.len() + 4 + expected_411.clone().count());
    for row in expected_444.into_iter().map(str::to_owned).chain(expected_411) {
        assert!(rows.contains(&&*row), "row {row} is missing");
    }
}

/// Whether the source of the test has a function of its name that is a test.
fn exists(name: &str) -> bool {
    let (module, test) = name.rsplit_once("::").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path: PathBuf = match module.split_once('/') {
        Some((package, module)) => {
            root.join(format!("crates/{package}/tests/it/{}.rs", module.replace("::", "/")))
        }
        None => root.join(format!("tests/it/{}.rs", module.replace("::", "/"))),
    };
    let Ok(source) = fs::read_to_string(&path) else { return false };
    let Some((before, _)) = source.split_once(&format!("fn {test}(")) else { return false };
    // Its attribute stands among the few lines before it.
    before.lines().rev().take(4).any(|line| line.starts_with("#[tokio::test") || line.starts_with("#[test]"))
}
