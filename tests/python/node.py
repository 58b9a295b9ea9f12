"""A small node: it joins a gateway, offers two tools, and keeps its calls over lost connections.

Usage: GANTRY_TOKEN=… python3 node.py ws://127.0.0.1:7770/ws ID

Says on standard output, as JSON lines, what happens. A line `cut` on its standard input cuts the connection, `quit` ends it.
"""

import asyncio
import json
import os
import random
import sys
import uuid

from wire import Closed, Link, Refused

TOOLS = [
    {
        "name": "Echo",
        "description": "Gives back the text it was given.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        "annotations": {"readOnly": True, "destructive": False, "idempotent": True, "openWorld": False},
    },
    {
        "name": "Wait",
        "description": "Waits, and says how far it is.",
        "inputSchema": {
            "type": "object",
            "properties": {"ms": {"type": "integer", "minimum": 0}},
            "required": ["ms"],
            "additionalProperties": False,
        },
        "annotations": {"readOnly": True, "destructive": False, "idempotent": True, "openWorld": False},
    },
]


def say(**what):
    print(json.dumps(what), flush=True)


class Call:
    """One call, whichever connections it is asked and answered over."""

    def __init__(self, work):
        self.cancelled = asyncio.Event()
        self.work = asyncio.create_task(work(self))


class Node:
    def __init__(self, url, name, token):
        self.url, self.name, self.token = url, name, token
        self.instance = str(uuid.uuid4())
        self.calls = {}
        self.link = None

    async def live(self):
        """Connects again and again, with a random pause that grows."""
        pause = 1.0
        while True:
            try:
                await self.connection()
            except Refused as refused:
                say(event="refused", code=refused.code)
                if refused.code == "unauthorized":
                    return
            except (Closed, OSError, asyncio.TimeoutError) as lost:
                say(event="lost", reason=str(lost))
            if self.link is not None:
                pause, self.link = 1.0, None
            await asyncio.sleep(random.uniform(0, pause))
            pause = min(pause * 2, 60.0)

    async def connection(self):
        hello = {
            "instance": self.instance,
            "tools": {tool["name"]: ["shell.exec"] for tool in TOOLS},
            "hostCapabilities": ["shell.exec"],
            "calls": list(self.calls),
        }
        params = {
            "protocol": {"min": 1, "max": 2},
            "role": "node",
            "id": self.name,
            "version": "0.1",
            "platform": "linux-x64",
            "token": self.token,
            "node": hello,
        }
        link, result = await Link.open(self.url, params, self.answer, self.hear)
        for call in set(hello["calls"]) - set(result["wanted"]):
            self.calls.pop(call).cancelled.set()
        self.link = link
        running = asyncio.create_task(link.run())
        try:
            await link.request("node.tools", {"tools": TOOLS})
            say(event="joined", calls=hello["calls"], wanted=result["wanted"])
        finally:
            await running

    def hear(self, event, data):
        if event == "tool.ack":
            for call in data["callIds"]:
                if self.calls.pop(call, None):
                    say(event="acknowledged", call=call)

    async def answer(self, method, params, deadline_ms, cancelled):
        if method != "tool.call":
            raise refused("unknown_method", f"there is no method {method}")
        call = self.calls.get(params["callId"])
        if call is None:
            call = self.calls[params["callId"]] = Call(lambda call: self.run(call, params))
        watching = asyncio.create_task(pass_on(cancelled, call.cancelled))
        if deadline_ms is not None:
            asyncio.get_running_loop().call_later(deadline_ms / 1000, call.cancelled.set)
        try:
            return await asyncio.shield(call.work)
        finally:
            watching.cancel()

    async def run(self, call, params):
        tool, given = params["tool"], params["input"]
        say(event="began", call=params["callId"], tool=tool)
        if tool == "Echo":
            return {"tool": tool, "json": {"text": given["text"], "by": "python"}}
        waited = 0
        while waited < given["ms"]:
            step = min(100, given["ms"] - waited)
            try:
                await asyncio.wait_for(call.cancelled.wait(), step / 1000)
            except asyncio.TimeoutError:
                waited += step
                if self.link is not None:
                    data = {"call": params["callId"], "done": waited, "total": given["ms"], "message": "ms"}
                    self.link.event("call.progress", data)
                continue
            say(event="cancelled", call=params["callId"])
            raise refused("cancelled", "cancelled")
        return {"tool": tool, "json": {"waited": waited}}


def refused(code, message):
    return Refused({"code": code, "message": message, "retryable": False})


async def pass_on(cancelled, to):
    await cancelled.wait()
    to.set()


async def obey(node):
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := (await reader.readline()).decode().strip():
        if line == "cut" and node.link is not None:
            node.link.socket.cut()
        if line == "quit":
            return


async def main():
    node = Node(sys.argv[1], sys.argv[2], os.environ["GANTRY_TOKEN"])
    tasks = [asyncio.create_task(node.live()), asyncio.create_task(obey(node))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


asyncio.run(main())
