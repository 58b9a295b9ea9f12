"""An MCP server over HTTP that wants a login, and the authorization server that gives out its tokens, in one program.

Prints its address. Every request is checked as a strict server would; what was wrong is answered with 400 and its reason.
"""

import base64
import hashlib
import json
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlparse

mode = sys.argv[1] if len(sys.argv) > 1 else "good"
lifetime = 2 if mode == "short" else 3600
clients, codes, access, refresh, log = {}, {}, set(), {}, []
lock = threading.Lock()
# In the mode "sessions": which are open, how a request of another one is refused, and the tools that ran.
sessions, refusal, ran = set(), "null", []
REFUSALS = {
    "null": (400, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request: no valid session"}}'),
    "other": (400, '{"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "unknown"}}'),
    "text": (400, "unknown session"),
    "gone": (404, "not found"),
}
# Answers that are none, by the tool that gives them.
BAD = {
    "bare": (200, "application/json", '{"jsonrpc": "2.0", "id": NUMBER}'),
    "nonsense": (200, "application/json", "this is not a message"),
    "page": (200, "text/html", "<p>hello</p>"),
    "event": (200, "text/event-stream", 'data: {"jsonrpc": "2.0", "id": NUMBER}\n\n'),
    "deep": (200, "text/event-stream", 'data: {"jsonrpc": "2.0", "id": NUMBER, "result": ' + "[" * 200 + "]" * 200 + "}\n\n"),
    "failure": (500, "application/json", "{}"),
    "idless": (400, "application/json", '{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no"}}'),
    "invalid": (400, "application/json", '{"jsonrpc": "2.0", "id": NUMBER, "error": {"code": -32602, "message": "no"}}'),
    "odd": (400, "text/plain", "that was too much"),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def origin(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, status, body, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self):
        url = urlparse(self.path)
        origin = self.origin()
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            resource = "http://evil.example/mcp" if mode == "mismatch" else origin + "/mcp"
            return self.answer(200, {"resource": resource, "authorization_servers": [origin], "scopes_supported": ["tools"]})
        if url.path == "/.well-known/oauth-authorization-server":
            return self.answer(200, {
                "issuer": origin, "authorization_endpoint": origin + "/authorize", "token_endpoint": origin + "/token",
                "registration_endpoint": origin + "/register", "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            })
        if url.path == "/authorize":
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            client = clients.get(query.get("client_id"))
            wrong = None
            if client is None or query.get("redirect_uri") not in client["redirect_uris"]:
                wrong = "unknown client or redirect"
            elif query.get("code_challenge_method") != "S256" or not query.get("code_challenge"):
                wrong = "no PKCE"
            elif query.get("resource") != origin + "/mcp" or query.get("scope") != "tools" or len(query.get("state", "")) < 20:
                wrong = "no resource, scope or state"
            if wrong:
                return self.answer(400, {"error": wrong})
            back = {"state": query["state"], "iss": "http://evil.example" if mode == "mixup" else origin}
            if mode == "refuse":
                back.update(error="access_denied", error_description="not today")
            else:
                code = secrets.token_urlsafe(16)
                codes[code] = query
                back["code"] = code
            return self.answer(302, b"", [("Location", query["redirect_uri"] + "?" + urlencode(back))])
        if url.path.startswith("/restart/"):
            global refusal
            refusal = url.path.removeprefix("/restart/")
            sessions.clear()
            return self.answer(200, ran)
        if url.path == "/log":
            return self.answer(200, log)
        return self.answer(405 if url.path == "/mcp" else 404, {})

    def do_POST(self):
        with lock:
            self.post()

    def post(self):
        body = self.body()
        if self.path == "/register":
            about = json.loads(body)
            number = secrets.token_urlsafe(8)
            clients[number] = about
            return self.answer(201, {**about, "client_id": number})
        if self.path == "/token":
            return self.token({name: values[0] for name, values in parse_qs(body.decode()).items()})
        if self.path == "/mcp":
            return self.mcp(json.loads(body))
        return self.answer(404, {})

    def token(self, form):
        log.append(form["grant_type"])
        if form.get("resource") != self.origin() + "/mcp" or form.get("client_id") not in clients:
            return self.answer(400, {"error": "invalid_request", "error_description": "no resource or client"})
        if form["grant_type"] == "authorization_code":
            query = codes.pop(form.get("code"), None)
            proof = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
            if query is None or proof != query["code_challenge"] or form.get("redirect_uri") != query["redirect_uri"]:
                return self.answer(400, {"error": "invalid_grant", "error_description": "the code is not good"})
        elif form["grant_type"] == "refresh_token":
            if refresh.pop(form.get("refresh_token"), None) is None:
                return self.answer(400, {"error": "invalid_grant", "error_description": "used before"})
        access.clear()
        token, again = "access-" + secrets.token_urlsafe(16), "refresh-" + secrets.token_urlsafe(16)
        access.add(token)
        refresh[again] = True
        return self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": lifetime, "refresh_token": again})

    def mcp(self, message):
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if given not in access and mode not in ("open", "sessions"):
            challenge = f'Bearer resource_metadata="{self.origin()}/.well-known/oauth-protected-resource/mcp"'
            return self.answer(401, {"error": "invalid_token"}, [("WWW-Authenticate", challenge)])
        method, number = message.get("method"), message.get("id")
        headers = []
        if mode == "sessions":
            if method == "initialize":
                session = secrets.token_urlsafe(8)
                sessions.add(session)
                headers = [("Mcp-Session-Id", session)]
            elif method != "server/discover" and self.headers.get("Mcp-Session-Id") not in sessions:
                status, text = REFUSALS[refusal]
                return self.answer(status, text.encode())
        if number is None:
            return self.answer(202, b"")
        if method == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "private", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ["whoami", "forget", *BAD]]}
        elif method == "tools/call":
            name = message["params"]["name"]
            ran.append(name)
            if name == "forget":
                access.clear()
            if name in BAD:
                status, kind, text = BAD[name]
                return self.answer(status, text.replace("NUMBER", str(number)).encode(), [("Content-Type", kind)])
            result = {"content": [{"type": "text", "text": "you are " + given}]}
        else:
            return self.answer(200, {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "there is none"}})
        return self.answer(200, {"jsonrpc": "2.0", "id": number, "result": result}, headers)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
server.serve_forever()
