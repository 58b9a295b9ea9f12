//! Lists the models that a provider offers, with their windows.

use std::time::Duration;

use gantry_net::{Client, Method, NetworkPolicy, Redirects};
use serde_json::Value;
use tokio::time::Instant;

use crate::codec;
use crate::error::ModelError;
use crate::fault::Fault;
use crate::model::{Facts, Model, ModelEntry};
use crate::models::{Models, Reached};
use crate::provider::Provider;

const MAX_LISTING_BYTES: usize = 4 << 20;
/// More than anybody chooses from; the largest reseller has hundreds.
const MAX_LISTED: usize = 2_000;

/// Asks one provider, within the given time.
pub async fn list_models(
    provider: &Provider,
    network: &gantry_net::ClientOptions,
    within: Duration,
) -> Result<Vec<ModelEntry>, ModelError> {
    let client = Client::new(crate::models::reaching(network, provider));
    ask(&Reached { provider: provider.clone(), client }, within).await
}

impl Models {
    /// Lists what a provider offers, whether or not it is configured.
    pub async fn listed(
        &self,
        provider: &str,
        within: Duration,
    ) -> Option<Result<Vec<ModelEntry>, ModelError>> {
        let reached = self.providers.iter().find(|reached| reached.provider.name == provider)?;
        Some(ask(reached, within).await)
    }
}

async fn ask(reached: &Reached, within: Duration) -> Result<Vec<ModelEntry>, ModelError> {
    let provider = &reached.provider;
    let key = provider.key.as_ref().map(|key| key.read()).transpose();
    let key = key.map_err(|reason| ModelError::Key { provider: provider.name.clone(), reason })?;
    // Represents all models in messages.
    let model = Model {
        name: provider.name.clone(),
        provider: provider.name.clone(),
        id: String::new(),
        facts: Facts::UNKNOWN,
    };
    let fault = match fetch(reached, &model, key.as_deref(), within).await {
        Ok(listed) => return Ok(listed),
        Err(fault) => fault,
    };
    let fault = match &key {
        Some(key) => fault.without(key),
        None => fault,
    };
    Err(match fault {
        Fault::Final(err) => err,
        Fault::Passing { reason, .. } | Fault::Thoughts { message: reason } => {
            ModelError::Unreachable { model: provider.name.clone(), reason }
        }
        Fault::Empty => ModelError::Empty { model: provider.name.clone() },
    })
}

async fn fetch(
    reached: &Reached,
    model: &Model,
    key: Option<&str>,
    within: Duration,
) -> Result<Vec<ModelEntry>, Fault> {
    let provider = &reached.provider;
    let request = gantry_net::Request {
        method: Method::GET,
        url: provider.listing(),
        headers: codec::headers(provider.kind),
        secret_headers: key.map(|key| codec::secret_headers(provider.kind, key)).unwrap_or_default(),
        body: bytes::Bytes::new(),
        policy: NetworkPolicy::AllowAll,
        redirects: Redirects::Stop,
        deadline: Instant::now() + within.min(Duration::from_secs(3600)),
    };
    let response = reached.client.send(request).await.map_err(|err| Fault::of_network(model, &err))?;
    let (status, headers) = (response.status, response.headers);
    let read = response.body.read(MAX_LISTING_BYTES).await.map_err(|err| Fault::of_network(model, &err))?;
    if !status.is_success() {
        return Err(Fault::of_answer(model, status, &headers, &read.bytes));
    }
    let listed: Value = serde_json::from_slice(&read.bytes)
        .map_err(|_| Fault::passing("its answer is not a list of models"))?;
    let Some(models) = listed["data"].as_array() else {
        return Err(Fault::passing("its answer is not a list of models"));
    };
    let ids =
        models.iter().filter_map(|model| Some((model, model["id"].as_str().filter(|id| !id.is_empty())?)));
    let entry = |(model, id): (&Value, &str)| ModelEntry {
        id: id.to_owned(),
        context_window: window(model),
        ..ModelEntry::default()
    };
    Ok(ids.take(MAX_LISTED).map(entry).collect())
}

/// The window, under the names that llama.cpp, vLLM and OpenRouter use.
fn window(model: &Value) -> Option<u64> {
    let window = ["/meta/n_ctx", "/max_model_len", "/context_length"]
        .into_iter()
        .find_map(|at| model.pointer(at)?.as_u64());
    window.filter(|tokens| *tokens > 0)
}
