use gantry_testkit::chat::slack::{BOT_ID, BOT_USER, Fault};

use super::*;
use crate::adapter::{Addressed, Media, MediaKind};

#[tokio::test]
async fn direct_message_is_received_and_confirmed() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    let envelope = fake.say(said("D00000001", "1700000001.000100", "hello &amp; &lt;you&gt;"));
    listening.hear(1).await;
    confirmed(&fake, &envelope).await;
    assert_eq!(*listening.intake.names.lock().unwrap(), ["@gantry"]);
    let messages = listening.intake.messages.lock().unwrap();
    let message = &messages[0];
    assert_eq!((message.text.as_str(), message.addressed), ("hello & <you>", Addressed::Direct));
    assert_eq!(message.address, to("D00000001", None));
    assert_eq!((message.person.id.as_str(), message.person.name.as_str()), (USER, "Ada Lovelace"));
    assert_eq!((message.message_id.as_str(), message.at), ("1700000001.000100", 1_700_000_001_000));
    assert!(!message.is_edit && !message.person.is_bot);
}

#[tokio::test]
async fn mention_begins_a_thread_and_arrives_once() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    let text = format!("<@{BOT_USER}> please help");
    fake.say(said("C00000001", "1700000001.000100", &text));
    let mut mention = said("C00000001", "1700000001.000100", &text);
    mention["type"] = json!("app_mention");
    mention.as_object_mut().unwrap().remove("channel_type");
    let envelope = fake.say(mention);
    confirmed(&fake, &envelope).await;
    let messages = listening.intake.messages.lock().unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!((messages[0].text.as_str(), messages[0].addressed), ("please help", Addressed::Mention));
    assert_eq!(messages[0].address.kind, PeerKind::Thread);
    assert_eq!(messages[0].address.peer(), "C00000001.1700000001.000100");
}

#[tokio::test]
async fn replies_in_threads_keep_their_root() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    for (ts, parent) in [("1700000002.000100", BOT_USER), ("1700000002.000200", "UOTHER001")] {
        let mut reply = said("C00000001", ts, "and then?");
        reply["thread_ts"] = json!("1700000001.000100");
        reply["parent_user_id"] = json!(parent);
        fake.say(reply);
    }
    fake.say(said("C00000001", "1700000002.000300", "<!channel> <!here> <!everyone> hear"));
    listening.hear(3).await;
    let messages = listening.intake.messages.lock().unwrap();
    assert_eq!(messages[0].addressed, Addressed::Reply);
    assert_eq!(messages[0].address.thread.as_deref(), Some("1700000001.000100"));
    assert_eq!(messages[1].addressed, Addressed::No);
    assert_eq!((messages[2].addressed, messages[2].address.thread.clone()), (Addressed::No, None));
}

#[tokio::test]
async fn own_messages_bots_and_noise_are_dropped_but_confirmed() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    let mut own = said("D00000001", "1700000001.000100", "mine");
    own["user"] = json!(BOT_USER);
    let mut own_bot = said("D00000001", "1700000001.000101", "mine");
    own_bot["bot_id"] = json!(BOT_ID);
    let mut bot = said("D00000001", "1700000001.000102", "beep");
    bot["subtype"] = json!("bot_message");
    bot["bot_id"] = json!("B9");
    let mut joined = said("C00000001", "1700000001.000103", "joined");
    joined["subtype"] = json!("channel_join");
    let mut deleted = said("C00000001", "1700000001.000104", "");
    deleted["subtype"] = json!("message_deleted");
    let reaction = json!({ "type": "reaction_added", "user": USER, "reaction": "eyes" });
    let mut envelopes: Vec<String> =
        [own, own_bot, bot, joined, deleted, reaction].into_iter().map(|event| fake.say(event)).collect();
    envelopes.push(fake.push("slash_commands", json!({ "command": "/x" })));
    envelopes.push(fake.push("something_new", json!([1, 2])));
    for envelope in &envelopes {
        confirmed(&fake, envelope).await;
    }
    assert_eq!(listening.intake.texts(), Vec::<String>::new());
}

