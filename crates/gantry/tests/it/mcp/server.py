"""An MCP server whose behaviour is scripted, valid or not. Its tools are a file, so that they can change while it runs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

folder = sys.argv[1]
mode = sys.argv[2] if len(sys.argv) > 2 else "good"
out = threading.Lock()
heard = []


def write(text):
    with out:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def say(message):
    write(json.dumps({"jsonrpc": "2.0", **message}))


def note(name, text):
    with open(os.path.join(folder, name), "a") as file:
        file.write(text + "\n")


def tools():
    path = os.path.join(folder, "tools.json")
    if os.path.exists(path):
        with open(path) as file:
            return json.load(file)
    names = ["echo", "sleep", "hang", "die", "flood", "babble", "huge", "child", "env", "heard", "fail", "picture", "progress", "freeze", "read", "bare", "deep"]
    anything = {"type": "object"}
    return [{"name": name, "description": f"the tool {name}", "inputSchema": anything} for name in names]


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def call(number, name, arguments, meta):
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "send":
        with urllib.request.urlopen(arguments["url"], timeout=5) as answer:
            return text(answer.read().decode())
    if name == "sleep":
        time.sleep(arguments.get("seconds", 1))
        return text("slept")
    if name == "hang":
        threading.Event().wait()
    if name == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
        # Another thread may be the one that stops first.
        time.sleep(1)
    if name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "flood":
        while True:
            say({"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}})
    if name == "babble":
        while True:
            write("this is not a message")
    if name == "huge":
        with out:
            while True:
                sys.stdout.write("x" * 1000000)
    if name == "child":
        child = subprocess.Popen(["setsid", "sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return text(str(child.pid))
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "read":
        try:
            return text(open(arguments["path"]).read())
        except OSError as err:
            return text(type(err).__name__)
    if name == "heard":
        return text(json.dumps(heard))
    if name == "bare":
        say({"id": number})
        threading.Event().wait()
    if name == "deep":
        write('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":%s%s}}}' % (number, "[" * 200, "]" * 200))
        threading.Event().wait()
    if name == "structured":
        return {**text("see structure"), **arguments}
    if name == "fail":
        return {**text("it did not work"), "isError": True}
    if name == "picture":
        return {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}
    if name == "progress":
        for step in range(1, 4):
            say({"method": "notifications/progress", "params": {"progressToken": meta["progressToken"], "progress": step, "total": 3, "message": arguments.get("message", "")}})
            time.sleep(0.3)
        return text("done")
    return text("called " + name)


def answer(message):
    number, method, params = message["id"], message["method"], message.get("params", {})
    if method == "initialize":
        say({"id": number, "result": {"protocolVersion": "1999-01-01" if mode == "ancient" else params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "fake", "version": "1"}}})
    elif method == "tools/list":
        say({"id": number, "result": {"tools": tools()}})
    elif method == "tools/call":
        say({"id": number, "result": call(number, params["name"], params.get("arguments", {}), params.get("_meta", {}))})
    elif method == "ping":
        say({"id": number, "result": {}})
    else:
        say({"id": number, "error": {"code": -32601, "message": "there is no " + method}})


def watch():
    """Says that the tools have changed whenever the file does."""
    path, seen = os.path.join(folder, "tools.json"), None
    while True:
        now = os.stat(path).st_mtime_ns if os.path.exists(path) else None
        if seen is not None and now != seen:
            say({"method": "notifications/tools/list_changed"})
        seen = now if now is not None else 0
        time.sleep(0.05)


note("pids", str(os.getpid()))
if mode == "crash":
    print("cannot find the database", file=sys.stderr, flush=True)
    sys.exit(7)
if mode == "nonsense":
    while True:
        write("Welcome to the wonderful server!")
        time.sleep(0.001)
if mode == "mute":
    threading.Event().wait()
if mode == "greeting":
    write("starting up, please wait")
threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    heard.append({"method": message.get("method"), "params": message.get("params")})
    if "id" in message and "method" in message:
        threading.Thread(target=answer, args=(message,), daemon=True).start()
    elif message.get("method") == "notifications/cancelled":
        note("cancelled", json.dumps(message["params"]))
