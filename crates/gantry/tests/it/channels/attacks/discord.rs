//! Attacks in Discord.

use gantry_testkit::chat::discord::{ADA, BOT, CHANNEL, DIRECT, GROUP, HIDDEN, THREAD, user};
use serde_json::{Value, json};

use super::super::services::discord::{places_of, said};
use super::super::services::{DiscordService, Person};
use super::{Attack, Open, attack, hostile_texts, with};

pub(super) fn attacks(service: &DiscordService, open: &Open) -> Vec<Attack> {
    let say = |name: &'static str, channel: &str, fields: Value| {
        let (fake, message) = (service.fake.clone(), said(service, channel, fields));
        attack(name, move || drop(fake.say(message.clone())))
    };
    let push = |name: &'static str, kind: &'static str, data: Value| {
        let fake = service.fake.clone();
        attack(name, move || fake.push(kind, &data))
    };
    let press = |name: &'static str, channel: &'static str, person: Value, button: String| {
        let (fake, message) = (service.fake.clone(), open.message.id.clone());
        attack(name, move || drop(fake.press(channel, &message, person.clone(), &button)))
    };
    let (eve, other) = places_of(Person::Eve);
    let (ann, bob) = (user(ADA, "ann"), user("1040000000000000005", "bob"));
    let mention = json!([user(BOT, "gantry")]);
    let called =
        |fields: Value| with(json!({ "content": format!("<@{BOT}> ATTACK"), "mentions": mention }), fields);
    let yes = open.yes.clone();
    let mut attacks = vec![
        say("a stranger writes", other, json!({})),
        say("a stranger uses /approve", other, json!({ "content": "/approve" })),
        say("a stranger uses /always", other, json!({ "content": "/always 1" })),
        say("a stranger answers yes", other, json!({ "content": "yes" })),
        say("a stranger answers with a number", other, json!({ "content": "1" })),
        say(
            "a stranger takes the owner's name",
            other,
            json!({ "author": with(eve.clone(), json!({ "username": "ann" })) }),
        ),
        say(
            "a stranger invents a link code",
            other,
            json!({ "content": "gantry-link-aaaaaaaaaaaaaaaaaaaaaaaaaa" }),
        ),
        say(
            "a bot in the owner's chat",
            DIRECT,
            json!({ "author": with(ann.clone(), json!({ "bot": true })) }),
        ),
        say(
            "a webhook with the owner's id",
            DIRECT,
            json!({ "author": ann, "webhook_id": "1040000000000000777" }),
        ),
        say(
            "a message of the bot itself",
            DIRECT,
            json!({ "author": with(user(BOT, "gantry"), json!({ "bot": true })), "content": "yes" }),
        ),
        say("a system message", DIRECT, json!({ "author": ann, "type": 6 })),
        say("a stranger in a listed channel", CHANNEL, called(json!({}))),
        say("a stranger in a thread of it", THREAD, called(json!({}))),
        say("a stranger in a group of direct messages", GROUP, called(json!({}))),
        say("a channel that is not listed", HIDDEN, called(json!({ "author": bob }))),
        say("an allowed person who does not mention the bot", CHANNEL, json!({ "author": bob })),
        say(
            "a mention of everybody",
            CHANNEL,
            json!({ "author": bob, "content": "@everyone ATTACK", "mention_everyone": true }),
        ),
        say(
            "a mention of a role",
            CHANNEL,
            json!({ "author": bob, "content": "<@&77> ATTACK", "mention_roles": ["77"] }),
        ),
        say(
            "a mention in a code block only",
            CHANNEL,
            json!({ "author": bob, "content": format!("`<@{BOT}>` ATTACK"), "mentions": [] }),
        ),
        push(
            "the owner's edit",
            "MESSAGE_UPDATE",
            said(
                service,
                DIRECT,
                json!({ "author": ann, "edited_timestamp": "2026-01-01T00:00:00.000000+00:00" }),
            ),
        ),
        push(
            "an edit to an answer",
            "MESSAGE_UPDATE",
            said(
                service,
                DIRECT,
                json!({ "author": ann, "content": "yes", "edited_timestamp": "2026-01-01T00:00:00.000000+00:00" }),
            ),
        ),
        push(
            "a message without an author",
            "MESSAGE_CREATE",
            said(service, DIRECT, json!({ "author": null })),
        ),
        push(
            "ids with line breaks",
            "MESSAGE_CREATE",
            said(service, DIRECT, json!({ "id": "1\r\n2", "channel_id": "../1" })),
        ),
        push(
            "an event of an unknown kind",
            "MESSAGE_POLL_VOTE_ADD",
            json!({ "user_id": ADA, "channel_id": DIRECT, "message_id": "1", "answer_id": 1 }),
        ),
        push(
            "a reaction",
            "MESSAGE_REACTION_ADD",
            json!({ "user_id": ADA, "channel_id": DIRECT, "message_id": open.message.id, "emoji": { "name": "👍" } }),
        ),
        press("a stranger presses the button", DIRECT, eve.clone(), yes.clone()),
        press("a stranger presses it in a channel", CHANNEL, eve.clone(), yes.clone()),
        press("the owner presses it in a channel", CHANNEL, ann.clone(), yes.clone()),
        press("an unknown button", DIRECT, ann.clone(), "q:00000000000000000000:0".to_owned()),
        press("a choice that does not exist", DIRECT, ann.clone(), format!("{}7", yes.trim_end_matches('0'))),
        press(
            "a bot presses",
            DIRECT,
            with(ann, json!({ "bot": true })),
            format!("{}1", yes.trim_end_matches('0')),
        ),
    ];
    attacks.extend(
        hostile_texts()
            .into_iter()
            .map(|text| say("a hostile text of a stranger", other, json!({ "content": text }))),
    );
    attacks
}
