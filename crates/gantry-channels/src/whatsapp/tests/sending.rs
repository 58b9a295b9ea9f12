use std::time::Duration;

use gantry_testkit::chat::whatsapp::{Fault, message, messages, status};

use super::*;

fn question(markdown: &str, labels: &[&str]) -> Outbound {
    let buttons = labels.iter().enumerate().map(|(number, label)| Button {
        label: (*label).to_owned(),
        handle: format!("q:0123456789abcdef0123:{number}"),
    });
    outbound(Content::Question { markdown: markdown.to_owned(), buttons: buttons.collect() })
}

/// Receives a message that Ada wrote some hours ago.
async fn wrote(whatsapp: &WhatsApp, intake: &RecordingIntake, hours: i64) {
    let at = crate::chats::now_ms() / 1000 - hours * 3600;
    let mut said = message("wamid.in", "text", json!({ "body": "hi" }));
    said["timestamp"] = json!(at.to_string());
    assert_eq!(receive(whatsapp, intake, &messages(vec![said])).await, StatusCode::OK);
}

#[tokio::test]
async fn text_is_sent_in_whatsapps_markup_without_previews() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let mut message = text("**Hi** _you_ ~~no~~ `x_y` [site](https://e.org/a_b)");
    message.reply_to = Some("wamid.1".to_owned());
    let id = sent_id(whatsapp.send(&message).await);
    assert_eq!(id, "wamid.SENT1");
    let expected = json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "recipient": ADA,
        "biz_opaque_callback_data": "k0123456789abcdef", "context": { "message_id": "wamid.1" },
        "type": "text",
        "text": { "body": "*Hi* _you_ ~no~ `x_y` site (https://e.org/a_b)", "preview_url": false },
    });
    assert_eq!(fake.sent(), [expected]);
}

