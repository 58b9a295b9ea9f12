"""A small client: it calls one tool and prints the answer, and progress on standard error.

Usage: GANTRY_TOKEN=… python3 client.py ws://127.0.0.1:7770/ws TOOL '{"text": "hi"}' [DEADLINE_MS] [CANCEL_AFTER_MS]
"""

import asyncio
import json
import os
import sys

from wire import Link, Refused


def hear(event, data):
    print(json.dumps({"event": event, "data": data}), file=sys.stderr, flush=True)


async def main(url, tool, given, deadline_ms=None, cancel_after_ms=None):
    params = {
        "protocol": {"min": 1, "max": 2},
        "role": "client",
        "id": "python",
        "version": "0.1",
        "platform": "linux-x64",
        "token": os.environ["GANTRY_TOKEN"],
    }
    try:
        link, _ = await Link.open(url, params, hear=hear)
        running = asyncio.create_task(link.run())
        asking = link.request("tool.call", {"tool": tool, "input": json.loads(given)}, deadline_ms and int(deadline_ms))
        if cancel_after_ms:
            number = link.next_id
            asyncio.get_running_loop().call_later(
                int(cancel_after_ms) / 1000, lambda: link.send({"type": "cancel", "id": number})
            )
        print(json.dumps(await asking))
        running.cancel()
        return 0
    except Refused as refused:
        print(json.dumps({"error": refused.error}))
        return 1


sys.exit(asyncio.run(main(*sys.argv[1:])))
