//! [`SessionsApi`] authorizes access to sessions and builds the wire types. HTTP routes and protocol methods share it.

use std::ops::RangeInclusive;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_domain::Identity;
use gantry_protocol::SessionEvent;
use gantry_protocol::{
    AgentInfo, AgentList, AnswerParams, AnswerResult, GrantInfo, GrantList, History, HistoryEvent,
    MAX_PICTURE_BYTES, MAX_PICTURES, MessageParams, Picture, SendResult, SessionInfo, SessionList,
    SessionMatch, SessionMatches, SessionRename, SessionSearch, SessionStatus,
};
use gantry_store::JournalEvent;
use gantry_tool::{Label, Refusal, RefusalCode, on_one_line};
use serde_json::Value;

use crate::answer_labels::AnswerLabels;
use crate::driver::Status;
use crate::entry::{ApprovalDecision, Image};
use crate::key::SessionKey;
use crate::lasting_approval::LastingApproval;
use crate::sessions::{NewMessage, Sent, SessionError, Sessions};

/// The highest number of events in one page of a session's history.
pub(crate) const MAX_HISTORY: u32 = 1_000;
const MAX_HISTORY_BYTES: usize = 2 * 1024 * 1024;
const MAX_LABEL_CHARS: usize = 200;
const SEARCHED_CHARS: RangeInclusive<usize> = 2..=200;
const EXCERPT_CHARS: usize = 200;

/// The kind of access to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Reads,
    Speaks,
}

/// The sessions of a gateway, for its surfaces.
pub(crate) struct SessionsApi {
    pub(crate) sessions: Sessions,
    pub(crate) answers: AnswerLabels,
}

impl SessionsApi {
    pub(crate) fn new(sessions: Sessions) -> SessionsApi {
        SessionsApi { sessions, answers: AnswerLabels::default() }
    }

    /// Returns the session of a key, if the caller may access it. Agents have no tokens, so they never call this.
    pub(crate) fn session(
        &self,
        identity: &Identity,
        key: &str,
        part: Part,
    ) -> Result<(&Sessions, SessionKey), Refusal> {
        let sessions = &self.sessions;
        let key = sessions.key(key, None).map_err(session_refusal)?;
        let Identity::Client(token) = identity else { return Ok((sessions, key)) };
        identity.check_agent(&key.agent)?;
        if token.read_only && part == Part::Speaks {
            let message = format!("the token \"{}\" is read-only", token.name);
            return Err(Refusal::new(RefusalCode::Denied, message));
        }
        // The agent acts on its messages with the agent's own tools.
        if token.tools.is_some() && part == Part::Speaks {
            let message = format!(
                "the token \"{}\" is limited to some tools, and an agent would use its own tools",
                token.name
            );
            let hint = "use a token that was made without --tools";
            return Err(Refusal::new(RefusalCode::Denied, message).with_hint(hint));
        }
        Ok((sessions, key))
    }

    pub(crate) async fn list_sessions(
        &self,
        identity: &Identity,
        limit: u32,
        offset: u32,
    ) -> Result<SessionList, Refusal> {
        let sessions = &self.sessions;
        let limit = limit.clamp(1, 1_000);
        let listed = match identity {
            Identity::Client(token) if !token.agents.iter().any(|allowed| allowed == "*") => {
                sessions.list_of(&token.agents, limit, offset).await
            }
            Identity::Client(_) | Identity::Operator | Identity::Page(_) => {
                sessions.list(limit, offset).await
            }
        };
        let (rows, total) = listed.map_err(session_refusal)?;
        let mut listed = Vec::with_capacity(rows.len());
        for row in rows {
            let Ok((sessions, key)) = self.session(identity, &row.key, Part::Reads) else { continue };
            // A session without a status is still listed.
            let asks = |status: &Status| !status.questions.is_empty() || !status.asks.is_empty();
            let waiting = row.has_work && sessions.status(&key).await.is_ok_and(|status| asks(&status));
            listed.push(SessionInfo {
                session_key: row.key,
                agent: row.agent,
                label: row.label,
                created: row.created,
                last_activity: row.last_activity,
                events: row.next_seq,
                running: row.has_work,
                waiting,
                parent: row.parent,
            });
        }
        Ok(SessionList { sessions: listed, total })
    }

