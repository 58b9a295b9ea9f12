import io
import sys

from client import service
from googleapiclient.errors import HttpError
from googleapiclient.http import MediaIoBaseDownload, MediaIoBaseUpload, MediaInMemoryUpload

base, token = sys.argv[1:3]


def status(call):
    try:
        call.execute()
    except HttpError as err:
        return err.resp.status, err.error_details[0]["reason"]
    return 200, ""


calendar = service(base, token, "calendar", "v3")
events = calendar.events()
found = events.list(calendarId="primary", singleEvents=True, orderBy="startTime", timeMin="2026-11-17T00:00:00Z").execute()
assert [event["summary"] for event in found["items"]] == ["Standup"], found
body = {
    "id": "abcde12345",
    "summary": "Lunch",
    "start": {"dateTime": "2026-11-19T12:00:00+01:00"},
    "end": {"dateTime": "2026-11-19T13:00:00+01:00"},
    "attendees": [{"email": "bob@example.com"}],
}
made = events.insert(calendarId="primary", sendUpdates="all", body=body).execute()
assert made["id"] == "abcde12345" and made["organizer"]["email"] == "ann@example.com", made
assert status(events.insert(calendarId="primary", body=body)) == (409, "duplicate")
changed = events.patch(calendarId="primary", eventId=made["id"], body={"summary": "Late lunch"}).execute()
assert changed["summary"] == "Late lunch" and changed["attendees"], changed
busy = calendar.freebusy().query(body={
    "timeMin": "2026-11-18T00:00:00Z", "timeMax": "2026-11-20T00:00:00Z",
    "items": [{"id": "primary"}, {"id": "nobody@example.com"}],
}).execute()
assert len(busy["calendars"]["primary"]["busy"]) == 2, busy
assert busy["calendars"]["nobody@example.com"]["errors"][0]["reason"] == "notFound", busy
events.delete(calendarId="primary", eventId=made["id"]).execute()
assert status(events.delete(calendarId="primary", eventId=made["id"]))[0] == 410

drive = service(base, token, "drive", "v3")
files = drive.files()
found = files.list(q="fullText contains 'hello' and trashed=false").execute()
assert [file["name"] for file in found["files"]] == ["notes.txt"] and "parents" not in found["files"][0], found
one = found["files"][0]["id"]
full = files.get(fileId=one, fields="id,parents,owners(emailAddress)").execute()
assert full == {"id": one, "parents": ["root"], "owners": [{"emailAddress": "ann@example.com"}]}, full
buffer = io.BytesIO()
download = MediaIoBaseDownload(buffer, files.get_media(fileId=one))
while not download.next_chunk()[1]:
    pass
assert buffer.getvalue() == b"hello"
made = files.create(body={"name": "a.bin"}, media_body=MediaInMemoryUpload(b"\0\1", mimetype="application/x-data")).execute()
assert made["mimeType"] == "application/x-data", made
content = bytes(range(256)) * 4096
upload = MediaIoBaseUpload(io.BytesIO(content), mimetype="application/x-data", chunksize=256 * 1024, resumable=True)
request = files.create(body={"name": "b.bin"}, media_body=upload)
answer = None
while answer is None:
    _, answer = request.next_chunk()
assert files.get_media(fileId=answer["id"]).execute() == content
doc = files.create(
    body={"name": "Doc", "mimeType": "application/vnd.google-apps.document"},
    media_body=MediaInMemoryUpload(b"<p>x</p>", mimetype="text/html"),
).execute()
assert files.export(fileId=doc["id"], mimeType="text/plain").execute() == b"<p>x</p>"
folder = files.create(body={"name": "F", "mimeType": "application/vnd.google-apps.folder"}).execute()
moved = files.update(fileId=one, addParents=folder["id"], removeParents="root", fields="parents").execute()
assert moved == {"parents": [folder["id"]]}, moved
drive.permissions().create(
    fileId=one, sendNotificationEmail=False, body={"type": "user", "role": "reader", "emailAddress": "bob@example.com"}
).execute()
assert drive.permissions().list(fileId=one).execute()["permissions"][0]["role"] == "reader"
assert len(files.generateIds(count=3).execute()["ids"]) == 3
assert status(files.get(fileId="missing"))[0] == 404
print("ok")
