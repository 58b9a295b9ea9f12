"""llama.cpp's server with one model. So small a model does not think of tools by itself: where a user has the last word, it has to
call one. What it calls it with, and what it says of the result, is its own."""

import json
import sys

import uvicorn
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings

model, port = sys.argv[1], int(sys.argv[2])
# More threads are slower where others work too.
settings = ModelSettings(
    model=model, model_alias="small", n_ctx=8192, n_threads=1, n_threads_batch=1, chat_format="chatml-function-calling", verbose=False
)
app = create_app(server_settings=ServerSettings(host="127.0.0.1", port=port), model_settings=[settings])


async def choosing(scope, receive, send):
    if scope["type"] != "http" or not scope["path"].endswith("/chat/completions"):
        return await app(scope, receive, send)
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    asked = json.loads(body)
    if asked.get("tools") and asked["messages"][-1]["role"] == "user":
        asked["tool_choice"] = {"type": "function", "function": {"name": asked["tools"][0]["function"]["name"]}}
    body = json.dumps(asked).encode()
    names = (b"content-length",)
    headers = [header for header in scope["headers"] if header[0] not in names]
    scope = {**scope, "headers": headers + [(b"content-length", str(len(body)).encode())]}
    sent = False

    async def replay():
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    await app(scope, replay, send)


uvicorn.run(choosing, host="127.0.0.1", port=port, log_level="error")
