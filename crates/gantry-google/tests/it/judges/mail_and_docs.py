"""Gmail and Docs, as Google's own client library uses them."""

import base64
import sys
from email import message_from_bytes, policy
from email.message import EmailMessage

from client import service
from googleapiclient.errors import HttpError

base, token, received, document = sys.argv[1:]
gmail = service(base, token, "gmail", "v1").users()
messages = gmail.messages()


def raw(subject, **headers):
    message = EmailMessage()
    message["To"] = "bob@b.example"
    message["Subject"] = subject
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content("Grüße\n")
    message.add_attachment(b"\x00\x01", maintype="application", subtype="pdf", filename="a.pdf")
    return base64.urlsafe_b64encode(message.as_bytes()).decode()


def refused(request, status):
    try:
        request.execute()
    except HttpError as err:
        assert err.resp.status == status, err
        return
    raise AssertionError("it was accepted")


# Reading: Python's own reader gets the same parts from the whole message.
whole = messages.get(userId="me", id=received, format="raw").execute()
parsed = message_from_bytes(base64.urlsafe_b64decode(whole["raw"]), policy=policy.default)
full = messages.get(userId="me", id=received, format="full").execute()
parts = full["payload"]["parts"]
assert [part["mimeType"] for part in parts] == [part.get_content_type() for part in parsed.iter_parts()]
assert parts[1]["filename"] == "plan.pdf"
body = messages.attachments().get(userId="me", messageId=received, id=parts[1]["body"]["attachmentId"]).execute()
assert base64.urlsafe_b64decode(body["data"]) == list(parsed.iter_attachments())[0].get_content()
metadata = messages.get(userId="me", id=received, format="metadata", metadataHeaders=["Subject"]).execute()
assert [header["name"] for header in metadata["payload"]["headers"]] == ["Subject"]

# Searching, with pages.
page = messages.list(userId="me", q="is:unread", maxResults=1).execute()
assert len(page["messages"]) == 1
assert "messages" not in messages.list(userId="me", q="from:nobody").execute()

# Sending: a thread needs its id, its references and its subject.
sent = messages.send(userId="me", body={"raw": raw("Hello")}).execute()
assert sent["labelIds"] == ["SENT"]
subject = "Re: Plan"
reply = raw(subject, References="<m2@c.example>", In_Reply_To="<m2@c.example>")
assert messages.send(userId="me", body={"raw": reply, "threadId": received}).execute()["threadId"] == received
apart = messages.send(userId="me", body={"raw": raw("Other"), "threadId": received}).execute()
assert apart["threadId"] != received
thread = gmail.threads().get(userId="me", id=received, format="minimal").execute()
assert len(thread["messages"]) == 2
refused(messages.send(userId="me", body={"raw": "!!!"}), 400)
refused(messages.send(userId="me", body={}), 400)
refused(messages.get(userId="me", id="18c0ffffffffffff"), 404)
draft = gmail.drafts().create(userId="me", body={"message": {"raw": raw("Draft")}}).execute()
assert draft["message"]["labelIds"] == ["DRAFT"]
modified = messages.modify(userId="me", id=received, body={"removeLabelIds": ["UNREAD"]}).execute()
assert modified["labelIds"] == ["INBOX"]
labels = gmail.labels().list(userId="me").execute()["labels"]
assert all("messagesTotal" not in label for label in labels)
assert gmail.labels().get(userId="me", id="INBOX").execute()["messagesTotal"] == 1

# Docs: indexes count UTF-16 units, and requests are applied together or not at all.
docs = service(base, token, "docs", "v1").documents()
created = docs.create(body={"title": "New"}).execute()
assert created["body"]["content"][-1]["endIndex"] == 2
requests = [
    {"insertText": {"location": {"index": 1}, "text": "a𝄞b\n\tc"}},
    {"updateTextStyle": {"range": {"startIndex": 2, "endIndex": 4}, "textStyle": {"bold": True}, "fields": "bold"}},
    {"createParagraphBullets": {"range": {"startIndex": 6, "endIndex": 8}, "bulletPreset": "NUMBERED_DECIMAL_ALPHA_ROMAN"}},
    {"insertTable": {"rows": 2, "columns": 2, "location": {"index": 1}}},
    {"insertText": {"location": {"index": 5}, "text": "cell"}},
]
docs.batchUpdate(documentId=created["documentId"], body={"requests": requests}).execute()
content = docs.get(documentId=created["documentId"]).execute()["body"]["content"]
table = content[2]["table"]
assert (table["rows"], table["columns"]) == (2, 2)
first = table["tableRows"][0]["tableCells"][0]["content"][0]["paragraph"]["elements"][0]["textRun"]["content"]
assert first == "cell\n"
runs = content[3]["paragraph"]["elements"]
assert [run["textRun"]["content"] for run in runs] == ["a", "𝄞", "b\n"]
assert runs[1]["textRun"]["textStyle"] == {"bold": True}
assert content[4]["paragraph"]["bullet"]["nestingLevel"] == 1
text = docs.get(documentId=document).execute()
update = {"requests": [{"insertText": {"location": {"index": 1}, "text": "x"}}]}
update["writeControl"] = {"requiredRevisionId": text["revisionId"]}
docs.batchUpdate(documentId=document, body=update).execute()
refused(docs.batchUpdate(documentId=document, body=update), 400)
broken = [update["requests"][0], {"insertText": {"location": {"index": 999}, "text": "y"}}]
refused(docs.batchUpdate(documentId=document, body={"requests": broken}), 400)
again = docs.get(documentId=document, includeTabsContent=True).execute()
body = again["tabs"][0]["documentTab"]["body"]["content"]
assert body[1]["paragraph"]["elements"][0]["textRun"]["content"] == "xfirst\n", body
print("ok")