#[tokio::test]
async fn edits_are_marked_and_previews_are_not_edits() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    let changed = |text: &str, edited: bool| {
        let mut message = json!({ "type": "message", "user": USER, "text": text, "ts": "1700000001.000100" });
        if edited {
            message["edited"] = json!({ "user": USER, "ts": "1700000009.000000" });
        }
        json!({
            "type": "message", "subtype": "message_changed", "channel": "D00000001", "ts": "1700000009.000100",
            "message": message,
            "previous_message": { "type": "message", "user": USER, "text": "before", "ts": "1700000001.000100" },
        })
    };
    fake.say(changed("before", false));
    fake.say(changed("before", true));
    fake.say(changed("after", true));
    listening.hear(1).await;
    moment().await;
    let messages = listening.intake.messages.lock().unwrap();
    assert_eq!(messages.len(), 1);
    assert!(messages[0].is_edit);
    assert_eq!((messages[0].text.as_str(), messages[0].message_id.as_str()), ("after", "1700000001.000100"));
}

#[tokio::test]
async fn malformed_and_hostile_events_do_not_stop_the_loop() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    fake.raw("not json");
    fake.raw("[]");
    fake.frame(&json!({ "type": 7 }));
    for (channel, ts, user) in [
        ("../D1", "1700000001.000100", USER),
        ("D1\r\nX: y", "1700000001.000100", USER),
        ("D00000001", "1700\r\n", USER),
        ("D00000001", "1700000001.000100", "U1/../../x"),
        ("", "", ""),
    ] {
        let mut event = said(channel, ts, "hostile");
        event["user"] = json!(user);
        confirmed(&fake, &fake.say(event)).await;
    }
    fake.push("events_api", json!({ "event": 3 }));
    fake.push("interactive", json!({ "type": "block_actions", "actions": 1 }));
    let mut wrong_type = said("D00000001", "1700000001.000100", "x");
    wrong_type["text"] = json!(5);
    fake.say(wrong_type);
    let long = "x".repeat(1 << 20);
    confirmed(&fake, &fake.say(said("D00000001", "1700000005.000100", &long))).await;
    assert_eq!(listening.intake.texts(), [long]);
}

#[tokio::test]
async fn event_that_is_not_stored_is_not_confirmed_and_comes_again() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    let intake = Arc::clone(&listening.intake);
    *intake.fails.lock().unwrap() = true;
    let envelope = fake.say(said("D00000001", "1700000001.000100", "keep me"));
    let ended = listening.ended().await;
    assert!(matches!(&ended, ListenError::Again { why, .. } if why.contains("not stored")), "{ended:?}");
    moment().await;
    assert!(fake.confirmed().is_empty());
    *intake.fails.lock().unwrap() = false;
    let listening = Listening::with(slack(&fake), &intake);
    listening.hear(1).await;
    confirmed(&fake, &envelope).await;
}

#[tokio::test]
async fn duplicates_and_events_from_downtime_arrive_once() {
    let fake = FakeSlack::start().await;
    fake.say(said("D00000001", "1700000001.000100", "first"));
    fake.say(said("D00000001", "1700000001.000200", "second"));
    let listening = Listening::start(&fake, slack(&fake)).await;
    fake.say(said("D00000001", "1700000001.000100", "first"));
    let last = fake.say(said("D00000001", "1700000001.000300", "third"));
    confirmed(&fake, &last).await;
    assert_eq!(listening.intake.texts(), ["first", "second", "third"]);
}

#[tokio::test]
async fn next_socket_opens_before_the_old_one_closes() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    fake.frame(&json!({ "type": "disconnect", "reason": "warning", "debug_info": {} }));
    // This one still goes to the old socket.
    let late = fake.say(said("D00000001", "1700000001.000100", "late"));
    eventually_async("a second socket", SOON, || fake.sockets_opened() == 2).await;
    confirmed(&fake, &late).await;
    eventually_async("the first one closes", SOON, || fake.sockets() == 1).await;
    let envelope = fake.say(said("D00000001", "1700000001.000200", "new"));
    confirmed(&fake, &envelope).await;
    assert_eq!(listening.intake.texts(), ["late", "new"]);
    assert!(!listening.task.is_finished());
}

