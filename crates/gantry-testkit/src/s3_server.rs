//! A real S3-compatible server on this machine, running for one test.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gantry_store::S3Config;

/// `S3Server` is an `s3s-fs` process with one bucket.
pub struct S3Server {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl S3Server {
    /// Starts a server with one bucket. It needs `s3s-fs`, which `cargo xtask setup` installs.
    pub fn start() -> S3Server {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bucket")).unwrap();
        // The port may be taken before the server binds it; then another one is tried.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = Command::new("s3s-fs")
                .args(["--host", "127.0.0.1", "--port", &port.to_string()])
                .args(["--access-key", "test-key", "--secret-key", "test-secret"])
                .arg(folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("s3s-fs is needed for this test: run `cargo xtask setup`");
            let until = Instant::now() + Duration::from_secs(10);
            while Instant::now() < until && child.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return S3Server { child, folder, port };
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("s3s-fs does not listen");
    }

    pub fn config(&self) -> S3Config {
        S3Config {
            endpoint: Some(format!("http://127.0.0.1:{}", self.port)),
            bucket: "bucket".into(),
            region: Some("us-east-1".into()),
            prefix: Some("team/one".into()),
            access_key_id: "test-key".into(),
            secret_access_key: "test-secret".into(),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the server's files of incomplete uploads.
    pub fn open_uploads(&self) -> Vec<String> {
        self.files().into_iter().filter(|file| file.contains("upload")).collect()
    }

    /// The server's own files, to check what a test left there.
    pub fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { found.push(path.display().to_string()) }
            }
        }
        found
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
