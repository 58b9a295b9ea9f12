//! `gantry audit` shows the audit log and verifies it.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use gantry_store::{AuditFilter, AuditLine, Problem};
use serde_json::{Value, json};

use crate::cli::parse_since;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::{Output, printable};

/// The values of an audit line's `status`.
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
    /// Show only tools whose name contains this text
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Show only principals that contain this text, such as operator or agent:main
    #[arg(long)]
    pub(crate) principal: Option<String>,
    /// Show only calls of this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Show only lines with this status
    #[arg(long, value_parser = STATUSES)]
    pub(crate) status: Option<String>,
    /// Show only the lines of this call id
    #[arg(long)]
    pub(crate) call: Option<String>,
    /// Show only lines since this time: 30m, 2h, 7d, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Show at most this many lines, the newest ones
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditAction {
    /// Check the log for changed, removed, reordered, inserted or truncated lines
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
        ..AuditFilter::default()
    };
    let log = environment.data.audit_log();
    let lines =
        gantry_store::list(&log, &filter).with_context(|| format!("cannot read {}", log.display()))?;
    if output.json {
        output.value(&Value::Array(lines));
        return Ok(Exit::Success);
    }
    if lines.is_empty() {
        output.warning("no audit lines match");
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
        ("connection", status) => {
            let outcome = format!("connection {status}");
            if status == "success" { output.dim(&outcome) } else { output.yellow(&outcome) }
        }
        ("begin", "resumed") => output.dim("resumed"),
        ("begin", _) => output.dim("started"),
        (phase, _) => phase.to_owned(),
    };
    let mut details = Vec::new();
    details.extend(line.get("input").map(Value::to_string));
    details.extend(line.get("durationMs").and_then(Value::as_f64).map(duration));
    let joined = |error: &str| error.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    details.extend(line.get("error").and_then(Value::as_str).map(joined));
    details.extend(line.get("damaged").map(|text| format!("damaged line: {text}")));
    let number = line.get("seq").and_then(Value::as_u64).unwrap_or_default();
    let lead =
        format!("{number:>6}  {at}  {:<12}  {}  {outcome}", text("principal"), output.bold(&text("tool")));
    format!("{lead}  {}", output.dim(&details.join("  "))).trim_end().to_owned()
}

/// Formats milliseconds with a precision that people read.
fn duration(milliseconds: f64) -> String {
    match milliseconds {
        short if short < 10.0 => format!("{short:.1} ms"),
        short if short < 1_000.0 => format!("{short:.0} ms"),
        long if long < 60_000.0 => format!("{:.1} s", long / 1_000.0),
        long => format!("{:.1} min", long / 60_000.0),
    }
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
            "{lead} {} lines{files}, none changed, removed, reordered, inserted or truncated",
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
        output
            .line(&format!("lines 1 to {} are older than audit.keepDays and were deleted", found.removed_to));
    }
    if found.torn_bytes > 0 {
        output.warning(&format!(
            "the last line is incomplete ({} bytes), probably after a crash; the next call removes and records it",
            found.torn_bytes
        ));
    }
    Ok(if intact { Exit::Success } else { Exit::Failure })
}
