//! Attacks in Slack.

use gantry_testkit::chat::slack::{BOT_ID, BOT_USER};
use serde_json::{Value, json};

use super::super::services::slack::ids_of;
use super::super::services::telegram::jiff_now;
use super::super::services::{Person, SlackService};
use super::{Attack, Open, attack, hostile_texts, with};

fn said(number: u64, fields: Value) -> Value {
    let (user, channel) = ids_of(Person::Eve);
    let base = json!({
        "type": "message", "channel": channel, "channel_type": "im", "user": user, "text": "ATTACK",
        "ts": format!("{}.{number:06}", jiff_now()),
    });
    with(base, fields)
}

fn in_group(number: u64, fields: Value) -> Value {
    let text = format!("<@{BOT_USER}> ATTACK");
    let base = said(number, json!({ "channel": "C00000100", "channel_type": "channel", "text": text }));
    with(base, fields)
}

fn press(user: &str, channel: &str, message: &str, value: &str) -> Value {
    json!({
        "type": "block_actions",
        "user": { "id": user, "username": "ann" },
        "container": { "type": "message", "message_ts": message, "channel_id": channel },
        "actions": [{ "type": "button", "action_id": "gantry-0", "value": value, "action_ts": format!("{user}{channel}{value}") }],
    })
}

pub(super) fn attacks(service: &SlackService, open: &Open) -> Vec<Attack> {
    let say = |name: &'static str, event: Value| {
        let fake = service.fake.clone();
        attack(name, move || drop(fake.say(event.clone())))
    };
    let push = |name: &'static str, payload: Value| {
        let fake = service.fake.clone();
        attack(name, move || drop(fake.push("interactive", payload.clone())))
    };
    let ((ann, own), (eve, other)) = (ids_of(Person::Ann), ids_of(Person::Eve));
    let (question, yes) = (open.message.id.as_str(), open.yes.as_str());
    let bob = json!({ "user": "U00000005" });
    let mut attacks = vec![
        say("a stranger writes", said(100, json!({}))),
        say("a stranger uses /approve", said(101, json!({ "text": "/approve" }))),
        say("a stranger uses /always", said(102, json!({ "text": "/always 1" }))),
        say("a stranger uses /new", said(103, json!({ "text": "/new" }))),
        say("a stranger answers yes", said(104, json!({ "text": "yes" }))),
        say("a stranger answers with a number", said(105, json!({ "text": "1" }))),
        say(
            "a stranger invents a link code",
            said(106, json!({ "text": "gantry-link-aaaaaaaaaaaaaaaaaaaaaaaaaa" })),
        ),
        say("a stranger's thread in her chat", said(107, json!({ "thread_ts": question, "text": "ATTACK" }))),
        say(
            "a bot in the owner's chat",
            said(108, json!({ "channel": own, "user": ann, "bot_id": "B00000009" })),
        ),
        say(
            "a message of the bot itself",
            said(109, json!({ "channel": own, "user": BOT_USER, "bot_id": BOT_ID, "text": "yes" })),
        ),
        say(
            "the owner's edit",
            json!({
                "type": "message", "subtype": "message_changed", "channel": own, "channel_type": "im", "ts": "1700000000.000110",
                "message": { "type": "message", "user": ann, "text": "ATTACK", "ts": "1700000000.000010" },
            }),
        ),
        say(
            "a deleted message",
            json!({
                "type": "message", "subtype": "message_deleted", "channel": own, "channel_type": "im", "ts": "1700000000.000111",
                "previous_message": { "type": "message", "user": ann, "text": "ATTACK", "ts": "1700000000.000010" },
            }),
        ),
        say(
            "a reminder",
            said(112, json!({ "channel": own, "user": "USLACKBOT", "subtype": "reminder_add" })),
        ),
        say("a stranger in a listed group", in_group(120, json!({}))),
        say(
            "a stranger in a group of direct messages",
            in_group(121, json!({ "channel": "G00000001", "channel_type": "mpim" })),
        ),
        say(
            "a group that is not listed",
            in_group(122, with(json!({ "channel": "C00000200" }), bob.clone())),
        ),
        say(
            "an allowed person who does not mention the bot",
            in_group(123, with(json!({ "text": "ATTACK" }), bob.clone())),
        ),
        say(
            "a mention of everybody",
            in_group(124, with(json!({ "text": "<!channel> ATTACK" }), bob.clone())),
        ),
        say("a mention of those here", in_group(125, with(json!({ "text": "<!here> ATTACK" }), bob.clone()))),
        say(
            "a mention of a group of users",
            in_group(126, with(json!({ "text": "<!subteam^S1|@bots> ATTACK" }), bob.clone())),
        ),
        say("a mention of another bot", in_group(127, with(json!({ "text": "<@U00000777> ATTACK" }), bob))),
        say(
            "a bot that mentions the bot",
            in_group(128, json!({ "bot_id": "B00000009", "subtype": "bot_message" })),
        ),
        say("a message without a sender", said(129, json!({ "user": null }))),
        say("a message without a channel", said(130, json!({ "channel": null }))),
        say(
            "a sender with control characters",
            said(131, json!({ "user": "U1\r\nX: 1", "channel": "../D1" })),
        ),
        say("an event of an unknown type", json!({ "type": "team_join", "user": { "id": eve } })),
        push("a stranger presses the button", press(eve, own, question, yes)),
        push("a stranger presses it in her chat", press(eve, other, question, yes)),
        push("a stranger presses it in a group", press(eve, "C00000100", question, yes)),
        push("the owner presses it in a group", press(ann, "C00000100", question, yes)),
        push("an unknown button", press(ann, own, question, "q:00000000000000000000:0")),
        push(
            "a choice that does not exist",
            press(ann, own, question, &format!("{}7", yes.trim_end_matches('0'))),
        ),
        push("a press without actions", with(press(ann, own, question, yes), json!({ "actions": [] }))),
        push(
            "a view instead of a button",
            json!({ "type": "view_submission", "user": { "id": ann }, "view": { "private_metadata": yes } }),
        ),
    ];
    attacks.extend(hostile_texts().into_iter().enumerate().map(|(at, text)| {
        say("a hostile text of a stranger", said(150 + at as u64, json!({ "text": text })))
    }));
    attacks
}
