"""Lists, calls and reads with the Python SDK; prints what it saw as one line of JSON."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import ElicitResult


QUESTIONS = []


async def approve(context, params):
    QUESTIONS.append(params.message)
    return ElicitResult(action="accept", content={"allow": True})


async def look(session):
    await session.initialize()
    tools = (await session.list_tools()).tools
    read = await session.call_tool("Read", {"path": "a.txt"})
    missing = await session.call_tool("Read", {"path": "missing.txt"})
    # Answers are checked against the output schemas by the SDK.
    await session.call_tool("Glob", {"pattern": "*.txt"})
    await session.call_tool("Grep", {"pattern": "python"})
    await session.call_tool("Write", {"path": "b.txt", "content": "x"})
    key = await session.call_tool("Read", {"path": os.environ["KEY"]})
    resource = await session.read_resource("gantry://workspace/SOUL.md")
    print(
        json.dumps(
            {
                "tools": sorted(tool.name for tool in tools),
                "read": read.content[0].text,
                "missing": missing.is_error,
                "asked": QUESTIONS,
                "key": key.content[0].text,
                "resource": resource.contents[0].text,
            }
        )
    )


async def main():
    how, where = sys.argv[1:3]
    if how == "stdio":
        server = StdioServerParameters(command=where, args=["mcp"], env=dict(os.environ))
        async with stdio_client(server) as streams, ClientSession(streams[0], streams[1], elicitation_callback=approve) as session:
            await look(session)
    else:
        client = create_mcp_http_client(headers={"Authorization": "Bearer " + os.environ["TOKEN"]})
        async with client, streamable_http_client(where, http_client=client) as streams:
            async with ClientSession(streams[0], streams[1], elicitation_callback=approve) as session:
                await look(session)


asyncio.run(main())
