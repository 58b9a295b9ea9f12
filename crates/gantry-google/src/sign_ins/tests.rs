//! Missing scopes become questions, and sign-ins finish by the browser or by a pasted address.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_net::Url;
use gantry_testkit::google::Consent as AtGoogle;
use gantry_tool::testing::call_as;
use gantry_tool::{Approval, Approver, Autonomy, Call, Consent, Principal, QuestionText, Surface};
use serde_json::{Value, json};

use crate::testing::{ANN, Bench, browse};

/// What the person of a call does with the question for a scope.
#[derive(Clone, Copy)]
enum Person {
    /// Opens the page and says yes.
    AgreesAtGoogle,
    /// Opens the page and never answers the question.
    AgreesAtGoogleOnly,
    SaysYesOnly,
    SaysNo,
}

async fn call_with(bench: &Bench, person: Person, input: Value) -> (Result<Value, Value>, Vec<Approval>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let mut call =
        Call::new(Principal::Agent { id: "main".into() }, Surface::Agent, bench.folder.path().into());
    call.autonomy = Autonomy::Guided;
    let approver = Approver::new(move |approval: Approval| {
        let text = QuestionText::new(&approval.action).whole();
        seen.lock().unwrap().push(approval);
        async move {
            let Some(url) = consent_url(&text) else { return Consent::Allowed };
            match person {
                Person::AgreesAtGoogle => {
                    tokio::spawn(async move { browse(&url).await });
                    Consent::Allowed
                }
                Person::AgreesAtGoogleOnly => {
                    tokio::spawn(async move { browse(&url).await });
                    std::future::pending().await
                }
                Person::SaysYesOnly => Consent::Allowed,
                Person::SaysNo => Consent::Denied("the user said no".into()),
            }
        }
    });
    call.approver = Some(approver.within(Duration::from_secs(20)));
    call.deadline = Some(std::time::Instant::now() + Duration::from_secs(5));
    let outcome = call_as(&bench.gate, call, "google_gmail", input).await;
    let asked = asked.lock().unwrap().clone();
    (outcome, asked)
}

/// The consent page that a question names.
fn consent_url(question: &str) -> Option<Url> {
    let line = question.lines().find(|line| line.contains("Open this page"))?;
    Url::parse(&line[line.find("http")?..]).ok()
}

fn mail() -> Value {
    json!({"action": "send", "to": "bob@example.org", "subject": "Hi", "body": "Hello"})
}

fn sent(bench: &Bench) -> usize {
    bench.fake.seen_of("gmail.users.messages.send").len()
}

#[tokio::test]
async fn missing_scope_is_asked_and_the_call_goes_on() {
    for person in [Person::AgreesAtGoogle, Person::AgreesAtGoogleOnly] {
        let bench = Bench::with_scopes(&["gmail.readonly"]).await;
        let (result, asked) = call_with(&bench, person, mail()).await;
        assert!(result.unwrap().as_str().unwrap().contains("Mail sent to bob@example.org"));
        assert_eq!((sent(&bench), asked.len()), (1, 2), "the mail and the scope are asked about");
        let text = QuestionText::new(&asked[1].action).whole();
        assert!(text.contains("Google: let Gantry send mail as ann@example.com?"), "{text}");
        assert!(text.contains("Scope: gmail.send"), "{text}");
        // The scope stays, and the next call asks about the mail only.
        let (result, asked) = call_with(&bench, person, mail_to_eve()).await;
        assert!(result.is_ok() && asked.len() == 1, "{result:?}");
        let scopes = bench.accounts.list().unwrap().remove(0).scopes;
        assert!(scopes.contains(&"gmail.readonly".to_owned()) && scopes.contains(&"gmail.send".to_owned()));
    }
}

fn mail_to_eve() -> Value {
    json!({"action": "send", "to": "eve@example.org", "subject": "Hi", "body": "Hello"})
}

