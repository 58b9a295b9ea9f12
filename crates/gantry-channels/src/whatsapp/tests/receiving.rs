use gantry_testkit::chat::whatsapp::{Fault, change, message, messages, status};

use super::*;
use crate::adapter::{Accepted, Addressed, Inbound, MediaKind};

fn said(id: &str, text: &str) -> Value {
    message(id, "text", json!({ "body": text }))
}

async fn first(whatsapp: &WhatsApp, said: Value) -> Inbound {
    let intake = RecordingIntake::default();
    assert_eq!(receive(whatsapp, &intake, &messages(vec![said])).await, StatusCode::OK);
    let first = intake.messages.lock().unwrap().first().cloned();
    first.expect("the message is stored")
}

#[tokio::test]
async fn address_is_verified_by_its_token() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    let get = async |query: &str| {
        let (method, headers, body) = (Method::GET, HeaderMap::new(), Bytes::new());
        let answer = whatsapp
            .webhook(WebhookRequest { method, headers, query: query.to_owned(), body }, &intake)
            .await;
        (answer.status, answer.body)
    };
    let good = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=verify%2DSECRET";
    assert_eq!(get(good).await, (StatusCode::OK, "1158201444".to_owned()));
    for bad in [
        "",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=wrong",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=",
        "hub.mode=subscribe&hub.challenge=1",
        "hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=verify-SECRET",
    ] {
        assert_eq!(get(bad).await, (StatusCode::FORBIDDEN, String::new()), "{bad}");
    }
    for challenge in ["<script>", "a%0d%0ab", &"1".repeat(300)] {
        let query = format!("hub.mode=subscribe&hub.verify_token=verify-SECRET&hub.challenge={challenge}");
        assert_eq!(get(&query).await, (StatusCode::BAD_REQUEST, String::new()), "{challenge}");
    }
    let put = WebhookRequest {
        method: Method::PUT,
        headers: HeaderMap::new(),
        query: good.to_owned(),
        body: Bytes::new(),
    };
    assert_eq!(whatsapp.webhook(put, &intake).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn only_signed_requests_count() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    let body = messages(vec![said("wamid.1", "hello")]);
    let good = signed(&body, APP_SECRET);
    let mut requests = vec![signed(&body, "another secret"), signed(&body, "")];
    let mut changed = good.clone();
    changed.body = body.to_string().replace("hello", "hullo").into();
    requests.push(changed);
    for header in ["", "sha256=", "sha1=00", &"0".repeat(64), "sha256=zz"] {
        let mut request = good.clone();
        request.headers.insert("x-hub-signature-256", HeaderValue::from_str(header).unwrap());
        requests.push(request);
    }
    let mut without = good.clone();
    without.headers.clear();
    requests.push(without);
    for request in requests {
        let answer = whatsapp.webhook(request, &intake).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    assert!(intake.texts().is_empty());
    assert_eq!(whatsapp.webhook(good, &intake).await.status, StatusCode::OK);
    assert_eq!(intake.texts(), ["hello"]);

    // Without the secret, nothing can be checked.
    let config = config(&fake.api_url(), false);
    let none: SecretFor = Arc::new(|_, _| Err("unknown secret".to_owned()));
    let closed = WhatsApp::new(&config, "default", &ClientOptions::default(), none, None);
    let answer = closed.webhook(signed(&body, ""), &intake).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn person_has_the_stable_id_and_the_phone_as_an_alias() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let inbound = first(&whatsapp, said("wamid.1", "hello")).await;
    let person = Person {
        id: ADA.to_owned(),
        alias: Some("491701234567".to_owned()),
        name: "Ada".to_owned(),
        is_bot: false,
    };
    assert_eq!((inbound.person, inbound.address), (person, to(ADA)));
    assert_eq!((inbound.event_id.as_str(), inbound.message_id.as_str()), ("wamid.1", "wamid.1"));
    assert_eq!(
        (inbound.addressed, inbound.at, inbound.is_edit),
        (Addressed::Direct, 1_700_000_000_000, false)
    );

    // The phone number may be missing, and so may the id.
    let mut hidden = said("wamid.2", "hello");
    hidden.as_object_mut().unwrap().remove("from");
    let inbound = first(&whatsapp, hidden).await;
    assert_eq!((inbound.person.id.as_str(), inbound.person.alias), (ADA, None));
    let old = json!({ "from": "491709999999", "id": "wamid.3", "timestamp": "1", "type": "text", "text": { "body": "x" } });
    let inbound = first(&whatsapp, old).await;
    assert_eq!((inbound.person.id.as_str(), inbound.person.alias), ("491709999999", None));
    assert_eq!(inbound.person.name, "", "another person's name is not taken");
}

#[tokio::test]
async fn batch_is_confirmed_only_after_everything_is_stored() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    let mut batch = messages(vec![said("wamid.1", "one"), said("wamid.2", "two")]);
    let more = messages(vec![said("wamid.3", "three")])["entry"][0].clone();
    batch["entry"].as_array_mut().unwrap().push(more);
    *intake.fails.lock().unwrap() = true;
    assert_eq!(receive(&whatsapp, &intake, &batch).await, StatusCode::SERVICE_UNAVAILABLE);
    *intake.fails.lock().unwrap() = false;
    for _ in 0..2 {
        assert_eq!(receive(&whatsapp, &intake, &batch).await, StatusCode::OK);
    }
    assert_eq!(intake.texts(), ["one", "two", "three"]);
    let (one, two) = tokio::join!(receive(&whatsapp, &intake, &batch), receive(&whatsapp, &intake, &batch));
    assert_eq!((one, two, intake.texts().len()), (StatusCode::OK, StatusCode::OK, 3));
}

