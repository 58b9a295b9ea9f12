import json
import os
import sys

import google.auth.transport.requests
import requests
from google.auth.exceptions import RefreshError
from google.oauth2 import service_account
from google_auth_oauthlib.flow import Flow

os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
os.environ["OAUTHLIB_RELAX_TOKEN_SCOPE"] = "1"
base, client_id, client_secret, key_file = sys.argv[1:5]
transport = google.auth.transport.requests.Request()

# A desktop client with PKCE.
config = {"installed": {
    "client_id": client_id, "client_secret": client_secret,
    "auth_uri": base + "/o/oauth2/v2/auth", "token_uri": base + "/token",
}}
scopes = ["openid", "https://www.googleapis.com/auth/userinfo.email", "https://www.googleapis.com/auth/calendar.readonly"]
flow = Flow.from_client_config(config, scopes=scopes, redirect_uri="http://127.0.0.1:9/", autogenerate_code_verifier=True)
url, _ = flow.authorization_url(access_type="offline", prompt="consent", include_granted_scopes="true")
back = requests.get(url, allow_redirects=False)
assert back.status_code == 302, (back.status_code, back.text)
flow.fetch_token(authorization_response=back.headers["Location"])
credentials = flow.credentials
before = credentials.token
assert credentials.refresh_token and set(credentials.granted_scopes) == set(scopes), credentials.granted_scopes
credentials.refresh(transport)
assert credentials.token != before
assert requests.get(
    base + "/calendar/v3/calendars/primary/events", headers={"Authorization": "Bearer " + credentials.token}
).status_code == 200
assert requests.post(base + "/revoke", data={"token": credentials.refresh_token}).status_code == 200
try:
    credentials.refresh(transport)
    raise SystemExit("a revoked grant was refreshed")
except RefreshError as err:
    assert "invalid_grant" in str(err), err

# A service account, with and without delegation.
info = json.load(open(key_file))
robot = service_account.Credentials.from_service_account_info(
    {**info, "token_uri": base + "/token"}, scopes=["https://www.googleapis.com/auth/calendar.readonly"]
)
robot.refresh(transport)
assert robot.token
robot.with_subject("ann@example.com").refresh(transport)
try:
    robot.with_subject("eve@example.com").refresh(transport)
    raise SystemExit("a user without delegation")
except RefreshError as err:
    assert "unauthorized_client" in str(err), err
print("ok")
