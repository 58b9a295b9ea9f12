//! `gantry audit`: who called what, and whether the log is whole.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use gantry_store::{AuditFilter, AuditLine};
use serde_json::{Value, json};

use crate::cli::parse_since;
use crate::exit::Exit;
use crate::output::{Output, printable};
use crate::places::Places;

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
    /// Only this status: success, failure, denied, approval_needed, invalid_input, unknown_tool
    #[arg(long)]
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

pub(crate) fn run(places: &Places, output: &Output, args: AuditArgs) -> Result<Exit> {
    match args.action {
        Some(AuditAction::Verify) => verify(places, output),
        None => list(places, output, args),
    }
}

fn list(places: &Places, output: &Output, args: AuditArgs) -> Result<Exit> {
    let filter = AuditFilter {
        tool: args.tool,
        principal: args.principal,
        agent: args.agent,
        status: args.status,
        call: args.call,
        since: args.since,
        limit: args.limit,
    };
    let log = places.data.audit_log();
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
        output.line(&row(output, line));
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

fn verify(places: &Places, output: &Output) -> Result<Exit> {
    let log = places.data.audit_log();
    let found = gantry_store::verify(&log).with_context(|| format!("cannot verify {}", log.display()))?;
    let problems: Vec<_> =
        found.problems.iter().map(|problem| (problem.line, problem.kind.to_string())).collect();
    if output.json {
        let rows: Vec<_> =
            problems.iter().map(|(line, text)| json!({"line": line, "problem": text})).collect();
        output.value(&json!({
            "intact": found.is_intact(), "lines": found.lines, "head": found.head,
            "problems": rows, "furtherProblems": found.further_problems,
        }));
    } else if found.is_intact() {
        output.line(&format!(
            "{} {} lines, none changed, removed, reordered, inserted or cut",
            output.green("intact:"),
            found.lines
        ));
    } else {
        for (line, text) in &problems {
            match line {
                0 => output.line(&format!("{} {text}", output.red("log:"))),
                line => output.line(&format!("{} {text}", output.red(&format!("line {line}:")))),
            }
        }
        if found.further_problems > 0 {
            output.line(&format!("and {} more problems", found.further_problems));
        }
    }
    Ok(if found.is_intact() { Exit::Success } else { Exit::Failure })
}
