"""Uses a server with pywa, and reads the webhook requests that it makes. Arguments: the API's address, the id of the phone
number, the token, the app secret, a folder with bodies of webhook requests, and the id of a file."""

import hashlib
import hmac
import json
import pathlib
import sys

import httpx
from pywa import WhatsApp, errors
from pywa.types import Button, Section, SectionList, SectionRow
from pywa.types.templates import BodyText, TemplateLanguage

api, phone, token, app_secret, folder, file_id = sys.argv[1:]


class ToServer(httpx.HTTPTransport):
    """pywa always calls graph.facebook.com; its requests go to the server instead."""

    def handle_request(self, request):
        server = httpx.URL(api)
        if request.url.host == "graph.facebook.com":
            request.url = request.url.copy_with(scheme="http", host=server.host, port=server.port)
        return super().handle_request(request)


def client(**options):
    options = {"token": token} | options
    return WhatsApp(phone_id=phone, session=httpx.Client(transport=ToServer()), api_version=26.0, **options)


wa = client()
number = wa.get_business_phone_number()
assert (number.verified_name, number.display_phone_number) == ("Gantry", "+1 555-000-1111"), number

sent = wa.send_message("DE.13491208655302741918", "hello", preview_url=False, reply_to_message_id="wamid.1", tracker="k1")
assert sent.id.startswith("wamid."), sent
wa.send_message("491701234567", "to a number")
wa.send_message("DE.13491208655302741918", "Run?", buttons=[Button("Yes", "q:1:0"), Button("No", "q:1:1")])
rows = [SectionRow(title="One", callback_data="q:1:0", description="the first"), SectionRow(title="Two", callback_data="q:1:1")]
wa.send_message("DE.13491208655302741918", "Which?", buttons=SectionList("Choose", sections=[Section(title="Answers", rows=rows)]))
wa.send_template("DE.13491208655302741918", "agent_notice", TemplateLanguage.ENGLISH_US, [BodyText.params("a text")])
wa.send_document("DE.13491208655302741918", b"data", filename="a.txt", mime_type="text/plain", caption="see")
wa.mark_message_as_read("wamid.1")
wa.indicate_typing("wamid.1")

media = wa.get_media_url(file_id)
assert (media.mime_type, media.file_size) == ("image/png", 4), media
assert wa.get_media_bytes(media.url) == b"PNG!"

for call, error in [
    (lambda: client(token="EAAwrong").send_message("DE.13491208655302741918", "x"), errors.ExpiredAccessToken),
    (lambda: wa.send_message("DE.13491208655302741918", "x" * 5000), errors.InvalidParameter),
    (lambda: wa.send_message("DE.13491208655302741918", "x", buttons=[Button("t" * 30, "a")]), errors.InvalidParameter),
    (lambda: wa.send_document("DE.13491208655302741918", b"x", filename="a.exe", mime_type="application/x-dosexec"), errors.MediaUploadError),
]:
    try:
        call()
    except error:
        pass
    else:
        raise AssertionError(error)

# The bodies of webhook requests, as pywa reads them from Meta.
hook = client(server=None, app_secret=app_secret, verify_token="verify-SECRET", filter_updates=True)
seen = []


@hook.on_message
def on_message(_, message):
    reply = message.reply_to_message.message_id if message.reply_to_message else None
    seen.append(("message", message.from_user.bsuid, message.type.value, message.text, message.forwarded, reply))


@hook.on_callback_button
def on_button(_, press):
    seen.append(("button", press.from_user.bsuid, press.data, press.title))


@hook.on_callback_selection
def on_row(_, press):
    seen.append(("row", press.from_user.bsuid, press.data, press.title))


@hook.on_message_status
def on_status(_, status):
    seen.append(("status", status.id, status.status.value, status.tracker, status.error.code if status.error else None))


for path in sorted(pathlib.Path(folder).iterdir()):
    body = path.read_bytes()
    signature = "sha256=" + hmac.new(app_secret.encode(), body, hashlib.sha256).hexdigest()
    assert hook.webhook_update_validator(body, signature) is None, path
    assert hook.webhook_update_validator(body, "sha256=" + "0" * 64) is not None, path
    text, status = hook.webhook_update_handler(body)
    assert status == 200, (path, text, status)

print(json.dumps(seen))
print("ok")
