//! The list of system calls that a worker keeps.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Applies the list to all threads of the process, for good.
pub(super) fn apply() -> Result<(), String> {
    let program = program().map_err(|error| format!("the filter of system calls: {error}"))?;
    seccompiler::apply_filter_all_threads(&program)
        .map_err(|error| format!("the filter of system calls: {error}"))
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    // EPERM, not a kill: what libraries try in passing must not end the worker.
    let (others, listed) = (SeccompAction::Errno(libc::EPERM.unsigned_abs()), SeccompAction::Allow);
    SeccompFilter::new(rules()?, others, listed, arch)?.try_into()
}

fn rules() -> Result<Rules, seccompiler::BackendError> {
    let equals = |index: u8, value: u64| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let never = |index: u8, bits: i32| {
        let mask = u64::from(bits.unsigned_abs());
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), 0)
    };
    let mut rules: Rules = [
        // Memory.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        // Locks, time, and the seeds of hash maps.
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_getrandom,
        // Signals that arrived, and the end.
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        libc::SYS_restart_syscall,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ]
    .map(|call| (call, Vec::new()))
    .into();
    rules.insert(libc::SYS_read, vec![SeccompRule::new(vec![equals(0, 0)?])?]);
    let outputs = vec![SeccompRule::new(vec![equals(0, 1)?])?, SeccompRule::new(vec![equals(0, 2)?])?];
    rules.insert(libc::SYS_write, outputs);
    let anonymous = vec![never(2, libc::PROT_EXEC)?, equals(4, u64::from(u32::MAX))?];
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(anonymous)?]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![never(2, libc::PROT_EXEC)?])?]);
    Ok(rules)
}
