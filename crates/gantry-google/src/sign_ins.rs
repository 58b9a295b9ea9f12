//! [`SignIns`] are sign-ins that wait for a person while the gateway runs. `/google auth` begins them, and so does a call that
//! lacks a scope, after it asked. The browser returns to this machine, or the person pastes the address that it ends at.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_net::{Returned, Url};
use gantry_protocol::AskedAction;
use gantry_tool::{Approval, Autonomy, Call, Consent, Masker, UNATTENDED_RULE};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::accounts::store::AccountKind;
use crate::accounts::{AccountStatus, Accounts};
use crate::errors::GoogleError;
use crate::oauth::SignInError;
use crate::oauth::browser::BROWSER_LIMIT;
use crate::questions::field;
use crate::scopes;

/// More sign-ins than this do not wait at a time: a new one ends the oldest.
const MAX_WAITING: usize = 8;
/// The time that an exchange of a pasted address has.
const PASTE_LIMIT: Duration = Duration::from_secs(60);

type Outcome = Option<Result<AccountStatus, String>>;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct SignIns(Arc<Inner>);

struct Inner {
    accounts: Accounts,
    masker: Masker,
    waiting: Mutex<Vec<Waiting>>,
}

struct Waiting {
    state: String,
    pasted: mpsc::Sender<String>,
    outcome: watch::Receiver<Outcome>,
    task: tokio::task::AbortHandle,
}

/// Ends a sign-in when the call that began it goes on or ends.
struct EndsWith(tokio::task::AbortHandle);

impl Drop for EndsWith {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A sign-in that was begun.
pub(crate) struct Begun {
    /// The page to open.
    pub(crate) url: Url,
    outcome: watch::Receiver<Outcome>,
    task: tokio::task::AbortHandle,
}

impl Begun {
    /// Waits for the person.
    pub(crate) async fn finished(mut self) -> Result<AccountStatus, String> {
        result(&mut self.outcome).await
    }
}

async fn result(outcome: &mut watch::Receiver<Outcome>) -> Result<AccountStatus, String> {
    match outcome.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(ENDED.to_owned())),
        Err(_) => Err(ENDED.to_owned()),
    }
}

const ENDED: &str = "the sign-in ended; begin another one";

impl SignIns {
    pub(crate) fn new(accounts: Accounts, masker: Masker) -> SignIns {
        SignIns(Arc::new(Inner { accounts, masker, waiting: Mutex::default() }))
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.0.accounts
    }

    /// Begins a sign-in that asks for the configured scopes and some more.
    pub(crate) async fn begin(&self, more: &[String]) -> Result<Begun, SignInError> {
        self.begin_for(more, None).await
    }

