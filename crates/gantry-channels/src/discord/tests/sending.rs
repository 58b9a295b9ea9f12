use bytes::Bytes;
use gantry_testkit::chat::discord::{Fault, HIDDEN, THREAD};

use super::*;
use crate::adapter::{Button, Problem, SendOutcome};

fn text(markdown: &str) -> Content {
    Content::Text(markdown.to_owned())
}

#[track_caller]
fn sent_id(outcome: SendOutcome) -> String {
    match outcome {
        SendOutcome::Sent { message_id: Some(id) } => id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn message_notifies_nobody_and_shows_no_previews() {
    let fake = FakeDiscord::start().await;
    let discord = discord(&fake);
    let mut message = outbound(to(DIRECT, None), text("**hi** <@1> @everyone https://e.org/a_b"));
    message.reply_to = Some("1700000000000000001".into());
    let id = sent_id(discord.send(&message).await);
    let post = &fake.posts()[0];
    assert_eq!(post["id"], id.as_str());
    assert_eq!(post["content"], "**hi** \\<@1> \\@everyone https://e.org/a_b");
    let body = &fake.calls("send")[0];
    assert_eq!(body["allowed_mentions"], json!({ "parse": [] }));
    assert_eq!((&body["flags"], &body["enforce_nonce"]), (&json!(4), &json!(true)));
    assert_eq!(
        body["message_reference"],
        json!({ "message_id": "1700000000000000001", "fail_if_not_exists": false })
    );
    sent_id(discord.send(&outbound(to(CHANNEL, Some(THREAD)), text("in the thread"))).await);
    assert_eq!(fake.posts()[1]["channel_id"], THREAD);
}

#[tokio::test]
async fn same_key_makes_one_message() {
    let fake = FakeDiscord::start().await;
    let message = outbound(to(DIRECT, None), text("once"));
    let first = sent_id(discord(&fake).send(&message).await);
    // Another process sends it again, because the first one was killed before it stored the outcome.
    assert_eq!(sent_id(discord(&fake).send(&message).await), first);
    assert_eq!(fake.posts().len(), 1);
    let other = Outbound { key: "1".repeat(40), ..message };
    assert_ne!(sent_id(discord(&fake).send(&other).await), first);
    assert!(!discord(&fake).limits().ignores_repetitions, "Discord forgets nonces after some minutes");
}

#[tokio::test]
async fn failures_before_and_after_the_effect_make_one_message() {
    for fault in [Fault::Before(503), Fault::After(502), Fault::Cut] {
        let fake = FakeDiscord::start().await;
        fake.fail("send", fault.clone());
        let id = sent_id(discord(&fake).send(&outbound(to(DIRECT, None), text("once"))).await);
        assert_eq!(fake.posts().len(), 1, "{fault:?}");
        assert_eq!(fake.posts()[0]["id"], id.as_str(), "{fault:?}");
        assert_eq!(fake.calls("send").len(), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn outcome_is_unknown_after_the_last_attempt() {
    let fake = FakeDiscord::start().await;
    for _ in 0..4 {
        fake.fail("send", Fault::After(500));
    }
    let mut discord = discord(&fake);
    discord.pauses = [Duration::from_millis(5); 3];
    let outcome = discord.send(&outbound(to(DIRECT, None), text("once"))).await;
    assert!(matches!(outcome, SendOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!((fake.calls("send").len(), fake.posts().len()), (4, 1));
}

#[tokio::test]
async fn question_has_buttons_that_an_edit_removes() {
    let fake = FakeDiscord::start().await;
    let discord = discord(&fake);
    let button =
        |label: &str, number: usize| Button { label: label.into(), handle: format!("q:abc:{number}") };
    let long = "x".repeat(200);
    let mut buttons = vec![button("Yes", 0), button(&long, 1), button(" ", 2)];
    buttons.extend((3..25).map(|number| button("more", number)));
    let content = Content::Question { markdown: "Really?".into(), buttons };
    let id = sent_id(discord.send(&outbound(to(DIRECT, None), content)).await);
    let rows = fake.posts()[0]["components"].clone();
    assert_eq!(rows.as_array().map(Vec::len), Some(5));
    let first = &rows[0]["components"];
    assert_eq!((&first[0]["custom_id"], &first[2]["label"]), (&json!("q:abc:0"), &json!("3")));
    let content = Content::Edit { message_id: id.clone(), markdown: "Really? **Yes** <@1>".into() };
    assert_eq!(sent_id(discord.send(&outbound(to(DIRECT, None), content)).await), id);
    let post = &fake.posts()[0];
    assert_eq!((&post["content"], &post["components"]), (&json!("Really? **Yes** \\<@1>"), &json!([])));
    assert_eq!(fake.calls("edit")[0]["allowed_mentions"], json!({ "parse": [] }));
    for wrong in ["1600000000000000000", "../../users/@me"] {
        let content = Content::Edit { message_id: wrong.into(), markdown: "x".into() };
        let outcome = discord.send(&outbound(to(DIRECT, None), content)).await;
        assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    }
    fake.fail("edit", Fault::After(502));
    let content = Content::Edit { message_id: id, markdown: "again".into() };
    let outcome = discord.send(&outbound(to(DIRECT, None), content)).await;
    assert!(matches!(outcome, SendOutcome::Retry { .. }), "{outcome:?}");
}

#[tokio::test]
async fn longest_text_is_accepted() {
    let fake = FakeDiscord::start().await;
    let discord = discord(&fake);
    let limit = discord.limits().text;
    let fitting = "*".repeat(limit / 2);
    let fitting = format!("\\{}", fitting.split("").filter(|c| !c.is_empty()).collect::<Vec<_>>().join("\\"));
    assert_eq!(discord.measure(&fitting), limit);
    sent_id(discord.send(&outbound(to(DIRECT, None), text(&fitting))).await);
    let emoji = "😀".repeat(limit);
    assert_eq!(discord.measure(&emoji), limit, "code points count");
    let other = Outbound { key: "2".repeat(40), ..outbound(to(DIRECT, None), text(&emoji)) };
    sent_id(discord.send(&other).await);
    assert!(discord.measure(&format!("{emoji}x")) > limit);
}

#[tokio::test]
async fn empty_bucket_is_waited_for() {
    let fake = FakeDiscord::start().await;
    fake.limit(2, Duration::from_millis(600));
    let discord = discord(&fake);
    let message =
        |number: usize| Outbound { key: format!("{number:040}"), ..outbound(to(DIRECT, None), text("x")) };
    let begin = std::time::Instant::now();
    for number in 0..4 {
        sent_id(discord.send(&message(number)).await);
    }
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    assert_eq!(fake.calls("send").len(), 4, "no request was refused");
}

#[tokio::test]
async fn limits_stop_the_bucket_or_everything() {
    let fake = FakeDiscord::start().await;
    let retry = |outcome: SendOutcome| match outcome {
        SendOutcome::Retry { after: Some(after), .. } => after,
        other => panic!("{other:?}"),
    };
    let discord = discord(&fake);
    fake.fail("send", Fault::Limited(42.5));
    let after = retry(discord.send(&outbound(to(DIRECT, None), text("x"))).await);
    assert_eq!(after, Duration::from_millis(42_500));
    let after = retry(discord.send(&outbound(to(DIRECT, None), text("x"))).await);
    assert!(after > Duration::from_secs(40), "{after:?}");
    assert_eq!(fake.calls("send").len(), 1, "the second one was not sent");
    sent_id(discord.send(&outbound(to(CHANNEL, None), text("x"))).await);
    fake.fail("send", Fault::LimitedEverywhere(30.0));
    retry(discord.send(&outbound(to(CHANNEL, Some(THREAD)), text("x"))).await);
    retry(discord.send(&outbound(to(CHANNEL, None), text("y"))).await);
    discord.typing(&to(DIRECT, None)).await;
    assert_eq!((fake.calls("send").len(), fake.calls("typing").len()), (3, 0));
}

#[tokio::test]
async fn refusals_are_final_and_name_the_fix() {
    let fake = FakeDiscord::start().await;
    let discord = discord(&fake);
    for (chat, expected) in [
        (HIDDEN, "invite the bot"),
        ("1040000000000000001", "does not exist"),
        ("1\r\n", "not a channel"),
        ("../users/@me", "not a channel"),
    ] {
        let outcome = discord.send(&outbound(to(chat, None), text("x"))).await;
        assert!(
            matches!(&outcome, SendOutcome::Refused(why) if why.contains(expected)),
            "{chat}: {outcome:?}"
        );
    }
    for (status, code, expected) in [
        (403, 50_007, "share a server"),
        (403, 50_013, "permissions"),
        (400, 50_035, "invalid"),
        (401, 0, "Reset Token"),
    ] {
        fake.fail("send", Fault::Refused(status, code));
        let outcome = discord.send(&outbound(to(DIRECT, None), text("x"))).await;
        assert!(
            matches!(&outcome, SendOutcome::Refused(why) if why.contains(expected)),
            "{code}: {outcome:?}"
        );
    }
    let outcome = discord.send(&outbound(to(DIRECT, None), text(" "))).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    assert!(fake.posts().is_empty());
}

#[tokio::test]
async fn file_is_sent_once() {
    let fake = FakeDiscord::start().await;
    let discord = discord(&fake);
    let file = |bytes: Bytes| Content::File {
        name: "../a\r\n\"b.txt".into(),
        mime: "text/plain".into(),
        bytes,
        caption: "see **this**".into(),
    };
    fake.fail("send", Fault::After(502));
    let message = outbound(to(DIRECT, None), file(Bytes::from_static(b"data")));
    sent_id(discord.send(&message).await);
    assert_eq!(fake.uploads(), [("..ab.txt".to_owned(), b"data".to_vec())]);
    assert_eq!(fake.posts()[0]["content"], "see **this**");
    let limit = discord.limits().file;
    let outcome = discord.send(&outbound(to(DIRECT, None), file(vec![0; limit + 1].into()))).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    let whole = Outbound { key: "3".repeat(40), ..outbound(to(DIRECT, None), file(vec![0; limit].into())) };
    sent_id(discord.send(&whole).await);
}

#[tokio::test]
async fn typing_goes_to_the_thread() {
    let fake = FakeDiscord::start().await;
    discord(&fake).typing(&to(CHANNEL, Some(THREAD))).await;
    discord(&fake).typing(&to("../x", None)).await;
    assert_eq!(fake.calls("typing").len(), 1);
}

#[tokio::test]
async fn test_names_the_problem_and_the_fix() {
    let fake = FakeDiscord::start().await;
    let info = discord(&fake).test().await.unwrap();
    assert_eq!((info.name.as_str(), info.warnings.len()), ("@gantry", 0));
    let info = discord_with(&fake, TOKEN, &[CHANNEL, HIDDEN, THREAD, "general"]).test().await.unwrap();
    let expected = [CHANNEL, "invite the bot to the server", "Copy Channel ID"];
    assert_eq!(info.warnings.len(), 3, "{:?}", info.warnings);
    for (warning, expected) in info.warnings.iter().zip(expected) {
        assert!(warning.contains(expected), "{warning}");
    }
    let Problem { message, fix } = discord_with(&fake, "aaa.bbb.SECRET", &[]).test().await.unwrap_err();
    assert!(message.contains("does not accept the token") && fix.contains("Reset Token"), "{message}: {fix}");
    let Problem { message, fix } = discord_with(&fake, "client-SECRET", &[]).test().await.unwrap_err();
    assert!(message.contains("three parts") && fix.contains("Reset Token"), "{message}: {fix}");
    fake.switch_content_intent(false);
    let Problem { message, fix } = discord(&fake).test().await.unwrap_err();
    assert!(message.contains("Message Content intent is off"), "{message}");
    assert!(fix.contains("switch Message Content Intent on"), "{fix}");
    fake.revoke();
    let Problem { message, fix } = discord(&fake).test().await.unwrap_err();
    assert!(message.contains("it was reset") && fix.contains("Reset Token"), "{message}: {fix}");
}

#[tokio::test]
async fn tokens_are_in_no_outcome() {
    let fake = FakeDiscord::start().await;
    let mut seen = Vec::new();
    for fault in [
        Fault::Limited(1.0),
        Fault::Before(500),
        Fault::Before(302),
        Fault::Refused(401, 0),
        Fault::Refused(400, 50_035),
        Fault::Cut,
    ] {
        let mut discord = discord(&fake);
        discord.pauses = [Duration::from_millis(5); 3];
        for _ in 0..4 {
            fake.fail("send", fault.clone());
        }
        seen.push(format!("{:?}", discord.send(&outbound(to(DIRECT, None), text("x"))).await));
        fake.fail("me", fault.clone());
        seen.push(format!("{:?}", discord.test().await));
        fake.fail("gateway", fault);
        let intake = RecordingIntake::default();
        seen.push(format!("{:?}", tokio::time::timeout(SOON, discord.listen(&intake, None)).await));
    }
    for text in seen {
        assert!(!text.contains("SECRET") && !text.contains("MTA0"), "{text}");
    }
}
