//! A real IMAP server (dovecot) and a submission server (aiosmtpd) on this machine. The account is `agent@example.org`
//! with the password `password`.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mcp/venv-mail/bin/python");
const UP: Duration = Duration::from_secs(20);
/// `MailServer` is both servers. They end with their test.
pub struct MailServer {
    imap: Option<Child>,
    smtp: Child,
    folder: tempfile::TempDir,
    pub imap_port: u16,
    pub smtp_port: u16,
}

/// A mail as Python's mail package read it.
pub type Submitted = Value;

impl MailServer {
    /// Starts the servers. `excluded` are login methods that the submission server does not offer. It needs dovecot and
    /// `target/mcp/venv-mail`, which `cargo xtask setup` installs.
    pub fn start(excluded: &[&str]) -> MailServer {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        open(folder.path());
        for name in ["mail", "sent"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            open(&folder.path().join(name));
        }
        let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (imap_port, smtp_port) = (port(), port());
        std::fs::write(folder.path().join("dovecot.conf"), config(folder.path(), imap_port)).unwrap();
        let smtp = Command::new(PYTHON)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/chat/mail.py"))
            .arg(smtp_port.to_string())
            .arg(folder.path().join("sent"))
            .args(excluded)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("aiosmtpd is needed for this test: run `cargo xtask setup`");
        let mut server = MailServer { imap: None, smtp, folder, imap_port, smtp_port };
        server.resume_imap();
        wait_for(smtp_port);
        server
    }

    pub fn stop_imap(&mut self) {
        if let Some(mut child) = self.imap.take() {
            // Its own processes are in its group. One that serves a client would go on for seconds.
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
        }
    }

    pub fn resume_imap(&mut self) {
        let child = Command::new("dovecot")
            .args(["-F", "-c"])
            .arg(self.folder.path().join("dovecot.conf"))
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dovecot is needed for this test: run `cargo xtask setup`");
        self.imap = Some(child);
        wait_for(self.imap_port);
    }

    /// Puts a mail into the mailbox.
    pub fn deliver(&self, mail: &str) {
        let mail = mail.replace("\r\n", "\n").replace('\n', "\r\n");
        let mut imap = Imap::login(self.imap_port);
        imap.command(&format!("APPEND INBOX {{{}+}}\r\n{mail}", mail.len()));
    }

    /// The flags of all mails, as the server prints them.
    pub fn flags(&self) -> String {
        let mut imap = Imap::login(self.imap_port);
        imap.command("EXAMINE INBOX");
        imap.command("FETCH 1:* (FLAGS)")
    }

    /// Makes the mailbox a new one: its mails get new numbers.
    pub fn renumber(&mut self) {
        self.stop_imap();
        for entry in crate::files_below(&self.folder.path().join("mail")).into_keys() {
            if entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with("dovecot")) {
                let _ = std::fs::remove_file(entry);
            }
        }
        // The number of a mailbox is the time at which it was made, in seconds.
        std::thread::sleep(Duration::from_millis(1_100));
        self.resume_imap();
    }

    /// The mails that were submitted.
    pub fn submitted(&self) -> Vec<Submitted> {
        let entries = std::fs::read_dir(self.folder.path().join("sent")).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        paths.iter().map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()).collect()
    }
}

/// A connection of the account's owner.
struct Imap(BufReader<TcpStream>);

impl Imap {
    fn login(port: u16) -> Imap {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(UP)).unwrap();
        let mut imap = Imap(BufReader::new(stream));
        let mut greeting = String::new();
        imap.0.read_line(&mut greeting).unwrap();
        imap.command("LOGIN agent@example.org password");
        imap
    }

    /// Sends a command and returns the answer, which must be a success.
    fn command(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("t {command}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the IMAP server closed the connection");
            if let Some(done) = line.strip_prefix("t ") {
                assert!(done.starts_with("OK"), "{done}");
                return answer;
            }
            answer.push_str(&line);
        }
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.stop_imap();
        let _ = self.smtp.kill();
        let _ = self.smtp.wait();
    }
}

fn wait_for(port: u16) {
    let until = Instant::now() + UP;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "a mail server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn config(folder: &Path, port: u16) -> String {
    let own = rustix::process::getuid().as_raw();
    // Mail cannot belong to root. Without root, everything runs as the caller.
    let (uid, users) = match own {
        0 => (65_534, String::new()),
        own => {
            let output = Command::new("id").arg("-un").output().unwrap();
            let name = String::from_utf8(output.stdout).unwrap().trim().to_owned();
            (own, format!("default_login_user = {name}\ndefault_internal_user = {name}\n"))
        }
    };
    let folder = folder.display();
    format!(
        "protocols = imap\nbase_dir = {folder}/run\nstate_dir = {folder}/state\nlog_path = {folder}/log\nssl = no\n\
         disable_plaintext_auth = no\nauth_failure_delay = 0\nlisten = 127.0.0.1\n{users}mail_location = maildir:{folder}/mail/%n\n\
         service anvil {{\n chroot =\n unix_listener anvil-auth-penalty {{\n mode = 0\n }}\n}}\n\
         service imap-login {{\n chroot =\n inet_listener imap {{\n port = {port}\n }}\n inet_listener imaps {{\n port = 0\n }}\n}}\n\
         passdb {{\n driver = static\n args = password=password\n}}\n\
         userdb {{\n driver = static\n args = uid={uid} gid={uid} home={folder}/mail/%n\n}}\n"
    )
}
