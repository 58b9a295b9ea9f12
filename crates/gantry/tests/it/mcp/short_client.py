"""Initializes, lists and calls over one transport; prints what it saw as one line of JSON.

Arguments: the library (`sdk` is the old Python SDK, `fastmcp`), the transport, and the program or the address.
"""

import asyncio
import json
import os
import sys

LIBRARY, TRANSPORT, TARGET = sys.argv[1:4]
HEADERS = {"Authorization": "Bearer " + os.environ.get("TOKEN", "")}


def text(content):
    return "".join(block.text for block in content if block.type == "text")


async def with_sdk():
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    if TRANSPORT == "stdio":
        parameters = StdioServerParameters(command=TARGET, args=["mcp"], env=dict(os.environ))
        transport = stdio_client(parameters)
    else:
        transport = streamablehttp_client(TARGET, headers=HEADERS)
    async with transport as streams, ClientSession(streams[0], streams[1]) as session:
        about = await session.initialize()
        tools = await session.list_tools()
        read = await session.call_tool("Read", {"path": "a.txt"})
        return {
            "revision": about.protocolVersion,
            "tools": [tool.name for tool in tools.tools],
            "read": text(read.content),
        }


async def with_fastmcp():
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    if TRANSPORT == "stdio":
        transport = StdioTransport(command=TARGET, args=["mcp"], env=dict(os.environ), cwd=os.getcwd())
    else:
        transport = StreamableHttpTransport(TARGET, headers=HEADERS)
    async with Client(transport) as client:
        tools = await client.list_tools()
        read = await client.call_tool("Read", {"path": "a.txt"})
        return {"tools": [tool.name for tool in tools], "read": text(read.content)}


print(json.dumps(asyncio.run(with_sdk() if LIBRARY == "sdk" else with_fastmcp())))
