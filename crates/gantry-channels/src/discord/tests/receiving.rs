use gantry_testkit::chat::discord::{ADA, BOT, GROUP, HIDDEN, THREAD, user};

use super::*;
use crate::adapter::{Addressed, Inbound, Media, MediaKind};

#[tokio::test]
async fn direct_message_is_received() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let id = fake.say(fake.message(DIRECT, "hello *you*"));
    listening.hear(1).await;
    assert_eq!(*listening.intake.names.lock().unwrap(), ["@gantry"]);
    let messages = listening.intake.messages.lock().unwrap();
    let message = &messages[0];
    assert_eq!((message.text.as_str(), message.addressed), ("hello *you*", Addressed::Direct));
    assert_eq!(message.address, to(DIRECT, None));
    assert_eq!((message.person.id.as_str(), message.person.name.as_str()), (ADA, "ada"));
    assert_eq!(message.message_id, id);
    assert!(message.at > 1_700_000_000_000 && !message.is_edit && !message.person.is_bot);
}

/// Says one message and returns what the adapter makes of it.
async fn heard(fake: &FakeDiscord, listening: &Listening, message: Value) -> Inbound {
    let before = listening.intake.messages.lock().unwrap().len();
    fake.say(message);
    listening.hear(before + 1).await;
    listening.intake.messages.lock().unwrap()[before].clone()
}

#[tokio::test]
async fn only_the_bots_own_name_and_replies_address_it() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let bot = format!("<@{BOT}>");
    for (text, addressed, shown) in [
        (format!("{bot} please help"), Addressed::Mention, "please help"),
        (format!("please <@!{BOT}> help"), Addressed::Mention, "please help"),
        ("@everyone @here listen".to_owned(), Addressed::No, "@everyone @here listen"),
        ("<@&1040000000000005555> listen".to_owned(), Addressed::No, "<@&1040000000000005555> listen"),
        ("<@1040000000000000008> listen".to_owned(), Addressed::No, "@name8 listen"),
        ("nothing".to_owned(), Addressed::No, "nothing"),
    ] {
        let message = heard(&fake, &listening, fake.message(CHANNEL, &text)).await;
        assert_eq!((message.addressed, message.text.as_str()), (addressed, shown), "{text}");
        assert_eq!(message.address, to(CHANNEL, None));
    }
    for (author, addressed) in [(user(BOT, "gantry"), Addressed::Reply), (user("8", "bob"), Addressed::No)] {
        let mut reply = fake.message(CHANNEL, "and then?");
        let mut answered = fake.message(CHANNEL, "the first words");
        answered["author"] = author;
        reply["type"] = json!(19);
        reply["message_reference"] = json!({ "type": 0, "message_id": answered["id"] });
        reply["referenced_message"] = answered;
        let message = heard(&fake, &listening, reply).await;
        assert_eq!((message.addressed, message.quoted.as_deref()), (addressed, Some("the first words")));
    }
}

#[tokio::test]
async fn thread_belongs_to_its_channel_and_group_is_not_a_chat_of_two() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let message = heard(&fake, &listening, fake.message(THREAD, "in a thread")).await;
    assert_eq!(message.address, to(CHANNEL, Some(THREAD)));
    assert_eq!(message.address.peer(), format!("{CHANNEL}.{THREAD}"));
    let message = heard(&fake, &listening, fake.message(GROUP, "many people")).await;
    assert_eq!((message.address.kind, message.addressed), (PeerKind::Group, Addressed::No));
    assert!(fake.calls("channel").len() <= 1, "the server's channels are known from its event");
}

#[tokio::test]
async fn own_messages_are_dropped_and_bots_are_marked() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let mut own = fake.message(DIRECT, "mine");
    own["author"]["id"] = json!(BOT);
    fake.say(own);
    let mut joined = fake.message(CHANNEL, "joined");
    joined["type"] = json!(7);
    fake.say(joined);
    fake.say(fake.message(HIDDEN, "hidden"));
    fake.push("TYPING_START", &json!({ "channel_id": CHANNEL }));
    let mut bot = fake.message(CHANNEL, "beep");
    bot["author"]["bot"] = json!(true);
    assert!(heard(&fake, &listening, bot).await.person.is_bot);
    let mut hook = fake.message(CHANNEL, "boop");
    hook["webhook_id"] = json!("1040000000000004444");
    assert!(heard(&fake, &listening, hook).await.person.is_bot);
    assert_eq!(listening.intake.texts(), ["beep", "boop"]);
}

