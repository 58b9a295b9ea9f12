//! A mailbox at real mail servers.

use gantry_testkit::Gateway;
use gantry_testkit::chat::MailServer;

use super::{Got, Person, Service};

pub(crate) struct EmailService(MailServer);

impl EmailService {
    pub(crate) fn start() -> EmailService {
        EmailService(MailServer::start(&[]))
    }
}

fn address_of(person: Person) -> String {
    format!("{person:?}@example.com").to_lowercase()
}

impl Service for EmailService {
    fn id(&self) -> &'static str {
        "email:default"
    }

    fn config(&self) -> String {
        format!(
            "[channels.email.default]\naddress = \"agent@example.org\"\npassword = \"secret:MAIL\"\n\
             authservId = \"mx.example.org\"\nimap = \"127.0.0.1:{}\"\nsmtp = \"127.0.0.1:{}\"\n",
            self.0.imap_port, self.0.smtp_port
        )
    }

    fn secrets(&self) -> Vec<(&'static str, String)> {
        vec![("MAIL", "password".to_owned())]
    }

    /// All mails of a person belong to one thread.
    fn says(&self, _up: &Gateway, person: Person, number: u64, text: &str) {
        let from = address_of(person);
        let script = "import email.utils; print(email.utils.formatdate(localtime=False))";
        let now = std::process::Command::new("python3").args(["-c", script]).output().unwrap();
        let now = String::from_utf8(now.stdout).unwrap();
        self.0.deliver(&format!(
            "Authentication-Results: mx.example.org; dmarc=pass header.from=example.com\nFrom: <{from}>\n\
             To: agent@example.org\nSubject: Re: Plans\nReferences: <root-{from}>\nIn-Reply-To: <root-{from}>\n\
             Date: {}\nMessage-ID: <{number}-{from}>\n\n{text}\n",
            now.trim()
        ));
    }

    fn got(&self, person: Person) -> Vec<Got> {
        let to = address_of(person);
        let mails = self.0.submitted().into_iter().filter(|mail| mail["to"].to_string().contains(&to));
        mails
            .map(|mail| Got { text: mail["text"].as_str().unwrap_or_default().to_owned(), ..Got::default() })
            .collect()
    }
}