#[tokio::test]
async fn kinds_of_messages_reach_the_model() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let media = json!({ "id": "77", "mime_type": "audio/ogg; codecs=opus", "voice": true });
    let inbound = first(&whatsapp, message("wamid.1", "audio", media)).await;
    let file = &inbound.media[0];
    assert_eq!((file.kind, file.mime.as_str(), file.source.as_str()), (MediaKind::Audio, "audio/ogg", "77"));
    let document =
        json!({ "id": "78", "mime_type": "application/pdf", "filename": "a.pdf", "caption": "see" });
    let inbound = first(&whatsapp, message("wamid.2", "document", document)).await;
    assert_eq!((inbound.text.as_str(), inbound.media[0].name.as_deref()), ("see", Some("a.pdf")));
    let place = json!({ "latitude": 52.5, "longitude": 13.4, "name": "Office" });
    assert_eq!(first(&whatsapp, message("w3", "location", place)).await.text, "[location 52.5, 13.4 Office]");
    let cards = json!([{ "name": { "formatted_name": "Eve" }, "phones": [{ "phone": "+1 555" }] }]);
    let inbound = first(&whatsapp, message("w4", "contacts", cards)).await;
    assert_eq!(inbound.quoted.as_deref(), Some("Eve +1 555"), "the words of a card are not the sender's");
    let button = json!({ "text": "Yes", "payload": "p" });
    assert_eq!(first(&whatsapp, message("w5", "button", button)).await.text, "Yes");
    for (kind, expected) in [("hologram", "the type hologram"), ("unsupported", "does not pass on")] {
        let inbound = first(&whatsapp, message("w6", kind, json!({}))).await;
        assert!(inbound.text.contains(expected), "{}", inbound.text);
    }
    let mut forwarded = said("w7", "look at this");
    forwarded["context"] = json!({ "forwarded": true });
    assert!(first(&whatsapp, forwarded).await.is_forwarded);
    let mut answer = said("w8", "yes");
    answer["context"] = json!({ "from": "15550001111", "id": "wamid.SENT1" });
    assert!(!first(&whatsapp, answer).await.is_forwarded);
}