    pub(crate) fn list_agents(&self, identity: &Identity) -> Result<AgentList, Refusal> {
        let sessions = &self.sessions;
        let agents = sessions.agents();
        let agents = agents.iter().filter(|(id, _)| identity.may_act_as(id));
        let agents = agents.map(|(id, agent)| AgentInfo {
            id: id.clone(),
            model: agent.model.clone(),
            autonomy: agent.autonomy.name().to_owned(),
            workspace: agent.workspace.to_string_lossy().into_owned(),
            session_key: format!("agent:{id}:main"),
        });
        Ok(AgentList { agents: agents.collect() })
    }

    pub(crate) async fn session_status(
        &self,
        identity: &Identity,
        key: &str,
    ) -> Result<SessionStatus, Refusal> {
        let (sessions, key) = self.session(identity, key, Part::Reads)?;
        let status = sessions.status(&key).await.map_err(session_refusal)?;
        Ok(status.into())
    }

    pub(crate) async fn session_history(
        &self,
        identity: &Identity,
        key: &str,
        from: i64,
        before: Option<i64>,
        limit: u32,
    ) -> Result<History, Refusal> {
        let (sessions, key) = self.session(identity, key, Part::Reads)?;
        let limit = limit.clamp(1, MAX_HISTORY);
        if let Some(before) = before {
            let events = sessions.history_before(&key, before, limit).await.map_err(session_refusal)?;
            return Ok(last_page(key.key, &events));
        }
        let events = sessions.history(&key, from, limit).await.map_err(session_refusal)?;
        let full = u32::try_from(events.len()).is_ok_and(|count| count >= limit);
        let mut next = events.last().map(|last| last.seq + 1).filter(|_| full);
        let (mut page, mut bytes) = (Vec::new(), 0);
        for event in &events {
            bytes += event.data.len();
            if bytes > MAX_HISTORY_BYTES && !page.is_empty() {
                next = Some(event.seq);
                break;
            }
            page.push(history_event(event));
        }
        Ok(History { session_key: key.key, events: page, next, previous: None })
    }

    pub(crate) async fn rename_session(
        &self,
        identity: &Identity,
        params: SessionRename,
    ) -> Result<SessionRename, Refusal> {
        let (sessions, key) = self.session(identity, &params.session_key, Part::Speaks)?;
        let label = params.label.trim();
        let is_plain = on_one_line(label) == label;
        if label.is_empty() || label.chars().count() > MAX_LABEL_CHARS || !is_plain {
            let message = format!("the label must be one line of 1 to {MAX_LABEL_CHARS} visible characters");
            return Err(Refusal::new(RefusalCode::InvalidInput, message));
        }
        sessions.rename(&key, label).await.map_err(session_refusal)?;
        Ok(SessionRename { session_key: key.key, label: label.to_owned() })
    }

    pub(crate) async fn search_sessions(
        &self,
        identity: &Identity,
        params: &SessionSearch,
    ) -> Result<SessionMatches, Refusal> {
        let text = params.text.trim();
        if !SEARCHED_CHARS.contains(&text.chars().count()) {
            let (least, most) = (SEARCHED_CHARS.start(), SEARCHED_CHARS.end());
            let message = format!("the text to search for must have {least} to {most} characters");
            return Err(Refusal::new(RefusalCode::InvalidInput, message));
        }
        let agents = match identity {
            Identity::Client(token) if !token.agents.iter().any(|agent| agent == "*") => Some(&*token.agents),
            _ => None,
        };
        let limit = params.limit.unwrap_or(50).clamp(1, 200);
        let found = self.sessions.search(agents, text, limit).await.map_err(session_refusal)?;
        let matches = found.into_iter().map(|found| SessionMatch {
            excerpt: excerpt(&found.text, text),
            session_key: found.key,
            agent: found.agent,
            label: found.label,
            at: found.at,
            seq: found.seq,
        });
        Ok(SessionMatches { matches: matches.collect() })
    }

