//! Grants: which earlier approvals answer a question, and which ones a question offers.
//!
//! The flow rule and the escalation rule are never answered by a grant. A grant counts for its own agent, and for the rule
//! that asked when it was given; the rules that ask at the border of the workspace count as one.

mod command_line;

use std::path::{Component, Path};

use gantry_net::LOOPBACK_SERVICE;
use gantry_protocol::{AskedAction, ChangeKind, GrantOffer, GrantReach, GrantScope};
use gantry_store::StoredGrant;
use gantry_tool::{
    Approval, BORDER_RULE, EGRESS_RULE, ESCALATION_RULE, FLOW_RULE, LOCAL_NODE, QuestionText, UNATTENDED_RULE,
};

/// The gate's rule for supervised agents.
pub(crate) const SUPERVISED: &str = "supervised-agent";
/// The rules that ask at the border. A grant that was given for one of them counts for the others.
const BORDER_RULES: [&str; 3] = [BORDER_RULE, EGRESS_RULE, SUPERVISED];
/// The duration of an offered grant for later sessions.
const LASTING_HOURS: u32 = 30 * 24;
/// A directory nearer to the root is not offered: it could be a home directory.
const MIN_DIRECTORY_DEPTH: usize = 3;
/// The most prefixes that a question offers.
const MAX_PREFIX_OFFERS: usize = 2;
const LABEL_CHARS: usize = 120;

/// Whether a grant may answer questions of this rule.
pub(crate) fn may_answer(rule: &str) -> bool {
    // A call that implies several others is asked about with several rules.
    rule.split(", ").all(|rule| ![FLOW_RULE, ESCALATION_RULE, UNATTENDED_RULE].contains(&rule))
}

/// Returns the grants that answer the question, as the audit log names them.
pub(crate) fn covering(grants: &[StoredGrant], asked: &Approval, exact: &str) -> Option<String> {
    let leaves_sandbox = matches!(&asked.whole, AskedAction::Command { escalation: Some(_), .. });
    if !may_answer(&asked.rule) || leaves_sandbox {
        return None;
    }
    let whole = grants.iter().find(|grant| covers(grant, asked, exact));
    whole.map(|grant| grant.info.id.clone()).or_else(|| covering_prefixes(grants, asked))
}

/// Whether one grant covers the whole question.
fn covers(grant: &StoredGrant, asked: &Approval, exact: &str) -> bool {
    let info = &grant.info;
    match (&info.scope, &asked.whole) {
        (GrantScope::Call, _) => {
            let is_same_call = !exact.is_empty()
                && grant.exact == exact
                && info.tool == asked.tool
                && asked.rule != EGRESS_RULE
                && info.rule != EGRESS_RULE;
            grant.fingerprint == asked.fingerprint || is_same_call
        }
        (GrantScope::Tool, _) => info.tool == asked.tool && info.rule == asked.rule,
        (GrantScope::Host(host), whole) => {
            counts_for(&info.rule, &asked.rule) && host_of(whole).as_ref() == Some(host)
        }
        (GrantScope::Path(granted), whole) => {
            let paths = changed_paths(whole);
            let is_below = |path: &String| is_resolved(path) && Path::new(path).starts_with(granted);
            counts_for(&info.rule, &asked.rule) && !paths.is_empty() && paths.iter().all(is_below)
        }
        (GrantScope::Recipient(granted), AskedAction::Message { to, .. }) => {
            info.tool == asked.tool && counts_for(&info.rule, &asked.rule) && to == granted
        }
        (GrantScope::Recipient(_) | GrantScope::Prefix(_), _) => false,
    }
}

/// Several grants may cover the commands of one line together.
fn covering_prefixes(grants: &[StoredGrant], asked: &Approval) -> Option<String> {
    let commands = command_line::commands(sandboxed_command(&asked.whole)?)?;
    let mut used: Vec<&str> = Vec::new();
    for command in &commands {
        let grant = grants.iter().find(|grant| match &grant.info.scope {
            GrantScope::Prefix(prefix) => {
                counts_for(&grant.info.rule, &asked.rule)
                    && command_line::is_grantable(prefix)
                    && command.starts_with(prefix)
            }
            _ => false,
        })?;
        if !used.contains(&grant.info.id.as_str()) {
            used.push(&grant.info.id);
        }
    }
    Some(used.join("+"))
}

