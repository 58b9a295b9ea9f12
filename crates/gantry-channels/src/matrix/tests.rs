//! The adapter against a real homeserver. One test holds all scenes, because the homeserver takes seconds to start.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_testkit::chat::Synapse;
use gantry_testkit::{SOON, eventually_async};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::adapter::{Addressed, Button, Content, Inbound, MediaKind};
use crate::address::PeerKind;
use crate::testing::RecordingIntake;

struct World {
    server: Mutex<Synapse>,
    bot: (String, String),
    owner: (String, String),
    other: (String, String),
    allowed: Arc<Mutex<HashSet<String>>>,
}

impl World {
    fn new() -> World {
        let server = Synapse::start();
        let [bot, owner, other] = ["gantry", "owner", "other"].map(|name| server.register(name));
        let path = format!("/profile/{}/displayname", bot.0);
        server.client(&bot.1, "PUT", &path, Some(json!({"displayname": "Gantry"})));
        let allowed = Arc::new(Mutex::new(HashSet::from([owner.0.clone()])));
        World { server: Mutex::new(server), bot, owner, other, allowed }
    }

    fn adapter(&self) -> Matrix {
        self.adapter_with(&self.bot.1)
    }

    fn adapter_with(&self, token: &str) -> Matrix {
        let (token, allowed) = (token.to_owned(), Arc::clone(&self.allowed));
        let config: MatrixConfig = serde_json::from_value(
            json!({"homeserver": self.server.lock().unwrap().url(), "token": "secret:MATRIX"}),
        )
        .unwrap();
        Matrix::new(
            &config,
            "default",
            &ClientOptions::default(),
            Arc::new(move |_, _| Ok(token.clone())),
            Arc::new(move |id| allowed.lock().unwrap().contains(id)),
        )
    }

    fn client(&self, who: &(String, String), method: &str, path: &str, body: Option<Value>) -> Value {
        self.server.lock().unwrap().client(&who.1, method, path, body)
    }

    /// Creates a room of `owner` and invites others.
    fn room(&self, options: Value, invite: &[&(String, String)]) -> String {
        let mut options = options;
        options["invite"] = invite.iter().map(|who| who.0.clone()).collect();
        let room = self.client(&self.owner, "POST", "/createRoom", Some(options));
        room["room_id"].as_str().unwrap().to_owned()
    }

    fn say(&self, who: &(String, String), room: &str, content: Value) -> String {
        let path = format!("/rooms/{room}/send/m.room.message/{}", uuid::Uuid::new_v4().simple());
        self.client(who, "PUT", &path, Some(content))["event_id"].as_str().unwrap().to_owned()
    }

    fn text(&self, who: &(String, String), room: &str, body: &str) -> String {
        self.say(who, room, json!({"msgtype": "m.text", "body": body}))
    }

    fn event(&self, room: &str, event: &str) -> Value {
        self.client(&self.owner, "GET", &format!("/rooms/{room}/event/{event}"), None)
    }

    fn messages(&self, room: &str) -> Vec<Value> {
        let answer =
            self.client(&self.owner, "GET", &format!("/rooms/{room}/messages?dir=b&limit=100"), None);
        let chunk = answer["chunk"].as_array().unwrap();
        chunk.iter().rev().filter(|event| event["type"] == "m.room.message").cloned().collect()
    }

    fn members(&self, room: &str) -> usize {
        self.client(&self.owner, "GET", &format!("/rooms/{room}/joined_members"), None)["joined"]
            .as_object()
            .unwrap()
            .len()
    }
}

/// An adapter that listens until it is dropped.
struct Listening {
    intake: Arc<RecordingIntake>,
    task: JoinHandle<ListenError>,
}

impl Listening {
    fn start(adapter: Matrix, cursor: Option<String>) -> Listening {
        let intake = Arc::new(RecordingIntake::default());
        *intake.cursor.lock().unwrap() = cursor.clone();
        let heard = Arc::clone(&intake);
        Listening { task: tokio::spawn(async move { adapter.listen(&*heard, cursor).await }), intake }
    }

