//! The part of a sandbox that guards the resource limits of other processes: `prlimit` may change those of every process of
//! the same user, Gantry's own included.
//!
//! A filter of its own, since it binds every confined command, also those that may trace their children and run 32-bit
//! programs, which the filter in `syscalls` refuses.

use seccompiler::sock_filter;

/// Which calls of one of the processor's interfaces are `prlimit64`.
struct Interface {
    /// As the kernel names it to filters.
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

// What a filter sees of a call, on processors that put the low half of a number first.
const CALL: u32 = 0;
const ARCHITECTURE: u32 = 4;
const PID: u32 = 16;
const NEW_LIMIT: u32 = 32;
const NEW_LIMIT_HIGH: u32 = 36;

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EPERM.unsigned_abs();

/// Binds the calling thread: limits of another process can be read, and not changed. A process names itself by 0.
pub(super) fn guard_others() -> Result<(), String> {
    seccompiler::apply_filter(&program()).map_err(|err| format!("cannot apply the filter of limits: {err}"))
}

fn program() -> Vec<sock_filter> {
    // Allowed: the process names itself, or gives no new limit.
    let check = || {
        [
            load(PID),
            jump_if(0, 5, 0),
            load(NEW_LIMIT),
            jump_if(0, 0, 2),
            load(NEW_LIMIT_HIGH),
            jump_if(0, 1, 0),
            give(REFUSE),
            give(ALLOW),
        ]
    };
    let mut program = vec![load(ARCHITECTURE)];
    for Interface { architecture, calls } in INTERFACES {
        let mut block = vec![load(CALL)];
        for (index, call) in calls.iter().enumerate() {
            // Over the calls that are left and the answer to any other.
            let to_check = calls.len() - index;
            block.push(jump_if(*call, to_check, 0));
        }
        block.push(give(ALLOW));
        block.extend(check());
        program.push(jump_if(*architecture, 0, block.len()));
        program.extend(block);
    }
    program.push(give(ALLOW));
    program
}

fn load(offset: u32) -> sock_filter {
    /// BPF_LD | BPF_W | BPF_ABS
    const LOAD: u16 = 0x20;
    sock_filter { code: LOAD, jt: 0, jf: 0, k: offset }
}

/// Goes over so many instructions if the loaded number is `value`, and over so many if it is not.
fn jump_if(value: u32, equal: usize, other: usize) -> sock_filter {
    /// BPF_JMP | BPF_JEQ | BPF_K
    const JUMP: u16 = 0x15;
    let over = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    sock_filter { code: JUMP, jt: over(equal), jf: over(other), k: value }
}

fn give(answer: u32) -> sock_filter {
    /// BPF_RET | BPF_K
    const RETURN: u16 = 0x06;
    sock_filter { code: RETURN, jt: 0, jf: 0, k: answer }
}