fn counts_for(given: &str, asked: &str) -> bool {
    given == asked || (BORDER_RULES.contains(&given) && BORDER_RULES.contains(&asked))
}

/// The command line, if it runs in the sandbox of this machine.
fn sandboxed_command(action: &AskedAction) -> Option<&str> {
    match action {
        AskedAction::Command { command, machine, escalation: None, sandboxed: true, .. } => {
            Some(command.as_str()).filter(|_| machine == LOCAL_NODE)
        }
        _ => None,
    }
}

/// The host as grants name it. A port is part of it, except for the usual ports of the web.
fn host_of(action: &AskedAction) -> Option<String> {
    match action {
        AskedAction::WebRequest { host, .. } => Some(host.clone()).filter(|host| !host.is_empty()),
        AskedAction::Connection { host, port, .. } => {
            let is_web = [80, 443].contains(port) && host != LOOPBACK_SERVICE;
            Some(if is_web { host.clone() } else { format!("{host}:{port}") })
        }
        _ => None,
    }
}

/// The paths that change on this machine. The file engine has resolved them; the paths of a copy are not resolved.
fn changed_paths(action: &AskedAction) -> &[String] {
    match action {
        AskedAction::FileChange { machine, paths, change, .. }
            if machine == LOCAL_NODE && *change != ChangeKind::Copy =>
        {
            paths
        }
        _ => &[],
    }
}

