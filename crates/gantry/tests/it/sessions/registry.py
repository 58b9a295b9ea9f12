# The registries of crates, npm and PyPI with one small package each, over TLS.
import base64, hashlib, http.server, io, json, os, ssl, sys, tarfile, zipfile

def archive(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()

def wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as files:
        files.writestr("tiny.py", "ANSWER = 42\n")
        files.writestr("tiny-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n")
        files.writestr("tiny-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files.writestr("tiny-1.0.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.0.dist-info/METADATA,,\ntiny-1.0.0.dist-info/WHEEL,,\ntiny-1.0.0.dist-info/RECORD,,\n")
    return out.getvalue()

crate = archive({
    "tiny-1.0.0/Cargo.toml": '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n',
    "tiny-1.0.0/src/lib.rs": "pub const ANSWER: u32 = 42;\n",
})
module = archive({
    "package/package.json": '{"name": "tiny", "version": "1.0.0"}',
    "package/index.js": "module.exports = 42;\n",
})
python = wheel()
sha256 = lambda data: hashlib.sha256(data).hexdigest()
version = {"name": "tiny", "version": "1.0.0", "dist": {
    "tarball": "https://registry.npmjs.org/tiny/-/tiny-1.0.0.tgz",
    "shasum": hashlib.sha1(module).hexdigest(),
    "integrity": "sha512-" + base64.b64encode(hashlib.sha512(module).digest()).decode(),
}}
entry = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": sha256(crate), "features": {}, "yanked": False}
PAGES = {
    ("index.crates.io", "/config.json"): json.dumps({"dl": "https://static.crates.io/crates", "api": "https://crates.io"}).encode(),
    ("index.crates.io", "/ti/ny/tiny"): (json.dumps(entry) + "\n").encode(),
    ("static.crates.io", "/crates/tiny/1.0.0/download"): crate,
    ("registry.npmjs.org", "/tiny"): json.dumps({"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}).encode(),
    ("registry.npmjs.org", "/tiny/-/tiny-1.0.0.tgz"): module,
    ("pypi.org", "/simple/tiny/"): ('<a href="https://files.pythonhosted.org/packages/tiny-1.0.0-py3-none-any.whl#sha256=%s">tiny-1.0.0-py3-none-any.whl</a>' % sha256(python)).encode(),
    ("files.pythonhosted.org", "/packages/tiny-1.0.0-py3-none-any.whl"): python,
}

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = PAGES.get((self.headers["Host"], self.path))
        self.send_response(200 if body else 404)
        if self.path.startswith("/simple"):
            self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
with open(sys.argv[3] + ".new", "w") as port:
    port.write(str(server.server_port))
os.rename(sys.argv[3] + ".new", sys.argv[3])
server.serve_forever()
