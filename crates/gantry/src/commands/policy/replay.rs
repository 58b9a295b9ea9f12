//! `gantry policy test` decides again on the calls of the audit log, and compares the decisions with what happened.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use gantry_store::{AuditFilter, AuditLine};
use gantry_tool::{AuditRecord, Call, Decision, Phase, Principal, Replayed, Surface};
use serde::Serialize;
use serde_json::Value;

use super::{decision_name, decision_shown, node_tools};
use crate::client::runtime;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::local::Local;
use crate::output::{Output, printable};

/// The ending of a rule's name in the log after a person approved the call.
const APPROVED: &str = " (approved)";

/// Examples of changed calls that are kept for each group.
const EXAMPLES: usize = 3;
const EXAMPLE_CHARS: usize = 160;

/// The summary of a replay.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Calls that policy decided on.
    calls: u64,
    /// What happened, and what would happen.
    before: Counts,
    now: Counts,
    changed: u64,
    unchanged: u64,
    not_judged: NotJudged,
    changes: Vec<Change>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct Counts {
    allow: u64,
    ask: u64,
    deny: u64,
}

/// Calls without a new decision, by reason.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotJudged {
    /// The decision depends on a value that the log masks or shortens.
    hidden_input: u64,
    unknown_tool: u64,
    invalid_input: u64,
    damaged_line: u64,
}

/// Calls of one tool that one rule would now decide differently.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    tool: String,
    before: &'static str,
    now: &'static str,
    /// The rule that decided, and the one that would decide.
    rule_before: String,
    rule_now: String,
    calls: u64,
    examples: Vec<String>,
}

impl Counts {
    fn add(&mut self, decision: Decision) {
        match decision {
            Decision::Allow => self.allow += 1,
            Decision::Ask => self.ask += 1,
            Decision::Deny => self.deny += 1,
        }
    }
}

/// The key of a group of changes.
type Group = (String, &'static str, &'static str, String, String);

pub(super) fn run(environment: Environment, output: &Output, since: jiff::Timestamp) -> Result<Exit> {
    let local = Local::open(environment)?;
    let log = local.environment.data.audit_log();
    let runtime = runtime()?;
    let (mut report, mut groups) = (Report::default(), BTreeMap::<Group, (u64, Vec<String>)>::new());
    let filter = AuditFilter { since: Some(since), ..AuditFilter::default() };
    gantry_store::visit(&log, &filter, |line| {
        runtime.block_on(judge(&local, line, &mut report, &mut groups));
    })
    .with_context(|| format!("cannot read {}", log.display()))?;
    report.changes = groups
        .into_iter()
        .map(|((tool, before, now, rule_before, rule_now), (calls, examples))| Change {
            tool,
            before,
            now,
            rule_before,
            rule_now,
            calls,
            examples,
        })
        .collect();
    report.changes.sort_by_key(|change| std::cmp::Reverse(change.calls));
    if output.json {
        output.value(&report);
    } else {
        print(output, &report);
    }
    Ok(Exit::Success)
}

async fn judge(
    local: &Local,
    line: AuditLine,
    report: &mut Report,
    groups: &mut BTreeMap<Group, (u64, Vec<String>)>,
) {
    let Ok(record) = serde_json::from_value::<AuditRecord>(line) else {
        return report.not_judged.damaged_line += 1;
    };
    let Some(happened) = happened(&record) else { return };
    let Some(call) = call(local, &record) else { return report.not_judged.damaged_line += 1 };
    let input = record.input.clone().unwrap_or(Value::Null);
    report.calls += 1;
    node_tools::add_node_of(local, &record.tool);
    let verdict = match local.gate.replay(&call, &record.tool, &input).await {
        Replayed::Decided(verdict) => verdict,
        Replayed::HiddenInput => return report.not_judged.hidden_input += 1,
        Replayed::UnknownTool => return report.not_judged.unknown_tool += 1,
        Replayed::InvalidInput => return report.not_judged.invalid_input += 1,
    };
    report.before.add(happened.decision);
    report.now.add(verdict.decision);
    // The log does not say whether a rule denied a call or a person answered no to its question.
    let was_answered_no = happened.decision == Decision::Deny
        && verdict.decision == Decision::Ask
        && happened.rule == verdict.rule;
    if happened.decision == verdict.decision || was_answered_no {
        return report.unchanged += 1;
    }
    report.changed += 1;
    let decisions = (decision_name(happened.decision), decision_name(verdict.decision));
    let group = (record.tool.clone(), decisions.0, decisions.1, happened.rule, verdict.rule);
    let (calls, examples) = groups.entry(group).or_default();
    *calls += 1;
    if examples.len() < EXAMPLES {
        examples.push(input.to_string().chars().take(EXAMPLE_CHARS).collect());
    }
}

