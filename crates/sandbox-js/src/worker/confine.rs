//! What a worker gives up before it reads its first program.
//!
//! On Linux: every system call but those that memory, the two pipes and its end need. Reading is allowed from standard
//! input alone, writing to standard output and error; memory can be neither made executable nor backed by a file. On other
//! Unix systems: resource limits, which leave it without further files and processes. Elsewhere nothing. On every Unix
//! system resource limits bound its memory, its time, and what it leaves behind.

/// Bytes of address space that a worker gets in its life.
#[cfg(unix)]
pub(super) const ADDRESS_SPACE: u64 = 1 << 30;
/// Seconds of the processor that a worker gets in its life.
#[cfg(unix)]
pub(super) const CPU: u64 = 600;

/// Gives up what can be given up here.
///
/// # Errors
/// The system's word, if it refused to take it.
pub(super) fn confine() -> Result<(), String> {
    #[cfg(unix)]
    limit()?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| format!("the signal at the host's end: {error}"))?;
    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ))]
    super::filter::apply()?;
    Ok(())
}

/// What the worker must find refused on this system.
pub(super) const MUST_REFUSE: &[&str] = if cfg!(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
)) {
    &["open", "create", "socket", "local socket", "exec", "fork", "thread"]
} else {
    &[]
};

/// Tries what a worker must not be able to do, and gives what was refused, with the system's words. (Nothing is left
/// behind where it is not refused.)
pub(super) fn refused() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut note = |what: &str, result: std::io::Result<()>| match result {
        // It was allowed, and there was nothing to be found.
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => found.push((what.to_owned(), error.to_string())),
    };
    note("open", std::fs::File::open("/").map(drop));
    note("create", std::fs::File::create_new("/no-such-folder/file").map(drop));
    note("socket", std::net::UdpSocket::bind(("127.0.0.1", 0)).map(drop));
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        note("local socket", std::os::unix::net::UnixDatagram::unbound().map(drop));
        // Both fail for want of a program where they are allowed.
        note("exec", Err(std::process::Command::new("/no-such-program").exec()));
        note("fork", std::process::Command::new("/no-such-program").spawn().map(drop));
    }
    note("thread", std::thread::Builder::new().spawn(|| ()).map(drop));
    found
}

#[cfg(unix)]
fn limit() -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    for (resource, name, most) in [
        (Resource::As, "address space", ADDRESS_SPACE),
        (Resource::Cpu, "processor time", CPU),
        (Resource::Fsize, "file size", 0),
        (Resource::Core, "core size", 0),
        (Resource::Nproc, "processes", 0),
        // The pipes are open already.
        (Resource::Nofile, "files", 0),
    ] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // Not every system knows each of them; the filter above is what counts where there is one.
        let set = setrlimit(resource, limit);
        if cfg!(target_os = "linux") {
            set.map_err(|error| format!("the limit of {name}: {error}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::refused;

    // The worker's own test can fail: a process that gave up nothing finds nothing refused.
    #[test]
    fn nothing_is_refused_here() {
        assert_eq!(refused(), []);
    }
}
