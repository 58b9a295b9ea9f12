use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_net::{HostPattern, LOOPBACK_SERVICE, WantedKind};
use gantry_protocol::AskedAction;
use gantry_tool::FLOW_RULE;
use gantry_tool::testing::MemoryAudit;
use gantry_tool::{Approver, Call, Label, Principal, Surface};

use super::super::EgressHost;
use super::*;

fn wanted(host: &str) -> Wanted {
    let loopback_service = host == LOOPBACK_SERVICE;
    Wanted { host: host.into(), port: 443, kind: WantedKind::Connect, loopback_service }
}

/// An agent's call, with an answer to every question.
fn call(labels: &[Label], consent: Option<Consent>, asked: &Arc<AtomicUsize>) -> Arc<Call> {
    let mut call = Call::new(Principal::Agent { id: "main".into() }, Surface::Agent, "/w".into());
    call.autonomy = Autonomy::Guided;
    call.labels = labels.to_vec();
    let (asked, labelled) = (asked.clone(), labels.len() == 2);
    call.approver = consent.map(|consent| {
        Approver::new(move |approval| {
            asked.fetch_add(1, Ordering::SeqCst);
            let rule = if labelled { FLOW_RULE } else { EGRESS_RULE };
            assert_eq!((&*approval.rule, &*approval.tool), (rule, "Bash"));
            let command = Some("curl x".to_owned());
            let port = 443;
            let host = approval.input["host"].as_str().unwrap_or_default().to_owned();
            assert_eq!(approval.whole, AskedAction::Connection { host, port, command });
            let consent = consent.clone();
            async move {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                consent
            }
        })
    });
    Arc::new(call)
}

const BOTH: [Label; 2] = [Label::Untrusted, Label::Private];

struct Bench {
    judge: SessionJudge,
    ledger: Arc<Ledger>,
    audit: Arc<MemoryAudit>,
    asked: Arc<AtomicUsize>,
}

impl Bench {
    fn new(policy: NetworkPolicy) -> Bench {
        let asked = Arc::default();
        let ledger = Arc::new(Ledger::new(&call(&[], None, &asked), "Bash"));
        let allow =
            ["allowed.example", "host.gantry.internal:443"].map(|host| EgressHost::parse(host).unwrap());
        let egress = crate::EgressSettings { allow: allow.to_vec(), ..Default::default() };
        let settings = Live::new(MachineSettings { egress, ..MachineSettings::default() });
        let audit = Arc::new(MemoryAudit::default());
        let judge = SessionJudge::new(policy, ledger.clone(), settings, audit.clone(), Masker::default());
        Bench { judge, ledger, audit, asked }
    }

