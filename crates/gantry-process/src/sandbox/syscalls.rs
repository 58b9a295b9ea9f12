//! The system call part of a sandbox: a seccomp filter that refuses with EPERM.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};

use super::Network;

/// Ways into other processes, and io_uring, whose operations no filter sees.
const ALWAYS: &[i64] =
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_io_uring_setup];

/// On x86-64 the same calls have a second set of numbers, which a filter by number must name as well.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;

/// Numbers that only the second set has: ptrace, process_vm_readv, process_vm_writev.
#[cfg(target_arch = "x86_64")]
const X32_ONLY: &[i64] = &[X32_BIT | 521, X32_BIT | 539, X32_BIT | 540];

/// Binds the calling thread. `no_new_privs` is already set by then.
pub(super) fn deny(network: Network) -> Result<(), String> {
    let program = filter(network).map_err(|err| format!("cannot build the seccomp filter: {err}"))?;
    seccompiler::apply_filter(&program).map_err(|err| format!("cannot apply the seccomp filter: {err}"))
}

/// Asks the kernel, on a thread of its own because asking means binding the thread.
pub(super) fn supported() -> bool {
    let probe = std::thread::Builder::new().spawn(|| deny(Network::Denied).is_ok());
    probe.is_ok_and(|thread| thread.join().unwrap_or(false))
}

fn filter(network: Network) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut refuse = |call: i64| {
        rules.insert(call, Vec::new());
    };
    for &call in ALWAYS {
        refuse(call);
        #[cfg(target_arch = "x86_64")]
        refuse(X32_BIT | call);
    }
    #[cfg(target_arch = "x86_64")]
    X32_ONLY.iter().for_each(|&call| refuse(call));
    if network == Network::Denied {
        refuse(libc::SYS_socket);
        #[cfg(target_arch = "x86_64")]
        refuse(X32_BIT | libc::SYS_socket);
    }
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, std::env::consts::ARCH.try_into()?)?.try_into()
}
