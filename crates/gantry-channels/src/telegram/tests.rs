//! The adapter against a server that behaves like Telegram's.

mod chaos;
mod webhook;

use std::sync::Arc;

use bytes::Bytes;
use gantry_testkit::chat::telegram::{FakeTelegram, Fault, TOKEN, message, private};
use gantry_testkit::{SOON, eventually_async};

use super::*;
use crate::adapter::{Addressed, Button, Content, MediaKind};
use crate::address::PeerKind;
use crate::testing::RecordingIntake;

const SECRET: &str = "hook-secret";

fn telegram(url: &str, token: &str, webhook: bool) -> Telegram {
    let config = serde_json::from_value(json!({
        "token": "secret:TELEGRAM",
        "apiUrl": url,
        "webhookSecret": webhook.then_some("secret:HOOK"),
    }));
    let token = token.to_owned();
    let secrets: SecretFor = Arc::new(move |name, _| match name {
        "TELEGRAM" => Ok(token.clone()),
        _ => Ok(SECRET.to_owned()),
    });
    let public_url = webhook.then_some("https://gantry.example.org/");
    Telegram::new(&config.unwrap(), "default", &ClientOptions::default(), secrets, public_url)
}

fn outbound(content: Content) -> Outbound {
    let address = Address {
        channel: "telegram".to_owned(),
        account: "default".to_owned(),
        kind: PeerKind::Dm,
        chat: "42".to_owned(),
        thread: None,
    };
    Outbound { key: "k1".to_owned(), address, reply_to: None, content }
}

fn text(markdown: &str) -> Outbound {
    outbound(Content::Text(markdown.to_owned()))
}

/// Listens until a condition holds.
async fn listen_until(adapter: &Telegram, intake: &RecordingIntake, done: impl Fn() -> bool) {
    let cursor = intake.cursor.lock().unwrap().clone();
    tokio::select! {
        err = adapter.listen(intake, cursor) => panic!("{err:?}"),
        _ = eventually_async("the events arrive", SOON, done) => {}
    }
}

#[tokio::test]
async fn messages_are_received_and_confirmed_after_they_are_stored() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    fake.push_text("one");
    fake.push("unknown_kind", json!({ "x": 1 }));
    fake.push("message", json!({ "message_id": "not a number", "chat": 3 }));
    let last = fake.push_text("two");
    listen_until(&adapter, &intake, || intake.texts() == ["one", "two"]).await;
    assert_eq!(*intake.names.lock().unwrap(), ["@gantry_test_bot"]);
    assert_eq!(*intake.cursor.lock().unwrap(), Some(last.to_string()));
    let first = intake.messages.lock().unwrap()[0].clone();
    assert_eq!((first.address.chat.as_str(), first.person.name.as_str()), ("42", "Ada L"));
    assert_eq!((first.addressed, first.at, first.is_edit), (Addressed::Direct, 1_700_000_000_000, false));

    // After a restart, the cursor confirms what was stored.
    fake.push_text("three");
    let again = telegram(&fake.url(), TOKEN, false);
    listen_until(&again, &intake, || intake.texts() == ["one", "two", "three"]).await;
    let offsets: Vec<_> = fake.calls("getUpdates").iter().map(|call| call["offset"].clone()).collect();
    assert!(offsets.contains(&json!(last + 1)), "{offsets:?}");
}

#[tokio::test]
async fn event_that_cannot_be_stored_comes_again() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    fake.push_text("kept");
    *intake.fails.lock().unwrap() = true;
    assert!(matches!(adapter.listen(&intake, None).await, ListenError::Again { .. }));
    assert_eq!(fake.backlog(), 1, "it is not confirmed");
    *intake.fails.lock().unwrap() = false;
    listen_until(&adapter, &intake, || intake.texts() == ["kept"]).await;
}

