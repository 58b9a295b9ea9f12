use bytes::Bytes;
use gantry_testkit::chat::slack::Fault;

use super::*;
use crate::adapter::{Button, Problem, SendOutcome};

fn text(markdown: &str) -> Content {
    Content::Text(markdown.to_owned())
}

fn sent_id(outcome: SendOutcome) -> String {
    match outcome {
        SendOutcome::Sent { message_id: Some(id) } => id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn text_is_sent_with_structure_and_without_previews() {
    let fake = FakeSlack::start().await;
    let markdown = "Hi **you** <!channel> <@U1> & `x_y`\n\nhttps://e.org/a_b";
    let id = sent_id(slack(&fake).send(&outbound(to("C00000001", None), text(markdown))).await);
    let post = &fake.posts()[0];
    assert_eq!(post["ts"], id.as_str());
    assert_eq!(post["text"], "Hi you &lt;!channel&gt; &lt;@U1&gt; &amp; x_y\n\nhttps://e.org/a_b");
    assert_eq!(
        post["blocks"][0]["elements"][0]["elements"][1],
        json!({ "type": "text", "text": "you", "style": { "bold": true } })
    );
    for off in ["unfurl_links", "unfurl_media", "link_names", "mrkdwn"] {
        assert_eq!(post[off], false, "{off}");
    }
    assert_eq!((post["parse"].as_str(), post["thread_ts"].as_str()), (Some("none"), None));
    assert_eq!(post["metadata"]["event_payload"]["key"], "k0123456789abcdef");
}

#[tokio::test]
async fn answer_goes_into_the_thread_of_the_address() {
    let fake = FakeSlack::start().await;
    let mut message = outbound(to("C00000001", Some("1700000000.000100")), text("yes"));
    message.reply_to = Some("1700000005.000100".into());
    sent_id(slack(&fake).send(&message).await);
    assert_eq!(fake.posts()[0]["thread_ts"], "1700000000.000100");
}

#[tokio::test]
async fn question_has_buttons_and_its_edit_removes_them() {
    let fake = FakeSlack::start().await;
    let slack = slack(&fake);
    let button = |label: &str, handle: &str| Button { label: label.into(), handle: handle.into() };
    let buttons =
        vec![button("Yes", "q1:yes"), button(&"very long ".repeat(20), "q1:no"), button("", "q1:x")];
    let content = Content::Question { markdown: "Really?".into(), buttons };
    let message_id = sent_id(slack.send(&outbound(to("D00000001", None), content)).await);
    let actions = &fake.posts()[0]["blocks"][1];
    assert_eq!(actions["type"], "actions");
    assert_eq!(
        (&actions["elements"][0]["value"], &actions["elements"][2]["text"]["text"]),
        (&json!("q1:yes"), &json!("3"))
    );
    let content = Content::Edit { message_id: message_id.clone(), markdown: "Really? **Yes**".into() };
    assert_eq!(sent_id(slack.send(&outbound(to("D00000001", None), content)).await), message_id);
    let post = &fake.posts()[0];
    assert_eq!(post["text"], "Really? Yes");
    assert!(!post["blocks"].to_string().contains("actions"), "{post}");
    let content = Content::Edit { message_id: "1600000000.000001".into(), markdown: "x".into() };
    let outcome = slack.send(&outbound(to("D00000001", None), content)).await;
    assert!(
        matches!(&outcome, SendOutcome::Refused(why) if why.contains("message_not_found")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn rejected_formatting_is_sent_again_as_plain_text() {
    let fake = FakeSlack::start().await;
    fake.fail("chat.postMessage", Fault::Refused("invalid_blocks"));
    sent_id(slack(&fake).send(&outbound(to("D00000001", None), text("**x** < y"))).await);
    assert_eq!(fake.posts().len(), 1);
    assert_eq!(
        (fake.posts()[0]["text"].clone(), fake.posts()[0]["blocks"].clone()),
        (json!("x &lt; y"), Value::Null)
    );
}

#[tokio::test]
async fn longest_text_is_accepted() {
    let fake = FakeSlack::start().await;
    let slack = slack(&fake);
    let markdown = "*a* 😀\n".repeat(900);
    let limit = slack.limits().text;
    let fitting: String = markdown.chars().take(limit).collect();
    assert!(slack.measure(&fitting) <= limit);
    sent_id(slack.send(&outbound(to("D00000001", None), text(&fitting))).await);
    assert!(fake.posts()[0]["blocks"].is_array());
}

#[tokio::test]
async fn rate_limit_and_refusals_are_classified() {
    let fake = FakeSlack::start().await;
    let slack = slack(&fake);
    fake.fail("chat.postMessage", Fault::Limited(42));
    let outcome = slack.send(&outbound(to("D00000001", None), text("x"))).await;
    assert!(
        matches!(outcome, SendOutcome::Retry { after: Some(after), .. } if after.as_secs() == 42),
        "{outcome:?}"
    );
    for (chat, expected) in
        [("CGONE0001", "channel_not_found"), ("CFOREIGN1", "/invite"), ("C1\r\n", "channel_not_found")]
    {
        let outcome = slack.send(&outbound(to(chat, None), text("x"))).await;
        assert!(
            matches!(&outcome, SendOutcome::Refused(why) if why.contains(expected)),
            "{chat}: {outcome:?}"
        );
    }
    for (code, expected) in
        [("missing_scope", "reinstall"), ("token_revoked", "botToken"), ("is_archived", "is_archived")]
    {
        fake.fail("chat.postMessage", Fault::Refused(code));
        let outcome = slack.send(&outbound(to("D00000001", None), text("x"))).await;
        assert!(
            matches!(&outcome, SendOutcome::Refused(why) if why.contains(expected)),
            "{code}: {outcome:?}"
        );
    }
    fake.fail("chat.postMessage", Fault::Refused("service_unavailable"));
    let outcome = slack.send(&outbound(to("D00000001", None), text("x"))).await;
    assert!(matches!(outcome, SendOutcome::Retry { .. }), "{outcome:?}");
    assert!(fake.posts().is_empty());
}

#[tokio::test]
async fn unknown_outcomes_are_settled_by_the_key() {
    for thread in [None, Some("1700000000.000100")] {
        let fake = FakeSlack::start().await;
        let slack = slack(&fake);
        let message = outbound(to("C00000001", thread), text("once"));
        for fault in [Fault::After(502), Fault::Cut] {
            fake.fail("chat.postMessage", fault.clone());
            let id = sent_id(slack.send(&message).await);
            assert_eq!(fake.posts().last().unwrap()["ts"], id.as_str(), "{fault:?}");
        }
        assert_eq!(fake.calls("chat.postMessage").len(), 1, "a known key is not sent again");
    }
}

#[tokio::test]
async fn message_that_did_not_arrive_is_sent_again() {
    let fake = FakeSlack::start().await;
    let slack = slack(&fake);
    let message = outbound(to("C00000001", None), text("once"));
    fake.fail("chat.postMessage", Fault::Before(503));
    let outcome = slack.send(&message).await;
    assert!(matches!(&outcome, SendOutcome::Retry { after: Some(_), .. }), "{outcome:?}");
    sent_id(slack.send(&message).await);
    assert_eq!(fake.posts().len(), 1);
}

#[tokio::test]
async fn outcome_stays_unknown_if_nobody_can_look() {
    let fake = FakeSlack::start().await;
    fake.fail("chat.postMessage", Fault::After(500));
    fake.fail("conversations.history", Fault::Refused("missing_scope"));
    let outcome = slack(&fake).send(&outbound(to("C00000001", None), text("once"))).await;
    assert!(matches!(outcome, SendOutcome::Unknown(_)), "{outcome:?}");
}

#[tokio::test]
async fn file_is_sent_in_three_steps() {
    let fake = FakeSlack::start().await;
    let slack = slack(&fake);
    let file = |name: &str| Content::File {
        name: name.into(),
        mime: "text/plain".into(),
        bytes: Bytes::from_static(b"data"),
        caption: "see <this>".into(),
    };
    let message = outbound(to("C00000001", Some("1700000000.000100")), file("../a\r\nb.txt"));
    assert_eq!(slack.send(&message).await, SendOutcome::Sent { message_id: None });
    let upload = &fake.uploads()[0];
    assert_eq!((upload.name.as_str(), &upload.bytes[..]), ("..ab.txt", &b"data"[..]));
    assert_eq!((upload.channel.as_str(), upload.thread.as_deref()), ("C00000001", Some("1700000000.000100")));
    assert_eq!(upload.comment.as_deref(), Some("see &lt;this&gt;"));
    let message = outbound(to("C00000001", None), file("b.txt"));
    fake.fail("files.getUploadURLExternal", Fault::After(500));
    assert!(matches!(slack.send(&message).await, SendOutcome::Retry { .. }));
    fake.fail("files.completeUploadExternal", Fault::After(500));
    assert!(matches!(slack.send(&message).await, SendOutcome::Unknown(_)));
}

#[tokio::test]
async fn test_names_the_problem_and_the_fix() {
    let fake = FakeSlack::start().await;
    let info = slack(&fake).test().await.unwrap();
    assert_eq!((info.name.as_str(), info.warnings.len()), ("@gantry", 0));
    fake.grant("chat:write,im:history");
    let warnings = slack(&fake).test().await.unwrap().warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let problem = |bot, app| {
        let slack = slack_with(&fake, bot, app);
        async move { slack.test().await.unwrap_err() }
    };
    let Problem { message, fix } = problem("xoxb-wrong-SECRET", APP_TOKEN).await;
    assert!(message.contains("invalid_auth") && fix.contains("botToken"), "{message}: {fix}");
    let Problem { message, fix } = problem(BOT_TOKEN, "xapp-wrong-SECRET").await;
    assert!(message.contains("invalid_auth") && fix.contains("appToken"), "{message}: {fix}");
    let Problem { message, fix } = problem(APP_TOKEN, BOT_TOKEN).await;
    assert!(message.contains("xoxb-") && fix.contains("botToken"), "{message}: {fix}");
    fake.fail("auth.test", Fault::Refused("missing_scope"));
    let Problem { fix, .. } = problem(BOT_TOKEN, APP_TOKEN).await;
    assert!(fix.contains("add the scope chat:write"), "{fix}");
    fake.revoke();
    let Problem { message, fix } = problem(BOT_TOKEN, APP_TOKEN).await;
    assert!(message.contains("token_revoked") && fix.contains("botToken"), "{message}: {fix}");
    let gone = Slack::new(
        &config("http://127.0.0.1:9998/api"),
        "default",
        &ClientOptions::default(),
        Arc::new(|_, _| Ok(BOT_TOKEN.to_owned())),
    );
    let Problem { message, fix } = gone.test().await.unwrap_err();
    assert!(message.contains("127.0.0.1") && fix.contains("connection"), "{message}: {fix}");
}

#[tokio::test]
async fn tokens_and_tickets_are_in_no_outcome() {
    let fake = FakeSlack::start().await;
    let slack = slack(&fake);
    let message = outbound(to("D00000001", None), text("x"));
    let mut seen = Vec::new();
    for fault in [
        Fault::Limited(1),
        Fault::Before(500),
        Fault::Before(302),
        Fault::Refused("invalid_auth"),
        Fault::Refused("xoxb-0000-SECRETBOT"),
        Fault::Cut,
    ] {
        fake.fail("chat.postMessage", fault.clone());
        fake.fail("conversations.history", Fault::Cut);
        seen.push(format!("{:?}", slack.send(&message).await));
        fake.fail("auth.test", fault.clone());
        seen.push(format!("{:?}", slack.test().await));
        fake.fail("apps.connections.open", fault);
        let intake = Arc::new(RecordingIntake::default());
        seen.push(format!(
            "{:?}",
            tokio::time::timeout(Duration::from_secs(2), slack.listen(&*intake, None)).await
        ));
    }
    for text in seen {
        assert!(!text.contains("SECRET") && !text.contains("Bearer"), "{text}");
    }
}
