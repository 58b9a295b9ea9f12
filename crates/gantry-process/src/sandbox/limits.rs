//! Protects the resource limits of other processes. `prlimit` can change the limits of every
//! process of the same user, Gantry's own included.
//!
//! This is a separate filter because it applies to every sandboxed command. The filter in
//! `syscalls` also stops commands from tracing their children and running 32-bit programs, which
//! some sandboxes allow.

use seccompiler::sock_filter;

/// `Interface` lists the numbers of `prlimit64` in one of the processor's system call interfaces.
struct Interface {
    /// The architecture code that the kernel passes to filters.
    architecture: u32,
    calls: &'static [u32],
}

/// x86-64, with the second set of numbers that x32 programs use, and 32-bit programs.
#[cfg(target_arch = "x86_64")]
const INTERFACES: &[Interface] = &[
    Interface { architecture: 0xc000_003e, calls: &[302, 0x4000_0000 | 302] },
    Interface { architecture: 0x4000_0003, calls: &[340] },
];

/// 64-bit and 32-bit programs.
#[cfg(target_arch = "aarch64")]
const INTERFACES: &[Interface] = &[
    Interface { architecture: 0xc000_00b7, calls: &[261] },
    Interface { architecture: 0x4000_0028, calls: &[369] },
];

#[cfg(target_arch = "riscv64")]
const INTERFACES: &[Interface] = &[Interface { architecture: 0xc000_00f3, calls: &[261] }];

// What a filter sees of a call, on little-endian processors.
const CALL: u32 = 0;
const ARCHITECTURE: u32 = 4;
const PID: u32 = 16;
const NEW_LIMIT: u32 = 32;
const NEW_LIMIT_HIGH: u32 = 36;

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EPERM.unsigned_abs();

/// Restricts the calling thread: it can read the limits of another process, but not change them. A
/// process refers to itself as 0.
pub(super) fn protect_other_processes() -> Result<(), String> {
    seccompiler::apply_filter(&program())
        .map_err(|err| format!("cannot apply the resource limit filter: {err}"))
}

fn program() -> Vec<sock_filter> {
    // Allows the call if the process refers to itself, or sets no new limit.
    let check = || {
        [
            load(PID),
            jump_if(0, 5, 0),
            load(NEW_LIMIT),
            jump_if(0, 0, 2),
            load(NEW_LIMIT_HIGH),
            jump_if(0, 1, 0),
            return_value(REFUSE),
            return_value(ALLOW),
        ]
    };
    let mut program = vec![load(ARCHITECTURE)];
    for Interface { architecture, calls } in INTERFACES {
        let mut block = vec![load(CALL)];
        for (index, call) in calls.iter().enumerate() {
            // Skips the remaining calls and the answer for any other call.
            let to_check = calls.len() - index;
            block.push(jump_if(*call, to_check, 0));
        }
        block.push(return_value(ALLOW));
        block.extend(check());
        program.push(jump_if(*architecture, 0, block.len()));
        program.extend(block);
    }
    program.push(return_value(ALLOW));
    program
}

fn load(offset: u32) -> sock_filter {
    /// BPF_LD | BPF_W | BPF_ABS
    const LOAD: u16 = 0x20;
    sock_filter { code: LOAD, jt: 0, jf: 0, k: offset }
}

/// Skips `equal` instructions if the loaded number is `value`, and `other` instructions if it is
/// not.
fn jump_if(value: u32, equal: usize, other: usize) -> sock_filter {
    /// BPF_JMP | BPF_JEQ | BPF_K
    const JUMP: u16 = 0x15;
    let over = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    sock_filter { code: JUMP, jt: over(equal), jf: over(other), k: value }
}

fn return_value(answer: u32) -> sock_filter {
    /// BPF_RET | BPF_K
    const RETURN: u16 = 0x06;
    sock_filter { code: RETURN, jt: 0, jf: 0, k: answer }
}
