//! A domain that counts. It is the smallest use of every part of [`Domain`], and a template for a new one.
//!
//! The released program does not contain it. Tests build it into the binary with the feature
//! `gantry-example` and reach each part from outside.

mod count_tool;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::future::BoxFuture;
use gantry_domain::http::json_response;
use gantry_domain::{
    Checked, ConfigSection, ConfigSections, Domain, Identity, MethodContext, Methods, PublicRoute,
    RequestContext, Running,
};
use gantry_protocol::WireError;
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// `[example]` in `gantry.toml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ExampleConfig {
    /// Turns the domain on.
    pub enabled: bool,
    /// How much one call adds; 1 to 100.
    pub step: Option<i64>,
}

impl ConfigSection for ExampleConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        let step = self.step.filter(|step| !(1..=100).contains(step));
        let message = "must be between 1 and 100".to_owned();
        step.map(|_| Violation { path: format!("{at}.step"), message }).into_iter().collect()
    }

    fn needs_restart(&self) -> bool {
        false
    }
}

/// The state that all parts of the domain share.
struct Counter {
    count: AtomicI64,
    /// How often the worker has run.
    ticks: AtomicU64,
    config: Mutex<ExampleConfig>,
}

impl Counter {
    fn add(&self) -> i64 {
        let step = self.config.lock().unwrap_or_else(PoisonError::into_inner).step.unwrap_or(1);
        self.count.fetch_add(step, Ordering::Relaxed) + step
    }

    fn state(&self) -> CounterState {
        CounterState { count: self.count.load(Ordering::Relaxed), ticks: self.ticks.load(Ordering::Relaxed) }
    }
}

/// The counter as routes and methods show it.
#[derive(Debug, Serialize)]
struct CounterState {
    count: i64,
    ticks: u64,
}

pub struct ExampleDomain {
    counter: Arc<Counter>,
    enabled: bool,
}

impl ExampleDomain {
    pub fn new(config: ExampleConfig) -> ExampleDomain {
        let enabled = config.enabled;
        let counter =
            Counter { count: AtomicI64::new(0), ticks: AtomicU64::new(0), config: Mutex::new(config) };
        ExampleDomain { counter: Arc::new(counter), enabled }
    }
}

impl Domain for ExampleDomain {
    fn name(&self) -> &'static str {
        "example"
    }

    fn routes(&self) -> Router<RequestContext> {
        match self.enabled {
            true => {
                Router::new().route("/v1/example/count", get(show)).layer(Extension(self.counter.clone()))
            }
            false => Router::new(),
        }
    }

    fn public_routes(&self) -> Vec<PublicRoute> {
        let hook = PublicRoute {
            path: "/v1/example/hook",
            handler: axum::routing::post(hook).layer(Extension(self.counter.clone())),
            max_body_bytes: 16,
            per_minute: 5,
        };
        self.enabled.then_some(hook).into_iter().collect()
    }

    fn methods(&self) -> Methods {
        match self.enabled {
            true => Methods::default().on("example.count", &self.counter, count).on_operator(
                "example.reset",
                &self.counter,
                reset,
            ),
            false => Methods::default(),
        }
    }

    fn check_config(&self, new: &ConfigSections) -> Result<Checked, Vec<Violation>> {
        Ok(new.get::<ExampleConfig>().map_or_else(Checked::unchanged, |config| Checked::new(config.clone())))
    }

    fn apply_config(&self, checked: Checked) -> BoxFuture<'_, ()> {
        if let Some(config) = checked.take::<ExampleConfig>() {
            *self.counter.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        }
        Box::pin(std::future::ready(()))
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            if self.enabled {
                running.tools.add(vec![count_tool::tool(&self.counter)])?;
                let counter = self.counter.clone();
                running.spawn_worker(async move {
                    loop {
                        counter.ticks.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                });
            }
            Ok(())
        })
    }
}

async fn show(
    State(_): State<RequestContext>,
    Extension(counter): Extension<Arc<Counter>>,
    Extension(identity): Extension<Identity>,
) -> Response {
    let shown = json!({"state": counter.state(), "caller": identity.owner()});
    json_response(StatusCode::OK, &shown)
}

async fn hook(Extension(counter): Extension<Arc<Counter>>, body: String) -> Response {
    let count = counter.add();
    json_response(StatusCode::OK, &json!({"count": count, "body": body}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

async fn count(counter: Arc<Counter>, _: MethodContext, _: NoParams) -> Result<CounterState, WireError> {
    Ok(counter.state())
}

async fn reset(counter: Arc<Counter>, _: MethodContext, _: NoParams) -> Result<CounterState, WireError> {
    counter.count.store(0, Ordering::Relaxed);
    Ok(counter.state())
}
