//! The user's terminal: typing into it, reading from it, writing to it, taking it over.

use super::{
    Attack,
    Control::{Always, Never, Unproven},
    python, shell,
};

pub(crate) const ATTACKS: &[Attack] = &[
    python("open_controlling_terminal", Always, "ok = os.open('/dev/tty', os.O_RDWR) >= 0"),
    python("type_into_controlling_terminal", Always, "ok = terminal_input(os.open('/dev/tty', os.O_RDWR))"),
    python("type_into_standard_input", Always, "ok = terminal_input(0)"),
    python("type_into_standard_output", Always, "ok = terminal_input(1)"),
    python("type_into_standard_error", Always, "ok = terminal_input(2)"),
    python("type_into_host_terminal", Always, "ok = terminal_input(terminal())"),
    python(
        "type_with_high_bits_in_the_request",
        Always,
        "ok = terminal_input(own_terminal(), termios.TIOCSTI | 7 << 32)",
    ),
    python("type_into_terminal_of_its_own", Always, "ok = terminal_input(own_terminal())"),
    python(
        "console_request",
        Always,
        "slave = own_terminal()\nok = considered('ioctl', slave, 0x541c, ctypes.create_string_buffer(b'\\x06'))",
    ),
    python(
        "set_clipboard_of_host_terminal",
        Always,
        "ok = os.write(terminal(), b'\\x1b]52;c;Rk9SR0VE\\x07FORGED') > 0",
    ),
    python("write_to_controlling_terminal", Always, "ok = os.write(os.open('/dev/tty', os.O_WRONLY), b'FORGED') > 0"),
    python("read_keystrokes_of_host_terminal", Always, "new_session()\nok = b'key' in os.read(terminal(), 64)"),
    python(
        "read_keystrokes_of_controlling_terminal",
        Always,
        "t = os.open('/dev/tty', os.O_RDWR | os.O_NONBLOCK)\nos.tcsetpgrp(t, os.getpgrp())\nok = b'key' in os.read(t, 64)",
    ),
    python(
        "read_keystrokes_without_writing",
        Always,
        "new_session()\nok = b'key' in os.read(os.open(T.terminal, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), 64)",
    ),
    python(
        "change_settings_without_writing",
        Always,
        "t = os.open(T.terminal, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)\ntermios.tcsetattr(t, termios.TCSANOW, termios.tcgetattr(t))\nok = True",
    ),
    python(
        "type_without_writing",
        Always,
        "ok = terminal_input(os.open(T.terminal, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))",
    ),
    python("look_at_settings_of_host_terminal", Always, "ok = bool(termios.tcgetattr(terminal()))"),
    python(
        "change_settings_of_host_terminal",
        Always,
        "t = terminal()\ntermios.tcsetattr(t, termios.TCSANOW, termios.tcgetattr(t))\nok = True",
    ),
    python(
        "change_size_of_host_terminal",
        Always,
        "fcntl.ioctl(terminal(), termios.TIOCSWINSZ, struct.pack('4H', 7, 7, 0, 0))\nok = True",
    ),
    python("flush_host_terminal", Always, "termios.tcflush(terminal(), termios.TCOFLUSH)\nok = True"),
    python("inherited_terminal", Always, "ok = any(os.isatty(number) for number in range(256))"),
    python(
        "any_terminal_by_number",
        Always,
        "ok = any(opens(path) for path in glob.glob('/dev/pts/[0-9]*') if path == T.terminal)",
    ),
    python(
        "terminal_through_descriptors_of_processes",
        Always,
        "ok = False\nfor link in glob.glob('/proc/[0-9]*/fd/*'):\n  try:\n    ok = ok or (os.readlink(link) == T.terminal and opens(link))\n  except OSError:\n    pass",
    ),
    python(
        "become_owner_of_host_terminal",
        Never,
        "new_session()\nfcntl.ioctl(terminal(), termios.TIOCSCTTY, 1)\nok = True",
    ),
    shell("session_with_host_terminal", Unproven, "setsid -w -c bash -c 'echo FORGED > /dev/tty' < $T_terminal"),
    python(
        "write_to_consoles",
        Unproven,
        "ok = any(os.path.exists(p) and opens(p) for p in ('/dev/console', '/dev/tty0', '/dev/tty1'))",
    ),
    python(
        "read_screens_of_consoles",
        Unproven,
        "ok = any(os.path.exists(p) and opens(p, 0) for p in ('/dev/vcs', '/dev/vcs1'))",
    ),
];
