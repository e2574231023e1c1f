"""One script on one connection, under a shell of its own, until both are at their end."""

from __future__ import annotations

import asyncio
import socket

import trio

from proto.script import Script
from shells import trio_shell, uvloop_shell
from shells.env import Env
from shells.sides import prepare


async def by_uvloop(script: Script[None], client: socket.socket, env: Env) -> None:
    """Run a script in the running loop."""
    shell = uvloop_shell.Shell(asyncio.get_running_loop(), env)
    try:
        prepare(client)
        shell.start(lambda _: script, client)
        await shell.idle()
    finally:
        shell.close()


async def by_trio(script: Script[None], client: socket.socket, env: Env) -> None:
    """Run a script in the running `trio.run`."""
    async with trio.open_nursery() as nursery:
        shell = trio_shell.Shell(nursery, env)
        try:
            prepare(client)
            shell.start(lambda _: script, client)
            await shell.idle()
        finally:
            shell.close()
