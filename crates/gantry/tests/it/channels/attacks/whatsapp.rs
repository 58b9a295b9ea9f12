//! Attacks in WhatsApp.

use gantry_testkit::Gateway;
use gantry_testkit::chat::whatsapp::{change, message};
use serde_json::{Value, json};

use super::super::services::whatsapp::{id_of, post, webhook};
use super::super::services::{Person, WhatsAppService};
use super::{Attack, Open, attack, hostile_texts, with};

pub(super) fn attacks(_service: &WhatsAppService, open: &Open, up: &Gateway) -> Vec<Attack> {
    let address = up.url.trim_start_matches("http://").to_owned();
    // Whatever it is, Meta must get an answer that does not make it repeat the request for ever.
    let send = |name: &'static str, body: Value| {
        let address = address.clone();
        attack(name, move || assert_eq!(post(&address, &body.to_string(), None), Some(200), "{name}"))
    };
    let forged = |name: &'static str, body: Value, signature: &'static str| {
        let address = address.clone();
        attack(name, move || {
            let status = post(&address, &body.to_string(), Some(signature));
            assert!(matches!(status, Some(401 | 403)), "{name}: {status:?}");
        })
    };
    let text = |id: &str, text: &str| message(&format!("wamid.attack.{id}"), "text", json!({ "body": text }));
    let press = |id: &str, button: &str| {
        let reply = json!({ "type": "button_reply", "button_reply": { "id": button, "title": "x" } });
        message(&format!("wamid.attack.{id}"), "interactive", reply)
    };
    let (eve, ann) = (Person::Eve, Person::Ann);
    let yes = open.yes.as_str();
    let mut attacks = vec![
        send("a stranger writes", webhook(eve, text("1", "ATTACK"))),
        send("a stranger uses /approve", webhook(eve, text("2", "/approve"))),
        send("a stranger uses /always", webhook(eve, text("3", "/always 1"))),
        send("a stranger answers yes", webhook(eve, text("4", "yes"))),
        send("a stranger answers with a number", webhook(eve, text("5", "1"))),
        send(
            "a stranger invents a link code",
            webhook(eve, text("6", "gantry-link-aaaaaaaaaaaaaaaaaaaaaaaaaa")),
        ),
        send("a stranger presses the button", webhook(eve, press("7", yes))),
        send("an unknown button", webhook(ann, press("8", "q:00000000000000000000:0"))),
        send(
            "a choice that does not exist",
            webhook(ann, press("9", &format!("{}7", yes.trim_end_matches('0')))),
        ),
        send("a message without an id", webhook(eve, with(text("10", "ATTACK"), json!({ "id": null })))),
        send(
            "a message without a sender",
            change(
                json!({ "contacts": [], "messages": [with(text("11", "ATTACK"), json!({ "from": null, "from_user_id": null }))] }),
            ),
        ),
        send("a request without messages", change(json!({}))),
        send("a request about another number", {
            let mut body = webhook(ann, text("12", "ATTACK"));
            body["entry"][0]["changes"][0]["value"]["metadata"]["phone_number_id"] = json!("999");
            body
        }),
        send("a request of another field", {
            let mut body = webhook(ann, text("13", "ATTACK"));
            body["entry"][0]["changes"][0]["field"] = json!("security");
            body
        }),
        forged("a request of the owner without a signature", webhook(ann, text("14", "ATTACK")), ""),
        forged(
            "a request with a wrong signature",
            webhook(ann, press("15", yes)),
            "sha256=0000000000000000000000000000000000000000000000000000000000000000",
        ),
        forged(
            "a request with an old kind of signature",
            webhook(ann, text("16", "ATTACK")),
            "sha1=0000000000000000000000000000000000000000",
        ),
        send(
            "a status with the owner's id",
            change(
                json!({ "statuses": [{ "id": "wamid.x", "status": "delivered", "recipient_user_id": id_of(ann), "timestamp": "1" }] }),
            ),
        ),
    ];
    attacks.extend(hostile_texts().into_iter().enumerate().map(|(at, hostile)| {
        send("a hostile text of a stranger", webhook(eve, text(&format!("t{at}"), &hostile)))
    }));
    attacks
}
