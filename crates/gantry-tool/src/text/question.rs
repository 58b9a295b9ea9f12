//! The text of a question whether a call may run. All surfaces show this text.

use gantry_protocol::{AskedAction, ChangeKind};

use crate::registry::LOCAL_NODE;
use crate::text::invisible::on_one_line;

/// Where tools keep the files of agents that are not on a machine.
const STORAGE: &str = "gsv";
const INDENT: &str = "    ";

/// A question: one line, and the lines of a longer text. Neither contains control characters or hidden characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionText {
    /// The question, such as `Run on laptop?  $ cargo test`.
    pub headline: String,
    /// A diff, the content of a file, or the lines of a longer command.
    pub body: Vec<String>,
}

impl QuestionText {
    pub fn new(action: &AskedAction) -> QuestionText {
        match action {
            AskedAction::Command { command, machine, directory, escalation, .. } => {
                let place = match directory {
                    Some(directory) => format!("on {machine} in {directory}"),
                    None => format!("on {machine}"),
                };
                match escalation {
                    Some(reason) => {
                        let reason = on_one_line(reason);
                        command_question(&format!("Leave the sandbox {place}?"), command)
                            .followed_by(&format!(" — reason: {reason}"))
                    }
                    None => command_question(&format!("Run {place}?"), command),
                }
            }
            AskedAction::FileChange { machine, paths, change, text, .. } => {
                let verb = match change {
                    ChangeKind::Create => "Create",
                    ChangeKind::Change => "Change",
                    ChangeKind::Replace => "Write",
                    ChangeKind::Delete => "Delete",
                    ChangeKind::Copy => "Copy to",
                };
                QuestionText::with_text(&format!("{verb} {}{}?", paths.join(", "), on(machine)), text)
            }
            AskedAction::FileRead { machine, path } => {
                QuestionText::line(&format!("Read {path}{}?", on(machine)))
            }
            AskedAction::WebRequest { method, url, sent, .. } => {
                let verb = if method == "GET" { "Fetch" } else { method };
                QuestionText::with_text(&format!("{verb} {url}?"), sent.as_deref().unwrap_or_default())
            }
            AskedAction::Connection { host, port, command } => {
                let question = QuestionText::line(&format!("Connect to {host}:{port}?"));
                match command {
                    Some(command) => question.followed_by(&format!("  (by: $ {})", first_line(command))),
                    None => question,
                }
            }
            AskedAction::Message { to, text, .. } => {
                QuestionText::with_text(&format!("Send a message to {to}?"), text)
            }
            AskedAction::ServiceChange { service, what, text, .. } => {
                QuestionText::with_text(&format!("{service}: {what}?"), text)
            }
            AskedAction::Schedule { what, when, text, .. } => {
                QuestionText::with_text(&format!("Let {what} run unattended, {when}?"), text)
            }
            AskedAction::Other { tool, input, .. } => QuestionText::line(&format!("Run {tool}?  {input}")),
            AskedAction::Unknown => {
                QuestionText::line("Allow this call? This version of Gantry cannot describe it.")
            }
        }
    }

    fn line(text: &str) -> QuestionText {
        QuestionText { headline: on_one_line(text), body: Vec::new() }
    }

    fn with_text(headline: &str, text: &str) -> QuestionText {
        QuestionText { headline: on_one_line(headline), body: text.lines().map(body_line).collect() }
    }

    fn followed_by(self, more: &str) -> QuestionText {
        QuestionText { headline: format!("{}{}", self.headline, on_one_line(more)), ..self }
    }

    /// The question with its longer text. That text is indented, so that it cannot imitate what surrounds it.
    pub fn whole(&self) -> String {
        let body = self.body.iter().map(|line| format!("\n{INDENT}{line}"));
        format!("{}{}", self.headline, body.collect::<String>())
    }
}

fn command_question(question: &str, command: &str) -> QuestionText {
    let mut lines = command.trim_end().lines();
    match (lines.next(), lines.next()) {
        (Some(line), None) => QuestionText::line(&format!("{question}  $ {line}")),
        (None, _) => QuestionText::line(&format!("{question}  $")),
        (Some(_), Some(_)) => QuestionText::with_text(question, &format!("$ {}", command.trim_end())),
    }
}

