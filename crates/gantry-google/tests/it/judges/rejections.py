import json
import sys

import httplib2

base, token = sys.argv[1:3]
http = httplib2.Http()


def rejected(method, path, body=None, bearer=token):
    headers = {"Authorization": f"Bearer {bearer}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    response, content = http.request(base + path, method, json.dumps(body) if body is not None else None, headers)
    error = json.loads(content)["error"]
    return response.status, error["errors"][0]["reason"], error["message"]


def check(expected, text, *call):
    status, reason, message = rejected(*call)
    assert (status, reason) == expected and text in message, (call, status, reason, message)


events = "/calendar/v3/calendars/primary/events"
start = {"start": {"dateTime": "2026-11-19T12:00:00Z"}, "end": {"dateTime": "2026-11-19T13:00:00Z"}}
check((401, "authError"), "Invalid Credentials", "GET", events, None, "other")
check((404, "notFound"), "no API has", "GET", "/calendar/v3/nothing")
check((400, "badRequest"), 'Unknown name "maxResult"', "GET", events + "?maxResult=1")
check((400, "badRequest"), "an integer", "GET", events + "?maxResults=many")
check((400, "badRequest"), "a time with an offset", "GET", events + "?timeMin=2026-11-18T09:00:00")
check((400, "badRequest"), "one of", "POST", events + "?sendUpdates=some", start)
check((400, "badRequest"), 'Unknown name "titel"', "POST", events, {**start, "titel": "x"})
check((400, "badRequest"), "not a list", "POST", events, {**start, "attendees": "bob@example.com"})
check((400, "invalid"), "Invalid resource id", "POST", events, {**start, "id": "XYZ-1"})
check((400, "badRequest"), "token was sent", "GET", events + "?access_token=x")
# A token that may change events may not ask for busy times, and one that reads files may not share them.
check((403, "insufficientPermissions"), "insufficient", "POST", "/calendar/v3/freeBusy", {})
check((403, "insufficientPermissions"), "insufficient", "POST", "/drive/v3/files/x/permissions", {})
check((400, "invalid"), "Invalid Value", "GET", "/drive/v3/files?q=budget")
check((403, "insufficientPermissions"), "insufficient", "POST", "/upload/drive/v3/files?uploadType=media", {})
print("ok")
