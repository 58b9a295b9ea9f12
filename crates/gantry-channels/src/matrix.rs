//! The Matrix channel: an account on a homeserver, over the client-server API, in rooms without encryption.

mod api;
mod event;
mod rooms;
mod send;
mod sync;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_flow::SecretFor;
use gantry_net::{ClientOptions, Method, NetError};
use serde_json::json;

use crate::adapter::{
    AccountInfo, Adapter, Intake, Limits, ListenError, Media, Outbound, Problem, SendOutcome,
};
use crate::address::Address;
use crate::config::MatrixConfig;
use api::{Api, ApiError, Call, CallBody};
use event::{Own, is_id, mxc};
use rooms::Rooms;

/// Decides whose invitations the account accepts, by Matrix id.
pub(crate) type AllowedInviters = Arc<dyn Fn(&str) -> bool + Send + Sync>;

const TYPING_MILLIS: u32 = 6_000;
const DOWNLOAD_LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

pub(crate) struct Matrix {
    api: Api,
    rooms: Rooms,
    allowed_inviters: AllowedInviters,
    /// Known after the first request.
    own_id: OnceLock<String>,
}

impl Matrix {
    pub(crate) fn new(
        config: &MatrixConfig,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
        allowed_inviters: AllowedInviters,
    ) -> Matrix {
        Matrix {
            api: Api::new(&config.homeserver, &config.token, account, network, secrets),
            rooms: Rooms::default(),
            allowed_inviters,
            own_id: OnceLock::new(),
        }
    }

    /// Asks the homeserver who the account is.
    async fn own(&self) -> Result<Own, ApiError> {
        let answer = self.api.json(Call::get(&["client", "v3", "account", "whoami"])).await?;
        let id = answer["user_id"].as_str().filter(|id| is_id(id, '@')).ok_or_else(|| {
            ApiError::Malformed(format!("{} does not answer as a Matrix homeserver", self.api.host()))
        })?;
        let _ = self.own_id.set(id.to_owned());
        let profile = match self.api.json(Call::get(&["client", "v3", "profile", id, "displayname"])).await {
            Err(err) if err.is_temporary() => return Err(err),
            profile => profile.unwrap_or_default(),
        };
        Ok(Own { id: id.to_owned(), name: profile["displayname"].as_str().unwrap_or_default().to_owned() })
    }

    async fn show_typing(&self, room: &str) -> Result<(), ApiError> {
        let id = match self.own_id.get() {
            Some(id) => id.clone(),
            None => self.own().await?.id,
        };
        let body = CallBody::Json(json!({"typing": true, "timeout": TYPING_MILLIS}));
        let path = ["client", "v3", "rooms", room, "typing", &id];
        self.api.json(Call::new(Method::PUT, &path, body)).await.map(|_| ())
    }

    async fn download(&self, media: &Media, limit: usize) -> Result<Bytes, String> {
        let (server, id) = mxc(&media.source).ok_or("the file's address is not one of Matrix")?;
        let path = ["client", "v1", "media", "download", server, id];
        let mut call = Call::get(&path);
        call.within = DOWNLOAD_LIMIT;
        let response = self.api.send(call).await.map_err(|err| err.to_string())?;
        let body = response.body.read(limit).await.map_err(|err| err.to_string())?;
        match body.cut {
            true => Err(format!("the file has more than {limit} bytes")),
            false => Ok(body.bytes.into()),
        }
    }

    async fn check(&self) -> Result<AccountInfo, Problem> {
        let own = self.own().await.map_err(|err| self.problem(&err))?;
        let mut warnings = Vec::new();
        match self.api.json(Call::get(&["client", "v1", "media", "config"])).await {
            Ok(config) => {
                let size = config["m.upload.size"].as_u64().filter(|size| *size < send::MAX_FILE as u64);
                warnings
                    .extend(size.map(|size| format!("the homeserver takes files of at most {size} bytes")));
            }
            Err(err) if err.code() == "M_UNRECOGNIZED" => warnings
                .push("the homeserver is too old for files (it needs Matrix 1.11); update it".to_owned()),
            Err(_) => {}
        }
        Ok(AccountInfo { name: own.id, warnings })
    }

    fn problem(&self, err: &ApiError) -> Problem {
        let (name, host) = (self.api.secret_name(), self.api.host());
        let set = format!("gantry secrets set {name} --host {host}");
        let fix = match err {
            ApiError::NoToken(_) => format!("store the access token: {set}"),
            _ if err.code() == "M_USER_DEACTIVATED" => "create another account for the bot".to_owned(),
            _ if err.needs_login() => {
                format!("the access token is wrong or was revoked; log in again and store the new one: {set}")
            }
            ApiError::Unusable(_) => "correct `homeserver` in gantry.toml and the stored token".to_owned(),
            ApiError::Net(NetError::Name { .. } | NetError::Connect { .. } | NetError::TimedOut { .. }) => {
                format!("check `homeserver` in gantry.toml, and that this machine can reach {host}")
            }
            ApiError::Net(_) => "check `homeserver` in gantry.toml and the network settings".to_owned(),
            ApiError::Malformed(_) | ApiError::TooLong => format!(
                "`homeserver` must be the address of the client-server API; see https://{host}/.well-known/matrix/client"
            ),
            ApiError::Answer { status, .. } if status.as_u16() == 404 => format!(
                "`homeserver` must be the address of the client-server API; see https://{host}/.well-known/matrix/client"
            ),
            ApiError::Answer { .. } => "wait and try again; see the homeserver's log".to_owned(),
        };
        Problem { message: err.to_string(), fix }
    }
}

impl Adapter for Matrix {
    fn limits(&self) -> Limits {
        Limits {
            text: send::MAX_TEXT,
            buttons: 0,
            file: send::MAX_FILE,
            can_edit: true,
            ignores_repetitions: true,
            may_approve: true,
        }
    }

    fn measure(&self, markdown: &str) -> usize {
        send::measure(markdown)
    }

    fn listen<'a>(&'a self, intake: &'a dyn Intake, cursor: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(async move {
            match sync::Listener::run(self, intake, cursor).await {
                Ok(never) => match never {},
                Err(err) => err,
            }
        })
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(send::send(self, message))
    }

    fn fetch<'a>(&'a self, media: &'a Media, limit: usize) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(self.download(media, limit))
    }

    fn typing<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(err) = self.show_typing(&address.chat).await {
                tracing::debug!(error = %err, "cannot show that the bot is typing");
            }
        })
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(self.check())
    }
}