#[tokio::test]
async fn nothing_is_sent_unless_the_person_agrees_at_google() {
    for (person, at_google, why) in [
        (Person::SaysNo, AtGoogle::All, "the user said no"),
        (Person::SaysYesOnly, AtGoogle::All, "did not grant"),
        (Person::AgreesAtGoogle, AtGoogle::Deny, "denied in the browser"),
        (Person::AgreesAtGoogle, AtGoogle::Only(vec!["gmail.readonly"]), "not ticked"),
    ] {
        let bench = Bench::with_scopes(&["gmail.readonly"]).await;
        bench.fake.state().oauth.consent = at_google;
        let (result, asked) = call_with(&bench, person, mail()).await;
        let text = result.unwrap_err().to_string();
        assert!(text.contains(why) || text.contains("deadline"), "{why}: {text}");
        assert_eq!((sent(&bench), asked.len()), (0, 2));
    }
}

#[tokio::test]
async fn autonomous_agents_and_programs_get_the_error_at_once() {
    let bench = Bench::with_scopes(&["gmail.readonly"]).await;
    let denied = bench.call("google_gmail", mail()).await.unwrap_err();
    assert!(denied.contains("has not granted the scope gmail.send"), "{denied}");
    assert!(denied.contains("gantry google scopes add gmail.send"), "{denied}");
}

/// The address that the browser ends at, without going there.
async fn final_address(url: &Url) -> String {
    use gantry_net::{Client, ClientOptions, HostPattern, Redirects, Request};
    let hosts = HostPattern::parse("127.0.0.1").into_iter().collect();
    let client = Client::new(ClientOptions { private_hosts: hosts, ..ClientOptions::default() });
    let mut request = Request::get(url.clone(), tokio::time::Instant::now() + Duration::from_secs(5));
    request.redirects = Redirects::Stop;
    client.send(request).await.unwrap().headers["location"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn command_signs_in_by_a_pasted_address() {
    let bench = Bench::without_account(&["gmail.readonly"]).await;
    let google = crate::auth_command::GoogleCommand(bench.google.clone());
    let command = |argument: String| {
        let google = &google;
        async move { gantry_domain::OwnerCommand::run(google, &argument).await }
    };
    assert!(command(String::new()).await.unwrap().contains("Nobody is signed in"));
    let begun = command("auth gmail.send".into()).await.unwrap();
    let url = begun.split_whitespace().find_map(|word| Url::parse(word).ok().filter(Url::has_host)).unwrap();
    let address = final_address(&url).await;
    let wrong = command("auth http://127.0.0.1:1/?state=other&code=4/x".into()).await.unwrap_err();
    assert!(wrong.contains("no sign-in waits for this address"), "{wrong}");
    let signed_in = command(format!("auth {address}")).await.unwrap();
    assert!(signed_in.starts_with(&format!("Signed in {ANN}.")), "{signed_in}");
    // An address counts once.
    let again = command(format!("auth {address}")).await;
    assert!(again.is_err() || again.unwrap() == signed_in);
    assert!(command("status".into()).await.unwrap().contains("gmail.send"));
    assert!(command("auth gmail.sned".into()).await.unwrap_err().contains("did you mean gmail.send?"));
    assert!(command("nonsense".into()).await.is_err());
    let tokens = bench.fake.state().oauth.token_requests.len();
    assert_eq!(tokens, 1, "the code is exchanged once");
}

#[tokio::test]
async fn more_sign_ins_than_the_limit_end_the_oldest() {
    let bench = Bench::without_account(&["gmail.readonly"]).await;
    let sign_ins = bench.google.api.sign_ins();
    let first = sign_ins.begin(&[]).await.unwrap();
    for _ in 0..super::MAX_WAITING {
        sign_ins.begin(&[]).await.unwrap();
    }
    let ended = tokio::time::timeout(Duration::from_secs(5), first.finished()).await.unwrap();
    assert_eq!(ended.unwrap_err(), super::ENDED);
    assert_eq!(sign_ins.0.waiting.lock().unwrap().len(), super::MAX_WAITING);
}
