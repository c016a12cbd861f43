"""The programs of a user beside a run: creates targets that workers must not reach, and prints them as a JSON line.

Usage: outsider.py FOLDER NAME. Ends when its input does, and removes what it created outside FOLDER.
"""
import ctypes, json, os, shutil, socket, subprocess, sys

folder, name = sys.argv[1], sys.argv[2]
home = os.path.join(folder, "home")
libc = ctypes.CDLL(None, use_errno=True)
# If only parents may trace processes, any process may trace this one.
libc.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
made, kept, told = [], [], {"pid": os.getpid(), "group": os.getpgrp()}


def text(path):
    with open(path, "w") as file:
        file.write("outside-secret\n")
    return path


def listener(path, kind=socket.SOCK_STREAM):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(path)
    if kind != socket.SOCK_DGRAM:
        server.listen(64)
    kept.append(server)
    return path


for word, top in (("tmp", "/tmp"), ("var_tmp", "/var/tmp"), ("shm", "/dev/shm")):
    place = os.path.join(top, name)
    os.makedirs(place)
    made.append(place)
    told[f"{word}_file"] = text(os.path.join(place, "secret"))
    told[f"{word}_socket"] = listener(os.path.join(place, "socket"))
told["tmp_datagram"] = listener(os.path.join("/tmp", name, "datagram"), socket.SOCK_DGRAM)
told["tmp_packets"] = listener(os.path.join("/tmp", name, "packets"), socket.SOCK_SEQPACKET)
told["ssh_agent"] = listener(os.path.join("/tmp", name, "agent.1"))
told["home_socket"] = listener(os.path.join(home, "service.socket"))
os.makedirs(os.path.join(home, ".gnupg"))
told["gpg_agent"] = listener(os.path.join(home, ".gnupg", "S.gpg-agent"))
# Sockets whose bound names differ from their paths.
os.symlink(home, os.path.join(folder, "link"))
listener(os.path.join(folder, "link", "linked.socket"))
told["linked_socket"] = os.path.join(home, "linked.socket")
os.chdir(home)
listener("relative.socket")
told["relative_socket"] = os.path.join(home, "relative.socket")
listener(os.path.join(home, "before.socket"))
os.rename("before.socket", "renamed.socket")
told["renamed_socket"] = os.path.join(home, "renamed.socket")
told["workspace_socket"] = listener(os.path.join(folder, "project", "inside", "socket"))
told["abstract_socket"] = listener("\0" + name)[1:]
told["abstract_datagram"] = listener("\0" + name + "-datagram", socket.SOCK_DGRAM)[1:]
for word, kind, address in (
    ("tcp", socket.SOCK_STREAM, "127.0.0.1"),
    ("udp", socket.SOCK_DGRAM, "127.0.0.1"),
    ("tcp6", socket.SOCK_STREAM, "::1"),
):
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        server.bind((address, 0))
    except OSError:
        continue
    if kind == socket.SOCK_STREAM:
        server.listen(64)
    kept.append(server)
    told[word] = server.getsockname()[1]
# System V shared memory, semaphores and message queues.
CREATE = 0o1000 | 0o666
told["shared_memory"] = libc.shmget(0, 4096, CREATE)
told["semaphores"] = libc.semget(0, 1, CREATE)
told["messages"] = libc.msgget(0, CREATE)
queue = ("/" + name).encode()
try:
    librt = ctypes.CDLL("librt.so.1", use_errno=True)
    if librt.mq_open(queue, os.O_CREAT | os.O_RDWR, 0o666, None) >= 0:
        told["queue"] = name
except OSError:
    pass
handle = ctypes.create_string_buffer(b"\x80\0\0\0" + bytes(132), 136)
mount = ctypes.c_int()
if libc.name_to_handle_at(-100, os.path.join(home, "secret").encode(), handle, ctypes.byref(mount), 0) == 0:
    told["handle"] = handle.raw[: 8 + handle.raw[0]].hex()
secret = open(os.path.join(home, "secret"), "rb")
told["descriptor"] = secret.fileno()
buffer = ctypes.create_string_buffer(b"outside-secret")
told["address"] = ctypes.addressof(buffer)
server = os.path.join("/tmp", name, "tmux")
tmux = ["tmux", "-S", server, "-f", "/dev/null"]
subprocess.run([*tmux, "new-session", "-d", "sleep 100000"], check=True)
told["tmux"] = server
print(json.dumps(told), flush=True)
sys.stdin.read()
subprocess.run([*tmux, "kill-server"])
libc.shmctl(told["shared_memory"], 0, None)
libc.semctl(told["semaphores"], 0, 0)
libc.msgctl(told["messages"], 0, None)
if told.get("queue"):
    librt.mq_unlink(queue)
for place in made:
    shutil.rmtree(place, ignore_errors=True)