    pub(crate) async fn send(
        &self,
        identity: &Identity,
        sessions: &Sessions,
        key: &SessionKey,
        params: MessageParams,
    ) -> Result<Sent, Refusal> {
        self.send_labelled(identity, sessions, key, params, Vec::new()).await
    }

    /// As [`SessionsApi::send`], for a message with labels.
    pub(crate) async fn send_labelled(
        &self,
        identity: &Identity,
        sessions: &Sessions,
        key: &SessionKey,
        params: MessageParams,
        mut labels: Vec<Label>,
    ) -> Result<Sent, Refusal> {
        for name in &params.labels {
            labels.push(Label::from_name(name).ok_or_else(|| unknown_label(name))?);
        }
        let images = images(params.pictures)?;
        let workspace =
            params.workspace.as_deref().map(|path| identity.chosen_workspace(path)).transpose()?;
        let message = NewMessage {
            workspace,
            text: params.message,
            id: params.id,
            from: identity.owner(),
            reply_to: params.reply_to,
            labels,
            payer: None,
            channel_event: None,
            images,
        };
        sessions.send(key, message).await.map_err(session_refusal)
    }

    pub(crate) async fn answer_question(
        &self,
        identity: &Identity,
        key: &str,
        params: AnswerParams,
    ) -> Result<AnswerResult, Refusal> {
        let (sessions, key) = self.session(identity, key, Part::Speaks)?;
        let status = sessions.status(&key).await.map_err(session_refusal)?;
        let asks = match &params.question {
            Some(id) => status.asks.iter().any(|asked| asked.id == *id),
            None => status.questions.is_empty() && !status.asks.is_empty(),
        };
        if asks {
            let answers = params.answers.or(params.answer.map(|answer| vec![answer])).unwrap_or_default();
            let text = sessions.reply(&key, params.question, answers, &identity.owner()).await;
            return Ok(AnswerResult { session_key: key.key, text: text.map_err(session_refusal)? });
        }
        let answer = match params.answer.as_deref() {
            Some("yes") => ApprovalDecision::Yes,
            Some("no") => ApprovalDecision::No,
            Some("always") => {
                let AnswerParams { scope, hours, reach, offer, .. } = params;
                let always = LastingApproval { scope, hours, reach, offer };
                let text = sessions.answer_always(&key, params.question, always, &identity.owner()).await;
                return Ok(AnswerResult { session_key: key.key, text: text.map_err(session_refusal)? });
            }
            _ => {
                let message = "an approval must be answered with yes, no or always";
                return Err(Refusal::new(RefusalCode::InvalidInput, message));
            }
        };
        let text = sessions.answer(&key, params.question, answer, &identity.owner()).await;
        Ok(AnswerResult { session_key: key.key, text: text.map_err(session_refusal)? })
    }
}

impl SessionsApi {
    /// Returns the grants of the agents that the caller may use.
    pub(crate) async fn list_grants(
        &self,
        identity: &Identity,
        agent: Option<&str>,
    ) -> Result<GrantList, Refusal> {
        let mut grants = self.sessions.grants().await.map_err(session_refusal)?;
        grants.retain(|grant| {
            identity.may_act_as(&grant.agent) && agent.is_none_or(|agent| grant.agent == agent)
        });
        Ok(GrantList { grants })
    }

    pub(crate) async fn revoke_grant(&self, identity: &Identity, id: &str) -> Result<GrantInfo, Refusal> {
        if !identity.is_operator() {
            let message = "only the operator can revoke a grant";
            return Err(Refusal::new(RefusalCode::Denied, message).with_hint("use the operator's token"));
        }
        self.sessions.revoke_grant(id).await.map_err(session_refusal)
    }
}

/// The last events before a number, as many of them as fit.
fn last_page(session_key: String, events: &[JournalEvent]) -> History {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for event in events.iter().rev() {
        bytes += event.data.len();
        if bytes > MAX_HISTORY_BYTES && !page.is_empty() {
            break;
        }
        page.push(history_event(event));
    }
    page.reverse();
    let previous = page.first().map(|first: &HistoryEvent| first.seq).filter(|first| *first > 0);
    History { session_key, events: page, next: None, previous }
}

