use gantry_net::{HeaderMap, HeaderValue};

use super::*;

const URL: &str = "https://gantry.example.org/v1/channels/telegram/default/webhook";

#[tokio::test]
async fn webhook_needs_its_secret() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, true);
    let intake = RecordingIntake::default();
    let request = |secret: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        if let Some(secret) = secret {
            headers.insert("x-telegram-bot-api-secret-token", HeaderValue::from_static(secret));
        }
        let body = json!({ "update_id": 5, "message": private(json!({ "text": "hook" })) });
        WebhookRequest { method: Method::POST, headers, query: String::new(), body: body.to_string().into() }
    };
    for secret in [None, Some(""), Some("wrong"), Some("hook-secre")] {
        assert_eq!(adapter.webhook(request(secret), &intake).await.status, StatusCode::UNAUTHORIZED);
    }
    assert!(intake.texts().is_empty());
    *intake.fails.lock().unwrap() = true;
    assert_eq!(adapter.webhook(request(Some(SECRET)), &intake).await.status, StatusCode::SERVICE_UNAVAILABLE);
    *intake.fails.lock().unwrap() = false;
    for _ in 0..2 {
        assert_eq!(adapter.webhook(request(Some(SECRET)), &intake).await.status, StatusCode::OK);
    }
    assert_eq!(intake.texts(), ["hook"]);
    let polling = telegram(&fake.url(), TOKEN, false);
    assert_eq!(polling.webhook(request(Some(SECRET)), &intake).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn start_of_the_account_sets_the_webhook() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, true);
    let intake = RecordingIntake::default();
    let before = adapter.test().await.unwrap();
    assert!(before.warnings[0].contains(URL) && before.warnings[0].contains("login"), "{before:?}");
    listen_until(&adapter, &intake, || !intake.names.lock().unwrap().is_empty()).await;
    let set = fake.calls("setWebhook");
    assert_eq!((&set[0]["url"], &set[0]["secret_token"]), (&json!(URL), &json!(SECRET)));
    assert_eq!(set[0]["allowed_updates"], json!(UPDATES));
    assert!(fake.calls("getUpdates").is_empty());
    assert_eq!(adapter.test().await.unwrap().warnings, Vec::<String>::new());
    fake.set_webhook("https://other.example");
    assert!(adapter.test().await.unwrap().warnings[0].contains(URL));

    fake.fail_next("setWebhook", Fault::Reject(400, json!({ "description": "Bad Request: bad webhook" })));
    let ended = adapter.listen(&intake, None).await;
    assert!(matches!(&ended, ListenError::Again { why, .. } if why.contains("bad webhook")), "{ended:?}");
}

#[tokio::test]
async fn without_a_public_address_the_webhook_is_left_alone() {
    let fake = FakeTelegram::start().await;
    let mut adapter = telegram(&fake.url(), TOKEN, true);
    adapter.webhook_url = None;
    let intake = RecordingIntake::default();
    listen_until(&adapter, &intake, || !intake.names.lock().unwrap().is_empty()).await;
    assert!(fake.calls("setWebhook").is_empty());
    assert!(adapter.test().await.unwrap().warnings[0].contains("gateway.publicUrl"));
}