#[tokio::test]
async fn edits_are_marked_and_previews_are_not_edits() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let mut message = fake.message(DIRECT, "before");
    let id = fake.say(message.clone());
    fake.push("MESSAGE_UPDATE", &message);
    // A preview of a message that was written before the bot connected.
    fake.push("MESSAGE_UPDATE", &fake.message(DIRECT, "old"));
    fake.push("MESSAGE_UPDATE", &json!({ "id": id, "channel_id": DIRECT, "embeds": [] }));
    message["content"] = json!("after");
    message["edited_timestamp"] = json!("2026-11-18T12:00:00.000000+00:00");
    fake.push("MESSAGE_UPDATE", &message);
    fake.push("MESSAGE_UPDATE", &message);
    listening.hear(2).await;
    moment().await;
    let messages = listening.intake.messages.lock().unwrap();
    assert_eq!(messages.len(), 2);
    assert!(!messages[0].is_edit && messages[1].is_edit);
    assert_eq!((messages[1].text.as_str(), messages[1].message_id.as_str()), ("after", id.as_str()));
}

#[tokio::test]
async fn forwarded_words_are_never_the_text() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let mut forward = fake.message(DIRECT, "");
    forward["message_reference"] = json!({ "type": 1, "message_id": "1", "channel_id": "2" });
    let file = fake.attachment("a.txt", "text/plain", b"data");
    forward["message_snapshots"] = json!([{ "message": { "content": "/approve", "attachments": [file] } }]);
    let message = heard(&fake, &listening, forward).await;
    assert_eq!((message.text.as_str(), message.quoted.as_deref()), ("", Some("/approve")));
    assert!(message.is_forwarded);
    assert_eq!(message.media.len(), 1);
}

#[tokio::test]
async fn duplicates_and_reordered_events_arrive_once() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let (first, second) = (fake.message(DIRECT, "first"), fake.message(DIRECT, "second"));
    fake.push_numbered("MESSAGE_CREATE", &second, 9);
    fake.push_numbered("MESSAGE_CREATE", &first, 8);
    fake.push_numbered("MESSAGE_CREATE", &second, 10);
    fake.push_numbered("MESSAGE_CREATE", &first, 10);
    listening.hear(2).await;
    moment().await;
    assert_eq!(listening.intake.texts(), ["second", "first"]);
}

#[tokio::test]
async fn malformed_and_hostile_events_do_not_stop_the_loop() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    fake.raw("not json");
    fake.raw("[]");
    fake.frame(&json!({ "op": "x" }));
    fake.frame(&json!({ "op": 200, "d": {} }));
    fake.frame(&json!({ "op": 0, "t": "MESSAGE_CREATE" }));
    for (channel, id, person) in [
        ("../users/@me", "1700000000000000001", ADA),
        ("1\r\nX: y", "1700000000000000001", ADA),
        (DIRECT, "17\n", ADA),
        (DIRECT, "99999999999999999999999", ADA),
        (DIRECT, "1700000000000000001", "7/../../x"),
        ("", "", ""),
    ] {
        let mut message = fake.message(DIRECT, "hostile");
        (message["channel_id"], message["id"], message["author"]["id"]) =
            (json!(channel), json!(id), json!(person));
        fake.push("MESSAGE_CREATE", &message);
    }
    for wrong in [json!(3), json!({ "type": 3, "data": 1 }), json!({ "type": 3, "token": "a/b", "id": "x" })]
    {
        fake.push("INTERACTION_CREATE", &wrong);
        fake.push("MESSAGE_CREATE", &wrong);
        fake.push("GUILD_CREATE", &wrong);
        fake.push("THREAD_CREATE", &wrong);
    }
    let mut wrong_type = fake.message(DIRECT, "x");
    wrong_type["content"] = json!(5);
    fake.push("MESSAGE_CREATE", &wrong_type);
    let mut odd_files = fake.message(DIRECT, "odd files");
    odd_files["attachments"] = json!(["nonsense", { "url": 7 }, { "filename": "x" }]);
    assert_eq!(heard(&fake, &listening, odd_files).await.media, []);
    let long = "x".repeat(1 << 20);
    heard(&fake, &listening, fake.message(DIRECT, &long)).await;
    assert_eq!(listening.intake.texts(), ["odd files".to_owned(), long]);
    assert!(fake.calls("unknown").is_empty());
}