/// What policy decided on a recorded call.
struct Happened {
    decision: Decision,
    rule: String,
}

/// Returns what policy decided. `None` for lines that do not record a decision of policy.
fn happened(record: &AuditRecord) -> Option<Happened> {
    let rule = record.rule.clone()?;
    // Labels belong to a run, and the log does not have them.
    if rule == gantry_tool::FLOW_RULE {
        return None;
    }
    let decision = match (record.phase, record.status.as_deref()) {
        (Phase::Begin, None) if rule.ends_with(APPROVED) => Decision::Ask,
        (Phase::Begin, None) => Decision::Allow,
        (Phase::Refused, Some("approval_needed")) => Decision::Ask,
        (Phase::Refused, Some("denied")) => Decision::Deny,
        _ => return None,
    };
    let rule = rule.strip_suffix(APPROVED).map(str::to_owned).unwrap_or(rule);
    Some(Happened { decision, rule })
}

/// Makes the recorded call again. The log has no workspace and no autonomy, so the agent's present ones apply.
fn call(local: &Local, record: &AuditRecord) -> Option<Call> {
    let principal: Principal = record.principal.parse().ok()?;
    let agent = local.agent(&record.agent).unwrap_or_default();
    let workspace = agent.workspace.clone().unwrap_or_default();
    let surface = Surface::from_name(&record.surface)?;
    let mut call = Call::new(principal, surface, local.environment.current_dir.join(workspace));
    call.agent.clone_from(&record.agent);
    call.autonomy = agent.autonomy;
    Some(call)
}

fn print(output: &Output, report: &Report) {
    output.line(&format!("{:<10} {:>8} {:>8} {:>8}", "", "allow", "ask", "deny"));
    for (name, counts) in [("happened", report.before), ("would be", report.now)] {
        output.line(&format!("{name:<10} {:>8} {:>8} {:>8}", counts.allow, counts.ask, counts.deny));
    }
    output
        .line(&format!("{} calls: {} unchanged, {} changed", report.calls, report.unchanged, report.changed));
    for (count, reason) in [
        (report.not_judged.hidden_input, "the audit log masks or shortens a value that decides"),
        (report.not_judged.unknown_tool, "the tool is unknown here"),
        (report.not_judged.invalid_input, "the tool does not accept the input any more"),
        (report.not_judged.damaged_line, "the line is not readable"),
    ] {
        if count > 0 {
            output.line(&format!("{} {count}: {reason}", output.yellow("not judged:")));
        }
    }
    let by_name = |name: &str| match name {
        "allow" => decision_shown(output, Decision::Allow),
        "ask" => decision_shown(output, Decision::Ask),
        _ => decision_shown(output, Decision::Deny),
    };
    for change in &report.changes {
        output.line("");
        output.line(&format!(
            "{}  {} -> {}  {} calls  (rule {}, was {})",
            output.bold(&printable(&change.tool)),
            by_name(change.before),
            by_name(change.now),
            change.calls,
            printable(&change.rule_now),
            printable(&change.rule_before),
        ));
        for example in &change.examples {
            output.prose(&format!("  {}", output.dim(&printable(example))), 4);
        }
    }
}
