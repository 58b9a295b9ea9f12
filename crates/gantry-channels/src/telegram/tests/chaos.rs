use super::*;

fn photo(id: &str, album: &str, caption: &str) -> Value {
    let photo = json!([{ "file_id": id, "width": 9, "file_size": 4 }]);
    private(json!({ "photo": photo, "media_group_id": album, "caption": caption }))
}

#[tokio::test]
async fn pictures_of_an_album_are_one_message() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    for (id, caption) in [("a", ""), ("b", "look"), ("c", "")] {
        fake.push("message", photo(id, "1", caption));
    }
    fake.push("message", photo("d", "2", "other album"));
    let last = fake.push_text("end");
    listen_until(&adapter, &intake, || intake.texts() == ["look", "other album", "end"]).await;
    let messages = intake.messages.lock().unwrap().clone();
    let sources: Vec<_> = messages[0].media.iter().map(|media| media.source.as_str()).collect();
    assert_eq!((sources, messages[1].media.len()), (vec!["a", "b", "c"], 1));
    assert_eq!(*intake.cursor.lock().unwrap(), Some(last.to_string()));
}

#[tokio::test]
async fn album_that_cannot_be_stored_comes_again_as_a_whole() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    fake.push("message", photo("a", "1", "look"));
    fake.push("message", photo("b", "1", ""));
    *intake.fails.lock().unwrap() = true;
    assert!(matches!(adapter.listen(&intake, None).await, ListenError::Again { .. }));
    assert_eq!(fake.backlog(), 2);
    *intake.fails.lock().unwrap() = false;
    listen_until(&adapter, &intake, || intake.texts() == ["look"]).await;
    assert_eq!(intake.messages.lock().unwrap()[0].media.len(), 2);
}

#[tokio::test]
async fn repeated_and_reordered_updates_are_taken_once() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    let one = fake.push_text("one");
    let two = fake.push_text("two");
    for id in [one, two, one] {
        fake.push_again(id);
    }
    // The second poll confirms everything, so the cursor did not move back.
    listen_until(&adapter, &intake, || fake.backlog() == 0).await;
    assert_eq!(fake.calls("getUpdates").len(), 1, "the second poll still waits");
    assert_eq!(intake.texts(), ["one", "two"]);
    assert_eq!(*intake.cursor.lock().unwrap(), Some(two.to_string()));
}

#[tokio::test]
async fn poll_waits_as_long_as_telegram_asks() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let limited = json!({ "description": "Too Many Requests", "parameters": { "retry_after": 9 } });
    fake.fail_next("getUpdates", Fault::Reject(429, limited));
    let ended = adapter.listen(&RecordingIntake::default(), None).await;
    assert!(
        matches!(ended, ListenError::Again { after: Some(after), .. } if after.as_secs() == 9),
        "{ended:?}"
    );
}

#[tokio::test]
async fn group_that_became_a_supergroup_is_written_to_at_its_new_id() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    let group = json!({ "id": -42, "type": "group", "title": "G" });
    fake.push("message", message(group, json!({ "migrate_to_chat_id": -10042 })));
    let last = fake.push_text("end");
    listen_until(&adapter, &intake, || intake.texts() == ["end"]).await;
    assert_eq!(*intake.cursor.lock().unwrap(), Some(last.to_string()));
    let mut answer = text("hello");
    answer.address.chat = "-42".to_owned();
    assert!(matches!(adapter.send(&answer).await, SendOutcome::Sent { .. }));
    assert_eq!(fake.calls("sendMessage")[0]["chat_id"], -10042);
}

#[tokio::test]
async fn server_error_before_the_effect_is_unknown_too() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    fake.fail_next("sendMessage", Fault::Reject(500, json!({ "description": "Internal Server Error" })));
    let outcome = adapter.send(&text("a")).await;
    assert!(matches!(outcome, SendOutcome::Unknown(_)), "{outcome:?}");
    assert!(fake.calls("sendMessage").is_empty());
}

#[tokio::test]
async fn hostile_updates_do_not_stop_the_poll() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    let huge = "x".repeat(300_000);
    fake.push("message", private(json!({ "text": "a\u{0}\r\nb\u{202e}" })));
    fake.push("message", private(json!({ "text": huge })));
    for value in [json!(null), json!([]), json!({ "chat": { "id": "../x", "type": "private" } }), json!("x")]
    {
        fake.push("message", value.clone());
        fake.push("callback_query", value);
    }
    fake.push("message", private(json!({ "text": "no sender", "from": { "id": "42; DROP" } })));
    fake.push_text("end");
    listen_until(&adapter, &intake, || intake.texts().last().is_some_and(|text| text == "end")).await;
    let texts = intake.texts();
    assert_eq!((texts.len(), texts[0].as_str(), texts[1].len()), (3, "a\u{0}\r\nb\u{202e}", 300_000));
}

#[tokio::test]
async fn press_of_a_bystander_is_theirs() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let intake = RecordingIntake::default();
    let group = json!({ "id": -100, "type": "supergroup", "title": "G" });
    let eve = json!({ "id": 666, "is_bot": false, "first_name": "Eve" });
    let press = json!({ "id": "cb", "from": eve, "message": message(group, json!({})), "data": "q:1:0" });
    fake.push("callback_query", press);
    listen_until(&adapter, &intake, || intake.presses.lock().unwrap().len() == 1).await;
    let press = intake.presses.lock().unwrap()[0].clone();
    assert_eq!((press.person.id.as_str(), press.address.kind), ("666", PeerKind::Group));
}

#[tokio::test]
async fn download_follows_no_redirect() {
    let fake = FakeTelegram::start().await;
    let adapter = telegram(&fake.url(), TOKEN, false);
    let media = Media {
        kind: MediaKind::Image,
        mime: String::new(),
        name: None,
        size: None,
        source: "big".to_owned(),
    };
    for to in ["http://169.254.169.254/latest", "http://10.0.0.1/"] {
        fake.add_redirect("big", "photos/a.jpg", to);
        let err = adapter.fetch(&media, 100).await.unwrap_err();
        assert!(err.contains("302") && !err.contains(TOKEN), "{err}");
    }
}
