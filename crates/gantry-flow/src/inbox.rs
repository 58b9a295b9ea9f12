//! The inbox: every open approval, question and plan, over all sessions.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_domain::{Identity, MethodContext, Methods};
use gantry_protocol::{Empty, InboxItem, InboxList, InboxSubject, SessionEvent, event, method, raw};
use gantry_tool::{Refusal, RefusalCode};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::access::{Answer, own_agents, wire};
use crate::domain::Flow;
use crate::plans;

/// Sessions with work that are asked for their questions.
const MAX_SESSIONS: u32 = 1_000;

/// The least time between two events, because many questions may come at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Plans come and go without an event of a session, so the list is compared this often while somebody listens.
const PLANS_PAUSE: Duration = Duration::from_secs(2);

/// The connections that listen.
#[derive(Default)]
pub(crate) struct InboxListeners(Mutex<HashSet<u64>>);

impl InboxListeners {
    fn all(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn methods(methods: Methods, flow: &Arc<Flow>) -> Methods {
    methods.on(method::INBOX_LIST, flow, list).on(method::INBOX_LISTEN, flow, listen)
}

async fn list(flow: Arc<Flow>, context: MethodContext, _: Empty) -> Answer<InboxList> {
    open_items(&flow, &context.identity).await.map_err(wire)
}

/// Answers with the items, and sends them again whenever they change, until the client disconnects.
async fn listen(flow: Arc<Flow>, context: MethodContext, _: Empty) -> Answer<InboxList> {
    // Subscribed before the list is read, so that no question is missed.
    let mut events = flow.parts.sessions.listen_to_all();
    let first = open_items(&flow, &context.identity).await.map_err(wire)?;
    if !flow.inbox.all().insert(context.connection) {
        return Ok(first);
    }
    let mut sent = first.clone();
    tokio::spawn(async move {
        let mut next = Instant::now() + PLANS_PAUSE;
        loop {
            tokio::select! {
                _ = context.link.closed() => break,
                received = events.recv() => match received {
                    Ok(data) if !may_change_inbox(&data.event) => continue,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break,
                },
                () = tokio::time::sleep_until(next) => {}
            }
            tokio::time::sleep(PAUSE).await;
            next = Instant::now() + PLANS_PAUSE;
            // A failed read is repeated with the next event, or after the pause.
            let Ok(items) = open_items(&flow, &context.identity).await else { continue };
            if items != sent {
                if context.link.event(event::INBOX_CHANGED, raw(&items)).await.is_err() {
                    break;
                }
                sent = items;
            }
        }
        flow.inbox.all().remove(&context.connection);
    });
    Ok(first)
}

fn may_change_inbox(event: &SessionEvent) -> bool {
    matches!(
        event,
        SessionEvent::Approval { .. }
            | SessionEvent::ApprovalAnswered { .. }
            | SessionEvent::Asked { .. }
            | SessionEvent::AskedAnswered { .. }
            | SessionEvent::Final { .. }
            | SessionEvent::Stopped { .. }
            | SessionEvent::Error { .. }
            | SessionEvent::Reset { .. }
    )
}

async fn open_items(flow: &Flow, identity: &Identity) -> Result<InboxList, Refusal> {
    let sessions = &flow.parts.sessions;
    let failed = |err: &dyn std::fmt::Display| Refusal::new(RefusalCode::Unavailable, err.to_string());
    let at_work = sessions.at_work(MAX_SESSIONS).await.map_err(|err| failed(&err))?;
    let agents = own_agents(identity);
    let mut items = Vec::new();
    for row in at_work {
        if agents.is_some_and(|agents| !agents.contains(&row.agent)) {
            continue;
        }
        let Ok(key) = sessions.key(&row.key, None) else { continue };
        // A session that cannot be read now does not hide the others.
        let Ok(status) = sessions.own_status(&key).await else { continue };
        let labels: Vec<String> = status.labels.iter().map(|label| label.name().to_owned()).collect();
        let item = |subject| InboxItem {
            agent: row.agent.clone(),
            session_key: Some(row.key.clone()),
            label: row.label.clone(),
            labels: labels.clone(),
            subject,
        };
        items.extend(status.questions.into_iter().map(|question| {
            (question.expires, item(InboxSubject::Approval { question: Box::new(question) }))
        }));
        items.extend(
            status.asks.into_iter().map(|asked| (asked.expires, item(InboxSubject::Question { asked }))),
        );
    }
    // Questions expire in the order in which they were asked.
    items.sort_by_key(|(expires, _)| *expires);
    let plans = plans::api::list(flow, identity).await?.plans.into_iter().rev();
    let plans = plans.map(|plan| InboxItem {
        agent: plan.agent.clone(),
        session_key: None,
        label: None,
        labels: Vec::new(),
        subject: InboxSubject::Plan { plan },
    });
    Ok(InboxList { items: items.into_iter().map(|(_, item)| item).chain(plans).collect() })
}
