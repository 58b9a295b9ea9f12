//! A real Matrix homeserver on this machine, without federation and without rate limits that tests would meet.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const SECRET: &str = "registration-secret";
const UP: Duration = Duration::from_secs(60);

/// `Synapse` is a homeserver process. It ends with its test.
pub struct Synapse {
    child: Option<Child>,
    folder: tempfile::TempDir,
    port: u16,
}

impl Synapse {
    /// Starts a homeserver. It needs `target/mcp/venv-matrix`, which `cargo xtask setup` installs.
    pub fn start() -> Synapse {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::write(folder.path().join("homeserver.yaml"), config(folder.path(), port)).unwrap();
        let mut synapse = Synapse { child: None, folder, port };
        synapse.resume();
        synapse
    }

    /// Kills the process. Its data stay.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the process again with its data, at the same port.
    pub fn resume(&mut self) {
        let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mcp/venv-matrix/bin/python");
        let log = std::fs::File::create(self.folder.path().join("stderr")).unwrap();
        let mut child = Command::new(python)
            .args(["-m", "synapse.app.homeserver", "-c", "homeserver.yaml"])
            .current_dir(self.folder.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("synapse is needed for this test: run `cargo xtask setup`");
        let until = Instant::now() + UP;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > until {
                let _ = child.kill();
                let log = std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
                panic!("synapse does not listen: {ended:?}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child = Some(child);
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Creates an account and logs it in. Returns its id and its access token.
    pub fn register(&self, name: &str) -> (String, String) {
        let (_, answer) = self.call("GET", "/_synapse/admin/v1/register", "", None);
        let nonce = answer["nonce"].as_str().unwrap().to_owned();
        let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mcp/venv-matrix/bin/python");
        let script = "import hmac,hashlib,sys; print(hmac.new(sys.argv[1].encode(), '\\0'.join(sys.argv[2:]).encode(), hashlib.sha1).hexdigest())";
        let output = Command::new(python)
            .args(["-c", script, SECRET, &nonce, name, "password", "notadmin"])
            .output()
            .unwrap();
        let mac = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let request =
            json!({"nonce": nonce, "username": name, "password": "password", "admin": false, "mac": mac});
        let (status, answer) = self.call("POST", "/_synapse/admin/v1/register", "", Some(&request));
        assert_eq!(status, 200, "{answer}");
        let text = |field: &str| answer[field].as_str().unwrap().to_owned();
        (text("user_id"), text("access_token"))
    }

    /// Makes a request of the client-server API. `path` starts after `/_matrix/client/v3`.
    pub fn client(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(method, &format!("/_matrix/client/v3{path}"), token, body.as_ref());
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// Makes any request, and returns its status and JSON.
    pub fn call(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let (status, answer) = self.raw(method, path, token, "application/json", body.as_bytes());
        (status, serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Makes a request with any body, and returns status and body.
    pub fn raw(&self, method: &str, path: &str, token: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the answer has a head");
        let head = String::from_utf8_lossy(&answer[..end]);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        (status, answer[end + 4..].to_vec())
    }
}

impl Drop for Synapse {
    fn drop(&mut self) {
        self.stop();
    }
}

fn config(folder: &Path, port: u16) -> String {
    let limits = ["message", "registration", "joins_per_room", "admin_redaction", "media_create"]
        .map(|name| format!("rc_{name}: {{per_second: 1000, burst_count: 1000}}\n"))
        .concat();
    let folder = folder.display();
    let rate = "{per_second: 1000, burst_count: 1000}";
    format!(
        "server_name: gantry.test\npid_file: {folder}/pid\nreport_stats: false\nsuppress_key_server_warning: true\n\
         listeners:\n- port: {port}\n  bind_addresses: ['127.0.0.1']\n  type: http\n  resources: [{{names: [client]}}]\n\
         database: {{name: sqlite3, args: {{database: {folder}/homeserver.db}}}}\n\
         media_store_path: {folder}/media\nsigning_key_path: {folder}/signing.key\n\
         registration_shared_secret: {SECRET}\nmacaroon_secret_key: macaroon\nform_secret: form\n\
         trusted_key_servers: []\nfederation_domain_whitelist: []\nmax_upload_size: 10M\n{limits}\
         rc_joins: {{local: {rate}, remote: {rate}}}\n\
         rc_invites: {{per_room: {rate}, per_user: {rate}, per_issuer: {rate}}}\n\
         rc_login: {{address: {rate}, account: {rate}, failed_attempts: {rate}}}\n\
         presence: {{enabled: false}}\n"
    )
}