    async fn connected(&self) {
        eventually_async("the account is connected", SOON, || !self.intake.names.lock().unwrap().is_empty())
            .await;
    }

    async fn hears(&self, text: &str) -> Inbound {
        let find =
            || self.intake.messages.lock().unwrap().iter().find(|inbound| inbound.text == text).cloned();
        eventually_async(&format!("{text:?} arrives"), SOON, || find().is_some()).await;
        find().unwrap()
    }

    fn cursor(&self) -> Option<String> {
        self.intake.cursor.lock().unwrap().clone()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn outbound(key: &str, address: &Address, content: Content) -> Outbound {
    Outbound { key: key.to_owned(), address: address.clone(), reply_to: None, content }
}

async fn sent(adapter: &Matrix, message: &Outbound) -> String {
    match adapter.send(message).await {
        SendOutcome::Sent { message_id: Some(id) } => id,
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_homeserver_carries_conversations() {
    let world = World::new();
    check_credentials(&world).await;
    let dm = invitations_and_direct_chats(&world).await;
    sending(&world, &dm).await;
    files(&world, &dm).await;
    groups_threads_and_replies(&world).await;
    encrypted_rooms(&world).await;
    backlog_after_downtime(&world, &dm).await;
    unstored_events_come_again(&world, &dm).await;
    restart_of_the_homeserver(&world, &dm).await;
    revoked_token(&world, &dm).await;
}

async fn check_credentials(world: &World) {
    let info = world.adapter().test().await.unwrap();
    assert_eq!(info.name, "@gantry:gantry.test");
    assert!(info.warnings[0].contains("10485760"), "{info:?}");
    let wrong = world.adapter_with("wrong-token");
    let problem = wrong.test().await.unwrap_err();
    assert!(problem.message.contains("M_UNKNOWN_TOKEN"), "{problem:?}");
    assert!(problem.fix.contains("gantry secrets set MATRIX --host 127.0.0.1"), "{problem:?}");
    assert!(!format!("{problem:?}").contains("wrong-token"));
    let listening = wrong.listen(&RecordingIntake::default(), None).await;
    assert!(
        matches!(&listening, ListenError::NeedsLogin(why) if !why.contains("wrong-token")),
        "{listening:?}"
    );
    let broken = world.adapter_with("bad\r\ntoken").test().await.unwrap_err();
    assert!(!format!("{broken:?}").contains("bad"), "{broken:?}");
}

/// Returns the room of the owner and the bot.
async fn invitations_and_direct_chats(world: &World) -> Address {
    // The invitation and the first message are there before the bot starts for the first time.
    let room = world.room(json!({"is_direct": true, "preset": "trusted_private_chat"}), &[&world.bot]);
    let stranger = world.client(&world.other, "POST", "/createRoom", Some(json!({"invite": [world.bot.0]})));
    let strange_room = stranger["room_id"].as_str().unwrap().to_owned();
    world.text(&world.owner, &room, "written before the bot joined");
    let bot = Listening::start(world.adapter(), None);
    bot.connected().await;
    let first = bot.hears("written before the bot joined").await;
    assert_eq!(*bot.intake.names.lock().unwrap(), ["@gantry:gantry.test"]);
    assert_eq!((first.addressed, first.address.kind), (Addressed::Direct, PeerKind::Dm));
    assert_eq!((first.address.chat.as_str(), &first.address.thread), (room.as_str(), &None));
    assert_eq!((first.person.id.as_str(), first.person.name.as_str()), ("@owner:gantry.test", "owner"));
    assert!(first.at > 1_700_000_000_000 && !first.is_edit && first.event_id.starts_with('$'));

    world.say(&world.owner, &room, json!({"msgtype": "m.notice", "body": "a bot says"}));
    let edited = world.text(&world.owner, &room, "frist");
    world.say(
        &world.owner,
        &room,
        json!({"msgtype": "m.text", "body": "* first",
        "m.new_content": {"msgtype": "m.text", "body": "first"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": edited}}),
    );
    let edit = bot.hears("first").await;
    assert!(edit.is_edit && edit.message_id == edited && edit.event_id != edited);
    world.say(
        &world.owner,
        &room,
        json!({"msgtype": "m.text", "body": "odd", "m.relates_to": [1], "format": {}}),
    );
    bot.hears("odd").await;
    assert!(!bot.intake.texts().contains(&"a bot says".to_owned()));

    // A stranger's invitation waits until the stranger is allowed.
    let joined = || {
        let rooms = world.client(&world.bot, "GET", "/joined_rooms", None);
        rooms["joined_rooms"].as_array().unwrap().iter().any(|id| *id == strange_room.as_str())
    };
    assert!(!joined());
    world.allowed.lock().unwrap().insert(world.other.0.clone());
    world.text(&world.owner, &room, "wake up");
    eventually_async("the bot joins", SOON, joined).await;
    first.address
}

async fn sending(world: &World, dm: &Address) {
    let adapter = world.adapter();
    let question = world.text(&world.owner, &dm.chat, "question");
    let mut message = outbound("key1", dm, Content::Text("**Bold** <b> [x](https://a.example/b_c_d)".into()));
    message.reply_to = Some(question.clone());
    let first = sent(&adapter, &message).await;
    // The same key again, also from a new process, makes no second message.
    assert_eq!(sent(&adapter, &message).await, first);
    assert_eq!(sent(&world.adapter(), &message).await, first);
    assert_eq!(
        world.messages(&dm.chat).iter().filter(|event| event["sender"] == world.bot.0.as_str()).count(),
        1
    );
    let content = world.event(&dm.chat, &first)["content"].clone();
    assert_eq!(content["msgtype"], "m.notice");
    assert_eq!(
        content["formatted_body"],
        "<p><strong>Bold</strong> &lt;b&gt; <a href=\"https://a.example/b_c_d\">x</a></p>"
    );
    assert_eq!(content["m.relates_to"]["m.in_reply_to"]["event_id"], question.as_str());
    assert_eq!(content["m.mentions"], json!({}));

    let buttons = vec![Button { label: "Yes".into(), handle: "q:1".into() }];
    let asked =
        sent(&adapter, &outbound("key2", dm, Content::Question { markdown: "Run?\n1. Yes".into(), buttons }))
            .await;
    let edit = Content::Edit { message_id: asked.clone(), markdown: "Done".into() };
    let edit = sent(&adapter, &outbound("key3", dm, edit)).await;
    assert_eq!(world.event(&dm.chat, &edit)["content"]["m.new_content"]["body"], "Done");
    assert_eq!(
        world.event(&dm.chat, &asked)["unsigned"]["m.relations"]["m.replace"]["event_id"],
        edit.as_str()
    );

    // The longest text that the limits allow is accepted.
    let line = "- \"quoted\" **ä**\n";
    let fits = |count: &usize| adapter.measure(&line.repeat(*count)) <= adapter.limits().text;
    let longest = line.repeat((0..1_000).rev().step_by(10).find(fits).unwrap());
    sent(&adapter, &outbound("key4", dm, Content::Text(longest.clone()))).await;
    sent(&adapter, &outbound("key5", dm, Content::Edit { message_id: asked, markdown: longest })).await;
    // Without its formatting, this one still fits.
    let long = sent(&adapter, &outbound("key6", dm, Content::Text("**a** ".repeat(5_000)))).await;
    assert!(world.event(&dm.chat, &long)["content"].get("formatted_body").is_none());

    for chat in ["!nowhere:gantry.test", "!../../x:gantry.test", "#alias:gantry.test", "!a\r\nb:c"] {
        let nowhere = Address { chat: chat.into(), ..dm.clone() };
        let outcome = adapter.send(&outbound("key7", &nowhere, Content::Text("x".into()))).await;
        assert!(matches!(outcome, SendOutcome::Refused(_)), "{chat:?}: {outcome:?}");
    }
    let outcome = adapter.send(&outbound("key8", dm, Content::Text("x".repeat(1 << 20)))).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    let outcome = world.adapter_with("wrong-token").send(&message).await;
    assert!(matches!(&outcome, SendOutcome::Refused(why) if !why.contains("wrong-token")), "{outcome:?}");
    adapter.typing(dm).await;
    let typing = world.client(&world.owner, "GET", "/sync?timeout=0", None);
    let ephemeral = typing["rooms"]["join"][&dm.chat]["ephemeral"]["events"].to_string();
    assert!(ephemeral.contains("@gantry:gantry.test"), "{ephemeral}");
}

async fn files(world: &World, dm: &Address) {
    let adapter = world.adapter();
    let bytes = Bytes::from_static(b"\x89PNG data");
    let file = Content::File {
        name: "pic\r\nture.png".into(),
        mime: "image/png".into(),
        bytes: bytes.clone(),
        caption: "Look".into(),
    };
    let event = sent(&adapter, &outbound("file1", dm, file)).await;
    let content = world.event(&dm.chat, &event)["content"].clone();
    assert_eq!(
        (content["msgtype"].as_str(), content["filename"].as_str()),
        (Some("m.image"), Some("picture.png"))
    );
    assert_eq!((content["body"].as_str(), content["info"]["size"].as_u64()), (Some("Look"), Some(9)));
    let huge = Content::File {
        name: "x".into(),
        mime: "bad\r\nmime".into(),
        bytes: vec![0; 11 << 20].into(),
        caption: String::new(),
    };
    let outcome = adapter.send(&outbound("file2", dm, huge)).await;
    assert!(matches!(&outcome, SendOutcome::Refused(why) if why.contains("does not take")), "{outcome:?}");

    let (status, answer) = world.server.lock().unwrap().raw(
        "POST",
        "/_matrix/media/v3/upload",
        &world.owner.1,
        "text/plain",
        b"hello file",
    );
    assert_eq!(status, 200);
    let url = serde_json::from_slice::<Value>(&answer).unwrap()["content_uri"].as_str().unwrap().to_owned();
    let bot = Listening::start(world.adapter(), None);
    bot.connected().await;
    world.say(
        &world.owner,
        &dm.chat,
        json!({"msgtype": "m.file", "body": "read this", "filename": "a.txt", "url": url,
        "info": {"mimetype": "text/plain", "size": 10}}),
    );
    let heard = bot.hears("read this").await;
    let media = &heard.media[0];
    assert_eq!(
        (media.kind, media.name.as_deref(), media.size),
        (MediaKind::Document, Some("a.txt"), Some(10))
    );
    assert_eq!(&adapter.fetch(media, 10).await.unwrap()[..], b"hello file");
    assert!(adapter.fetch(media, 9).await.unwrap_err().contains("more than 9"));
    for source in ["mxc://gantry.test/missing", "https://evil.example/x", "mxc://gantry.test/../x"] {
        let media = Media { source: source.into(), ..media.clone() };
        assert!(adapter.fetch(&media, 10).await.is_err(), "{source}");
    }
}

async fn groups_threads_and_replies(world: &World) {
    let room = world.room(json!({"preset": "private_chat"}), &[&world.other]);
    world.client(&world.other, "POST", &format!("/rooms/{room}/join"), Some(json!({})));
    world.text(&world.other, &room, "history");
    world.client(
        &world.owner,
        "POST",
        &format!("/rooms/{room}/invite"),
        Some(json!({"user_id": world.bot.0})),
    );
    let bot = Listening::start(world.adapter(), None);
    eventually_async("the bot joins the group", SOON, || world.members(&room) == 3).await;
    world.text(&world.other, &room, "just talk");
    let talk = bot.hears("just talk").await;
    assert_eq!((talk.addressed, talk.address.kind), (Addressed::No, PeerKind::Group));
    assert!(!bot.intake.texts().contains(&"history".to_owned()), "{:?}", bot.intake.texts());

    let said = world.say(
        &world.other,
        &room,
        json!({"msgtype": "m.text", "body": "Gantry: help", "m.mentions": {"user_ids": [world.bot.0]}}),
    );
    let mention = bot.hears("help").await;
    assert_eq!(mention.addressed, Addressed::Mention);
    world.say(
        &world.other,
        &room,
        json!({"msgtype": "m.text", "body": "@room all", "m.mentions": {"room": true}}),
    );
    assert_eq!(bot.hears("@room all").await.addressed, Addressed::No);

    // An answer in a thread, and what people write there.
    let adapter = world.adapter();
    let thread = Address { kind: PeerKind::Thread, thread: Some(said.clone()), ..mention.address.clone() };
    let answer = sent(&adapter, &outbound("thread1", &thread, Content::Text("in the thread".into()))).await;
    let relation = world.event(&room, &answer)["content"]["m.relates_to"].clone();
    assert_eq!(
        (relation["rel_type"].as_str(), relation["event_id"].as_str()),
        (Some("m.thread"), Some(said.as_str()))
    );
    assert_eq!(relation["is_falling_back"], true);
    world.say(&world.other, &room, json!({"msgtype": "m.text", "body": "thanks", "m.mentions": {}, "m.relates_to":
        {"rel_type": "m.thread", "event_id": said, "is_falling_back": true, "m.in_reply_to": {"event_id": answer}}}));
    let thanks = bot.hears("thanks").await;
    assert_eq!((thanks.address.clone(), thanks.addressed), (thread, Addressed::No));
    world.say(&world.other, &room, json!({"msgtype": "m.text", "body": "and this?", "m.mentions": {}, "m.relates_to":
        {"rel_type": "m.thread", "event_id": said, "is_falling_back": false, "m.in_reply_to": {"event_id": answer}}}));
    let this = bot.hears("and this?").await;
    assert_eq!((this.addressed, this.quoted.as_deref()), (Addressed::Reply, Some("in the thread")));

    // A reply to somebody else is not addressed to the bot, whatever its quote claims.
    world.say(
        &world.owner,
        &room,
        json!({"msgtype": "m.text", "body": "> <@gantry:gantry.test> sure\n\nno", "m.mentions": {},
        "m.relates_to": {"m.in_reply_to": {"event_id": said}}}),
    );
    let no = bot.hears("no").await;
    assert_eq!((no.addressed, no.quoted.as_deref()), (Addressed::No, Some("Gantry: help")));
    assert!(!bot.intake.texts().contains(&"in the thread".to_owned()), "the bot heard itself");

    // A chat of two becomes a group when a third person joins.
    world.client(&world.other, "POST", &format!("/rooms/{room}/leave"), Some(json!({})));
    world.text(&world.owner, &room, "alone now");
    assert_eq!(bot.hears("alone now").await.addressed, Addressed::Direct);
    world.client(
        &world.owner,
        "POST",
        &format!("/rooms/{room}/invite"),
        Some(json!({"user_id": world.other.0})),
    );
    world.client(&world.other, "POST", &format!("/rooms/{room}/join"), Some(json!({})));
    world.text(&world.owner, &room, "three again");
    assert_eq!(bot.hears("three again").await.addressed, Addressed::No);
}

async fn encrypted_rooms(world: &World) {
    let encryption = json!([{"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}]);
    let room = world.room(json!({"initial_state": encryption}), &[&world.bot]);
    let notices =
        || world.messages(&room).iter().filter(|event| event["sender"] == world.bot.0.as_str()).count();
    let bot = Listening::start(world.adapter(), None);
    eventually_async("the bot says that it cannot read", SOON, || notices() == 1).await;
    let cursor = bot.cursor();
    drop(bot);
    // Neither a restart nor further messages repeat it, and plain text in such a room is not read.
    let bot = Listening::start(world.adapter(), cursor);
    bot.connected().await;
    let path = format!("/rooms/{room}/send/m.room.encrypted/1");
    world.client(
        &world.owner,
        "PUT",
        &path,
        Some(json!({"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x"})),
    );
    world.text(&world.owner, &room, "plain in an encrypted room");
    let plain = world.room(json!({}), &[&world.bot]);
    world.text(&world.owner, &plain, "after it");
    bot.hears("after it").await;
    assert_eq!(notices(), 1);
    assert!(!bot.intake.texts().contains(&"plain in an encrypted room".to_owned()));
    let address = Address {
        channel: "matrix".into(),
        account: "default".into(),
        kind: PeerKind::Dm,
        chat: room.clone(),
        thread: None,
    };
    let outcome = world.adapter().send(&outbound("enc1", &address, Content::Text("secret".into()))).await;
    assert!(matches!(&outcome, SendOutcome::Refused(why) if why.contains("encrypted")), "{outcome:?}");
}

async fn backlog_after_downtime(world: &World, dm: &Address) {
    let bot = Listening::start(world.adapter(), None);
    bot.connected().await;
    world.text(&world.owner, &dm.chat, "before the pause");
    bot.hears("before the pause").await;
    let seen = bot.cursor();
    eventually_async("the cursor moves", SOON, || bot.cursor() != seen || seen.is_some()).await;
    // Stop only after the token behind the last message is stored.
    world.text(&world.owner, &dm.chat, "last before the pause");
    bot.hears("last before the pause").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cursor = bot.cursor();
    drop(bot);
    for number in 0..120 {
        world.text(&world.owner, &dm.chat, &format!("missed {number}"));
    }
    let bot = Listening::start(world.adapter(), cursor);
    bot.hears("missed 119").await;
    let expected: Vec<String> = (0..120).map(|number| format!("missed {number}")).collect();
    assert_eq!(bot.intake.texts(), expected);
}

async fn unstored_events_come_again(world: &World, dm: &Address) {
    let bot = Listening::start(world.adapter(), None);
    bot.connected().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cursor = bot.cursor();
    *bot.intake.fails.lock().unwrap() = true;
    world.text(&world.owner, &dm.chat, "while the disk is full");
    eventually_async("listening stops", SOON, || bot.task.is_finished()).await;
    assert_eq!((bot.cursor(), bot.intake.texts().len()), (cursor.clone(), 0));
    let bot = Listening::start(world.adapter(), cursor);
    bot.hears("while the disk is full").await;
    drop(bot);
    // A token that the homeserver never gave starts at the newest instead of failing for ever.
    let bot = Listening::start(world.adapter(), Some("not a token".to_owned()));
    bot.connected().await;
    eventually_async("a new token", SOON, || bot.cursor().as_deref() != Some("not a token")).await;
    world.text(&world.owner, &dm.chat, "heard again");
    bot.hears("heard again").await;
}

async fn restart_of_the_homeserver(world: &World, dm: &Address) {
    let mut bot = Listening::start(world.adapter(), None);
    bot.connected().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.server.lock().unwrap().stop();
    let ended = (&mut bot.task).await.unwrap();
    assert!(matches!(ended, ListenError::Again { .. }), "{ended:?}");
    let message = outbound("down1", dm, Content::Text("while it is down".into()));
    let outcome = world.adapter().send(&message).await;
    assert!(matches!(outcome, SendOutcome::Retry { .. }), "{outcome:?}");
    let problem = world.adapter().test().await.unwrap_err();
    assert!(problem.fix.contains("can reach 127.0.0.1"), "{problem:?}");
    world.server.lock().unwrap().resume();
    world.text(&world.owner, &dm.chat, "after the restart");
    let cursor = bot.cursor();
    let bot = Listening::start(world.adapter(), cursor);
    bot.hears("after the restart").await;
    sent(&world.adapter(), &message).await;
}

async fn revoked_token(world: &World, dm: &Address) {
    let bot = Listening::start(world.adapter(), None);
    bot.connected().await;
    world.client(&world.bot, "POST", "/logout", Some(json!({})));
    world.text(&world.owner, &dm.chat, "anybody there?");
    eventually_async("listening stops", Duration::from_secs(60), || bot.task.is_finished()).await;
    let outcome = world.adapter().send(&outbound("gone1", dm, Content::Text("x".into()))).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    let ended = world.adapter().listen(&RecordingIntake::default(), None).await;
    assert!(matches!(ended, ListenError::NeedsLogin(_)), "{ended:?}");
}
