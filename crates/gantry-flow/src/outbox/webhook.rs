//! Channels for webhooks: a POST with JSON to a URL that the operator configured.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use gantry_net::{
    Client, ClientOptions, HeaderValue, HostPattern, Method, NetError, Redirects, Request, StatusCode, Url,
    header,
};
use gantry_protocol::OutboxMessage;
use serde_json::json;
use tokio::time::Instant;

use super::{Delivery, OutboxChannel};
use crate::config::WebhookConfig;

/// The time for one attempt.
const LIMIT: Duration = Duration::from_secs(15);
/// The header with the message's key, so that receivers can ignore repetitions.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_TARGET: usize = 1_000;

/// Opens a stored secret for the host of a URL.
pub type SecretFor = Arc<dyn Fn(&str, &Url) -> Result<String, String> + Send + Sync>;

pub(super) struct Webhook {
    name: String,
    url: Option<Url>,
    /// The name of the stored secret for `Authorization: Bearer`.
    secret: Option<String>,
    client: Client,
    secrets: SecretFor,
}

impl Webhook {
    pub(super) fn new(
        name: &str,
        config: &WebhookConfig,
        network: &ClientOptions,
        secrets: SecretFor,
    ) -> Webhook {
        let url = config.url.parse::<Url>().ok();
        let mut options = network.clone();
        let host = url.as_ref().and_then(Url::host_str);
        // The operator named this host, so its address may be private.
        options.private_hosts.extend(host.and_then(|host| HostPattern::parse(host).ok()));
        let address = host.and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        if host == Some("localhost") || address.is_some_and(|address| address.is_loopback()) {
            // A loopback address means another machine when it is reached through a proxy.
            options.proxy = None;
        }
        Webhook {
            name: name.to_owned(),
            url,
            secret: config.secret_name().map(str::to_owned),
            client: Client::new(options),
            secrets,
        }
    }

    async fn post(&self, message: &OutboxMessage) -> Delivery {
        let Some(url) = self.url.clone() else {
            return Delivery::Rejected(format!("the URL of the webhook {:?} is invalid", self.name));
        };
        let Ok(key) = HeaderValue::try_from(&message.dedupe) else {
            return Delivery::Rejected("the message's key is not a valid header value".to_owned());
        };
        let body = json!({
            "id": message.id,
            "key": message.dedupe,
            "agent": message.body.agent,
            "from": message.body.from,
            "to": message.target,
            "title": message.body.title,
            "text": message.body.text,
            "labels": message.body.labels,
            "created": message.created,
        });
        let mut request = Request::get(url.clone(), Instant::now() + LIMIT);
        request.method = Method::POST;
        request.redirects = Redirects::Stop;
        request.body = body.to_string().into();
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers.insert(IDEMPOTENCY_KEY, key);
        if let Some(name) = &self.secret {
            let bearer = (self.secrets)(name, &url).and_then(|value| {
                HeaderValue::try_from(format!("Bearer {value}")).map_err(|err| err.to_string())
            });
            match bearer {
                Ok(mut bearer) => {
                    bearer.set_sensitive(true);
                    request.secret_headers.insert(header::AUTHORIZATION, bearer);
                }
                // The operator may store the secret until the next attempt.
                Err(why) => return Delivery::retry(why),
            }
        }
        match self.client.send(request).await {
            Ok(response) => delivery_of(response.status),
            Err(err) => failed(&err),
        }
    }
}

/// The receiver answered, so it knows the message's key and can ignore a repetition.
fn delivery_of(status: StatusCode) -> Delivery {
    let text = format!("the receiver answered {status}");
    match status {
        status if status.is_success() => Delivery::Sent(None),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Delivery::retry(text)
        }
        status if status.is_server_error() => Delivery::retry(text),
        _ => Delivery::Rejected(text),
    }
}

/// Without an answer, only a request that never left is repeated.
fn failed(err: &NetError) -> Delivery {
    match err {
        NetError::Name { .. } | NetError::Connect { .. } => Delivery::retry(err.to_string()),
        NetError::Protocol { .. }
        | NetError::TimedOut { .. }
        | NetError::Decoding(_)
        | NetError::Redirect { .. } => Delivery::Unknown(err.to_string()),
        NetError::BadUrl { .. }
        | NetError::NotAllowed { .. }
        | NetError::ForbiddenAddress { .. }
        | NetError::ForbiddenName { .. }
        | NetError::BadHeader { .. } => Delivery::Rejected(err.to_string()),
    }
}

impl OutboxChannel for Webhook {
    fn name(&self) -> &str {
        &self.name
    }

    fn check_target(&self, target: &str) -> Result<String, String> {
        match target.len() <= MAX_TARGET {
            true => Ok(target.to_owned()),
            false => Err(format!("a receiver may have at most {MAX_TARGET} bytes")),
        }
    }

    fn deliver<'a>(&'a self, message: &'a OutboxMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(self.post(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_decide_between_sent_retry_and_rejected() {
        assert_eq!(delivery_of(StatusCode::NO_CONTENT), Delivery::Sent(None));
        for status in
            [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_GATEWAY]
        {
            assert!(matches!(delivery_of(status), Delivery::Retry { .. }), "{status}");
        }
        for status in [StatusCode::NOT_FOUND, StatusCode::UNAUTHORIZED, StatusCode::FOUND] {
            assert!(matches!(delivery_of(status), Delivery::Rejected(_)), "{status}");
        }
    }

    #[test]
    fn s33_request_without_an_answer_is_repeated_only_if_it_never_left() {
        let host = || "sink.example".to_owned();
        let reason = || "reset".to_owned();
        assert!(matches!(
            failed(&NetError::Connect { host: host(), reason: reason() }),
            Delivery::Retry { .. }
        ));
        assert!(matches!(
            failed(&NetError::Protocol { host: host(), reason: reason() }),
            Delivery::Unknown(_)
        ));
        assert!(matches!(failed(&NetError::TimedOut { host: host(), limit: LIMIT }), Delivery::Unknown(_)));
    }
}
