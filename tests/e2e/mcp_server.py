"""A server of the official Python SDK over stdio, for tests."""

import asyncio
import os

from mcp.server import MCPServer

server = MCPServer("own")
waits = {"begun": 0, "cancelled": 0}


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def big(size: int) -> str:
    return "x" * size


@server.tool()
async def wait() -> str:
    waits["begun"] += 1
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        waits["cancelled"] += 1
        raise
    return "waited"


@server.tool()
def waited() -> str:
    return f"{waits['begun']} begun, {waits['cancelled']} cancelled"


@server.tool()
def die() -> str:
    os._exit(3)


server.run("stdio")
