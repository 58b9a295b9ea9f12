use std::time::Duration;

use gantry_testkit::chat::whatsapp::Fault;
use gantry_testkit::{SOON, eventually_async};

use super::*;

const WEBHOOK: &str = "https://gantry.example.org/v1/channels/whatsapp/default/webhook";

fn ready(fake: &FakeWhatsApp) {
    fake.set_webhook(Some(WEBHOOK));
    fake.set_proof(&sign(APP_SECRET.as_bytes(), &[TOKEN.as_bytes()]));
}

fn with(fake: &FakeWhatsApp, token: &'static str, app: &'static str, url: Option<&str>) -> WhatsApp {
    let config = config(&fake.api_url(), false);
    WhatsApp::new(&config, "default", &ClientOptions::default(), secrets(token, app), url)
}

#[tokio::test]
async fn test_names_the_problem_and_the_fix() {
    let fake = FakeWhatsApp::start().await;
    ready(&fake);
    let info = whatsapp(&fake).test().await.unwrap();
    assert_eq!((info.name.as_str(), info.warnings.len()), ("Gantry +1 555-000-1111", 0));
    let check = async |whatsapp: WhatsApp, problem: &str, fix: &str| {
        let found = whatsapp.test().await.unwrap_err();
        assert!(found.message.contains(problem) && found.fix.contains(fix), "{found:?}");
        assert!(!format!("{found:?}").contains("SECRET"), "{found:?}");
    };
    let public = Some(PUBLIC_URL);
    check(with(&fake, "EAAwrongwrongwrongSECRET", APP_SECRET, public), "190", "System users").await;
    check(with(&fake, "short", APP_SECRET, public), "not an access token", "System users").await;
    check(with(&fake, TOKEN, "wrong app secret", public), "appSecret", "App settings").await;
    check(with(&fake, TOKEN, "", public), "appSecret cannot be used", "gantry secrets set").await;
    check(with(&fake, TOKEN, APP_SECRET, None), "no public https address", "gateway.publicUrl").await;
    check(with(&fake, TOKEN, APP_SECRET, Some("http://a")), "no public https address", "gateway.publicUrl")
        .await;
    let mut other = config(&fake.api_url(), false);
    other.phone_number_id = "491701234567".to_owned();
    let secrets = secrets(TOKEN, APP_SECRET);
    let wrong_number = WhatsApp::new(&other, "default", &ClientOptions::default(), secrets, public);
    check(wrong_number, "does not exist", "phoneNumberId").await;
    fake.fail(PHONE_NUMBER_ID, Fault::Refused(403, 200));
    check(whatsapp(&fake), "200", "system user").await;
    fake.set_webhook(Some("https://other.example/hook"));
    check(whatsapp(&fake), "https://other.example/hook", WEBHOOK).await;
    fake.set_webhook(None);
    check(whatsapp(&fake), "not subscribed", "field messages").await;
    fake.fail(PHONE_NUMBER_ID, Fault::Before(503));
    check(whatsapp(&fake), "503", "graph.facebook.com").await;
}

#[tokio::test]
async fn account_is_connected_until_its_token_fails() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = Arc::new(whatsapp(&fake));
    let intake = Arc::new(RecordingIntake::default());
    let (listening, heard) = (Arc::clone(&whatsapp), Arc::clone(&intake));
    let task = tokio::spawn(async move { listening.listen(&*heard, None).await });
    eventually_async("connected", SOON, || !intake.names.lock().unwrap().is_empty()).await;
    assert_eq!(intake.names.lock().unwrap()[0], "Gantry +1 555-000-1111");

    // A message that meets a revoked token ends it at once.
    fake.fail("messages", Fault::Refused(401, 190));
    fake.fail(PHONE_NUMBER_ID, Fault::Refused(401, 190));
    whatsapp.send(&text("x")).await;
    let ended = tokio::time::timeout(SOON, task).await.unwrap().unwrap();
    assert!(matches!(&ended, ListenError::NeedsLogin(why) if why.contains("system user")), "{ended:?}");
}

#[tokio::test]
async fn listening_ends_with_the_reason() {
    let fake = FakeWhatsApp::start().await;
    let intake = RecordingIntake::default();
    let mut whatsapp = whatsapp(&fake);
    whatsapp.check_every = Duration::from_millis(20);
    fake.fail(PHONE_NUMBER_ID, Fault::Limited(7));
    let ended = whatsapp.listen(&intake, None).await;
    assert!(
        matches!(ended, ListenError::Again { after: Some(after), .. } if after.as_secs() == 7),
        "{ended:?}"
    );
    for (fault, is_again) in
        [(Fault::Before(502), true), (Fault::Cut, true), (Fault::Refused(400, 100), false)]
    {
        fake.fail(PHONE_NUMBER_ID, fault.clone());
        let ended = whatsapp.listen(&intake, None).await;
        assert_eq!(matches!(ended, ListenError::Again { .. }), is_again, "{fault:?}: {ended:?}");
        assert_eq!(matches!(ended, ListenError::Refused(_)), !is_again, "{fault:?}: {ended:?}");
    }
    let wrong = with(&fake, "EAAwrongwrongwrongSECRET", APP_SECRET, None);
    assert!(matches!(wrong.listen(&intake, None).await, ListenError::NeedsLogin(_)));
}

#[tokio::test]
async fn secrets_are_in_no_outcome() {
    let fake = FakeWhatsApp::start().await;
    ready(&fake);
    let whatsapp = whatsapp(&fake);
    let gone = WhatsApp::new(
        &config("http://127.0.0.1:1", false),
        "default",
        &ClientOptions::default(),
        secrets(TOKEN, APP_SECRET),
        Some(PUBLIC_URL),
    );
    let mut seen = vec![format!("{:?}", gone.send(&text("x")).await), format!("{:?}", gone.test().await)];
    for fault in
        [Fault::Limited(1), Fault::Before(302), Fault::Refused(401, 190), Fault::Refused(400, 1), Fault::Cut]
    {
        fake.fail("messages", fault.clone());
        seen.push(format!("{:?}", whatsapp.send(&text("x")).await));
        fake.fail(PHONE_NUMBER_ID, fault.clone());
        seen.push(format!("{:?}", whatsapp.test().await));
        fake.fail(PHONE_NUMBER_ID, fault);
        let intake = RecordingIntake::default();
        let listening = whatsapp.listen(&intake, None);
        seen.push(format!("{:?}", tokio::time::timeout(Duration::from_secs(2), listening).await));
    }
    for text in seen {
        assert!(!text.contains("SECRET") && !text.contains("Bearer"), "{text}");
    }
}