#[tokio::test]
async fn edits_and_reactions_start_nothing() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let edited =
        json!({ "original_message_id": "wamid.1", "message": { "type": "text", "text": { "body": "new" } } });
    let inbound = first(&whatsapp, message("wamid.E", "edit", edited)).await;
    assert!(inbound.is_edit);
    assert_eq!((inbound.text.as_str(), inbound.message_id.as_str()), ("new", "wamid.1"));
    let intake = RecordingIntake::default();
    let others = vec![
        message("w1", "reaction", json!({ "message_id": "wamid.1", "emoji": "👍" })),
        message("w2", "revoke", json!({ "original_message_id": "wamid.1" })),
        message("w3", "system", json!({ "type": "user_changed_number", "body": "changed" })),
    ];
    assert_eq!(receive(&whatsapp, &intake, &messages(others)).await, StatusCode::OK);
    assert!(intake.messages.lock().unwrap().is_empty());
}

#[tokio::test]
async fn message_of_a_group_is_not_a_chat_of_two() {
    let fake = FakeWhatsApp::start().await;
    let mut said = said("wamid.1", "hello all");
    said["group_id"] = json!("Y2FwaV9ncm91cDoxNzA1");
    let inbound = first(&whatsapp(&fake), said).await;
    assert_eq!((inbound.address.kind, inbound.addressed), (PeerKind::Group, Addressed::No));
    assert_eq!(inbound.address.chat, "Y2FwaV9ncm91cDoxNzA1");
}

#[tokio::test]
async fn hostile_events_are_skipped_and_others_are_taken() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    let mut list = Vec::new();
    for id in ["", "a\r\nb", &"x".repeat(600)] {
        list.push(said(id, "bad id"));
    }
    for person in ["../../etc", "DE.1\r\nX: 1", "DE./", "' OR 1=1"] {
        let mut bad = said("wamid.bad", "bad sender");
        (bad["from_user_id"], bad["from"]) = (json!(person), json!(person));
        list.push(bad);
    }
    let mut group = said("wamid.group", "bad group");
    group["group_id"] = json!("../group\n");
    list.extend([group, json!(5), json!({}), json!({ "id": 7, "type": {} }), json!(null)]);
    list.push(said("wamid.9", "good\u{202e}\u{0} <script>"));
    assert_eq!(receive(&whatsapp, &intake, &messages(list)).await, StatusCode::OK);
    assert_eq!(intake.texts(), ["good\u{202e}\u{0} <script>"]);
    for body in [
        json!({}),
        json!([]),
        json!({ "object": "page" }),
        json!({ "object": "whatsapp_business_account", "entry": 3 }),
        json!({ "object": "whatsapp_business_account", "entry": [{ "changes": [{ "field": "account_update" }] }] }),
    ] {
        assert_eq!(receive(&whatsapp, &intake, &body).await, StatusCode::OK, "{body}");
    }
    let mut other = messages(vec![said("wamid.10", "for another number")]);
    other["entry"][0]["changes"][0]["value"]["metadata"]["phone_number_id"] = json!("999");
    assert_eq!(receive(&whatsapp, &intake, &other).await, StatusCode::OK);
    assert_eq!(intake.texts().len(), 1);
}

#[tokio::test]
async fn press_is_stored_and_gets_one_reply() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    let press = |id: &str, kind: &str| {
        let mut press =
            message(id, "interactive", json!({ "type": kind, kind: { "id": "q:abc:0", "title": "Yes" } }));
        press["context"] = json!({ "from": "15550001111", "id": "wamid.SENT1" });
        messages(vec![press])
    };
    for body in [press("w1", "button_reply"), press("w1", "button_reply"), press("w2", "list_reply")] {
        assert_eq!(receive(&whatsapp, &intake, &body).await, StatusCode::OK);
    }
    let presses = intake.presses.lock().unwrap().clone();
    assert_eq!((presses[0].handle.as_str(), presses[0].message_id.as_str()), ("q:abc:0", "wamid.SENT1"));
    assert_eq!((&presses[0].address, presses[0].person.id.as_str()), (&to(ADA), ADA));
    let replies: Vec<_> = fake.sent().iter().map(|sent| sent["context"]["message_id"].clone()).collect();
    assert_eq!(replies, ["w1", "w2"], "a press that comes again gets no second reply");
    assert_eq!(fake.sent()[0]["text"]["body"], "recorded");

    // A press that is not stored is not confirmed; one whose reply fails is.
    *intake.fails.lock().unwrap() = true;
    let status = receive(&whatsapp, &intake, &press("w3", "button_reply")).await;
    assert_eq!((status, fake.sent().len()), (StatusCode::SERVICE_UNAVAILABLE, 2));
    *intake.fails.lock().unwrap() = false;
    fake.fail("messages", Fault::Before(500));
    assert_eq!(receive(&whatsapp, &intake, &press("w3", "button_reply")).await, StatusCode::OK);
}

