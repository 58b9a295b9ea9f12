"""Google's client library, with every request sent to the server under test."""

import re

import google_auth_httplib2
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.http import build_http


class Redirected(google_auth_httplib2.AuthorizedHttp):
    """Uploads ignore the configured endpoint, so the host is replaced here."""

    def __init__(self, token, base):
        super().__init__(Credentials(token), http=build_http())
        self.base = base

    def request(self, uri, *args, **kwargs):
        return super().request(re.sub(r"^https://[a-z]+\.googleapis\.com", self.base, uri), *args, **kwargs)


def service(base, token, name, version):
    return build(name, version, http=Redirected(token, base), static_discovery=True)