#[tokio::test]
async fn phone_numbers_groups_and_bad_receivers_are_distinguished() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let mut message = text("x");
    message.address = to("491701234567");
    sent_id(whatsapp.send(&message).await);
    message.address = Address { kind: PeerKind::Group, ..to("Y2FwaV9ncm91cDoxNzA1") };
    sent_id(whatsapp.send(&message).await);
    let sent = fake.sent();
    assert_eq!((&sent[0]["to"], sent[0].get("recipient")), (&json!("491701234567"), None));
    assert_eq!(
        (&sent[1]["recipient_type"], &sent[1]["to"]),
        (&json!("group"), &json!("Y2FwaV9ncm91cDoxNzA1"))
    );
    for chat in ["", "../me", "DE.1\r\nX: 1", "+49 170", "ada", "DE.1?x=1"] {
        message.address = to(chat);
        assert!(matches!(whatsapp.send(&message).await, SendOutcome::Refused(_)), "{chat}");
    }
    message.address = Address { kind: PeerKind::Thread, ..to(ADA) };
    assert!(matches!(whatsapp.send(&message).await, SendOutcome::Refused(_)));
    assert_eq!(fake.sent().len(), 2);
    assert_eq!(fake.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn question_is_buttons_a_list_or_numbers() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    sent_id(whatsapp.send(&question("Run **it**?", &["Allow once", "Deny"])).await);
    let sent = fake.sent();
    assert_eq!(sent[0]["interactive"]["type"], "button");
    assert_eq!(sent[0]["interactive"]["body"]["text"], "Run *it*?");
    let button = json!({ "type": "reply", "reply": { "id": "q:0123456789abcdef0123:1", "title": "Deny" } });
    assert_eq!(sent[0]["interactive"]["action"]["buttons"][1], button);

    let long = "Always: commands that begin with cargo test";
    sent_id(whatsapp.send(&question("Run?", &["Allow once", "Deny", long])).await);
    sent_id(whatsapp.send(&question("Which?", &["a", "b", "c", "d"])).await);
    let sent = fake.sent();
    let rows = &sent[1]["interactive"]["action"]["sections"][0]["rows"];
    assert_eq!(
        rows[2],
        json!({ "id": "q:0123456789abcdef0123:2", "title": "Always: commands that b…", "description": long })
    );
    assert_eq!(sent[2]["interactive"]["type"], "list");

    // What people decide by is never cut, and its characters are not markup.
    let very_long = "Always: ".to_owned() + &"x".repeat(80);
    let many: Vec<String> = (0..11).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (markdown, labels) in [
        ("Run?", vec!["Allow once", very_long.as_str()]),
        ("Run?", vec!["same", "same"]),
        ("Run?", vec!["b", "c", "rm *.log and *.txt", "[x](http://y)", &"y".repeat(80)]),
        ("Run?", vec!["a", " "]),
        ("Which?", many),
        ("long ".repeat(300).as_str(), vec!["Yes", "No"]),
    ] {
        let before = fake.sent().len();
        sent_id(whatsapp.send(&question(markdown, &labels)).await);
        let body = fake.sent()[before]["text"]["body"].as_str().unwrap().to_owned();
        assert!(body.contains(format!("2. {}", labels[1]).trim_end()), "{body}");
    }
    let numbers = fake.sent()[5]["text"]["body"].as_str().unwrap().replace('\u{2060}', "");
    assert!(numbers.contains("3. rm *.log and *.txt\n4. [x](http://y)\n"), "{numbers}");
    assert_eq!(fake.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn longest_text_is_accepted() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let markdown = "**bold** *it* `code` ".repeat(400);
    let parts = render::split(&markdown, whatsapp.limits().text, &|part| whatsapp.measure(part));
    assert!(parts.len() > 1);
    for part in parts {
        sent_id(whatsapp.send(&text(&part)).await);
    }
    assert_eq!(fake.refused(), Vec::<String>::new());
    assert!(matches!(whatsapp.send(&text("  ")).await, SendOutcome::Refused(_)));
    let edit = Content::Edit { message_id: "wamid.SENT1".to_owned(), markdown: "x".to_owned() };
    assert!(matches!(whatsapp.send(&outbound(edit)).await, SendOutcome::Refused(_)));
    assert!(!whatsapp.limits().can_edit);
}

#[tokio::test]
async fn outcomes_follow_the_answer() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    fake.fail("messages", Fault::Limited(42));
    let outcome = whatsapp.send(&text("x")).await;
    let is_retry = |outcome: &SendOutcome, seconds: u64| matches!(outcome, SendOutcome::Retry { after: Some(after), .. } if after.as_secs() == seconds);
    assert!(is_retry(&outcome, 42), "{outcome:?}");
    for code in [4, 80_007, 130_429, 131_048, 131_056] {
        fake.fail("messages", Fault::Refused(400, code));
        let outcome = whatsapp.send(&text("x")).await;
        assert!(is_retry(&outcome, 30), "{code}: {outcome:?}");
    }
    for fault in
        [Fault::Before(500), Fault::Before(503), Fault::Refused(500, 131_000), Fault::Refused(400, 131_016)]
    {
        fake.fail("messages", fault.clone());
        let outcome = whatsapp.send(&text("x")).await;
        assert!(matches!(outcome, SendOutcome::Unknown(_)), "{fault:?}: {outcome:?}");
    }
    assert!(fake.sent().is_empty());
    for fault in [Fault::After(502), Fault::Cut] {
        fake.fail("messages", fault.clone());
        let outcome = whatsapp.send(&text("x")).await;
        assert!(matches!(outcome, SendOutcome::Unknown(_)), "{fault:?}: {outcome:?}");
    }
    assert_eq!(fake.sent().len(), 2, "both had an effect, and neither is repeated");
    for (code, expected) in [
        (10, "system user"),
        (131_026, "terms"),
        (131_030, "recipients of the test number"),
        (133_010, "register"),
        (131_042, "payment"),
        (131_009, "131009"),
    ] {
        fake.fail("messages", Fault::Refused(400, code));
        let outcome = whatsapp.send(&text("x")).await;
        assert!(
            matches!(&outcome, SendOutcome::Refused(why) if why.contains(expected)),
            "{code}: {outcome:?}"
        );
    }
    fake.fail("messages", Fault::Refused(401, 190));
    let outcome = whatsapp.send(&text("x")).await;
    assert!(matches!(outcome, SendOutcome::Retry { after: None, .. }), "{outcome:?}");
}

#[tokio::test]
async fn status_that_came_first_settles_an_unknown_send() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let key = json!({ "biz_opaque_callback_data": "k0123456789abcdef" });
    receive(&whatsapp, &RecordingIntake::default(), &status("wamid.SENT1", "sent", key)).await;
    fake.fail("messages", Fault::After(502));
    assert_eq!(sent_id(whatsapp.send(&text("x")).await), "wamid.SENT1");
    fake.fail("messages", Fault::After(502));
    let other = Outbound { key: "another".to_owned(), ..text("x") };
    assert!(matches!(whatsapp.send(&other).await, SendOutcome::Unknown(_)));
}

