//! System calls that no worker needs, blocked by a seccomp filter.
//!
//! Owns the two lists: calls that change the machine or have been used to escape from sandboxes, and kinds of sockets.
//! Programs may still create namespaces, because agents build sandboxes of their own.

use std::collections::BTreeMap;

use libc::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, NETLINK_ROUTE};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};

/// Calls that are blocked whatever their arguments are: those that container engines block, and `io_uring`, which could
/// open sockets past this filter.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_name_to_handle_at,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Terminal requests that inject input or control a console.
const REFUSED_REQUESTS: [libc::c_ulong; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// The first system call number of another interface of the same processor (x32), which the lists do not cover.
const OTHER_INTERFACE: u32 = 0x4000_0000;

/// Applies the filter to this process and all programs that it starts. Without network access, local sockets are
/// blocked, too: a filter sees the kind of a socket, not the path that it is connected to. Socket pairs stay allowed.
pub(super) fn apply_seccomp(no_network: bool) -> Result<(), Error> {
    apply_filter(&build_program(no_network)?)
}

fn build_program(no_network: bool) -> Result<BpfProgram, Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_socket, socket_rules(no_network)?);
    let requests = REFUSED_REQUESTS.map(|request| new_rule(&[(1, SeccompCmpOp::Eq, request & 0xffff_ffff)]));
    rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<Result<_, _>>()?);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into().map_err(Error::Backend)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture).map_err(Error::Backend)?;
    let known: BpfProgram = filter.try_into().map_err(Error::Backend)?;
    Ok(refuse_other_interface().into_iter().chain(known).collect())
}

/// Blocks every socket except local ones, Internet ones, and those that query network interfaces.
fn socket_rules(no_network: bool) -> Result<Vec<SeccompRule>, Error> {
    let families: &[i32] =
        if no_network { &[AF_INET, AF_INET6, AF_NETLINK] } else { &[AF_INET, AF_INET6, AF_NETLINK, AF_UNIX] };
    let other: Vec<_> = families.iter().map(|family| (0, SeccompCmpOp::Ne, to_argument(*family))).collect();
    let netlink = [(0, SeccompCmpOp::Eq, to_argument(AF_NETLINK)), (2, SeccompCmpOp::Ne, to_argument(NETLINK_ROUTE))];
    Ok(vec![new_rule(&other)?, new_rule(&netlink)?])
}

fn to_argument(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

/// Creates a rule that matches if all conditions do: (argument, comparison, value), of which the kernel compares 32
/// bits.
fn new_rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, Error> {
    let conditions = conditions.iter().map(|(argument, comparison, value)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, comparison.clone(), *value)
    });
    let conditions = conditions.collect::<Result<Vec<_>, _>>().map_err(Error::Backend)?;
    SeccompRule::new(conditions).map_err(Error::Backend)
}

/// `if number >= OTHER_INTERFACE { return ENOSYS }`
fn refuse_other_interface() -> [sock_filter; 3] {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RETURN_ERRNO: u32 = 0x0005_0000;
    [
        sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: OTHER_INTERFACE },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: RETURN_ERRNO | libc::ENOSYS.cast_unsigned() },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_filters_compile_and_begin_with_the_other_interface() {
        for no_network in [false, true] {
            let program = build_program(no_network).expect("the lists are sound");
            assert_eq!(program[..3], refuse_other_interface());
            assert!(program.len() > REFUSED.len());
        }
    }
}
