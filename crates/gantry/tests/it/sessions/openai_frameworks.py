"""Speaks with an agent through a framework on top of OpenAI's interface; prints what it saw as one line of JSON.

Arguments: the framework (`litellm` or `langchain`) and the base URL.
"""

import json
import os
import sys

FRAMEWORK, BASE = sys.argv[1:3]
TOKEN = os.environ["TOKEN"]


def with_litellm():
    import litellm

    def ask(text, **more):
        messages = [{"role": "user", "content": text}]
        return litellm.completion(model="openai/main", api_base=BASE, api_key=TOKEN, messages=messages, **more)

    def whole(text):
        return ask(text).choices[0].message.content

    def streamed(text):
        return "".join(chunk.choices[0].delta.content or "" for chunk in ask(text, stream=True))

    return whole, streamed


def with_langchain():
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="main", base_url=BASE, api_key=TOKEN)
    return lambda text: model.invoke(text).text, lambda text: "".join(chunk.text for chunk in model.stream(text))


def failure(call):
    try:
        call()
    except Exception as err:
        return {"status": getattr(err, "status_code", None), "message": str(err)}
    return None


whole, streamed = with_litellm() if FRAMEWORK == "litellm" else with_langchain()
print(
    json.dumps(
        {
            "whole": whole("which file?"),
            "streamed": streamed("which file?"),
            "failed": failure(lambda: whole("write and fail")),
        }
    )
)
