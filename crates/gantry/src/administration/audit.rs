//! `audit.search` and `audit.verify`.

use std::sync::Arc;

use gantry_domain::MethodContext;
use gantry_protocol::{AuditPage, AuditProblem, AuditSearch, AuditVerified, Empty};
use gantry_store::AuditFilter;
use jiff::Timestamp;

use super::{Answer, State, bad_params, internal, on_disk};

const LINES: usize = 100;
const MAX_LINES: usize = 1_000;

pub(super) async fn search(state: Arc<State>, _: MethodContext, params: AuditSearch) -> Answer<AuditPage> {
    let limit = params.limit.unwrap_or(LINES).clamp(1, MAX_LINES);
    let time = |name: &str, ms: Option<i64>| {
        let parsed = ms.map(Timestamp::from_millisecond).transpose();
        parsed.map_err(|_| bad_params(format!("{name} is not a time in milliseconds since 1970")))
    };
    let filter = AuditFilter {
        since: time("since", params.since)?,
        until: time("until", params.until)?,
        tool: params.tool,
        principal: params.principal,
        agent: params.agent,
        status: params.status,
        call: params.call,
        text: params.text,
        before: params.before,
        limit,
    };
    // Lines of calls that only read are written a little later.
    if let Some((gate, _)) = state.running.get() {
        gate.settle();
    }
    let log = state.environment.data.audit_log();
    on_disk(move || {
        let mut lines = gantry_store::list(&log, &filter).map_err(|err| internal(&err))?;
        lines.reverse();
        let last = lines.last().and_then(|line| line.get("seq")?.as_u64());
        let previous = last.filter(|last| lines.len() == limit && *last > 1);
        Ok(AuditPage { lines, previous })
    })
    .await
}

pub(super) async fn verify(state: Arc<State>, _: MethodContext, _: Empty) -> Answer<AuditVerified> {
    let log = state.environment.data.audit_log();
    on_disk(move || {
        let found = gantry_store::verify(&log).map_err(|err| internal(&err))?;
        let problem = |problem: &gantry_store::Problem| AuditProblem {
            file: problem.file.clone(),
            line: problem.line,
            problem: problem.kind.to_string(),
        };
        Ok(AuditVerified {
            intact: found.is_intact(),
            lines: found.lines,
            files: found.files,
            problems: found.problems.iter().map(problem).collect(),
            further_problems: found.further_problems,
        })
    })
    .await
}
