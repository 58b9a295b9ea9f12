//! discord.py and twilight-gateway use the server as they use Discord.

use gantry_testkit::chat::discord::{ADA, BOT, CHANNEL, DIRECT, FakeDiscord, TOKEN, user};
use gantry_testkit::{SOON, eventually_async};
use serde_json::json;
use twilight_gateway::{
    CloseFrame, ConfigBuilder, Event, EventTypeFlags, Intents, Shard, ShardId, StreamExt,
};

#[tokio::test(flavor = "multi_thread")]
async fn discord_py_accepts_the_server() {
    let fake = FakeDiscord::start().await;
    let attachment = fake.attachment("photo.png", "image/png", b"PNG");
    let drive = async {
        let post = |text: &str| fake.posts().into_iter().find(|post| post["content"] == text);
        eventually_async("a question", SOON, || post("Please press").is_some()).await;
        let mut said = fake.message(CHANNEL, &format!("<@{BOT}> hello"));
        said["attachments"] = json!([attachment.clone()]);
        fake.say(said);
        fake.say(fake.message(DIRECT, "hello"));
        let question = post("Really?").unwrap()["id"].as_str().unwrap().to_owned();
        let press = fake.press(CHANNEL, &question, user(ADA, "ada"), "q:1:0");
        eventually_async("an answer", SOON, || !fake.answers(&press).is_empty()).await;
        assert_eq!(fake.answers(&press)[0]["data"]["flags"], 64);
        fake.cut();
        fake.say(fake.message(DIRECT, "while away"));
    };
    let (api, gateway) = (fake.api_url(), fake.gateway_url());
    let file = attachment["url"].as_str().unwrap();
    let args = [api.as_str(), gateway.as_str(), TOKEN, file];
    tokio::join!(crate::judge::run("discord_py", &args), drive);
    assert_eq!(fake.sessions(), (1, 1));
    assert_eq!(fake.uploads(), [("a.txt".to_owned(), b"data".to_vec())]);
}

const ALL: Intents = Intents::GUILDS
    .union(Intents::GUILD_MESSAGES)
    .union(Intents::DIRECT_MESSAGES)
    .union(Intents::MESSAGE_CONTENT);

fn shard(fake: &FakeDiscord, token: &str, intents: Intents) -> Shard {
    let config = ConfigBuilder::new(token.to_owned(), intents).proxy_url(fake.gateway_url()).build();
    Shard::with_config(ShardId::ONE, config)
}

async fn next(shard: &mut Shard) -> Event {
    loop {
        let event = tokio::time::timeout(SOON, shard.next_event(EventTypeFlags::all())).await;
        match event.expect("no event").expect("the shard ended") {
            Ok(Event::GatewayHeartbeatAck | Event::GatewayHello(_)) => {}
            Ok(event) => return event,
            Err(err) => panic!(
                "{err:?}: {}",
                std::error::Error::source(&err).map_or(String::new(), ToString::to_string)
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twilight_accepts_every_event() {
    let fake = FakeDiscord::start().await;
    fake.beat_every(400);
    let mut shard = shard(&fake, TOKEN, ALL);
    let Event::Ready(ready) = next(&mut shard).await else { panic!("not ready") };
    assert_eq!(ready.user.id.to_string(), BOT);
    let Event::GuildCreate(_) = next(&mut shard).await else { panic!("no server") };
    let mut said = fake.message(CHANNEL, &format!("<@{BOT}> hello"));
    said["attachments"] = json!([fake.attachment("photo.png", "image/png", b"PNG")]);
    let id = fake.say(said.clone());
    let Event::MessageCreate(message) = next(&mut shard).await else { panic!("no message") };
    assert_eq!(
        (message.id.to_string(), message.mentions.len(), message.attachments.len()),
        (id.clone(), 1, 1)
    );
    said["edited_timestamp"] = said["timestamp"].clone();
    fake.push("MESSAGE_UPDATE", &said);
    let Event::MessageUpdate(_) = next(&mut shard).await else { panic!("no update") };
    fake.say(fake.message(DIRECT, "hello"));
    let Event::MessageCreate(message) = next(&mut shard).await else { panic!("no message") };
    assert!(message.guild_id.is_none());
    for channel in [CHANNEL, DIRECT] {
        fake.press(channel, &id, user(ADA, "ada"), "q:1:0");
        let Event::InteractionCreate(press) = next(&mut shard).await else { panic!("no press") };
        assert_eq!(press.author_id().map(|id| id.to_string()).as_deref(), Some(ADA));
    }
    loop {
        let event =
            tokio::time::timeout(SOON, shard.next_event(EventTypeFlags::all())).await.expect("no event");
        if matches!(event, Some(Ok(Event::GatewayHeartbeatAck))) {
            break;
        }
    }
    assert!(fake.heartbeats() >= 1);
    fake.frame(&json!({ "op": 7, "d": null }));
    let mut resumed = false;
    while !resumed {
        match tokio::time::timeout(SOON, shard.next_event(EventTypeFlags::all())).await.expect("no event") {
            Some(Ok(Event::Resumed)) => resumed = true,
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fake.sessions(), (1, 1));
    shard.close(CloseFrame::NORMAL);
}

#[tokio::test(flavor = "multi_thread")]
async fn twilight_is_refused_with_discords_codes() {
    let fake = FakeDiscord::start().await;
    fake.switch_content_intent(false);
    for (token, intents, code) in
        [("wrong.token.x", ALL, 4004), (TOKEN, ALL, 4014), (TOKEN, Intents::from_bits_retain(1 << 40), 4013)]
    {
        let mut shard = shard(&fake, token, intents);
        let Event::GatewayClose(Some(frame)) = next(&mut shard).await else { panic!("not closed") };
        assert_eq!(frame.code, code);
    }
}
