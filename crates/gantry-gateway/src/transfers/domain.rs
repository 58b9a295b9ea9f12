//! Transfers as a domain of the gateway.

use std::sync::Arc;

use anyhow::Context;
use futures_util::future::BoxFuture;
use gantry_domain::{Domain, Running};
use gantry_toolsets::gateway_tools;

use super::{GatewayNodes, Transfers};

/// File transfers, and the tools that reach nodes for files and logs.
pub struct TransfersDomain(pub Arc<Transfers>);

impl Domain for TransfersDomain {
    fn name(&self) -> &'static str {
        "transfers"
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let transfers = &self.0;
            let nodes = Arc::new(GatewayNodes(transfers.clone()));
            running.tools.add(gateway_tools(&transfers.objects, Some(nodes)))?;
            let unfinished = transfers.unfinished().await.context("cannot read unfinished transfers")?;
            let services = running.services.clone();
            unfinished
                .resume(&move |token| {
                    let services = services.clone();
                    Box::pin(async move { services.ending_of_token(token).await })
                })
                .await
                .context("cannot resume transfers")?;
            let tidying = transfers.clone();
            running.spawn_worker(async move {
                tidying.keep_tidy().await;
            });
            Ok(())
        })
    }
}
