//! pywa, a client library for the WhatsApp Cloud API, uses the server as it uses Meta's, and reads its webhook requests.

use gantry_testkit::chat::whatsapp::{
    APP_SECRET, FakeWhatsApp, PHONE_NUMBER_ID, TOKEN, message, messages, status,
};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn pywa_accepts_the_server() {
    let fake = FakeWhatsApp::start().await;
    fake.add_file("77", "image/png", b"PNG!", None);
    let folder = tempfile::tempdir().unwrap();
    let press = |id: &str, kind: &str| {
        let content = json!({ "type": kind, kind: { "id": "q:1:0", "title": "Yes" } });
        let mut press = message(id, "interactive", content);
        press["context"] = json!({ "from": "15550001111", "id": "wamid.SENT1" });
        messages(vec![press])
    };
    let mut answer = message("w1", "text", json!({ "body": "yes" }));
    answer["context"] = json!({ "from": "15550001111", "id": "wamid.SENT1" });
    let mut forwarded = message("w2", "text", json!({ "body": "look" }));
    forwarded["context"] = json!({ "forwarded": true });
    let image = json!({ "id": "77", "mime_type": "image/png", "sha256": "0", "caption": "see" });
    let errors =
        json!([{ "code": 131_047, "title": "Re-engagement message", "message": "Re-engagement message" }]);
    let bodies = [
        messages(vec![answer]),
        messages(vec![forwarded]),
        messages(vec![message("w3", "image", image)]),
        press("w4", "button_reply"),
        press("w5", "list_reply"),
        status("wamid.SENT1", "delivered", json!({ "biz_opaque_callback_data": "k1" })),
        status("wamid.SENT2", "failed", json!({ "errors": errors })),
    ];
    for (number, body) in bodies.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.json")), body.to_string()).unwrap();
    }
    let (api, path) = (fake.api_url(), folder.path().display().to_string());
    let reported =
        crate::judge::run("whatsapp", &[&api, PHONE_NUMBER_ID, TOKEN, APP_SECRET, &path, "77"]).await;
    let seen: Value = serde_json::from_str(reported.lines().next().unwrap()).unwrap();
    let expected = json!([
        ["message", "DE.13491208655302741918", "text", "yes", false, "wamid.SENT1"],
        ["message", "DE.13491208655302741918", "text", "look", true, null],
        ["message", "DE.13491208655302741918", "image", null, false, null],
        ["button", "DE.13491208655302741918", "q:1:0", "Yes"],
        ["row", "DE.13491208655302741918", "q:1:0", "Yes"],
        ["status", "wamid.SENT1", "delivered", "k1", null],
        ["status", "wamid.SENT2", "failed", null, 131_047],
    ]);
    assert_eq!(seen, expected);
    let sent = fake.sent();
    let kinds: Vec<_> = sent.iter().map(|sent| sent["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "text", "interactive", "interactive", "template", "document"]);
    assert_eq!(
        (&sent[0]["recipient"], &sent[1]["to"]),
        (&json!("DE.13491208655302741918"), &json!("491701234567"))
    );
    assert_eq!(sent[0]["biz_opaque_callback_data"], "k1");
    assert_eq!((fake.reads().len(), &fake.uploads()[0].bytes[..]), (2, &b"data"[..]));
}
