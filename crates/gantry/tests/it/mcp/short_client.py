"""Initializes, lists and calls over one transport; prints what it saw as one line of JSON.

Arguments: the library (`sdk` is an old Python SDK, `fastmcp`, `langchain`, `agents` is OpenAI's Agents SDK), the
transport, and the program or the address. The Agents SDK runs an agent with the model at MODEL_URL.
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

    if TRANSPORT == "stdio":
        parameters = StdioServerParameters(command=TARGET, args=["mcp"], env=dict(os.environ))
        transport = stdio_client(parameters)
    else:
        from mcp.client.streamable_http import streamablehttp_client

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


async def with_langchain():
    from langchain_mcp_adapters.client import MultiServerMCPClient

    if TRANSPORT == "stdio":
        server = {"transport": "stdio", "command": TARGET, "args": ["mcp"], "env": dict(os.environ)}
    else:
        server = {"transport": "streamable_http", "url": TARGET, "headers": HEADERS}
    tools = await MultiServerMCPClient({"gantry": server}).get_tools()
    reads = next(tool for tool in tools if tool.name == "Read")
    read = await reads.ainvoke({"path": "a.txt"})
    return {"tools": [tool.name for tool in tools], "read": read if isinstance(read, str) else read[0]["text"]}


async def with_agents():
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    # Results as text; the model rejects them as lists of parts.
    as_text = {"use_structured_content": True}
    if TRANSPORT == "stdio":
        stdio = {"command": TARGET, "args": ["mcp"], "env": dict(os.environ)}
        server = MCPServerStdio(params=stdio, **as_text)
    else:
        server = MCPServerStreamableHttp(params={"url": TARGET, "headers": HEADERS}, **as_text)
    client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key=os.environ["MODEL_KEY"])
    model = OpenAIChatCompletionsModel(model="scripted-1", openai_client=client)
    async with server:
        tools = await server.list_tools()
        settings = ModelSettings(max_tokens=1000, include_usage=True)
        agent = Agent(name="reader", model=model, model_settings=settings, mcp_servers=[server])
        run = Runner.run_streamed(agent, "What does a.txt say?")
        async for _ in run.stream_events():
            pass
        return {"tools": [tool.name for tool in tools], "read": run.final_output}


WITH = {"sdk": with_sdk, "fastmcp": with_fastmcp, "langchain": with_langchain, "agents": with_agents}
print(json.dumps(asyncio.run(WITH[LIBRARY]())))
