"""Speaks with agents by OpenAI's own client; prints what it saw as one line of JSON."""

import json
import os
import sys

import openai
from openai import OpenAI

BASE, TOKEN = sys.argv[1], os.environ["TOKEN"]


def error_of(call):
    try:
        call()
    except openai.APIError as err:
        status = getattr(err, "status_code", None)
        return {"type": type(err).__name__, "status": status, "code": err.code, "message": str(err)}
    return {"type": None}


def ask(client, text, model="main", **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=model, messages=messages, **more)


def streamed(client, text, **more):
    with ask(client, text, stream=True, stream_options={"include_usage": True}, **more) as stream:
        chunks = list(stream)
    said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    return {
        "text": "".join(said),
        "pieces": len([piece for piece in said if piece]),
        "finish": [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
        "ids": len({chunk.id for chunk in chunks}),
        "total": chunks[-1].usage.total_tokens,
    }


def whole(client, text, **more):
    answer = ask(client, text, **more)
    choice = answer.choices[0]
    return {
        "text": choice.message.content,
        "finish": choice.finish_reason,
        "role": choice.message.role,
        "model": answer.model,
        "total": answer.usage.total_tokens,
    }


# With the retries that it makes by itself.
client = OpenAI(base_url=BASE, api_key=TOKEN)
stranger = OpenAI(base_url=BASE, api_key="not-the-token")
kept = {"extra_headers": {"Gantry-Session": "kept"}}
helper = client.chat.completions.stream(model="main", messages=[{"role": "user", "content": "which file?"}])
with helper as stream:
    events = [event.type for event in stream]
    final = stream.get_final_completion().choices[0].message.content
print(
    json.dumps(
        {
            "models": [model.id for model in client.models.list()],
            "one": client.models.retrieve("main").id,
            "whole": whole(client, "which file?"),
            "streamed": streamed(client, "which file?"),
            "helper": {"events": sorted(set(events)), "final": final},
            "first": whole(client, "I like blue", **kept),
            "second": whole(client, "what do I like?", **kept),
            "unauthorized": error_of(lambda: ask(stranger, "hello")),
            "no_list": error_of(lambda: stranger.models.list()),
            "unknown": error_of(lambda: ask(client, "hello", model="mian")),
            "unknown_one": error_of(lambda: client.models.retrieve("mian")),
            "tools": error_of(lambda: ask(client, "hello", tools=[{"type": "function", "function": {"name": "x"}}])),
            "failed": error_of(lambda: ask(client, "write and fail")),
            "failed_streamed": error_of(lambda: list(ask(client, "write and fail", stream=True))),
        }
    )
)
