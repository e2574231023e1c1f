"""What `wrap` prints for a proxy without a sandbox of its own: before its program, or alone."""

from __future__ import annotations

import json
import os

from sandbox.cli.wrap import check_length, proxy_of, without_secrets, write
from sandbox.errors import LaunchError
from sandbox.linux import apart
from sandbox.linux.own import find_own
from sandbox.linux.plan import wire_of
from sandbox.state import settings_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.confinement import Proxy, WrapRequest

SECRET_BYTES = 16


def wrap_unwalled(request: WrapRequest, *, explain: bool, as_json: bool) -> int:
    """Print the command that runs a program as it is under its proxy, or what that would do."""
    unwalled = request.unwalled
    assert unwalled is not None
    state = settings_folder()
    wire = _wire(unwalled.name, unwalled.proxy, state, "unwalled")
    secret = os.urandom(SECRET_BYTES).hex()
    command, env = apart.before(unwalled, wire, find_own(), request.argv, secret)
    if explain:
        at = f"127.0.0.1:{unwalled.proxy.listen or 'a port that is free'}"
        what = f"no wall: {unwalled.name} runs as it is, and nothing holds it to its proxy"
        text = _explained(what, at, wire, env, as_json=as_json)
        print(without_secrets(text, (secret, unwalled.proxy.secret)))
        return 0
    return _print(request, "unwalled", unwalled.name, command, env, state)


def wrap_held(request: WrapRequest, *, explain: bool, as_json: bool) -> int:
    """Print the command of a proxy that stands for sandboxes started apart, or what it would do."""
    confinement, proxy = request.confinement, proxy_of(request)
    assert confinement is not None
    assert proxy is not None
    real = os.path.realpath(proxy.dir)
    for path in (*confinement.write, *confinement.read):
        if f"{real}/".startswith(f"{os.path.realpath(path)}/"):
            # Whoever writes there puts a socket of its own in the proxy's place.
            raise LaunchError(
                "dir", 0, f"the proxy's dir {proxy.dir} lies in {path}, which is shown: name a "
                "folder outside of what read and write name.",
            )  # fmt: skip
    state = settings_folder()
    wire = _wire(confinement.name, proxy, state, "held")
    wire["serve"] = list(dict.fromkeys(proxy.serve))
    command, env = apart.alone(proxy, wire, find_own())
    if explain:
        what = f"{confinement.name}: a proxy alone, for sandboxes that reach its folder"
        text = _explained(what, f"{proxy.dir}/out.sock", wire, env, as_json=as_json)
        print(without_secrets(text, (proxy.secret,)))
        return 0
    return _print(request, "confinement", confinement.name, command, env, state)


def _wire(name: str, proxy: Proxy, state: str, by: str) -> dict[str, object]:
    return wire_of(name, proxy, os.path.join(state, "sandbox", "log"), state, by)


def _print(
    request: WrapRequest, key: str, name: str, command: list[str], env: dict[str, str], state: str
) -> int:
    check_length(command, key)
    text = json.dumps({"argv": command, "env": env})
    write(request, name, state)  # the last thing that can be refused, and all we write
    print(text)
    return 0


def _explained(
    what: str, at: str, wire: dict[str, object], env: dict[str, str], *, as_json: bool
) -> str:
    """Return the plan of a proxy without a sandbox, as a person reads it, or as JSON."""
    if as_json:
        plan = {"plan": what, "environment": env, "listens": at, "proxy": wire}
        return json.dumps(plan, indent=2)
    lines = [f"  {name}={value}" for name, value in env.items()] or ["  as it is"]
    told = (f"  {name}: {value}" for name, value in wire.items())
    return "\n".join([what, "", "environment", *lines, "", "proxy", f"  {at}", *told])