#[tokio::test]
async fn groups_topics_mentions_and_own_messages_are_told_apart() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    let group = || json!({ "id": -100, "type": "supergroup", "title": "G" });
    let bot = json!({ "id": 123_456_789, "is_bot": true, "first_name": "Gantry" });
    let push = |fields: Value| fake.push("message", message(group(), fields));
    let mention = json!([{ "type": "mention", "offset": 3, "length": 16 }]);
    push(json!({ "text": "😀 @Gantry_Test_Bot help me", "entities": mention }));
    push(json!({ "text": "@everyone look", "entities": [{ "type": "mention", "offset": 0, "length": 9 }] }));
    push(
        json!({ "text": "/run@gantry_test_bot now", "entities": [{ "type": "bot_command", "offset": 0, "length": 20 }] }),
    );
    push(
        json!({ "text": "/run@other_bot", "entities": [{ "type": "bot_command", "offset": 0, "length": 14 }] }),
    );
    push(json!({ "text": "yes", "reply_to_message": { "message_id": 1, "from": bot, "text": "sure?" } }));
    push(json!({ "text": "in topic", "is_topic_message": true, "message_thread_id": 9,
        "reply_to_message": { "message_id": 9, "from": bot, "forum_topic_created": {} } }));
    push(json!({ "text": "mine", "from": bot }));
    push(json!({ "text": "bad", "entities": [{ "type": "mention", "offset": 900, "length": 99 }, 5] }));
    fake.push("edited_message", private(json!({ "text": "edited", "edit_date": 1_700_000_005 })));
    fake.push_text("end");
    listen_until(&adapter, &intake, || intake.texts().contains(&"end".to_owned())).await;
    let messages = intake.messages.lock().unwrap().clone();
    let found: Vec<_> = messages.iter().map(|m| (m.text.as_str(), m.addressed, m.address.kind)).collect();
    use Addressed::*;
    assert_eq!(
        found,
        [
            ("😀  help me", Mention, PeerKind::Group),
            ("@everyone look", No, PeerKind::Group),
            ("/run now", Command, PeerKind::Group),
            ("/run@other_bot", No, PeerKind::Group),
            ("yes", Reply, PeerKind::Group),
            ("in topic", No, PeerKind::Thread),
            ("bad", No, PeerKind::Group),
            ("edited", Direct, PeerKind::Dm),
            ("end", Direct, PeerKind::Dm),
        ]
    );
    assert_eq!(messages[4].quoted.as_deref(), Some("sure?"));
    assert_eq!(messages[5].address.thread.as_deref(), Some("9"));
    assert!(messages[7].is_edit && messages[7].at == 1_700_000_005_000);
}

#[tokio::test]
async fn text_is_sent_with_entities_and_without_previews() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let mut message = text("**hi** [x](https://x.y/a_b)");
    message.address.thread = Some("9".to_owned());
    message.reply_to = Some("7".to_owned());
    let outcome = adapter.send(&message).await;
    assert_eq!(outcome, SendOutcome::Sent { message_id: Some("2".to_owned()) });
    let expected = json!({
        "chat_id": 42,
        "message_thread_id": 9,
        "reply_parameters": { "message_id": 7, "allow_sending_without_reply": true },
        "text": "hi x",
        "entities": [
            { "type": "bold", "offset": 0, "length": 2 },
            { "type": "text_link", "offset": 3, "length": 1, "url": "https://x.y/a_b" },
        ],
        "link_preview_options": { "is_disabled": true },
    });
    assert_eq!(fake.calls("sendMessage"), [expected]);
    assert_eq!(fake.invalid(), Vec::<String>::new());
}

#[tokio::test]
async fn press_is_stored_and_then_acknowledged() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let buttons = vec![Button { label: "Yes".to_owned(), handle: "q:1:yes".to_owned() }];
    let question = Content::Question { markdown: "Run?".to_owned(), buttons };
    assert!(matches!(adapter.send(&outbound(question)).await, SendOutcome::Sent { .. }));
    let sent = fake.calls("sendMessage")[0]["reply_markup"]["inline_keyboard"][0][0].clone();
    assert_eq!(sent, json!({ "text": "Yes", "callback_data": "q:1:yes" }));
    let intake = RecordingIntake::default();
    let from = json!({ "id": 42, "is_bot": false, "first_name": "Ada" });
    fake.push(
        "callback_query",
        json!({ "id": "cb", "from": from, "message": private(json!({})), "data": "q:1:yes" }),
    );
    listen_until(&adapter, &intake, || fake.calls("answerCallbackQuery").len() == 1).await;
    assert_eq!(
        fake.calls("answerCallbackQuery")[0],
        json!({ "callback_query_id": "cb", "text": "recorded" })
    );
    assert_eq!(intake.presses.lock().unwrap()[0].handle, "q:1:yes");
    let edit = Content::Edit { message_id: "2".to_owned(), markdown: "Done".to_owned() };
    assert_eq!(
        adapter.send(&outbound(edit.clone())).await,
        SendOutcome::Sent { message_id: Some("2".to_owned()) }
    );
    assert!(fake.calls("editMessageText")[0].get("reply_markup").is_none());
    let unchanged = json!({ "description": "Bad Request: message is not modified" });
    fake.fail_next("editMessageText", Fault::Reject(400, unchanged));
    assert!(matches!(adapter.send(&outbound(edit)).await, SendOutcome::Sent { .. }));
}

