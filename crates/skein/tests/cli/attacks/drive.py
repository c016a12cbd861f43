"""Tries attacks one after another and writes `name=yes`, `name=no`, `name=absent` or `name=skip` for each.

Usage: drive.py ATTACKS RESULT. ATTACKS is a JSON file with `attacks` (name, language, text), `calls` (numbers of system
calls) and `targets` (the targets of the attacks). Runs inside a worker, and outside of one as a control.
"""
import ctypes, errno, fcntl, glob, json, mmap, os, pty, re, signal, socket, struct, subprocess, sys, termios, time

# The time limit of one attack, in seconds.
PATIENCE = 10
libc = ctypes.CDLL(None, use_errno=True)


class Absent(Exception):
    """The kernel does not have what the attack is about."""


class Missing(Exception):
    """The test could not make the target of the attack."""


class Targets(dict):
    def __getattr__(self, name):
        if not self.get(name):
            raise Missing(name)
        return self[name]


def call(name, *arguments):
    """A raw system call."""
    if name not in CALLS:
        raise Absent(name)
    return raw(CALLS[name], *arguments)


def raw(number, *arguments):
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result == -1:
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EOPNOTSUPP):
            raise Absent(os.strerror(code))
        raise OSError(code, os.strerror(code))
    return result


def works(name, *arguments):
    return call(name, *arguments) >= 0


def considered(name, *arguments):
    """Whether the kernel looks at the arguments, which make no sense, at all."""
    try:
        call(name, *arguments)
    except OSError as error:
        return error.errno != errno.EPERM
    return True


def opens(path, flags=os.O_WRONLY):
    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))
    return True


def reads(path, text="", size=65536):
    with open(path, "rb") as file:
        found = file.read(size)
    return bool(found) and text.encode() in found


def makes(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(path)
    return True


def family(number, kind=socket.SOCK_RAW, protocol=0):
    """Whether there is a socket of a family. Those of protocols that the kernel does not have are absent."""
    try:
        return works("socket", number, kind, protocol)
    except OSError as error:
        if error.errno in (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT):
            raise Absent(str(error))
        raise


def connects(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.connect(path)
    return True


def terminal_input(descriptor, request=termios.TIOCSTI):
    """Types into a terminal."""
    try:
        with open("/proc/sys/dev/tty/legacy_tiocsti") as setting:
            if setting.read().strip() == "0" and os.geteuid() != 0:
                raise Absent("TIOCSTI")
    except FileNotFoundError:
        pass
    return works("ioctl", descriptor, request, ctypes.create_string_buffer(b"#"))


def terminal():
    return os.open(T.terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)


def new_session():
    """Goes on in a child: the first process of a group cannot begin a session."""
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    os.setsid()


def own_terminal():
    """A new terminal that controls the session of this process."""
    new_session()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    return slave


def status(field):
    with open("/proc/self/status") as file:
        return int(re.search(rf"^{field}:\s*(\w+)", file.read(), re.M).group(1), 16)


def machine_code(code):
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def attempt(attack):
    text = attack["text"]
    if attack["language"] == "sh":
        for name in re.findall(r"\$T_(\w+)", text):
            getattr(T, name)
        variables = {f"T_{name}": str(value) for name, value in T.items()}
        done = subprocess.run(["bash", "-c", text], env={**os.environ, **variables}, stdin=subprocess.DEVNULL)
        return done.returncode == 0
    names = dict(globals())
    exec(text, names)
    return names["ok"]


def keep_mounts_apart():
    """Gives root mounts of its own for one attack, so that a control changes nothing of the machine."""
    if os.geteuid() == 0:
        call("unshare", 0x20000)
        if libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) != 0:
            raise OSError("mounts are shared")


def verdict(attack):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            if os.environ.get("ATTACK_CONTROL"):
                keep_mounts_apart()
            # A background process that writes to the terminal would be stopped by a signal.
            for number in (signal.SIGTTOU, signal.SIGTTIN):
                signal.signal(number, signal.SIG_IGN)
            code = 0 if attempt(attack) else 1
        except Missing:
            code = 2
        except Absent:
            code = 3
        except BaseException as error:
            print(attack["name"], repr(error), file=sys.stderr)
        sys.stderr.flush()
        os._exit(code)
    end = time.monotonic() + PATIENCE
    while True:
        found, how = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            how = os.waitpid(pid, 0)[1]
            break
        time.sleep(0.002)
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    return {0: "yes", 2: "skip", 3: "absent"}.get(os.waitstatus_to_exitcode(how), "no")


with open(sys.argv[1]) as file:
    asked = json.load(file)
CALLS, T = asked["calls"], Targets(asked["targets"])
try:
    with open(os.path.join(T["project"], "terminal")) as file:
        T["terminal"] = file.read().strip()
except FileNotFoundError:
    pass
results = open(sys.argv[2], "w")
for attack in asked["attacks"]:
    results.write(f"{attack['name']}={verdict(attack)}\n")
    results.flush()
