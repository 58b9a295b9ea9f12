//! Connects to a server: starts a program or reaches a URL, performs the handshake and lists the tools.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gantry_net::{Client, ClientOptions, HostPattern};
use tokio::time::Instant;

use super::super::connection::{Connection, Greeting, Hearer, Listing, TalkError};
use super::super::credentials::Credentials;
use super::super::definition;
use super::super::http::{Guarded, RefusedRequests};
use super::super::oauth::Login;
use super::super::spec::{AddressSpec, Place};
use super::super::wire::Lists;
use super::Server;

impl Server {
    pub(super) async fn open(&self, hearer: Hearer) -> Result<Connection, TalkError> {
        let greetings = match self.uses_older_revision() {
            true => [Greeting::Older, Greeting::Newest],
            false => [Greeting::Newest, Greeting::Older],
        };
        let connection = match self.greeted(hearer.clone(), greetings[0]).await {
            Err(TalkError::Odd(_) | TalkError::Refused(_)) => self.greeted(hearer, greetings[1]).await?,
            greeted => greeted?,
        };
        match connection.list().await {
            Ok(listing) => {
                self.note(&connection, listing)?;
                Ok(connection)
            }
            Err(err) => {
                connection.close().await;
                Err(err)
            }
        }
    }

    /// Returns whether the server used a revision before 2026-07-28 the last time.
    fn uses_older_revision(&self) -> bool {
        let about = self.known().ok().and_then(|seen| seen.record.about.clone());
        let revision = about.as_ref().and_then(|about| about["protocolVersion"].as_str());
        revision.is_some_and(|revision| revision < "2026-07-28")
    }

    async fn greeted(&self, hearer: Hearer, greeting: Greeting) -> Result<Connection, TalkError> {
        match &self.spec.place {
            Place::Program(program) => {
                let command = self.around.command(program).map_err(TalkError::NotStarted)?;
                let piped = self.around.processes.pipe(command).await.map_err(|err| {
                    let hint = err.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                    TalkError::NotStarted(format!("{err}{hint}"))
                })?;
                Connection::over_stdio(piped, hearer, greeting).await
            }
            Place::Address(address) => {
                Connection::over_http(address.url.as_str(), self.guarded(address), hearer, greeting).await
            }
        }
    }

    fn guarded(&self, address: &AddressSpec) -> Guarded {
        let client = self.client(address);
        let login = self.login_with(address, client.clone());
        Guarded {
            client,
            credentials: Arc::new(Credentials {
                secrets: self.around.secrets.clone(),
                headers: address.headers.clone(),
                login: Some(Arc::new(login)),
            }),
            lists: Lists::default(),
            limit: self.spec.timeout.saturating_add(Duration::from_secs(5)),
            refused: RefusedRequests::default(),
        }
    }

    /// Builds the client. The operator named this host, so its address may be private.
    fn client(&self, address: &AddressSpec) -> Client {
        let own = address.url.host_str().and_then(|host| HostPattern::parse(host).ok());
        let mut options: ClientOptions = self.around.network.clone();
        options.private_hosts.extend(own);
        Client::new(options)
    }

    /// Returns the login of a server with a URL, or `None` for programs.
    pub(in crate::client) fn login(&self) -> Option<Login> {
        match &self.spec.place {
            Place::Program(_) => None,
            Place::Address(address) => Some(self.login_with(address, self.client(address))),
        }
    }

    fn login_with(&self, address: &AddressSpec, client: Client) -> Login {
        Login {
            server: self.name().to_owned(),
            url: address.url.clone(),
            client,
            secrets: self.around.secrets.clone(),
            records: self.around.records.clone(),
            renewing: tokio::sync::Mutex::new(()),
        }
    }

    /// Stores the list of tools in the server's record.
    pub(super) fn note(&self, connection: &Connection, listing: Listing) -> Result<(), TalkError> {
        let Listing { mut tools, usable, .. } = listing;
        // Definitions that the protocol forbids are dropped. Others that Gantry cannot use are kept as unusable.
        tools.retain(|tool| {
            definition::problem(tool).is_some()
                || definition::name(tool).is_some_and(|name| usable.iter().any(|usable| usable == name))
        });
        // The server's secrets are masked, even in names of tools.
        let masker = self.around.masker(&self.spec).map_err(TalkError::Refused)?;
        tools.iter_mut().for_each(|tool| masker.mask_texts(tool));
        let mut about = connection.about();
        about.iter_mut().for_each(|about| masker.mask_texts(about));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let listed = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let noted = self.around.records.change(self.name(), |record| {
            if record.offered != tools || record.about != about || record.listed == 0 {
                (record.offered, record.about, record.listed) = (tools, about, listed);
            }
        });
        noted.map_err(|err| TalkError::Refused(err.to_string()))?;
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    }
}