#[tokio::test]
async fn files_go_both_ways() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let file = |mime: &str| Content::File {
        name: "a\"\r\n.txt".to_owned(),
        mime: mime.to_owned(),
        bytes: Bytes::from_static(b"data"),
        caption: "**c**".to_owned(),
    };
    assert!(matches!(adapter.send(&outbound(file("text/plain"))).await, SendOutcome::Sent { .. }));
    let sent = fake.calls("sendDocument")[0].clone();
    assert_eq!((&sent["caption"], &sent["document"]["content"]), (&json!("c"), &json!("data")));
    fake.fail_next(
        "sendPhoto",
        Fault::Reject(400, json!({ "description": "Bad Request: PHOTO_INVALID_DIMENSIONS" })),
    );
    assert!(matches!(adapter.send(&outbound(file("image/png"))).await, SendOutcome::Sent { .. }));
    assert_eq!(fake.calls("sendDocument").len(), 2);

    let intake = RecordingIntake::default();
    let sizes = json!([{ "file_id": "small", "width": 1 }, { "file_id": "big", "width": 9, "file_size": 4 }]);
    fake.push("message", private(json!({ "photo": sizes, "caption": "look", "media_group_id": "1" })));
    listen_until(&adapter, &intake, || intake.texts() == ["look"]).await;
    let media = intake.messages.lock().unwrap()[0].media[0].clone();
    assert_eq!((media.kind, media.source.as_str(), media.size), (MediaKind::Image, "big", Some(4)));
    fake.add_file("big", "photos/file_1.jpg", b"jpeg");
    assert_eq!(adapter.fetch(&media, 100).await.unwrap(), "jpeg");
    assert!(adapter.fetch(&media, 3).await.unwrap_err().contains("more than 3 bytes"));
    for bad in ["../secret", "a/../../b", "/etc/passwd", "a%2e%2e/b", "a\\b"] {
        fake.add_file("big", bad, b"x");
        assert!(adapter.fetch(&media, 100).await.unwrap_err().contains("invalid path"), "{bad}");
    }
}

#[tokio::test]
async fn outcomes_follow_the_answer() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let reject = |code: u16, answer: Value| fake.fail_next("sendMessage", Fault::Reject(code, answer));
    reject(429, json!({ "parameters": { "retry_after": 7 } }));
    let outcome = adapter.send(&text("a")).await;
    assert!(
        matches!(outcome, SendOutcome::Retry { after: Some(after), .. } if after.as_secs() == 7),
        "{outcome:?}"
    );
    reject(403, json!({ "description": "Forbidden: bot was blocked by the user" }));
    assert!(matches!(adapter.send(&text("a")).await, SendOutcome::Refused(why) if why.contains("blocked")));
    reject(400, json!({ "description": "Bad Request: message thread not found" }));
    assert!(matches!(adapter.send(&text("a")).await, SendOutcome::Refused(_)));
    fake.fail_next("sendMessage", Fault::FailAfter(502));
    assert!(matches!(adapter.send(&text("a")).await, SendOutcome::Unknown(_)));
    fake.fail_next("sendMessage", Fault::CutAfter);
    assert!(matches!(adapter.send(&text("a")).await, SendOutcome::Unknown(_)));

    // Rejected formatting: once more as plain text.
    let before = fake.calls("sendMessage").len();
    reject(400, json!({ "description": "Bad Request: can't parse entities" }));
    assert!(matches!(adapter.send(&text("**a**")).await, SendOutcome::Sent { .. }));
    let calls = fake.calls("sendMessage");
    assert_eq!((calls.len(), calls[before].get("entities")), (before + 1, None));

    // The group became a supergroup.
    reject(400, json!({ "parameters": { "migrate_to_chat_id": -1005 } }));
    assert!(matches!(adapter.send(&text("a")).await, SendOutcome::Sent { .. }));
    assert!(matches!(adapter.send(&text("b")).await, SendOutcome::Sent { .. }));
    let calls = fake.calls("sendMessage");
    assert_eq!(
        calls[calls.len() - 2..].iter().map(|call| &call["chat_id"]).collect::<Vec<_>>(),
        [-1005, -1005]
    );

    for chat in ["1\r\nX: 1", "../../etc", "@name", ""] {
        let mut message = text("a");
        message.address.chat = chat.to_owned();
        assert!(matches!(adapter.send(&message).await, SendOutcome::Refused(_)), "{chat}");
    }
}

