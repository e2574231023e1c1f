"""What asks the socket maker, as the launcher and its proxy do: run as somebody, it prints JSON.

Arguments: the folder of our packages, bubblewrap.  Standard library and ours alone.
"""

import json
import os
import socket
import subprocess
import sys

folder, bwrap = sys.argv[1:3]
sys.path.append(folder)

from sandbox.linux import keeper, socket_maker  # noqa: E402

PROGRAM = """
import socket, sys
taken = socket.socket(); taken.bind(("127.0.0.1", 7000)); taken.listen()
print("ready", flush=True)
def said(port):
    with socket.create_connection(("127.53.0.1", port), 20) as made:
        return made.recv(100).decode()
sys.stdin.readline()
print(said(5432), flush=True)
peer, _ = taken.accept()
print(peer.recv(100).decode(), flush=True)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(20)
udp.sendto(b"question", ("127.0.0.1", 53))
print(udp.recv(100).decode(), flush=True)
sys.stdin.read()
"""


def refused(what, *arguments):
    """Return the errno's name of what a request raises."""
    try:
        os.close(what(*arguments))
    except OSError as error:
        return error.strerror
    return "made"


told, info = os.pipe()
ours, its = socket_maker.pair()
pid, life = keeper.fork(told, (info, ours), lambda: socket_maker.maker(its, 40781, [], int))
os.close(its)
os.close(told)
os.set_inheritable(info, True)
program = subprocess.Popen(
    [bwrap, "--unshare-user", "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "--cap-drop",
     "ALL", "--info-fd", str(info), "--", sys.executable, "-I", "-S", "-c", PROGRAM],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=(info,),
)  # fmt: skip
os.close(info)
inside = socket_maker.MakerClient(ours)
first = socket.socket(fileno=inside.first())
found = {"first": first.getsockname()}
print_ready = program.stdout.readline()

listener = socket.socket(fileno=inside.listener("127.53.0.1", 5432))
found["listens"] = listener.getsockname()
found["cloexec"] = not os.get_inheritable(listener.fileno())
found["blocks"] = os.get_blocking(listener.fileno())
found["taken"] = refused(inside.listener, "127.0.0.1", 7000)
found["outside"] = refused(inside.listener, "0.0.0.0", 7001)
found["port"] = refused(inside.listener, "127.0.0.1", 70000000)
found["name"] = refused(inside.listener, "127.example.com", 1)
found["strange"] = refused(inside._made, "raw", "127.0.0.1", 1)
found["long"] = refused(inside._made, "tcp", "127.0.0.1" + "0" * 60, 1)
udp = socket.socket(fileno=inside._made("udp", "127.0.0.1", 53))
found["udp"] = udp.getsockname()

program.stdin.write("\n")
program.stdin.flush()
listener.settimeout(20)
peer, _ = listener.accept()
peer.sendall(b"to the endpoint")
peer.close()
found["accepted"] = program.stdout.readline().strip()
into = socket.socket(fileno=inside.connector("127.0.0.1"))
into.settimeout(20)
into.connect(("127.0.0.1", 7000))
into.sendall(b"from outside")
found["connected in"] = program.stdout.readline().strip()
udp.settimeout(20)
question, client = udp.recvfrom(100)
udp.sendto(b"answer to " + question, client)
found["asked"] = program.stdout.readline().strip()
with open(f"/proc/{pid}/status") as status:
    found["state"] = next(line.split()[1] for line in status if line.startswith("State"))
found["held"] = (
    sum(
        os.readlink(f"/proc/{pid}/fd/{n}").startswith("socket:")
        for n in os.listdir(f"/proc/{pid}/fd")
    )
    if os.geteuid() == 0
    else 1
)
if len(sys.argv) > 3:  # the maker ends first
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    found["ended"] = refused(inside.listener, "127.53.0.1", 5433)
    program.kill()
else:
    os.close(life)  # the launcher's end
    os.waitpid(pid, 0)
program.wait()
print(json.dumps(found))