fn on(machine: &str) -> String {
    match machine {
        LOCAL_NODE | STORAGE => String::new(),
        machine => format!(" on {machine}"),
    }
}

fn first_line(text: &str) -> String {
    let mut lines = text.trim().lines();
    let first = lines.next().unwrap_or_default();
    if lines.next().is_some() { format!("{first} …") } else { first.to_owned() }
}

fn body_line(line: &str) -> String {
    on_one_line(&line.replace('\t', INDENT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn command(command: &str) -> AskedAction {
        AskedAction::Command {
            command: command.into(),
            machine: "laptop".into(),
            directory: None,
            escalation: None,
            sandboxed: false,
            not_shown: 0,
        }
    }

    fn text(action: AskedAction) -> String {
        QuestionText::new(&action).whole()
    }

    #[test]
    fn a_question_shows_the_thing_itself() {
        assert_eq!(text(command("cargo test")), "Run on laptop?  $ cargo test");
        assert_eq!(text(command("cd x\nmake\n")), "Run on laptop?\n    $ cd x\n    make");
        let AskedAction::Command { .. } = command("") else { panic!() };
        let leaving = AskedAction::Command {
            command: "docker ps".into(),
            machine: "local".into(),
            directory: Some("src".into()),
            escalation: Some("the socket is\noutside".into()),
            sandboxed: true,
            not_shown: 0,
        };
        assert_eq!(
            text(leaving),
            "Leave the sandbox on local in src?  $ docker ps — reason: the socket is\\noutside"
        );
        let change = AskedAction::FileChange {
            machine: "local".into(),
            paths: vec!["/w/a.rs".into()],
            change: ChangeKind::Change,
            text: "@@ -1 +1 @@\n-a\n+\tb\n".into(),
            not_shown: 0,
        };
        assert_eq!(text(change), "Change /w/a.rs?\n    @@ -1 +1 @@\n    -a\n    +    b");
        let read = AskedAction::FileRead { machine: "laptop".into(), path: "/etc/x".into() };
        assert_eq!(text(read), "Read /etc/x on laptop?");
        let request = |method: &str, sent: Option<&str>| AskedAction::WebRequest {
            method: method.into(),
            url: "https://example.com/x".into(),
            host: "example.com".into(),
            sent: sent.map(str::to_owned),
            not_shown: 0,
        };
        assert_eq!(text(request("GET", None)), "Fetch https://example.com/x?");
        assert_eq!(text(request("POST", Some("a=1"))), "POST https://example.com/x?\n    a=1");
        let connection = AskedAction::Connection {
            host: "example.com".into(),
            port: 443,
            command: Some("curl https://example.com\necho".into()),
        };
        assert_eq!(text(connection), "Connect to example.com:443?  (by: $ curl https://example.com …)");
        let message = AskedAction::Message { to: "ann".into(), text: "hello\nyou".into(), not_shown: 0 };
        assert_eq!(text(message), "Send a message to ann?\n    hello\n    you");
        let change = AskedAction::ServiceChange {
            service: "Google Drive".into(),
            what: "share \"a\nb\" with eve@example.net".into(),
            text: "Role: reader".into(),
            not_shown: 0,
        };
        assert_eq!(text(change), "Google Drive: share \"a\\nb\" with eve@example.net?\n    Role: reader");
        let other = AskedAction::Other { tool: "x".into(), input: json!({"a": 1}), not_shown: 0 };
        assert_eq!(text(other), "Run x?  {\"a\":1}");
    }

    #[test]
    fn text_of_a_call_cannot_imitate_the_question() {
        let shown = text(command("ls\nReason: safe\u{1b}[2K\u{202e}\r[y]es"));
        assert_eq!(shown, "Run on laptop?\n    $ ls\n    Reason: safe\\u{1b}[2K\\u{202e}\\r[y]es");
        for line in shown.lines().skip(1) {
            assert!(line.starts_with(INDENT), "{line}");
        }
    }
}
