"""A bridge between Gantry and a "chat service" of lines, written from docs/channels.md alone.

Each line on standard input is one JSON object, {"inbound": {...}} or {"press": {...}}; the answer of the gateway is printed.
Messages of the gateway are printed as {"send": {...}}. A real bridge would speak IRC or XMPP in place of the lines.

Usage: bridge.py URL NAME, with the token in GANTRY_TOKEN. Needs aiohttp.
"""

import asyncio
import json
import os
import sys

import aiohttp


class Bridge:
    def __init__(self, socket):
        self.socket = socket
        self.next_id = 1
        self.waiting = {}
        # The messages that were sent, by key: the gateway may repeat one after a lost connection.
        self.sent = {}

    async def request(self, method, params):
        number, self.next_id = self.next_id, self.next_id + 1
        answer = self.waiting[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"type": "req", "id": number, "method": method, "params": params})
        return await answer

    async def receive(self):
        async for message in self.socket:
            if message.type != aiohttp.WSMsgType.TEXT:
                continue
            frame = json.loads(message.data)
            if frame["type"] == "res":
                self.waiting.pop(frame["id"]).set_result(frame)
            elif frame["type"] == "req":
                await self.answer(frame)

    async def answer(self, frame):
        if frame["method"] != "channel.send":
            error = {"code": "unknown_method", "message": "a bridge answers channel.send"}
            return await self.socket.send_json({"type": "res", "id": frame["id"], "ok": False, "error": error})
        params = frame["params"]
        if params["key"] not in self.sent:
            self.sent[params["key"]] = f"m{len(self.sent) + 1}"
            print(json.dumps({"send": params, "messageId": self.sent[params["key"]]}), flush=True)
        result = {"status": "sent", "messageId": self.sent[params["key"]]}
        await self.socket.send_json({"type": "res", "id": frame["id"], "ok": True, "result": result})

    async def lines(self):
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await reader.readline():
            wanted = json.loads(line)
            kind = "inbound" if "inbound" in wanted else "press"
            answer = await self.request(f"channel.{kind}", wanted[kind])
            print(json.dumps({"answer": answer.get("result") or answer.get("error")}), flush=True)


async def main(url, name):
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        bridge = Bridge(socket)
        receiving = asyncio.create_task(bridge.receive())
        connected = await bridge.request("connect", {
            "protocol": {"min": 1, "max": 2},
            "role": "channel",
            "id": name,
            "version": "1",
            "platform": "linux-x64",
            "token": os.environ["GANTRY_TOKEN"],
        })
        if not connected["ok"]:
            sys.exit(connected["error"]["message"])
        opened = await bridge.request("channel.open", {"id": name})
        if not opened["ok"]:
            sys.exit(opened["error"]["message"])
        print(json.dumps({"connected": name}), flush=True)
        lines = asyncio.create_task(bridge.lines())
        await asyncio.wait({receiving, lines}, return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
