//! [`Connection`] is how an adapter reaches its provider: the guarded client, limited to the provider's hosts, and the
//! account's secrets.

use std::net::IpAddr;
use std::time::Duration;

use gantry_flow::SecretFor;
use gantry_net::{Client, ClientOptions, HostPattern, NetError, NetworkPolicy, Url};

use crate::adapter::SendOutcome;
use crate::config::secret_name;

/// The time for one request, unless the adapter says otherwise.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct Connection {
    /// The account's name in the configuration.
    pub(crate) account: String,
    pub(crate) client: Client,
    /// The only hosts that this account's requests may reach, redirects and URLs of the provider included.
    pub(crate) policy: NetworkPolicy,
    secrets: SecretFor,
}

impl Connection {
    /// `hosts` are patterns such as `*.slack.com`. `own` is an address that the operator configured; it may be private.
    pub(crate) fn new(
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
        hosts: &[&str],
        own: Option<&Url>,
    ) -> Connection {
        let mut options = network.clone();
        let mut patterns: Vec<HostPattern> =
            hosts.iter().filter_map(|host| HostPattern::parse(host).ok()).collect();
        if let Some(host) = own.and_then(Url::host_str) {
            let pattern = HostPattern::parse(host).ok();
            patterns.extend(pattern.clone());
            options.private_hosts.extend(pattern);
            let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
            if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
                // A loopback address means another machine when it is reached through a proxy.
                options.proxy = None;
            }
        }
        Connection {
            account: account.to_owned(),
            client: Client::new(options),
            policy: NetworkPolicy::AllowList(patterns),
            secrets,
        }
    }

    /// Opens the secret of a reference such as `secret:TELEGRAM`, for the host of `url`.
    pub(crate) fn secret(&self, reference: &str, url: &Url) -> Result<String, String> {
        let name = secret_name(reference).ok_or("the reference to the secret is empty")?;
        (self.secrets)(name, url)
    }

    /// Checks that an address which the provider named may get a credential: it must be at one of the account's hosts, and
    /// its scheme the first one of `schemes`. Only an API of the operator's own (`api`) may be without TLS.
    pub(crate) fn pinned(
        &self,
        service: &str,
        url: &str,
        schemes: [&str; 2],
        api: Option<&Url>,
    ) -> Result<Url, String> {
        let url: Url = url.parse().map_err(|_| format!("{service} sent an address that is not a URL"))?;
        let host = url.host_str().unwrap_or_default();
        if !self.policy.allows(host) {
            return Err(format!("{service} sent an address at {host}, which is not one of its hosts"));
        }
        let is_plain = api.is_some_and(|api| api.scheme() == "http");
        let [secure, plain] = schemes;
        if url.scheme() != secure && !(is_plain && url.scheme() == plain) {
            return Err(format!("{service} sent an address at {host} without TLS"));
        }
        Ok(url)
    }
}

/// Classifies a request that got no answer: only one that never left may be repeated.
pub(crate) fn failed(err: &NetError) -> SendOutcome {
    match err {
        NetError::Name { .. } | NetError::Connect { .. } => {
            SendOutcome::Retry { why: err.to_string(), after: None }
        }
        NetError::Protocol { .. }
        | NetError::TimedOut { .. }
        | NetError::Decoding(_)
        | NetError::Redirect { .. } => SendOutcome::Unknown(err.to_string()),
        NetError::BadUrl { .. }
        | NetError::NotAllowed { .. }
        | NetError::ForbiddenAddress { .. }
        | NetError::ForbiddenName { .. }
        | NetError::BadHeader { .. } => SendOutcome::Refused(err.to_string()),
    }
}
