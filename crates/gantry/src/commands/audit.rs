//! `gantry audit`: who called what, and whether the log is whole.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use gantry_store::{AuditFilter, AuditLine, Problem};
use serde_json::{Value, json};

use crate::cli::parse_since;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::{Output, printable};

/// What a line can say came of its call.
const STATUSES: [&str; 11] = [
    "success",
    "failure",
    "denied",
    "approval_needed",
    "invalid_input",
    "unknown_tool",
    "unavailable",
    "deadline",
    "cancelled",
    "unaudited",
    "resumed",
];

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        gantry audit --tool Bash --limit 20\n  \
        gantry audit --status denied --since 2h\n  \
        gantry audit verify"
)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) action: Option<AuditAction>,
    /// Only tools whose name contains this
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only principals that contain this, such as operator or agent:main
    #[arg(long)]
    pub(crate) principal: Option<String>,
    /// Only calls made as this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Only this status
    #[arg(long, value_parser = STATUSES)]
    pub(crate) status: Option<String>,
    /// Only the lines of one call
    #[arg(long)]
    pub(crate) call: Option<String>,
    /// Only lines since then: 30m, 2h, 7d, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// The newest this many lines
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditAction {
    /// Find changed, removed, reordered and inserted lines, and a cut tail
    Verify,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: AuditArgs) -> Result<Exit> {
    match args.action {
        Some(AuditAction::Verify) => verify(environment, output),
        None => list(environment, output, args),
    }
}

fn list(environment: &Environment, output: &Output, args: AuditArgs) -> Result<Exit> {
    let filter = AuditFilter {
        tool: args.tool,
        principal: args.principal,
        agent: args.agent,
        status: args.status,
        call: args.call,
        since: args.since,
        limit: args.limit,
    };
    let log = environment.data.audit_log();
    let lines =
        gantry_store::list(&log, &filter).with_context(|| format!("cannot read {}", log.display()))?;
    if output.json {
        output.value(&Value::Array(lines));
        return Ok(Exit::Success);
    }
    if lines.is_empty() {
        output.warning("no audit line matches");
    }
    for line in &lines {
        output.prose(&row(output, line), 8);
    }
    Ok(Exit::Success)
}

fn row(output: &Output, line: &AuditLine) -> String {
    let text = |name: &str| printable(line.get(name).and_then(Value::as_str).unwrap_or_default());
    let at = text("at").split('.').next().unwrap_or_default().replace('T', " ");
    let outcome = match (text("phase").as_str(), text("status").as_str()) {
        ("end", "success") => output.green("success"),
        ("end", status) => output.red(status),
        ("refused", status) => output.yellow(status),
        ("begin", "resumed") => output.dim("resumed"),
        ("begin", _) => output.dim("began"),
        (phase, _) => phase.to_owned(),
    };
    let mut details = Vec::new();
    details.extend(line.get("input").map(Value::to_string));
    details.extend(line.get("durationMs").map(|time| format!("{time} ms")));
    let joined = |error: &str| error.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    details.extend(line.get("error").and_then(Value::as_str).map(joined));
    details.extend(line.get("damaged").map(|text| format!("damaged line: {text}")));
    let number = line.get("seq").and_then(Value::as_u64).unwrap_or_default();
    let lead =
        format!("{number:>6}  {at}  {:<12}  {}  {outcome}", text("principal"), output.bold(&text("tool")));
    format!("{lead}  {}", output.dim(&details.join("  "))).trim_end().to_owned()
}

fn verify(environment: &Environment, output: &Output) -> Result<Exit> {
    let log = environment.data.audit_log();
    let found = gantry_store::verify(&log).with_context(|| format!("cannot verify {}", log.display()))?;
    let intact = found.is_intact();
    if output.json {
        let row = |problem: &Problem| {
            let text = problem.kind.to_string();
            match problem.file.as_str() {
                "" => json!({"line": problem.line, "problem": text}),
                file => json!({"file": file, "line": problem.line, "problem": text}),
            }
        };
        output.value(&json!({
            "intact": intact, "lines": found.lines, "files": found.files, "head": found.head,
            "removedTo": found.removed_to, "tornBytes": found.torn_bytes,
            "problems": found.problems.iter().map(row).collect::<Vec<_>>(),
            "furtherProblems": found.further_problems,
        }));
        return Ok(if intact { Exit::Success } else { Exit::Failure });
    }
    if intact {
        let files = if found.files > 1 { format!(" in {} files", found.files) } else { String::new() };
        let lead = output.green("intact:");
        output.line(&format!(
            "{lead} {} lines{files}, none changed, removed, reordered, inserted or cut",
            found.lines
        ));
    }
    for problem in &found.problems {
        let place = match (problem.file.as_str(), problem.line) {
            ("", 0) => "log:".to_owned(),
            ("", line) => format!("line {line}:"),
            (file, line) => format!("{file} line {line}:"),
        };
        output.line(&format!("{} {}", output.red(&place), problem.kind));
    }
    if found.further_problems > 0 {
        output.line(&format!("and {} more problems", found.further_problems));
    }
    if found.removed_to > 0 {
        output.line(&format!("lines 1 to {} were removed after audit.keepDays", found.removed_to));
    }
    if found.torn_bytes > 0 {
        output.warning(&format!(
            "the last line is incomplete ({} bytes), as a crash leaves it; the next call removes it and records that",
            found.torn_bytes
        ));
    }
    Ok(if intact { Exit::Success } else { Exit::Failure })
}
