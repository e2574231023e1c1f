"""The official Python client of MCP against the tools of a sandbox, run inside it.

    mcp_client.py MODE   legacy: the handshake of older revisions; auto: the current one

It prints a line of JSON for each thing it saw.
"""

import asyncio
import json
import os
import sys

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError


def told(**what):
    print(json.dumps(what), flush=True)


async def call(client, name, arguments, **more):
    try:
        found = await client.call_tool(name, arguments, **more)
    except MCPError as error:
        return {"error": error.code, "message": error.message}
    return {"text": found.content[0].text if found.content else "", "is_error": found.is_error}


async def told_by(client, due):
    """Ask the server of the calls that wait until it says what is due; return what it says."""
    for _ in range(200):
        said = await call(client, "waited", {})
        if said.get("text") == due:
            break
        await asyncio.sleep(0.1)
    return said


async def everything(mode):
    steps = []

    async def progressed(done, total, message):
        steps.append([done, total])

    async with Client(os.environ["LNK_TOOL_EVERYTHING"], mode=mode) as client:
        told(what="version", version=client.protocol_version)
        listed = await client.list_tools()
        told(what="tools", names=[tool.name for tool in listed.tools])
        told(what="allowed", **await call(client, "echo", {"message": "hello"}))
        told(what="approved", **await call(client, "get-sum", {"a": 2, "b": 3}))
        told(what="refused", **await call(client, "get-sum", {"a": 4, "b": 5}))
        long = {"duration": 1, "steps": 4}
        found = await call(
            client, "trigger-long-running-operation", long, progress_callback=progressed
        )
        told(what="progress", steps=steps, **found)
        try:
            await asyncio.wait_for(
                call(client, "trigger-long-running-operation", {"duration": 60, "steps": 2}), 1
            )
        except TimeoutError:
            told(what="cancelled")
        told(what="after", **await call(client, "echo", {"message": "still"}))
        read = await client.list_resources()
        told(what="resources", count=len(read.resources))
    async with Client(os.environ["LNK_TOOL_MODERN"], mode=mode) as client:
        told(what="own version", version=client.protocol_version)
        told(what="own", **await call(client, "add", {"a": 1, "b": 2}))
        async with asyncio.TaskGroup() as calls:
            waits = calls.create_task(call(client, "wait", {}))
            await told_by(client, "1 begun, 0 cancelled")
            waits.cancel()
        told(what="stopped", waited=await told_by(client, "1 begun, 1 cancelled"))
        big = await call(client, "big", {"size": 2_000_000})
        told(what="big", size=len(big["text"]))
        told(what="dying", **await call(client, "die", {}))
        told(what="risen", **await call(client, "add", {"a": 3, "b": 4}))


asyncio.run(everything(sys.argv[1]))
assert streamable_http_client
