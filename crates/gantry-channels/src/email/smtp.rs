//! Hands one letter to a submission server (RFC 6409): EHLO, TLS, AUTH, and the letter itself.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_net::GuardedStream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};

use super::compose::Letter;
use super::server::{Protection, Server};
use crate::adapter::SendOutcome;
use crate::connection::failed;

/// The time for one command. After the letter's end, servers may need longer.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const LETTER_LIMIT: Duration = Duration::from_secs(300);
const MAX_LINE: u64 = 4_096;
const MAX_LINES: usize = 100;
const MAX_REASON: usize = 200;

struct Smtp<'a> {
    stream: BufStream<GuardedStream>,
    server: &'a Server,
}

#[derive(Debug)]
struct Reply {
    code: u16,
    lines: Vec<String>,
}

impl Reply {
    fn text(&self) -> String {
        self.lines.join(" ").chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()
    }

    /// The values of an extension in the answer to EHLO.
    fn extension(&self, name: &str) -> Option<&str> {
        self.lines.iter().skip(1).find_map(|line| {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            word.eq_ignore_ascii_case(name).then_some(rest)
        })
    }
}

/// Sends a letter once.
pub(super) async fn submit(server: &Server, user: &str, letter: &Letter) -> Result<(), SendOutcome> {
    let (mut smtp, hello) = session(server, user, &letter.from).await?;
    let allowed =
        hello.extension("SIZE").and_then(|size| size.trim().parse::<usize>().ok()).filter(|size| *size > 0);
    if allowed.is_some_and(|allowed| letter.bytes.len() > allowed) {
        return Err(SendOutcome::Refused(format!(
            "the letter has {} bytes, and {} takes at most {}",
            letter.bytes.len(),
            server.host(),
            allowed.unwrap_or_default()
        )));
    }
    let size = if allowed.is_some() { format!(" SIZE={}", letter.bytes.len()) } else { String::new() };
    smtp.command(&format!("MAIL FROM:<{}>{size}", letter.from), 250).await?;
    smtp.command(&format!("RCPT TO:<{}>", letter.to), 250).await?;
    smtp.command("DATA", 354).await?;
    smtp.letter(&letter.bytes).await?;
    // The letter is accepted whatever becomes of the connection now.
    let _ = tokio::time::timeout(Duration::from_secs(2), smtp.command("QUIT", 221)).await;
    Ok(())
}

/// Connects and logs in. Returns the connection and the answer to EHLO.
async fn session<'a>(
    server: &'a Server,
    user: &str,
    address: &str,
) -> Result<(Smtp<'a>, Reply), SendOutcome> {
    let stream = server.connect().await.map_err(|err| failed(&err))?;
    let mut smtp = Smtp { stream: BufStream::new(stream), server };
    smtp.expect(220).await?;
    let domain = address.rsplit('@').next().unwrap_or("localhost");
    let hello = format!("EHLO {domain}");
    let mut answer = smtp.command(&hello, 250).await?;
    if server.protection == Protection::StartTls {
        if answer.extension("STARTTLS").is_none() {
            return Err(SendOutcome::Refused(format!("{} does not offer STARTTLS", server.host())));
        }
        smtp.command("STARTTLS", 220).await?;
        // What was read before is not protected, so it goes with the old buffer.
        let secure = smtp.stream.into_inner().upgrade_tls(server.host());
        let secure = tokio::time::timeout(COMMAND_LIMIT, secure).await.map_err(|_| silent(server))?;
        smtp = Smtp { stream: BufStream::new(secure.map_err(|err| failed(&err))?), server };
        answer = smtp.command(&hello, 250).await?;
    }
    match answer.extension("AUTH") {
        Some(methods) => smtp.authenticate(user, methods).await?,
        None if server.protection == Protection::Loopback => {}
        None => return Err(SendOutcome::Refused(format!("{} offers no login", server.host()))),
    }
    Ok((smtp, answer))
}

/// Checks that the server lets the account in.
pub(super) async fn log_in(server: &Server, user: &str, address: &str) -> Result<(), SendOutcome> {
    session(server, user, address).await.map(|_| ())
}

