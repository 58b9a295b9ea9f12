"""Gantry's WebSocket protocol in Python, written from docs/protocol.md with the standard library only."""

import asyncio
import base64
import hashlib
import json
import os
import struct
import time
from urllib.parse import urlsplit

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PING_EVERY = 15
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Closed(Exception):
    """The connection is over; the text says why."""


class Refused(Exception):
    """The other side answered with an error."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]
        self.error = error


class WebSocket:
    """A client's end of a WebSocket over plain TCP."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, url):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        key = base64.b64encode(os.urandom(16))
        head = (
            f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n"
        )
        writer.write(head.encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in answer[1:] if ": " in line)
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        if " 101 " not in answer[0] or headers.get("sec-websocket-accept") != accept.lower():
            raise Closed(f"no WebSocket there: {answer[0]}")
        return cls(reader, writer)

    def send(self, kind, payload):
        mask = os.urandom(4)
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | length)
        elif length < 65536:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, length)
        repeated = (mask * (length // 4 + 1))[:length]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")
        self.writer.write(head + mask + masked)

    async def receive(self):
        """The next message as kind and payload; pings are answered."""
        whole, kind = b"", None
        while True:
            first, second = await self.reader.readexactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", await self.reader.readexactly(8))
            payload = await self.reader.readexactly(length)
            opcode = first & 0x0F
            if opcode == PING:
                self.send(PONG, payload)
                return PING, payload
            if opcode == PONG:
                return PONG, payload
            if opcode == CLOSE:
                raise Closed(payload[2:].decode(errors="replace") or "closed")
            kind = opcode or kind
            whole += payload
            if first & 0x80:
                return kind, whole

    def cut(self):
        """As if the cable were pulled."""
        self.writer.transport.abort()


class Link:
    """Requests and events in both directions, after `connect`."""

    def __init__(self, socket, answer, hear):
        # `answer(method, params, deadline_ms, cancelled)` gives a result or raises Refused; `hear(event, data)` listens.
        self.socket, self.answer, self.hear = socket, answer, hear
        self.next_id, self.next_seq = 1, 1
        self.pending, self.serving = {}, {}
        self.heard = time.monotonic()

    @classmethod
    async def open(cls, url, params, answer=None, hear=None):
        """Dials and introduces itself. Gives the link and the result of `connect`."""
        link = cls(await WebSocket.dial(url), answer, hear)
        link.send({"type": "req", "id": 0, "method": "connect", "params": params})
        kind, payload = PING, b""
        while kind != TEXT:
            kind, payload = await asyncio.wait_for(link.socket.receive(), 10)
        frame = json.loads(payload)
        if not frame["ok"]:
            raise Refused(frame["error"])
        return link, frame["result"]

    def send(self, frame):
        self.socket.send(TEXT, json.dumps(frame).encode())

    async def request(self, method, params, deadline_ms=None):
        number, self.next_id = self.next_id, self.next_id + 1
        answer = asyncio.get_running_loop().create_future()
        self.pending[number] = answer
        frame = {"type": "req", "id": number, "method": method, "params": params}
        if deadline_ms is not None:
            frame["deadlineMs"] = deadline_ms
        self.send(frame)
        try:
            return await answer
        except asyncio.CancelledError:
            self.send({"type": "cancel", "id": number})
            raise
        finally:
            self.pending.pop(number, None)

    def event(self, name, data):
        self.send({"type": "evt", "event": name, "seq": self.next_seq, "data": data})
        self.next_seq += 1

    async def run(self):
        """Reads until the connection is over, then raises Closed."""
        pinging = asyncio.create_task(self._ping())
        try:
            while True:
                kind, payload = await self.socket.receive()
                self.heard = time.monotonic()
                if kind == TEXT:
                    self._dispatch(json.loads(payload))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Closed(str(error)) from error
        finally:
            pinging.cancel()
            for answer in self.pending.values():
                if not answer.done():
                    answer.set_exception(Closed("the connection was lost"))
            self.socket.cut()

    async def _ping(self):
        while True:
            await asyncio.sleep(PING_EVERY)
            if time.monotonic() - self.heard > 2 * PING_EVERY:
                self.socket.cut()
            self.socket.send(PING, b"")

    def _dispatch(self, frame):
        if frame["type"] == "res":
            answer = self.pending.get(frame["id"])
            if answer and not answer.done():
                if frame["ok"]:
                    answer.set_result(frame.get("result"))
                else:
                    answer.set_exception(Refused(frame["error"]))
        elif frame["type"] == "req":
            cancelled = asyncio.Event()
            self.serving[frame["id"]] = cancelled
            asyncio.create_task(self._serve(frame, cancelled))
        elif frame["type"] == "cancel":
            if frame["id"] in self.serving:
                self.serving[frame["id"]].set()
        elif self.hear:
            self.hear(frame["event"], frame.get("data"))

    async def _serve(self, frame, cancelled):
        try:
            result = await self.answer(frame["method"], frame.get("params") or {}, frame.get("deadlineMs"), cancelled)
            response = {"type": "res", "id": frame["id"], "ok": True, "result": result}
        except Refused as refused:
            response = {"type": "res", "id": frame["id"], "ok": False, "error": refused.error}
        except Exception as error:  # A fault in a tool is told, and ends nothing else.
            told = {"code": "internal", "message": str(error), "retryable": False}
            response = {"type": "res", "id": frame["id"], "ok": False, "error": told}
        self.serving.pop(frame["id"], None)
        self.send(response)