fn is_resolved(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    parts.next() == Some(Component::RootDir) && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Checks the subject of a grant that a person chose. Returns the reason why it is not possible.
pub(crate) fn refused(scope: &GrantScope, asked_rule: &str) -> Option<String> {
    if !may_answer(asked_rule) {
        return Some(format!(
            "'always' is not possible here: the rule {asked_rule} asks about each call by itself; answer yes or no"
        ));
    }
    match scope {
        GrantScope::Prefix(words) if !command_line::is_grantable(words) => Some(format!(
            "{words:?} is not a possible prefix: it needs plain words, and a program that does not run other programs"
        )),
        GrantScope::Path(path) if !is_resolved(path) || Path::new(path).parent().is_none() => {
            Some(format!("{path:?} must be an absolute path below the root, without `.` and `..`"))
        }
        GrantScope::Host(host) if host.is_empty() || host.contains(['/', '*', ' ']) => {
            Some(format!("{host:?} is not a host; name one host, such as example.com"))
        }
        _ => None,
    }
}

/// What a grant allows, for people.
pub(crate) fn label(scope: &GrantScope, tool: &str, asked: &AskedAction) -> String {
    let label = match scope {
        GrantScope::Call => match asked {
            AskedAction::Command { .. } => "this exact command".to_owned(),
            _ => "this exact call".to_owned(),
        },
        GrantScope::Tool => format!("any call of {tool}"),
        GrantScope::Prefix(words) => format!("commands that start with \"{}\"", words.join(" ")),
        GrantScope::Host(host) => format!("the host {host}"),
        GrantScope::Path(path) => format!("changes to {path} and below it"),
        GrantScope::Recipient(to) => format!("messages to {to}"),
    };
    gantry_tool::on_one_line(&label)
}

/// The question of a grant in lists, shortened.
pub(crate) fn headline(action: &AskedAction) -> String {
    let headline = QuestionText::new(action).headline;
    match headline.char_indices().nth(LABEL_CHARS) {
        Some((end, _)) => format!("{}…", &headline[..end]),
        None => headline,
    }
}

/// Returns the grants that make sense for a question. `known` are the grants that count already.
pub(crate) fn offers(asked: &Approval, known: &[StoredGrant], hours: u32) -> Vec<GrantOffer> {
    if !may_answer(&asked.rule) {
        return Vec::new();
    }
    let session = |scope: GrantScope| (scope, GrantReach::Session, hours);
    let lasting = |scope: GrantScope| (scope, GrantReach::Agent, LASTING_HOURS);
    // A label would show what is masked.
    let is_shown = asked.action == asked.whole;
    let scopes = match &asked.whole {
        AskedAction::Command { escalation: Some(_), .. } => Vec::new(),
        whole @ AskedAction::Command { .. } => {
            let mut scopes = vec![session(GrantScope::Call)];
            let prefixes = if is_shown { offered_prefixes(whole, known) } else { Vec::new() };
            scopes.extend(prefixes.into_iter().map(|prefix| session(GrantScope::Prefix(prefix))));
            scopes
        }
        whole @ (AskedAction::WebRequest { .. } | AskedAction::Connection { .. }) => {
            match host_of(whole).filter(|_| is_shown && BORDER_RULES.contains(&asked.rule.as_str())) {
                Some(host) => vec![session(GrantScope::Host(host.clone())), lasting(GrantScope::Host(host))],
                None => vec![session(GrantScope::Call)],
            }
        }
        whole @ AskedAction::FileChange { .. } => {
            let is_border = BORDER_RULES.contains(&asked.rule.as_str());
            match offered_path(changed_paths(whole)).filter(|_| is_border) {
                Some(path) => vec![session(GrantScope::Path(path.clone())), lasting(GrantScope::Path(path))],
                None => vec![session(GrantScope::Call)],
            }
        }
        AskedAction::Message { to, .. } if is_shown => {
            vec![session(GrantScope::Recipient(to.clone())), lasting(GrantScope::Recipient(to.clone()))]
        }
        AskedAction::Message { .. } | AskedAction::FileRead { .. } | AskedAction::ServiceChange { .. } => {
            vec![session(GrantScope::Call)]
        }
        AskedAction::Schedule { .. } => Vec::new(),
        AskedAction::Other { .. } | AskedAction::Unknown => {
            vec![session(GrantScope::Call), session(GrantScope::Tool)]
        }
    };
    let offer = |(at, (scope, reach, hours)): (usize, (GrantScope, GrantReach, u32))| {
        let what = label(&scope, &asked.tool, &asked.action);
        let label = match reach {
            GrantReach::Session => format!("this session: {what}"),
            GrantReach::Agent => format!("always ({} days): {what}", hours / 24),
        };
        GrantOffer { key: (at + 1).to_string(), label, scope, reach, hours }
    };
    scopes.into_iter().enumerate().map(offer).collect()
}

/// The prefixes of the commands that no known grant covers.
fn offered_prefixes(whole: &AskedAction, known: &[StoredGrant]) -> Vec<Vec<String>> {
    let commands = sandboxed_command(whole).and_then(command_line::commands).unwrap_or_default();
    let is_known = |command: &Vec<String>| {
        let covers = |grant: &StoredGrant| matches!(&grant.info.scope, GrantScope::Prefix(prefix) if command.starts_with(prefix));
        known.iter().any(covers)
    };
    let mut offered: Vec<Vec<String>> = Vec::new();
    for command in commands.iter().filter(|command| !is_known(command)) {
        match command_line::suggested(command) {
            Some(prefix) if !offered.contains(&prefix) => offered.push(prefix),
            Some(_) => {}
            // The line would be asked about again in any case.
            None => return Vec::new(),
        }
    }
    offered.truncate(MAX_PREFIX_OFFERS);
    offered
}

/// The directory of the changed files, or the file itself if the directory is near the root.
fn offered_path(paths: &[String]) -> Option<String> {
    let first = Path::new(paths.first()?);
    let directory = first.parent()?;
    let depth = directory.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let offered = if depth >= MIN_DIRECTORY_DEPTH { directory } else { first };
    let covers = paths.iter().all(|path| is_resolved(path) && Path::new(path).starts_with(offered));
    covers.then(|| offered.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
