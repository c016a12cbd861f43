//! Targets that a step without a network must not reach, and that another step may.

use super::{
    Attack,
    Control::{Always, Unproven},
    python, shell,
};

pub(crate) const ATTACKS: &[Attack] = &[
    python("local_socket", Always, "ok = family(socket.AF_UNIX, socket.SOCK_STREAM)"),
    python("local_datagram", Always, "ok = family(socket.AF_UNIX, socket.SOCK_DGRAM)"),
    python("local_socket_with_flags", Always, "ok = family(1, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)"),
    python("local_socket_with_high_bits", Always, "ok = works('socket', 1 | 1 << 32, 1, 0)"),
    python("socket_in_the_workspace", Always, "ok = connects(T.workspace_socket)"),
    python("loopback", Always, "socket.create_connection(('127.0.0.1', T.tcp), 2)\nok = True"),
    python("loopback_six", Always, "socket.create_connection(('::1', T.tcp6), 2)\nok = True"),
    python(
        "loopback_datagram",
        Always,
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nok = s.sendto(b'leak', ('127.0.0.1', T.udp)) > 0",
    ),
    python(
        "loopback_by_multipath",
        Always,
        "try:\n  s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)\nexcept OSError:\n  raise Absent('MPTCP')\ns.settimeout(2)\ns.connect(('127.0.0.1', T.tcp))\nok = True",
    ),
    shell("loopback_from_nested_namespace", Always, "unshare -U bash -c ': > /dev/tcp/127.0.0.1/$T_tcp'"),
    python(
        "local_socket_from_nested_namespace",
        Always,
        "ok = subprocess.run(['unshare', '-U', '/usr/bin/python3', '-c', 'import socket; socket.socket(socket.AF_UNIX)']).returncode == 0",
    ),
    python(
        "datagram_to_the_internet",
        Unproven,
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nok = s.sendto(b'leak', ('192.0.2.1', 53)) > 0",
    ),
    python(
        "broadcast",
        Unproven,
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.setsockopt(1, 6, 1)\nok = s.sendto(b'leak', ('255.255.255.255', 9)) > 0",
    ),
    python("resolve_a_name", Unproven, "ok = bool(socket.getaddrinfo('example.com', 80))"),
    python(
        "echo_request",
        Unproven,
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)\nok = s.sendto(b'\\x08' + bytes(15), ('127.0.0.1', 0)) > 0",
    ),
    shell("bring_an_interface_up", Unproven, "ip link set lo up"),
];
