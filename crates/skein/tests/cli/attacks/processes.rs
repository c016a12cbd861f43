//! Processes outside a sandbox: seeing them, signalling them, inspecting them. And processes that hide from the end of
//! their step.

use super::{
    Attack,
    Control::{Always, Never, Unproven},
    python, shell,
};

pub(crate) const ATTACKS: &[Attack] = &[
    python("signal_a_process", Always, "os.kill(T.pid, 0)\nok = True"),
    python("signal_a_group", Always, "os.killpg(T.group, 0)\nok = True"),
    python("signal_a_thread", Always, "ok = works('tgkill', T.pid, T.pid, 0)"),
    python("stop_a_process", Never, "os.kill(T.pid, signal.SIGSTOP)\nok = True"),
    python(
        "queue_a_signal",
        Always,
        "ok = works('rt_sigqueueinfo', T.pid, 0, ctypes.create_string_buffer(struct.pack('3i', 0, 0, -1), 128))",
    ),
    python("environment_of_a_process", Always, "ok = reads(f'/proc/{T.pid}/environ', 'outside-secret')"),
    python("root_of_a_process", Always, "ok = bool(os.listdir(f'/proc/{T.pid}/root'))"),
    python("folder_of_a_process", Always, "ok = 'secret' in os.listdir(f'/proc/{T.pid}/cwd')"),
    python("descriptor_of_a_process", Always, "ok = reads(f'/proc/{T.pid}/fd/{T.descriptor}')"),
    python("memory_map_of_a_process", Always, "ok = reads(f'/proc/{T.pid}/maps')"),
    python(
        "memory_of_a_process",
        Always,
        "with open(f'/proc/{T.pid}/mem', 'rb', 0) as file:\n  file.seek(T.address)\n  ok = file.read(7) == b'outside'",
    ),
    python("command_line_of_a_process", Always, "ok = reads(f'/proc/{T.pid}/cmdline', 'outsider')"),
    python(
        "find_a_process_by_its_name",
        Always,
        "ok = False\nfor path in glob.glob('/proc/[0-9]*/cmdline'):\n  try:\n    ok = ok or reads(path, 'outsider.py')\n  except OSError:\n    pass",
    ),
    python(
        "read_memory_across_processes",
        Always,
        "into = ctypes.create_string_buffer(7)\nlocal = struct.pack('QQ', ctypes.addressof(into), 7)\nremote = struct.pack('QQ', T.address, 7)\ncall('process_vm_readv', T.pid, ctypes.create_string_buffer(local), 1, ctypes.create_string_buffer(remote), 1, 0)\nok = into.raw == b'outside'",
    ),
    python(
        "write_memory_across_processes",
        Always,
        "what = ctypes.create_string_buffer(b'outside', 7)\nlocal = struct.pack('QQ', ctypes.addressof(what), 7)\nremote = struct.pack('QQ', T.address, 7)\nok = call('process_vm_writev', T.pid, ctypes.create_string_buffer(local), 1, ctypes.create_string_buffer(remote), 1, 0) == 7",
    ),
    python("trace_a_process", Always, "ok = works('ptrace', 16, T.pid, 0, 0)"),
    python("seize_a_process", Always, "ok = works('ptrace', 0x4206, T.pid, 0, 0)"),
    shell("debugger", Always, "timeout 8 gdb -nx -batch -p $T_pid -ex 'info proc' 2>/dev/null | grep -q outsider"),
    shell("tracer", Always, "timeout -s INT 1 strace -o /dev/null -p $T_pid; test $? = 124"),
    python("handle_of_a_process", Always, "ok = works('pidfd_open', T.pid, 0)"),
    python("take_a_descriptor", Always, "ok = works('pidfd_getfd', call('pidfd_open', T.pid, 0), T.descriptor, 0)"),
    python("limits_of_a_process", Always, "ok = works('prlimit64', T.pid, 7, 0, ctypes.create_string_buffer(16))"),
    python("processors_of_a_process", Always, "os.sched_setaffinity(T.pid, os.sched_getaffinity(T.pid))\nok = True"),
    python("priority_of_a_process", Always, "os.setpriority(os.PRIO_PROCESS, T.pid, 0)\nok = True"),
    // A session whose leader is outside the tests' own pid namespace has the number 0.
    python("session_of_a_process", Always, "ok = os.getsid(T.pid) >= 0"),
    python(
        "robust_locks_of_a_process",
        Always,
        "ok = works('get_robust_list', T.pid, ctypes.create_string_buffer(8), ctypes.create_string_buffer(8))",
    ),
    python("compare_processes", Always, "ok = works('kcmp', os.getpid(), T.pid, 0, 0, 0)"),
    python("join_a_group", Never, "os.setpgid(0, T.group)\nok = True"),
    python(
        "descriptors_of_the_first_process_lead_outside",
        Unproven,
        "ok = any(os.path.isdir(f) or os.path.isfile(f) for f in glob.glob('/proc/1/fd/*'))",
    ),
    python(
        "root_of_the_first_process_leads_outside",
        Unproven,
        "ok = os.path.exists(f'/proc/1/root{T.tmp_file}') or os.path.exists(f'/proc/1/root{T.state}/skein.db')",
    ),
    python("replace_program_of_the_first_process", Unproven, "ok = opens('/proc/1/exe', os.O_RDWR)"),
    shell("replace_own_program", Unproven, "cat /dev/null >> /proc/self/exe"),
    python(
        "less_likely_to_be_killed",
        Unproven,
        "with open('/proc/self/oom_score_adj', 'w') as f:\n  f.write('-900')\nok = True",
    ),
];