#[tokio::test]
async fn outside_the_window_a_message_fails_with_the_reason() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    let intake = RecordingIntake::default();
    wrote(&whatsapp, &intake, 25).await;
    let outcome = whatsapp.send(&text("x")).await;
    assert!(
        matches!(&outcome, SendOutcome::Refused(why) if why.contains("24 hours") && why.contains("template")),
        "{outcome:?}"
    );
    assert!(fake.sent().is_empty() && fake.refused().is_empty(), "nothing was tried");

    // The next message opens it, also after a restart.
    let intake = RecordingIntake::default();
    wrote(&whatsapp, &intake, 23).await;
    sent_id(whatsapp.send(&text("x")).await);
    let cursor = intake.cursor.lock().unwrap().clone();
    assert!(cursor.as_deref().is_some_and(|cursor| cursor.contains(ADA)), "{cursor:?}");

    // The provider knows better.
    fake.fail("messages", Fault::Refused(400, 131_047));
    let outcome = whatsapp.send(&text("x")).await;
    assert!(matches!(&outcome, SendOutcome::Refused(why) if why.contains("24 hours")), "{outcome:?}");
}

#[tokio::test]
async fn window_is_remembered_over_a_restart() {
    let fake = FakeWhatsApp::start().await;
    let before = whatsapp(&fake);
    let intake = RecordingIntake::default();
    wrote(&before, &intake, 30).await;
    let cursor = intake.cursor.lock().unwrap().clone();
    let after = whatsapp(&fake);
    let _ = tokio::time::timeout(Duration::from_millis(300), after.listen(&intake, cursor)).await;
    assert!(matches!(after.send(&text("x")).await, SendOutcome::Refused(why) if why.contains("24 hours")));
    assert!(fake.sent().is_empty());
}

#[tokio::test]
async fn template_is_sent_outside_the_window() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = with_template(&fake, true);
    wrote(&whatsapp, &RecordingIntake::default(), 48).await;
    let mut message = text("**Report**\n\n- one\n- two\t      x");
    message.reply_to = Some("wamid.1".to_owned());
    sent_id(whatsapp.send(&message).await);
    let sent = fake.sent()[0].clone();
    assert_eq!((&sent["type"], &sent["template"]["name"]), (&json!("template"), &json!("agent_notice")));
    assert_eq!(sent["template"]["language"]["code"], "en_US");
    let value = &sent["template"]["components"][0]["parameters"][0]["text"];
    assert_eq!(value, "*Report* · • one · • two x");
    assert_eq!(sent["biz_opaque_callback_data"], "k0123456789abcdef");

    sent_id(whatsapp.send(&text(&"word ".repeat(800))).await);
    sent_id(whatsapp.send(&question("Run?", &["Yes", "No"])).await);
    let values: Vec<String> = fake.sent()[1..]
        .iter()
        .map(|sent| sent["template"]["components"][0]["parameters"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    assert!(values[0].ends_with("ask for the rest)"), "{}", values[0]);
    assert_eq!(values[1], "Run? · Answer with a number: · 1. Yes · 2. No");
    let outcome = whatsapp.send(&question(&"word ".repeat(300), &["Yes", "No"])).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "a question is never cut: {outcome:?}");
    let file = Content::File {
        name: "a.txt".to_owned(),
        mime: "text/plain".to_owned(),
        bytes: Bytes::from_static(b"x"),
        caption: String::new(),
    };
    assert!(matches!(whatsapp.send(&outbound(file)).await, SendOutcome::Refused(_)));
    fake.fail("messages", Fault::Refused(400, 132_001));
    let outcome = whatsapp.send(&text("x")).await;
    assert!(matches!(&outcome, SendOutcome::Refused(why) if why.contains("approved")), "{outcome:?}");
    assert_eq!(fake.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn failed_status_and_refusal_switch_to_the_template() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = with_template(&fake, true);
    fake.fail("messages", Fault::Refused(400, 131_047));
    sent_id(whatsapp.send(&text("x")).await);
    assert_eq!(fake.sent()[0]["type"], "template");
    let intake = RecordingIntake::default();
    wrote(&whatsapp, &intake, 1).await;
    sent_id(whatsapp.send(&text("x")).await);
    assert_eq!(fake.sent()[1]["type"], "text");
    let errors = json!({ "errors": [{ "code": 131_047, "title": "Re-engagement message" }] });
    receive(&whatsapp, &intake, &status("wamid.SENT2", "failed", errors)).await;
    sent_id(whatsapp.send(&text("x")).await);
    assert_eq!(fake.sent()[2]["type"], "template");
}