    /// Decides while this call runs.
    async fn decide(&self, call: &Arc<Call>, host: &str) -> EgressDecision {
        self.ledger.begin(call, "Bash");
        self.ledger.name_command(call, "curl x");
        let decision = self.judge.decide(wanted(host)).await;
        self.ledger.end_call(call);
        decision
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

fn denied(decision: &EgressDecision) -> &str {
    match decision {
        EgressDecision::Deny { reason } => reason,
        EgressDecision::Allow => panic!("it was allowed"),
    }
}

#[tokio::test]
async fn preset_and_list_pass_unless_the_call_holds_both_labels() {
    let bench = Bench::new(NetworkPolicy::AllowAll);
    for (host, plain, labelled) in [
        ("index.crates.io", true, true),
        ("github.com", true, false),
        ("allowed.example", true, false),
        (LOOPBACK_SERVICE, true, false),
        ("unknown.example", false, false),
    ] {
        for (labels, expected) in [(&[][..], plain), (&BOTH[..1], plain), (&BOTH[..], labelled)] {
            let decision = bench.decide(&call(labels, None, &bench.asked), host).await;
            assert_eq!(decision == EgressDecision::Allow, expected, "{host} {labels:?}: {decision:?}");
        }
    }
    let list = vec![HostPattern::parse("unknown.example").unwrap()];
    let listed = Bench::new(NetworkPolicy::AllowList(list));
    let labelled = call(&BOTH, None, &listed.asked);
    assert_eq!(listed.decide(&labelled, "unknown.example").await, EgressDecision::Allow);
    assert_eq!(listed.asked(), 0);
}

#[tokio::test]
async fn answers_are_shared_and_remembered() {
    let bench = Bench::new(NetworkPolicy::AllowAll);
    let yes = call(&[], Some(Consent::Allowed), &bench.asked);
    bench.ledger.begin(&yes, "Bash");
    bench.ledger.name_command(&yes, "curl x");
    let decide = || bench.judge.decide(wanted("unknown.example"));
    let (one, other) = tokio::join!(decide(), decide());
    assert_eq!((one, other, bench.asked()), (EgressDecision::Allow, EgressDecision::Allow, 1));
    bench.ledger.end_call(&yes);
    assert_eq!(bench.decide(&yes, "unknown.example").await, EgressDecision::Allow);
    assert_eq!(bench.asked(), 0, "the session remembers");

    let no = call(&BOTH, Some(Consent::Denied("the user said no".into())), &bench.asked);
    let decision = bench.decide(&no, "unknown.example").await;
    assert!(denied(&decision).contains("the user said no"), "{decision:?}");
    assert_eq!(bench.asked(), 1, "a yes from before the labels does not count");
    let yes = call(&BOTH, Some(Consent::Allowed), &bench.asked);
    assert!(denied(&bench.decide(&yes, "unknown.example").await).contains("said no"));
    assert_eq!(bench.asked(), 0, "a no is remembered too");
}

/// A grant may be revoked, so the judge does not remember it.
#[tokio::test]
async fn granted_connections_are_asked_each_time_and_name_the_grant() {
    let bench = Bench::new(NetworkPolicy::AllowAll);
    let granted = call(&[], Some(Consent::Granted("3f2a".into())), &bench.asked);
    for _ in 0..2 {
        assert_eq!(bench.decide(&granted, "unknown.example").await, EgressDecision::Allow);
        assert_eq!(bench.asked(), 1);
    }
    bench.judge.ended(ConnectionRecord {
        wanted: Some(wanted("unknown.example")),
        outcome: EgressOutcome::Finished,
        bytes_up: 0,
        bytes_down: 0,
        duration: std::time::Duration::from_millis(1),
    });
    let rules: Vec<_> = bench.audit.records().into_iter().map(|(line, _)| line.rule.unwrap()).collect();
    assert_eq!(rules, ["egress (grant 3f2a)"]);
    let revoked = call(&[], Some(Consent::Denied("the user said no".into())), &bench.asked);
    assert!(denied(&bench.decide(&revoked, "unknown.example").await).contains("said no"));
}

#[tokio::test]
async fn denials_say_how_to_allow_the_host_and_warn_the_call() {
    let bench = Bench::new(NetworkPolicy::AllowAll);
    let mut autonomous = (*call(&[], Some(Consent::Allowed), &bench.asked)).clone();
    autonomous.autonomy = Autonomy::Autonomous;
    let autonomous = Arc::new(autonomous);
    let decision = bench.decide(&autonomous, "unknown.example").await;
    assert!(denied(&decision).contains(
        r#"gantry config set egress.allow '["allowed.example","host.gantry.internal:443","unknown.example"]'"#
    ));
    let ended = bench.judge.decide(wanted("unknown.example")).await;
    assert!(denied(&ended).contains("autonomous"), "{ended:?}");
    let nobody = bench.decide(&call(&[], None, &bench.asked), "unknown.example").await;
    assert!(denied(&nobody).contains("nobody can be asked"), "{nobody:?}");
    assert_eq!(bench.asked(), 0);
}

#[tokio::test]
async fn question_is_withdrawn_when_nobody_waits() {
    let bench = Bench::new(NetworkPolicy::AllowAll);
    let withdrawn = Arc::new(AtomicUsize::new(0));
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut asking = (*call(&[], None, &bench.asked)).clone();
    let counter = withdrawn.clone();
    asking.approver = Some(Approver::new(move |_| {
        let counts = Counts(counter.clone());
        async move {
            let _counts = counts;
            std::future::pending().await
        }
    }));
    bench.ledger.begin(&Arc::new(asking), "Bash");
    let waiting = bench.judge.decide(wanted("unknown.example"));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(50), waiting).await.is_err());
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(withdrawn.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn every_connection_is_an_audit_line_of_its_call() {
    let bench = Bench::new(NetworkPolicy::AllowAll);
    let first = call(&[], None, &bench.asked);
    bench.decide(&first, "allowed.example").await;
    // Another call runs when the connection ends.
    bench.ledger.begin(&call(&[], None, &bench.asked), "exec");
    let record = |host: &str, outcome| ConnectionRecord {
        wanted: Some(wanted(host)),
        bytes_up: 3,
        bytes_down: 5,
        outcome,
        duration: std::time::Duration::from_millis(1),
    };
    bench.judge.ended(record("allowed.example", EgressOutcome::Finished));
    bench.judge.ended(record("b.example", EgressOutcome::Refused { reason: "closed".into() }));
    let lines: Vec<AuditRecord> = bench.audit.records().into_iter().map(|(line, _)| line).collect();
    let [passed, refused] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&passed.call, passed.phase, &*passed.tool), (&first.id, Phase::Connection, "Bash"));
    let bytes = json!({"host": "allowed.example", "port": 443, "bytesUp": 3, "bytesDown": 5});
    assert_eq!((passed.input.as_ref(), passed.status.as_deref()), (Some(&bytes), Some("success")));
    assert_eq!((refused.status.as_deref(), refused.error.as_deref()), (Some("denied"), Some("closed")));
    assert_eq!(refused.tool, "exec");
}
