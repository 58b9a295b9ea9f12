"""Reads mails with Google's client library, as the example `reads` of gantry-google does. Prints milliseconds."""

import base64
import re
import sys
import time

import google_auth_httplib2
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.http import build_http

base, token, count, *ids = sys.argv[1:]


class ToServer(google_auth_httplib2.AuthorizedHttp):
    """Sends every request to the server that both sides read from."""

    def request(self, uri, *args, **kwargs):
        return super().request(re.sub(r"^https://[a-z]+\.googleapis\.com", base, uri), *args, **kwargs)


http = ToServer(Credentials(token), http=build_http())
messages = build("gmail", "v1", http=http, static_discovery=True).users().messages()
started = time.perf_counter()
for number in range(int(count)):
    message = messages.get(userId="me", id=ids[number % len(ids)], format="full").execute()
    text = base64.urlsafe_b64decode(message["payload"]["body"]["data"]).decode()
    assert "ordinary mail" in text
print((time.perf_counter() - started) * 1000)
