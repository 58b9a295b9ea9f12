//! The system call part of a sandbox: a seccomp filter that refuses calls with EPERM.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// `Sockets` says which sockets a command may create. Pairs between its own processes are always
/// allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    /// No local sockets: only the server of a socket file decides who may connect to it.
    NotLocal,
    None,
}

/// Ways into other processes, and io_uring, whose operations no filter sees.
const ALWAYS: &[i64] =
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_io_uring_setup];

/// On x86-64 the same calls have a second set of numbers, which the filter must also name.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;

/// Numbers that exist only in the second set: ptrace, process_vm_readv, process_vm_writev.
#[cfg(target_arch = "x86_64")]
const X32_ONLY: &[i64] = &[X32_BIT | 521, X32_BIT | 539, X32_BIT | 540];

/// Restricts the calling thread. `no_new_privs` is already set by then.
pub(super) fn apply(sockets: Sockets) -> Result<(), String> {
    let program = filter(sockets).map_err(|err| format!("cannot build the seccomp filter: {err}"))?;
    seccompiler::apply_filter(&program).map_err(|err| format!("cannot apply the seccomp filter: {err}"))
}

/// Asks the kernel, on a separate thread because asking restricts the thread.
pub(super) fn supported() -> bool {
    let probe = std::thread::Builder::new().spawn(|| apply(Sockets::None).is_ok());
    probe.is_ok_and(|thread| thread.join().unwrap_or(false))
}

fn filter(sockets: Sockets) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut refuse = |call: i64, when: Vec<SeccompRule>| {
        #[cfg(target_arch = "x86_64")]
        rules.insert(X32_BIT | call, when.clone());
        rules.insert(call, when);
    };
    ALWAYS.iter().for_each(|&call| refuse(call, Vec::new()));
    match sockets {
        Sockets::NotLocal => refuse(libc::SYS_socket, vec![local_family()?]),
        Sockets::None => refuse(libc::SYS_socket, Vec::new()),
    }
    refuse(libc::SYS_socketpair, addressable_pairs()?);
    #[cfg(target_arch = "x86_64")]
    X32_ONLY.iter().for_each(|&call| {
        rules.insert(call, Vec::new());
    });
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, std::env::consts::ARCH.try_into()?)?.try_into()
}

fn local_family() -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, libc::AF_UNIX)?])
}

/// Matches pairs of datagram sockets (raw ones are the same), which can send to any socket file.
/// Other pairs can only reach each other.
fn addressable_pairs() -> Result<Vec<SeccompRule>, BackendError> {
    /// The other bits of the argument are flags.
    const KIND: u64 = 0xf;
    [libc::SOCK_DGRAM, libc::SOCK_RAW]
        .into_iter()
        .map(|kind| SeccompRule::new(vec![argument(1, SeccompCmpOp::MaskedEq(KIND), kind)?]))
        .collect()
}

fn argument(index: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, u64::from(value.unsigned_abs()))
}
