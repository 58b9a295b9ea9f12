//! Gets one answer, with as many attempts as it takes: retries after a pause, then the fallback
//! model, within the limits.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::anthropic::Thoughts;
use crate::attempt::Attempt;
use crate::codec;
use crate::error::ModelError;
use crate::estimate::count_estimate;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::model::Model;
use crate::models::{Models, Reached};
use crate::{Reply, Request, StreamEvent};

/// How often an answer may be empty. More attempts seldom help, because the request may be too
/// long.
const EMPTY_ATTEMPTS: u32 = 2;

impl Models {
    /// Asks the request's model. Events are passed on as they arrive. The reply is their sum, and
    /// the last event.
    pub async fn answer(
        &self,
        request: &Request,
        limits: Limits,
        cancel: &CancellationToken,
        events: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Reply, ModelError> {
        let model = self.resolve(&request.model)?;
        let asked = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ModelError::Cancelled),
            asked = Box::pin(self.ask(model, request, limits, events)) => asked,
        };
        let reply = asked?;
        events(StreamEvent::Done(Box::new(reply.clone())));
        Ok(reply)
    }

    async fn ask(
        &self,
        model: &Model,
        request: &Request,
        limits: Limits,
        events: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Reply, ModelError> {
        let failed = match self.ask_one(model, request, limits, events).await {
            Err(err @ (ModelError::Unavailable { .. } | ModelError::Empty { .. })) => err,
            answer => return answer,
        };
        let fallback = self.fallback.as_deref().and_then(|name| self.resolve(name).ok());
        match fallback.filter(|fallback| limits.fallback && fallback.name != model.name) {
            Some(fallback) => {
                self.ask_one(fallback, request, limits, events).await.map_err(|err| match err {
                    // Both models failed. The first failure is the one that the caller asked about.
                    ModelError::Unavailable { model, attempts, time, reason } => ModelError::Unavailable {
                        model,
                        attempts,
                        time,
                        reason: format!("{reason}; before that: {failed}"),
                    },
                    other => other,
                })
            }
            None => Err(failed),
        }
    }

    async fn ask_one(
        &self,
        model: &Model,
        request: &Request,
        limits: Limits,
        events: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Reply, ModelError> {
        let reached = self.reached(model);
        let Some(reached) = reached else {
            return Err(ModelError::Unknown(crate::UnknownModel {
                name: model.name.clone(),
                nearest: Vec::new(),
            }));
        };
        let began = Instant::now();
        let mut attempt = Attempt {
            reached,
            model,
            body: codec::encode(request, model, &reached.provider, Thoughts::Kept),
            prompt_tokens: count_estimate(request),
            limits,
        };
        let mut thoughts = Thoughts::Kept;
        let (mut failed, mut empty) = (0, 0);
        loop {
            let mut said = false;
            let mut tell = |event: StreamEvent| {
                said = true;
                events(event);
            };
            let fault = match attempt.run(&mut tell).await {
                Ok(reply) => return Ok(reply),
                Err(fault) => fault,
            };
            let (reason, wait) = match fault {
                Fault::Final(err) => return Err(err),
                Fault::Thoughts { message } if thoughts == Thoughts::Dropped => {
                    return Err(ModelError::Refused { model: model.name.clone(), status: 400, message });
                }
                // The provider refused before it said anything, and the next request differs, so
                // this does not count as an attempt.
                Fault::Thoughts { .. } => {
                    thoughts = Thoughts::Dropped;
                    attempt.body = codec::encode(request, model, &reached.provider, thoughts);
                    continue;
                }
                Fault::Passing { reason, wait } => (reason, wait),
                Fault::Empty => {
                    empty += 1;
                    if empty >= EMPTY_ATTEMPTS {
                        return Err(ModelError::Empty { model: model.name.clone() });
                    }
                    ("its answer was empty".to_owned(), None)
                }
            };
            failed += 1;
            if said {
                events(StreamEvent::Restart { reason: reason.clone() });
            }
            let unavailable = |reason| ModelError::Unavailable {
                model: model.name.clone(),
                attempts: failed,
                time: began.elapsed(),
                reason,
            };
            if failed >= self.retry.attempts {
                return Err(unavailable(reason));
            }
            let Some(pause) = self.retry.pause(failed, wait) else {
                return Err(unavailable(format!("{reason}; it asks to wait longer than the limit")));
            };
            let Some(next) = Instant::now().checked_add(pause).filter(|next| *next < limits.deadline) else {
                return Err(unavailable(format!("{reason}; there is no time left to wait")));
            };
            tokio::time::sleep_until(next).await;
        }
    }

    pub(crate) fn reached(&self, model: &Model) -> Option<&Reached> {
        self.providers.iter().find(|reached| reached.provider.name == model.provider)
    }
}
