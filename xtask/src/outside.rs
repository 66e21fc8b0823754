//! Commands as a person would start them.

use xshell::Cmd;

/// Takes out what `cargo run` has put into our environment about the package `xtask`.
///
/// Build scripts (ring's is one) ask Cargo to run again when these change, so that a build inside `cargo xtask` and one
/// outside would each undo the other's work.
pub(crate) fn outside(command: Cmd<'_>) -> Cmd<'_> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| is_about_us(name)).fold(command, |command, name| command.env_remove(name))
}

fn is_about_us(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use xshell::{Shell, cmd};

    #[test]
    fn a_command_does_not_see_our_package() {
        // `cargo test` sets the same variables.
        let sh = Shell::new().unwrap();
        let seen = |command: Cmd<'_>| command.quiet().read().unwrap().contains("CARGO_PKG_NAME=xtask");
        assert!(seen(cmd!(sh, "env")), "the test would see nothing");
        assert!(!seen(outside(cmd!(sh, "env"))));
        assert!(!is_about_us("CARGO_TARGET_DIR") && !is_about_us("CARGO_HOME"));
    }
}