#[tokio::test]
async fn silent_and_lost_sockets_end_the_loop() {
    let fake = FakeSlack::start().await;
    let mut quick = slack(&fake);
    quick.silence = Duration::from_millis(400);
    let listening = Listening::start(&fake, quick).await;
    // Pings keep it alive.
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(!listening.task.is_finished());
    fake.mute();
    let ended = listening.ended().await;
    assert!(matches!(&ended, ListenError::Again { why, .. } if why.contains("silent")), "{ended:?}");
    for end in [FakeSlack::close_sockets, FakeSlack::cut_sockets] {
        let fake = FakeSlack::start().await;
        let listening = Listening::start(&fake, slack(&fake)).await;
        end(&fake);
        let ended = listening.ended().await;
        assert!(matches!(ended, ListenError::Again { .. }), "{ended:?}");
    }
}

#[tokio::test]
async fn reasons_to_stop_are_told_apart() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    fake.frame(&json!({ "type": "disconnect", "reason": "link_disabled" }));
    let ended = listening.ended().await;
    assert!(matches!(&ended, ListenError::Refused(why) if why.contains("Socket Mode")), "{ended:?}");

    let intake = Arc::new(RecordingIntake::default());
    for (fault, method) in [
        (Fault::Limited(7), "apps.connections.open"),
        (Fault::Before(503), "auth.test"),
        (Fault::Refused("token_revoked"), "auth.test"),
        (Fault::Refused("missing_scope"), "apps.connections.open"),
    ] {
        fake.fail(method, fault.clone());
        let ended = Listening::with(slack(&fake), &intake).ended().await;
        match fault {
            Fault::Limited(_) => assert!(
                matches!(ended, ListenError::Again { after: Some(after), .. } if after.as_secs() == 7),
                "{ended:?}"
            ),
            Fault::Before(_) => assert!(matches!(ended, ListenError::Again { .. }), "{ended:?}"),
            Fault::Refused("token_revoked") => {
                assert!(
                    matches!(&ended, ListenError::NeedsLogin(why) if why.contains("botToken")),
                    "{ended:?}"
                );
            }
            _ => {
                assert!(matches!(&ended, ListenError::Refused(why) if why.contains("scope")), "{ended:?}");
            }
        }
    }
    let swapped = slack_with(&fake, APP_TOKEN, BOT_TOKEN);
    let ended = Listening::with(swapped, &intake).ended().await;
    assert!(matches!(&ended, ListenError::NeedsLogin(why) if why.contains("xoxb-")), "{ended:?}");
}

#[tokio::test]
async fn sockets_and_files_at_other_hosts_are_refused() {
    let fake = FakeSlack::start().await;
    let other = FakeSlack::start().await;
    for base in
        ["wss://slack.com.evil.example".to_owned(), format!("ws://localhost:{}", other.address.port())]
    {
        fake.redirect_sockets(&base);
        let intake = Arc::new(RecordingIntake::default());
        let ended = Listening::with(slack(&fake), &intake).ended().await;
        assert!(
            matches!(&ended, ListenError::Refused(why) if why.contains("not one of its hosts")),
            "{ended:?}"
        );
        assert!(!format!("{ended:?}").contains("SECRET"), "{ended:?}");
    }
    let source = format!("http://localhost:{}/files-pri/x", other.address.port());
    let media = Media { kind: MediaKind::Image, mime: "image/png".into(), name: None, size: None, source };
    let refused = slack(&fake).fetch(&media, 100).await.unwrap_err();
    assert!(refused.contains("not one of its hosts"), "{refused}");
}