#[tokio::test]
async fn press_of_a_bystander_is_theirs() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    let press = json!({
        "from_user_id": "FR.9z", "id": "w1", "timestamp": "1", "type": "interactive",
        "interactive": { "type": "button_reply", "button_reply": { "id": "q:abc:0", "title": "Yes" } },
        "context": { "from": "15550001111", "id": "wamid.SENT1" },
    });
    assert_eq!(receive(&whatsapp, &intake, &messages(vec![press])).await, StatusCode::OK);
    let press = intake.presses.lock().unwrap()[0].clone();
    assert_eq!((press.person.id.as_str(), press.address.chat.as_str()), ("FR.9z", "FR.9z"));
    assert_eq!(press.person.name, "", "the name of the contact in the request is another person's");
}

#[tokio::test]
async fn status_settles_a_message_by_its_key() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    let key = json!({ "biz_opaque_callback_data": "k0123456789abcdef" });
    for name in ["sent", "delivered", "read"] {
        assert_eq!(receive(&whatsapp, &intake, &status("wamid.7", name, key.clone())).await, StatusCode::OK);
    }
    let failed = json!({
        "biz_opaque_callback_data": "kfailed", "errors": [{ "code": 131_026, "title": "Message undeliverable" }],
    });
    assert_eq!(receive(&whatsapp, &intake, &status("wamid.8", "failed", failed)).await, StatusCode::OK);
    assert_eq!(receive(&whatsapp, &intake, &status("wamid.9", "sent", json!({}))).await, StatusCode::OK);
    assert_eq!(receive(&whatsapp, &intake, &status("wamid.9", "warning", key.clone())).await, StatusCode::OK);
    let settled = intake.settled.lock().unwrap().clone();
    assert_eq!(settled, vec![("k0123456789abcdef".to_owned(), "wamid.7".to_owned()); 3]);

    // What cannot be stored comes again.
    *intake.fails.lock().unwrap() = true;
    let again = receive(&whatsapp, &intake, &status("wamid.7", "read", key)).await;
    assert_eq!(again, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(receive(&whatsapp, &intake, &change(json!({ "statuses": [5, {}] }))).await, StatusCode::OK);
}

#[tokio::test]
async fn typing_is_shown_on_accepted_messages_and_not_too_often() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    whatsapp.typing(&to(ADA)).await;
    assert!(fake.reads().is_empty(), "there is no message to show it on");
    *intake.accepts.lock().unwrap() = Some(Accepted::Ignored);
    receive(&whatsapp, &intake, &messages(vec![said("wamid.0", "stranger")])).await;
    whatsapp.typing(&to(ADA)).await;
    assert!(fake.reads().is_empty(), "strangers do not learn that somebody read it");
    *intake.accepts.lock().unwrap() = None;
    receive(&whatsapp, &intake, &messages(vec![said("wamid.1", "hello")])).await;
    for _ in 0..3 {
        whatsapp.typing(&to(ADA)).await;
    }
    let expected = json!({
        "messaging_product": "whatsapp", "status": "read", "message_id": "wamid.1",
        "typing_indicator": { "type": "text" },
    });
    assert_eq!(fake.reads(), [expected]);
    receive(&whatsapp, &intake, &messages(vec![said("wamid.2", "more")])).await;
    whatsapp.typing(&to(ADA)).await;
    assert_eq!(fake.reads().len(), 2);
}
