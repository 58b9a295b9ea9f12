"""Uses a server with Slack's SDK. Arguments: the API's address, the two tokens, and a file's address."""

import sys
import threading
import urllib.request

from slack_sdk.errors import SlackApiError
from slack_sdk.models.blocks import ActionsBlock, ButtonElement, RichTextBlock, SectionBlock
from slack_sdk.models.blocks.block_elements import RichTextElementParts, RichTextSectionElement
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web import WebClient

api, bot_token, app_token, file_url = sys.argv[1:]
web = WebClient(token=bot_token, base_url=api)

identity = web.auth_test()
assert identity["user_id"] == "UBOT00001", identity
assert "chat:write" in identity.headers["x-oauth-scopes"], identity.headers

events = {}
done = threading.Event()


def listener(client, request):
    events[request.type] = request.payload
    client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
    if len(events) == 2:
        done.set()


socket = SocketModeClient(app_token=app_token, web_client=WebClient(base_url=api))
socket.socket_mode_request_listeners.append(listener)
socket.connect()
assert done.wait(20), events
assert events["events_api"]["event"]["text"] == "<@UBOT00001> hello", events
assert events["interactive"]["actions"][0]["value"] == "q1:yes", events
socket.close()

text = RichTextElementParts.Text(text="hello", style=RichTextElementParts.TextStyle(bold=True))
rich = RichTextBlock(elements=[RichTextSectionElement(elements=[text])])
posted = web.chat_postMessage(
    channel="C00000001",
    thread_ts="1700000001.000100",
    text="hello",
    blocks=[rich, ActionsBlock(elements=[ButtonElement(text="Yes", action_id="a", value="q1:yes")])],
    metadata={"event_type": "gantry_delivery", "event_payload": {"key": "k1"}},
    unfurl_links=False,
)
updated = web.chat_update(channel="C00000001", ts=posted["ts"], text="done", blocks=[])
assert updated["message"]["blocks"] == [], updated
web.chat_postMessage(channel="C00000001", blocks=[SectionBlock(text="*x*")], text="x")
web.chat_postEphemeral(channel="C00000001", user="U00000007", text="only you")

found = web.conversations_replies(channel="C00000001", ts="1700000001.000100", include_all_metadata=True)
assert found["messages"][0]["metadata"]["event_payload"]["key"] == "k1", found
hidden = web.conversations_replies(channel="C00000001", ts="1700000001.000100")
assert "metadata" not in hidden["messages"][0], hidden
assert web.users_info(user="U00000007")["user"]["real_name"] == "Ada Lovelace"

web.files_upload_v2(channel="C00000001", filename="a.txt", content="data", initial_comment="see")

for call, code in [
    (lambda: web.chat_postMessage(channel="CGONE0001", text="x"), "channel_not_found"),
    (lambda: web.chat_postMessage(channel="C00000001", text=""), "no_text"),
    (lambda: web.chat_postMessage(channel="C00000001", text="x", blocks=[{"type": "nonsense"}]), "invalid_blocks"),
    (lambda: WebClient(token="xoxb-wrong", base_url=api).auth_test(), "invalid_auth"),
    (lambda: WebClient(token=bot_token, base_url=api).apps_connections_open(app_token=bot_token), "not_allowed_token_type"),
]:
    try:
        call()
    except SlackApiError as error:
        assert error.response["error"] == code, error
    else:
        raise AssertionError(code)

request = urllib.request.Request(file_url, headers={"Authorization": f"Bearer {bot_token}"})
assert urllib.request.urlopen(request).read() == b"PNG"
print("ok")