    /// As [`SignIns::begin`]. Nothing is stored unless the account is `only`.
    async fn begin_for(&self, more: &[String], only: Option<String>) -> Result<Begun, SignInError> {
        let accounts = self.0.accounts.clone();
        let sign_in = accounts.begin_browser(more).await?;
        let (url, state) = (sign_in.url.clone(), sign_in.state().to_owned());
        let (pasted, mut addresses) = mpsc::channel(1);
        let (done, outcome) = watch::channel(None);
        let task = tokio::spawn(async move {
            let finished = accounts.finish_waiting(sign_in, &mut addresses, only.as_deref()).await;
            let _ = done.send(Some(finished.map_err(|err| err.to_string())));
        });
        let one = Waiting { state, pasted, outcome: outcome.clone(), task: task.abort_handle() };
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|other| !other.task.is_finished());
        if waiting.len() >= MAX_WAITING {
            waiting.remove(0).task.abort();
        }
        waiting.push(one);
        Ok(Begun { url, outcome, task: task.abort_handle() })
    }

    /// Finishes the sign-in that an address belongs to.
    pub(crate) async fn paste(&self, address: &str) -> Result<AccountStatus, String> {
        let found = {
            let waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let own = waiting.iter().find(|one| Returned::read(address.trim(), &one.state).is_some());
            own.map(|one| (one.pasted.clone(), one.outcome.clone()))
        };
        let Some((pasted, mut outcome)) = found else {
            return Err("no sign-in waits for this address; `/google auth` begins one".to_owned());
        };
        // A sign-in that is just ending still has its outcome.
        let _ = pasted.send(address.trim().to_owned()).await;
        let limit = tokio::time::timeout(PASTE_LIMIT, result(&mut outcome));
        limit.await.unwrap_or_else(|_| Err("Google did not answer in time; try again".to_owned()))
    }

    /// Asks the person of a call for a scope that it lacks, and waits for the sign-in at Google. The call goes on afterwards.
    pub(crate) async fn ask_for_scope(
        &self,
        call: &Call,
        tool: &str,
        account: &str,
        needed: &'static [&'static str],
    ) -> Result<(), GoogleError> {
        let missing = || GoogleError::MissingScope { account: account.to_owned(), needed };
        let Some(scope) = needed.first().copied() else { return Err(missing()) };
        let asks = call.autonomy != Autonomy::Autonomous;
        let Some(approver) = call.approver.as_ref().filter(|_| asks) else { return Err(missing()) };
        // Scopes of devices and of service accounts cannot be added in a browser.
        let record = self.0.accounts.record(Some(account))?;
        if record.kind != AccountKind::Browser {
            return Err(missing());
        }
        let more = [record.scopes, vec![scope.to_owned()]].concat();
        let Ok(begun) = self.begin_for(&more, Some(account.to_owned())).await else { return Err(missing()) };
        // A page that is opened after a no must not sign anybody in.
        let _ended = EndsWith(begun.task.clone());
        let action = question(account, scope, &begun.url);
        let input = json!({"account": account, "scope": scope});
        let reason = format!("{account} has not granted the scope {scope}");
        let approval = Approval::new(&self.0.masker, call, tool, UNATTENDED_RULE, &reason, &input)
            .about(&self.0.masker, action);
        let left = call.deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
        let answer_limit = left.unwrap_or(approver.limit()).min(approver.limit());
        let limit = left.unwrap_or(BROWSER_LIMIT).min(BROWSER_LIMIT);
        let finished = begun.finished();
        tokio::pin!(finished);
        let signed_in = tokio::select! {
            () = call.cancel.cancelled() => return Err(GoogleError::Cancelled),
            signed_in = &mut finished => signed_in,
            answer = tokio::time::timeout(answer_limit, approver.ask(approval)) => match answer {
                Ok(Consent::Allowed | Consent::Granted(_)) => tokio::select! {
                    () = call.cancel.cancelled() => return Err(GoogleError::Cancelled),
                    signed_in = tokio::time::timeout(limit, &mut finished) => {
                        signed_in.unwrap_or_else(|_| Err("nobody agreed at Google in time".to_owned()))
                    }
                },
                Ok(Consent::Denied(why)) => return Err(GoogleError::ScopeDenied { account: account.to_owned(), scope, why }),
                Err(_) => {
                    let why = "nobody answered in time".to_owned();
                    return Err(GoogleError::ScopeDenied { account: account.to_owned(), scope, why });
                }
            },
        };
        let denied = |why| GoogleError::ScopeDenied { account: account.to_owned(), scope, why };
        let status = signed_in.map_err(denied)?;
        match scopes::suffices(&status.scopes, needed) {
            true => Ok(()),
            false => Err(denied("the box of this permission was not ticked".to_owned())),
        }
    }
}

/// The question for a scope. The person agrees at Google; the yes alone grants nothing.
fn question(account: &str, scope: &str, url: &Url) -> AskedAction {
    let what = format!("let Gantry {} {account}", scopes::purpose(scope));
    let details = [
        field("Scope", scope),
        field("Open this page and agree", url.as_str()),
        "The call continues when you agreed. If the browser ends at an error page, send its address here: /google auth ADDRESS"
            .to_owned(),
    ];
    AskedAction::ServiceChange { service: "Google".to_owned(), what, text: details.join("\n"), not_shown: 0 }
}

#[cfg(test)]
mod tests;
