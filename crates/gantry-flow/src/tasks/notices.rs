//! Notices to the owner about tasks: results, failures, questions, and tasks that wait for a yes.

use gantry_tool::Label;

use crate::domain::Flow;

/// A message to the owner. A known key sends nothing, so a repeated notice arrives once.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub(crate) key: String,
    pub(crate) agent: String,
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) labels: Vec<Label>,
    /// What it is about, such as `task:ID`.
    pub(crate) from: String,
}

/// Stores a notice. One that cannot be stored is logged: the task's own state still has the facts.
pub(crate) async fn send(flow: &Flow, notice: Notice) {
    let Notice { key, agent, title, text, labels, from } = notice;
    let message = flow.notice(&agent, &title, &text, &key, &from, &labels);
    if let Err(err) = flow.send_messages(&[message]).await {
        tracing::error!(%err, key, "task_notice_failed");
    }
}