#[tokio::test]
async fn files_are_described_and_read() {
    let fake = FakeSlack::start().await;
    let url = fake.store_file("photo.png", "image/png", b"\x89PNG");
    let listening = Listening::start(&fake, slack(&fake)).await;
    let mut event = said("D00000001", "1700000001.000100", "look");
    event["subtype"] = json!("file_share");
    event["files"] = json!([
        { "id": "F1", "name": "photo.png", "mimetype": "image/png", "size": 4, "url_private_download": url },
        { "id": "F2", "mode": "tombstone" },
        "nonsense",
    ]);
    fake.say(event);
    listening.hear(1).await;
    let media = listening.intake.messages.lock().unwrap()[0].media.clone();
    assert_eq!(media.len(), 1);
    assert_eq!(
        (media[0].kind, media[0].name.as_deref(), media[0].size),
        (MediaKind::Image, Some("photo.png"), Some(4))
    );
    let slack = slack(&fake);
    assert_eq!(&slack.fetch(&media[0], 100).await.unwrap()[..], b"\x89PNG");
    assert!(slack.fetch(&media[0], 3).await.unwrap_err().contains("larger"));
    fake.grant("chat:write");
    assert!(slack.fetch(&media[0], 100).await.unwrap_err().contains("files:read"));
}

#[tokio::test]
async fn shared_messages_are_quoted() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    let mut event = said("D00000001", "1700000001.000100", "see this");
    event["attachments"] = json!([
        { "is_share": true, "is_msg_unfurl": true, "text": "words of others", "author_id": "U9" },
        { "title": "a preview", "text": "a web page" },
    ]);
    fake.say(event);
    listening.hear(1).await;
    assert_eq!(listening.intake.messages.lock().unwrap()[0].quoted.as_deref(), Some("words of others"));
}

#[tokio::test]
async fn press_is_confirmed_and_answered() {
    let fake = FakeSlack::start().await;
    let listening = Listening::start(&fake, slack(&fake)).await;
    let pressed = json!({
        "type": "block_actions",
        "user": { "id": USER, "username": "ada", "name": "ada", "team_id": "T1" },
        "container": { "type": "message", "message_ts": "1700000001.000100", "channel_id": "C00000001",
                       "thread_ts": "1700000000.000100" },
        "channel": { "id": "C00000001", "name": "general" },
        "message": { "type": "message", "ts": "1700000001.000100", "text": "?", "blocks": [] },
        "actions": [{ "type": "button", "action_id": "gantry-0", "block_id": "b", "value": "q1:yes",
                      "action_ts": "1700000002.000000", "text": { "type": "plain_text", "text": "Yes" } }],
        "response_url": "https://hooks.slack.com/actions/SECRET",
    });
    let envelope = fake.push("interactive", pressed);
    confirmed(&fake, &envelope).await;
    eventually_async("answered", SOON, || !fake.ephemerals().is_empty()).await;
    let presses = listening.intake.presses.lock().unwrap();
    assert_eq!((presses[0].handle.as_str(), presses[0].message_id.as_str()), ("q1:yes", "1700000001.000100"));
    assert_eq!(presses[0].address.peer(), "C00000001.1700000000.000100");
    assert_eq!((presses[0].person.id.as_str(), presses[0].person.name.as_str()), (USER, "ada"));
    let shown = &fake.ephemerals()[0];
    assert_eq!((shown["user"].as_str(), shown["text"].as_str()), (Some(USER), Some("recorded")));
    assert_eq!(shown["thread_ts"], "1700000000.000100");
}

#[tokio::test]
async fn socket_without_hello_is_given_up() {
    let fake = FakeSlack::start().await;
    fake.omit_hello();
    let intake = Arc::new(RecordingIntake::default());
    let listening = Listening::with(slack(&fake), &intake);
    eventually_async("a socket", SOON, || fake.sockets_opened() == 1).await;
    moment().await;
    assert!(intake.names.lock().unwrap().is_empty(), "it is not connected yet");
    fake.cut_sockets();
    assert!(matches!(listening.ended().await, ListenError::Again { .. }));
}