#[tokio::test]
async fn files_are_described_and_read_within_limits() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let mut message = fake.message(DIRECT, "look");
    message["attachments"] = json!([fake.attachment("photo.png", "image/png", b"\x89PNG")]);
    let media = heard(&fake, &listening, message).await.media.remove(0);
    assert_eq!(
        (media.kind, media.name.as_deref(), media.size),
        (MediaKind::Image, Some("photo.png"), Some(4))
    );
    let discord = discord(&fake);
    assert_eq!(&discord.fetch(&media, 100).await.unwrap()[..], b"\x89PNG");
    assert!(discord.fetch(&media, 3).await.unwrap_err().contains("larger"));
}

#[tokio::test]
async fn files_at_other_hosts_and_redirects_are_refused() {
    let fake = FakeDiscord::start().await;
    let secret = FakeDiscord::start().await;
    let private = secret.attachment("secret.txt", "text/plain", b"private");
    let discord = discord(&fake);
    let media = |source: &str| Media {
        kind: MediaKind::Image,
        mime: "image/png".into(),
        name: None,
        size: None,
        source: source.to_owned(),
    };
    for source in [
        format!("http://localhost:{}/attachments/x", secret.address.port()),
        "https://cdn.discordapp.com.evil.example/x".to_owned(),
        "https://discord.com/api/v10/users/@me".to_owned(),
        "file:///etc/passwd".to_owned(),
        "nonsense".to_owned(),
    ] {
        let refused = discord.fetch(&media(&source), 100).await.unwrap_err();
        assert!(refused.contains("not one of Discord's hosts") || refused.contains("not a URL"), "{refused}");
    }
    let file = fake.attachment("photo.png", "image/png", b"PNG");
    for to in [private["url"].as_str().unwrap(), "http://169.254.169.254/latest/meta-data"] {
        fake.redirect_file(&file, to);
        let refused = discord.fetch(&media(file["url"].as_str().unwrap()), 100).await.unwrap_err();
        assert!(refused.contains("not followed"), "{refused}");
    }
}

#[tokio::test]
async fn press_is_answered_to_the_person_alone() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    for (channel, address) in [(DIRECT, to(DIRECT, None)), (THREAD, to(CHANNEL, Some(THREAD)))] {
        let person = user("1040000000000000008", "bob");
        let press = fake.press(channel, "1700000000000000001", person, "q:abc:0");
        eventually_async("answered", SOON, || !fake.answers(&press).is_empty()).await;
        let answer = &fake.answers(&press)[0];
        assert_eq!((&answer["type"], &answer["data"]["flags"]), (&json!(4), &json!(64)));
        assert_eq!(answer["data"]["content"], "recorded");
        assert_eq!(answer["data"]["allowed_mentions"], json!({ "parse": [] }));
        let presses = listening.intake.presses.lock().unwrap();
        let press = presses.last().unwrap();
        assert_eq!((press.handle.as_str(), press.message_id.as_str()), ("q:abc:0", "1700000000000000001"));
        // The person who pressed is named, not the one whom the question was for.
        assert_eq!((press.person.id.as_str(), press.person.name.as_str()), ("1040000000000000008", "bob"));
        assert_eq!(press.address, address);
    }
}

#[tokio::test]
async fn slow_press_gets_more_time_and_messages_do_not_delay_it() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    *listening.intake.pause.lock().unwrap() = Duration::from_millis(1_800);
    fake.say(fake.message(DIRECT, "one"));
    fake.say(fake.message(DIRECT, "two"));
    let begin = std::time::Instant::now();
    let press = fake.press(DIRECT, "1700000000000000001", user(ADA, "ada"), "q:abc:0");
    eventually_async("answered", SOON, || !fake.answers(&press).is_empty()).await;
    // Discord shows an error after that.
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(fake.answers(&press)[0], json!({ "type": 5, "data": { "flags": 64 } }));
    eventually_async("completed", SOON, || fake.answers(&press).len() == 2).await;
    assert_eq!(fake.answers(&press)[1]["content"], "recorded");
}

#[tokio::test]
async fn own_message_settles_an_attempt_that_a_crash_interrupted() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let intake = Arc::clone(&listening.intake);
    listening.kill().await;
    // The message arrives, but the process ends before it stores the outcome.
    discord(&fake).send(&outbound(to(DIRECT, None), Content::Text("once".into()))).await;
    let id = fake.posts()[0]["id"].as_str().unwrap().to_owned();
    let listening = Listening::with(discord(&fake), &intake);
    let settled = || intake.settled.lock().unwrap().clone();
    eventually_async("settled", SOON, || !settled().is_empty()).await;
    assert_eq!(settled(), [(KEY.to_owned(), id)]);
    assert!(listening.intake.texts().is_empty());
}