#[tokio::test]
async fn listening_ends_with_the_reason() {
    let fake = FakeTelegram::start().await;
    let intake = RecordingIntake::default();
    let wrong = telegram(&fake.url(), "123456789:AAEwrongwrongwrongwrongwrong", false);
    assert!(
        matches!(wrong.listen(&intake, None).await, ListenError::NeedsLogin(why) if why.contains("@BotFather"))
    );
    let malformed = telegram(&fake.url(), "my token\r\n", false);
    assert!(matches!(malformed.listen(&intake, None).await, ListenError::NeedsLogin(_)));
    assert!(malformed.test().await.unwrap_err().fix.contains("gantry secrets set"));
    let adapter = telegram(&fake.url(), TOKEN, false);
    fake.set_webhook("https://other.example");
    assert!(
        matches!(adapter.listen(&intake, None).await, ListenError::Conflict(why) if why.contains("webhook"))
    );
    assert!(adapter.test().await.unwrap().warnings[0].contains("webhook"));
    fake.set_webhook("");
    fake.fail_next(
        "getUpdates",
        Fault::Reject(409, json!({ "description": "Conflict: terminated by other" })),
    );
    assert!(
        matches!(adapter.listen(&intake, None).await, ListenError::Conflict(why) if why.contains("another program"))
    );
    fake.fail_next("getUpdates", Fault::Reject(502, json!({})));
    assert!(matches!(adapter.listen(&intake, None).await, ListenError::Again { .. }));
    assert_eq!(adapter.test().await.unwrap().name, "@gantry_test_bot");
}

#[tokio::test]
async fn silent_poll_is_replaced() {
    let fake = FakeTelegram::start().await;
    let mut adapter = telegram(&fake.url(), TOKEN, false);
    adapter.poll_limit = Duration::from_millis(200);
    fake.fail_next("getUpdates", Fault::Mute);
    let outcome = adapter.listen(&RecordingIntake::default(), None).await;
    assert!(matches!(outcome, ListenError::Again { .. }), "{outcome:?}");
}

#[tokio::test]
async fn token_is_in_no_error() {
    let fake = FakeTelegram::start().await;
    let gone = telegram("http://127.0.0.1:1", TOKEN, false);
    let foreign = telegram(&fake.url(), TOKEN, false);
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    let mut seen = vec![
        format!("{:?}", gone.listen(&intake, None).await),
        format!("{:?}", gone.send(&text("a")).await),
        format!("{:?}", gone.test().await),
    ];
    for fault in [
        Fault::CutAfter,
        Fault::FailAfter(500),
        Fault::Reject(400, json!({ "description": format!("bad {TOKEN}") })),
    ] {
        for method in ["sendMessage", "getMe", "getFile"] {
            fake.fail_next(method, fault.clone());
        }
        seen.push(format!("{:?}", adapter.send(&text("a")).await));
        seen.push(format!("{:?}", foreign.listen(&intake, None).await));
        let media = Media {
            kind: MediaKind::Image,
            mime: String::new(),
            name: None,
            size: None,
            source: "x".to_owned(),
        };
        seen.push(format!("{:?}", adapter.fetch(&media, 10).await));
    }
    for text in seen {
        assert!(!text.contains(TOKEN) && !text.contains(&TOKEN[12..30]), "{text}");
    }
}