impl Smtp<'_> {
    async fn authenticate(&mut self, user: &str, methods: &str) -> Result<(), SendOutcome> {
        // The operator may store the secret until the next attempt.
        let password = self.server.password().map_err(|why| SendOutcome::Retry { why, after: None })?;
        let offers = |method: &str| methods.split_whitespace().any(|name| name.eq_ignore_ascii_case(method));
        if offers("PLAIN") {
            let token = STANDARD.encode(format!("\0{user}\0{password}"));
            self.command(&format!("AUTH PLAIN {token}"), 235).await?;
        } else if offers("LOGIN") {
            self.command("AUTH LOGIN", 334).await?;
            self.command(&STANDARD.encode(user), 334).await?;
            self.command(&STANDARD.encode(password), 235).await?;
        } else {
            return Err(SendOutcome::Refused(format!(
                "{} offers neither PLAIN nor LOGIN",
                self.server.host()
            )));
        }
        Ok(())
    }

    /// Sends the letter's bytes. An answer decides; without one, the letter may have arrived.
    async fn letter(&mut self, bytes: &[u8]) -> Result<(), SendOutcome> {
        let stuffed = stuffed(bytes);
        let body = async {
            self.stream.write_all(&stuffed).await?;
            self.stream.flush().await
        };
        match tokio::time::timeout(LETTER_LIMIT, body).await {
            Ok(Ok(())) => {}
            _ => {
                return Err(SendOutcome::Retry {
                    why: format!("{} hung up", self.server.host()),
                    after: None,
                });
            }
        }
        let end = async {
            self.stream.write_all(b".\r\n").await.map_err(|_| silent(self.server))?;
            self.stream.flush().await.map_err(|_| silent(self.server))?;
            self.read().await
        };
        let reply = match tokio::time::timeout(LETTER_LIMIT, end).await {
            Ok(Ok(reply)) => reply,
            _ => {
                let why = format!("{} did not confirm the letter", self.server.host());
                return Err(SendOutcome::Unknown(why));
            }
        };
        self.check(reply, 250).map(|_| ())
    }

    /// Sends one command. No error contains it, because it may hold the password.
    async fn command(&mut self, line: &str, expected: u16) -> Result<Reply, SendOutcome> {
        if line.chars().any(char::is_control) {
            return Err(SendOutcome::Refused("an address contains control characters".to_owned()));
        }
        let write = async {
            self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
            self.stream.flush().await
        };
        match tokio::time::timeout(COMMAND_LIMIT, write).await {
            Ok(Ok(())) => self.expect(expected).await,
            _ => Err(silent(self.server)),
        }
    }

    async fn expect(&mut self, expected: u16) -> Result<Reply, SendOutcome> {
        let reply =
            tokio::time::timeout(COMMAND_LIMIT, self.read()).await.map_err(|_| silent(self.server))??;
        self.check(reply, expected)
    }

    fn check(&self, reply: Reply, expected: u16) -> Result<Reply, SendOutcome> {
        let why = || format!("{} answered {} {}", self.server.host(), reply.code, reply.text());
        match reply.code {
            code if code == expected || (expected == 250 && code == 251) => Ok(reply),
            400..500 => Err(SendOutcome::Retry { why: why(), after: None }),
            _ => Err(SendOutcome::Refused(why())),
        }
    }

    /// Reads one answer, which may have several lines.
    async fn read(&mut self) -> Result<Reply, SendOutcome> {
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stream).take(MAX_LINE).read_until(b'\n', &mut line).await;
            if read.is_err() || !line.ends_with(b"\n") || lines.len() >= MAX_LINES {
                return Err(silent(self.server));
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let Some(code) = code else { return Err(silent(self.server)) };
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(Reply { code, lines });
            }
        }
    }
}

fn silent(server: &Server) -> SendOutcome {
    SendOutcome::Retry {
        why: format!("{} hung up or did not answer in the SMTP protocol", server.host()),
        after: None,
    }
}

/// Ends every line with CR LF, and doubles the dot at the start of a line, which would end the letter.
fn stuffed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 50 + 2);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b".") {
            out.push(b'.');
        }
        // A lone CR is a line end to some servers, which could then see the letter's end in it.
        out.extend(line.iter().filter(|byte| **byte != b'\r'));
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_letter_can_end_it() {
        for (bytes, expected) in [
            (&b"a\r\n.\r\nb"[..], &b"a\r\n..\r\nb\r\n"[..]),
            (b".\n..x\n", b"..\r\n...x\r\n"),
            (b"a\r.\rb\r\n", b"a.b\r\n"),
            (b"", b""),
        ] {
            assert_eq!(stuffed(bytes), expected);
        }
    }
}
