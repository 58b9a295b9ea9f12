//! Reads the mailbox over IMAP. The cursor is `UIDVALIDITY:UID` of the last mail whose fate is stored.

use std::time::Duration;

use async_imap::types::Fetch;
use async_imap::{Client, Session};
use bytes::Bytes;
use futures_util::TryStreamExt;
use gantry_net::{GuardedStream, NetError};

use super::inbound::{self, Read};
use super::server::Protection;
use super::{Answered, Email};
use crate::adapter::{Intake, IntakeError, ListenError};

/// The time for one command, a download included.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// How long to wait for news in one IDLE. It ends before routers forget the connection.
const IDLE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_secs(60);
/// Of longer mails, only the headers are read.
const MAX_MAIL: u32 = 25 << 20;
const MAX_REASON: usize = 200;

type Mailbox = Session<GuardedStream>;

#[derive(Debug, thiserror::Error)]
pub(super) enum MailError {
    #[error("{0}")]
    Login(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Net(#[from] NetError),
    #[error("the IMAP server: {0}")]
    Imap(String),
    #[error("the IMAP server did not answer in time")]
    Silent,
    #[error("{0}")]
    Intake(#[from] IntakeError),
}

impl From<async_imap::error::Error> for MailError {
    fn from(err: async_imap::error::Error) -> MailError {
        MailError::Imap(shown(&err.to_string()))
    }
}

impl From<MailError> for ListenError {
    fn from(err: MailError) -> ListenError {
        match err {
            MailError::Login(why) => ListenError::NeedsLogin(why),
            MailError::Refused(why) => ListenError::Refused(why),
            err => ListenError::Again { why: err.to_string(), after: None },
        }
    }
}

/// Makes a server's text fit for an error.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()
}

async fn within<T, E: Into<MailError>>(step: impl Future<Output = Result<T, E>>) -> Result<T, MailError> {
    tokio::time::timeout(COMMAND_LIMIT, step).await.map_err(|_| MailError::Silent)?.map_err(Into::into)
}

/// Connects and logs in.
pub(super) async fn open(email: &Email) -> Result<Mailbox, MailError> {
    let server = &email.imap;
    let password = server.password().map_err(MailError::Login)?;
    let mut client = Client::new(server.connect().await?);
    let greeting =
        async { client.read_response().await.map_err(|err| MailError::Imap(shown(&err.to_string()))) };
    if within(greeting).await?.is_none() {
        return Err(MailError::Imap("it hung up".to_owned()));
    }
    if server.protection == Protection::StartTls {
        within(client.run_command_and_check_ok("STARTTLS", None)).await.map_err(|err| match err {
            MailError::Imap(why) => {
                MailError::Refused(format!("{} does not offer STARTTLS: {why}", server.host()))
            }
            err => err,
        })?;
        // What was read before is not protected, so it goes with the old client.
        client = Client::new(within(client.into_inner().upgrade_tls(server.host())).await?);
    }
    let login = async { client.login(&email.user, &password).await.map_err(|(err, _)| err) };
    match tokio::time::timeout(COMMAND_LIMIT, login).await {
        Err(_) => Err(MailError::Silent),
        Ok(Ok(session)) => Ok(session),
        Ok(Err(async_imap::error::Error::No(why))) => {
            let why = shown(&why.replace(&password, "…"));
            Err(MailError::Login(format!("{} refused the login: {why}", server.host())))
        }
        Ok(Err(async_imap::error::Error::Validate(_))) => {
            Err(MailError::Login("the name or the password contains invalid characters".to_owned()))
        }
        Ok(Err(_)) => Err(MailError::Imap("the login failed".to_owned())),
    }
}

pub(super) async fn listen(
    email: &Email,
    intake: &dyn Intake,
    cursor: Option<String>,
) -> Result<std::convert::Infallible, MailError> {
    let mut session = open(email).await?;
    let can_idle = within(session.capabilities()).await?.has_str("IDLE");
    let inbox = within(session.select("INBOX")).await?;
    let validity = inbox.uid_validity.unwrap_or(0);
    let stored = cursor.as_deref().and_then(|cursor| cursor.split_once(':'));
    let stored =
        stored.and_then(|(validity, uid)| Some((validity.parse::<u32>().ok()?, uid.parse::<u32>().ok()?)));
    let mut last = match stored.filter(|(stored, _)| *stored == validity) {
        Some((_, uid)) => uid,
        None => {
            // The first start, or the numbers mean other mails now: what is there already is not read.
            let newest = inbox.uid_next.unwrap_or(1).saturating_sub(1);
            intake.skip(format!("{validity}:{newest}")).await?;
            newest
        }
    };
    intake.connected(&email.address);
    loop {
        last = news(email, intake, &mut session, validity, last).await?;
        session = if can_idle { idle(session).await? } else { pause(session).await? };
    }
}

/// Waits until the server reports a change, or the time is over.
async fn idle(session: Mailbox) -> Result<Mailbox, MailError> {
    let mut handle = session.idle();
    within(handle.init()).await?;
    let (change, _stop) = handle.wait_with_timeout(IDLE);
    change.await?;
    within(handle.done()).await
}

async fn pause(mut session: Mailbox) -> Result<Mailbox, MailError> {
    tokio::time::sleep(POLL).await;
    within(session.noop()).await?;
    Ok(session)
}

/// Reads the mails after `last`, and returns the number of the newest.
async fn news(
    email: &Email,
    intake: &dyn Intake,
    session: &mut Mailbox,
    validity: u32,
    mut last: u32,
) -> Result<u32, MailError> {
    let sizes = fetch(session, &format!("{}:*", last.saturating_add(1)), "(UID RFC822.SIZE)").await?;
    let mut mails: Vec<(u32, u32)> =
        sizes.iter().filter_map(|mail| Some((mail.uid?, mail.size.unwrap_or(u32::MAX)))).collect();
    // A range with a star always has the newest mail, even if it is older than asked for.
    mails.retain(|(uid, _)| *uid > last);
    mails.sort_unstable();
    for (uid, size) in mails {
        let too_long = (size > MAX_MAIL).then_some(size);
        let cursor = format!("{validity}:{uid}");
        let Some(bytes) = download(session, uid, too_long.is_some()).await? else {
            // Somebody removed it meanwhile.
            last = uid;
            continue;
        };
        match inbound::read(email, &cursor, &bytes, too_long) {
            Read::Message(inbound, answered) => {
                email.remember(&inbound.message_id, answered);
                intake.message(*inbound, Some(cursor)).await?;
                let store = async {
                    let flagged = session.uid_store(uid.to_string(), "+FLAGS.SILENT (\\Seen)").await?;
                    flagged.try_collect::<Vec<Fetch>>().await
                };
                within(store).await?;
            }
            Read::Ignored(why) => {
                tracing::info!(account = email.account, uid, why, "a mail is not answered");
                intake.skip(cursor).await?;
            }
        }
        last = uid;
    }
    Ok(last)
}

async fn fetch(session: &mut Mailbox, set: &str, query: &str) -> Result<Vec<Fetch>, MailError> {
    within(async { session.uid_fetch(set, query).await?.try_collect::<Vec<Fetch>>().await }).await
}

async fn download(session: &mut Mailbox, uid: u32, headers_only: bool) -> Result<Option<Vec<u8>>, MailError> {
    let query = if headers_only { "BODY.PEEK[HEADER]" } else { "BODY.PEEK[]" };
    let found = fetch(session, &uid.to_string(), &format!("(UID {query})")).await?;
    let mail = found.iter().find(|mail| mail.uid == Some(uid));
    let bytes = mail.and_then(|mail| if headers_only { mail.header() } else { mail.body() });
    Ok(bytes.map(<[u8]>::to_vec))
}

/// Finds the subject and references of a mail in the mailbox.
pub(super) async fn find(email: &Email, message_id: &str) -> Result<Option<Answered>, MailError> {
    // The id goes into a quoted string.
    if !super::compose::is_message_id(message_id) || message_id.contains(['"', '\\']) {
        return Ok(None);
    }
    let mut session = open(email).await?;
    within(session.examine("INBOX")).await?;
    let found = within(session.uid_search(format!("HEADER Message-ID \"<{message_id}>\""))).await?;
    let Some(uid) = found.into_iter().max() else { return Ok(None) };
    let headers = download(&mut session, uid, true).await?;
    let _ = within(session.logout()).await;
    Ok(headers.and_then(|headers| inbound::answered(&headers)))
}

/// Loads a file of a mail. `source` is `UIDVALIDITY:UID:NUMBER`.
pub(super) async fn attachment(email: &Email, source: &str) -> Result<Bytes, MailError> {
    let gone = || MailError::Refused("the file is not in the mailbox any more".to_owned());
    let numbers: Vec<u32> = source.split(':').filter_map(|number| number.parse().ok()).collect();
    let [validity, uid, number] = numbers.as_slice() else { return Err(gone()) };
    let mut session = open(email).await?;
    let inbox = within(session.examine("INBOX")).await?;
    if inbox.uid_validity != Some(*validity) {
        return Err(gone());
    }
    let sizes = fetch(&mut session, &uid.to_string(), "(UID RFC822.SIZE)").await?;
    if sizes.iter().any(|mail| mail.size.is_none_or(|size| size > MAX_MAIL)) {
        return Err(MailError::Refused("the mail is too long to read it".to_owned()));
    }
    let bytes = download(&mut session, *uid, false).await?.ok_or_else(gone)?;
    let _ = within(session.logout()).await;
    inbound::file(&bytes, *number).map(Bytes::from).ok_or_else(gone)
}