/// The text around the first match.
fn excerpt(text: &str, searched: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let at = lower.find(&searched.to_ascii_lowercase()).unwrap_or(0);
    let before: Vec<char> = text[..at].chars().rev().take(EXCERPT_CHARS / 3).collect();
    let after = text[at..].chars().take(EXCERPT_CHARS);
    let cut = before.len() < text[..at].chars().count();
    let shown: String = before.into_iter().rev().chain(after).collect();
    let shown = on_one_line(&shown);
    if cut { format!("…{shown}") } else { shown.to_string() }
}

/// Converts an event of the journal for clients. The state in a checkpoint is omitted, because it is internal.
fn history_event(event: &JournalEvent) -> HistoryEvent {
    let mut data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    if let Some(object) = data.as_object_mut() {
        object.shift_remove("state");
    }
    HistoryEvent { seq: event.seq, at: event.at, kind: event.kind.clone(), data }
}

/// Converts the final event of a message.
pub(crate) fn settled(key: &SessionKey, message: &str, event: &SessionEvent) -> SendResult {
    let (session_key, message_id) = (key.key.clone(), message.to_owned());
    match event.clone() {
        SessionEvent::Final { run, text, .. } => {
            SendResult::Final { session_key, message_id, run_id: Some(run), reply: text }
        }
        SessionEvent::Stopped { run, by, .. } => {
            SendResult::Stopped { session_key, message_id, run_id: Some(run), by }
        }
        SessionEvent::Error { run, message, .. } => {
            SendResult::Error { session_key, message_id, run_id: run, error: message }
        }
        _ => SendResult::Suspended {
            session_key,
            message_id,
            run_id: None,
            error: "the gateway is stopping; the run resumes after the restart".to_owned(),
        },
    }
}

pub(crate) fn session_refusal(err: SessionError) -> Refusal {
    let code = match &err {
        SessionError::Key(_)
        | SessionError::UnknownAgent { .. }
        | SessionError::Unknown { .. }
        | SessionError::Refused(_) => RefusalCode::InvalidInput,
        SessionError::Denied(_) => RefusalCode::Denied,
        SessionError::Stopping | SessionError::Store(_) => RefusalCode::Unavailable,
    };
    Refusal::new(code, err.to_string())
}

/// Checks pictures. A model would refuse each later request with a picture that it cannot read.
fn images(pictures: Vec<Picture>) -> Result<Vec<Image>, Refusal> {
    if pictures.len() > MAX_PICTURES {
        let message = format!("a message has at most {MAX_PICTURES} pictures, not {}", pictures.len());
        return Err(Refusal::new(RefusalCode::InvalidInput, message));
    }
    let checked = pictures.into_iter().enumerate().map(|(at, picture)| {
        let Picture { media_type, data } = picture;
        let is_whole = data.len() <= MAX_PICTURE_BYTES;
        let bytes = is_whole.then(|| STANDARD.decode(&data).ok()).flatten();
        if bytes.is_some_and(|bytes| is_picture(&media_type, &bytes)) {
            return Ok(Image { media_type, data });
        }
        let message = format!(
            "picture {} is not base64 of a PNG, JPEG, GIF or WebP picture of its mediaType, of at most \
             {MAX_PICTURE_BYTES} characters",
            at + 1
        );
        Err(Refusal::new(RefusalCode::InvalidInput, message))
    });
    checked.collect()
}

fn is_picture(media_type: &str, bytes: &[u8]) -> bool {
    match media_type {
        "image/png" => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
        "image/jpeg" => bytes.starts_with(b"\xff\xd8\xff"),
        "image/gif" => bytes.starts_with(b"GIF8"),
        "image/webp" => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
        _ => false,
    }
}

fn unknown_label(name: &str) -> Refusal {
    let shown: String = name.chars().take(40).collect();
    Refusal::new(
        RefusalCode::InvalidInput,
        format!("unknown label {shown:?}; use \"untrusted\" or \"private\""),
    )
}
