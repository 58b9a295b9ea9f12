//! One HTTP request to a gateway, for commands that have no token yet.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;

use crate::dial::{DialError, dial};
use crate::gateway_url::GatewayUrl;
use crate::tls::Trust;

const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum GatewayRequestError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{address} did not answer within {ANSWER_LIMIT:?}")]
    TimedOut { address: String },
    #[error("{address} did not answer as a gateway does: {reason}")]
    Answer { address: String, reason: String },
}

/// Sends JSON and returns the status and the body of the answer.
pub async fn post_to_gateway(
    url: &GatewayUrl,
    trust: &Trust,
    path: &str,
    json: String,
) -> Result<(u16, Vec<u8>), GatewayRequestError> {
    let stream = dial(url, trust).await?;
    let address = url.authority();
    let broken = |reason: String| GatewayRequestError::Answer { address: address.clone(), reason };
    let exchange = async {
        let request = http::Request::post(path)
            .header(http::header::HOST, url.authority())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(json)))
            .map_err(|err| broken(err.to_string()))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|err| broken(err.to_string()))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|err| broken(err.to_string()))?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|err| broken(err.to_string()))?;
            Ok((status, body.to_bytes().to_vec()))
        };
        let (mut answer, mut connection) = (std::pin::pin!(answer), std::pin::pin!(connection));
        tokio::select! {
            answer = &mut answer => answer,
            ended = &mut connection => match ended {
                // The answer may have arrived with the end of the connection.
                Ok(()) => answer.await,
                Err(err) => Err(broken(err.to_string())),
            },
        }
    };
    tokio::time::timeout(ANSWER_LIMIT, exchange)
        .await
        .unwrap_or_else(|_| Err(GatewayRequestError::TimedOut { address: url.authority() }))
}
