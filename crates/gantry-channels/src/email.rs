//! The email channel: reads a mailbox over IMAP and answers over SMTP. Approvals never come by mail, because senders can
//! be forged.

mod compose;
mod inbound;
mod mailbox;
mod sender_check;
mod server;
mod smtp;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_flow::SecretFor;
use gantry_net::ClientOptions;

use crate::adapter::{
    AccountInfo, Adapter, Content, Intake, Limits, ListenError, Media, Outbound, Problem, SendOutcome,
};
use crate::config::EmailConfig;
use compose::Letter;
use mailbox::MailError;
use server::Server;

const MAX_TEXT: usize = 200_000;
const MAX_FILE: usize = 15 << 20;
const MAX_SUBJECTS: usize = 1_000;

pub(crate) struct Email {
    account: String,
    /// The account's own address, in lower case.
    address: String,
    user: String,
    imap: Server,
    smtp: Server,
    authserv_id: Option<String>,
    accept_unverified: bool,
    /// Subjects and references of mails that were read, by Message-ID.
    headers: Mutex<HashMap<String, Answered>>,
}

/// What an answer takes from the mail that it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Answered {
    subject: String,
    references: Vec<String>,
}

impl Email {
    pub(crate) fn new(
        config: &EmailConfig,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
    ) -> Email {
        let server = |at: &str, tls_port: u16| {
            Server::new(at, tls_port, &config.password, account, network, secrets.clone())
        };
        Email {
            account: account.to_owned(),
            address: config.address.to_lowercase(),
            user: config.user.clone().unwrap_or_else(|| config.address.clone()),
            imap: server(&config.imap, 993),
            smtp: server(&config.smtp, 465),
            authserv_id: config.authserv_id.clone(),
            accept_unverified: config.accept_unverified,
            headers: Mutex::default(),
        }
    }

    fn remember(&self, message_id: &str, answered: Answered) {
        let mut headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        if headers.len() >= MAX_SUBJECTS {
            headers.clear();
        }
        headers.insert(message_id.to_owned(), answered);
    }

    /// Finds subject and references of a mail: in memory, or else in the mailbox.
    async fn answered(&self, message_id: &str) -> Answered {
        let known = self.headers.lock().unwrap_or_else(PoisonError::into_inner).get(message_id).cloned();
        if let Some(known) = known {
            return known;
        }
        match mailbox::find(self, message_id).await {
            Ok(found) => found.unwrap_or_default(),
            Err(err) => {
                tracing::debug!(account = self.account, error = %err, "cannot look up the mail that is answered");
                Answered::default()
            }
        }
    }

    async fn submit(&self, message: &Outbound) -> SendOutcome {
        if matches!(message.content, Content::Edit { .. }) {
            return SendOutcome::Refused("mail cannot be changed after it was sent".to_owned());
        }
        let answers =
            message.reply_to.clone().or_else(|| message.address.thread.clone().filter(|id| id.contains('@')));
        let answered = match &answers {
            Some(id) => self.answered(id).await,
            None => Answered::default(),
        };
        let letter = match Letter::new(&self.address, message, answers, &answered) {
            Ok(letter) => letter,
            Err(why) => return SendOutcome::Refused(why),
        };
        match smtp::submit(&self.smtp, &self.user, &letter).await {
            Ok(()) => {
                let references = letter.references.clone();
                self.remember(&letter.message_id, Answered { subject: letter.subject.clone(), references });
                SendOutcome::Sent { message_id: Some(letter.message_id) }
            }
            Err(outcome) => outcome,
        }
    }

    async fn check(&self) -> Result<AccountInfo, Problem> {
        let name = crate::config::secret_name(self.imap.password_reference()).unwrap_or("NAME");
        let fix = |server: &Server, key: &str, is_login: bool| match is_login {
            true => format!(
                "store the mailbox's password: gantry secrets set {name} --host {}; many providers need an app password",
                server.host()
            ),
            false => {
                format!("check `{key}` in gantry.toml, and that this machine can reach {}", server.host())
            }
        };
        mailbox::open(self).await.map_err(|err| Problem {
            fix: fix(&self.imap, "imap", matches!(err, MailError::Login(_))),
            message: err.to_string(),
        })?;
        smtp::log_in(&self.smtp, &self.user, &self.address).await.map_err(|outcome| {
            let (message, is_login) = match outcome {
                SendOutcome::Refused(why) => (why, true),
                SendOutcome::Retry { why, .. } | SendOutcome::Unknown(why) => (why, false),
                SendOutcome::Sent { .. } => (String::new(), false),
            };
            Problem { message, fix: fix(&self.smtp, "smtp", is_login) }
        })?;
        let mut warnings = Vec::new();
        if self.accept_unverified {
            warnings.push("acceptUnverified is on: anybody can write mail in the name of others".to_owned());
        } else if self.authserv_id.is_none() {
            warnings.push("all mail is ignored: set authservId to the name in your server's Authentication-Results headers".to_owned());
        }
        Ok(AccountInfo { name: self.address.clone(), warnings })
    }
}

impl Adapter for Email {
    fn limits(&self) -> Limits {
        Limits {
            text: MAX_TEXT,
            buttons: 0,
            file: MAX_FILE,
            can_edit: false,
            ignores_repetitions: false,
            may_approve: false,
        }
    }

    fn listen<'a>(&'a self, intake: &'a dyn Intake, cursor: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(async move {
            match mailbox::listen(self, intake, cursor).await {
                Ok(never) => match never {},
                Err(err) => err.into(),
            }
        })
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(self.submit(message))
    }

    fn fetch<'a>(&'a self, media: &'a Media, limit: usize) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(async move {
            let bytes = mailbox::attachment(self, &media.source).await.map_err(|err| err.to_string())?;
            match bytes.len() <= limit {
                true => Ok(bytes),
                false => Err(format!("the file has more than {limit} bytes")),
            }
        })
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(self.check())
    }
}
