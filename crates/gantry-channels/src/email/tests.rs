//! The adapter against a real IMAP server and a submission server, whose mails Python's mail package reads.

use std::sync::Arc;

use gantry_testkit::chat::{MailServer, Submitted};
use gantry_testkit::{SOON, eventually_async};
use serde_json::json;
use tokio::task::JoinHandle;

use super::*;
use crate::adapter::{Addressed, Inbound, MediaKind};
use crate::address::{Address, PeerKind};
use crate::testing::RecordingIntake;

const VERDICT: &str = "Authentication-Results: mx.example.org; dmarc=pass header.from=example.com\n";

fn adapter_with(server: &MailServer, password: &str) -> Email {
    let password = password.to_owned();
    let config: EmailConfig = serde_json::from_value(json!({
        "address": "Agent@example.org", "user": "agent@example.org", "password": "secret:MAIL", "authservId": "mx.example.org",
        "imap": format!("127.0.0.1:{}", server.imap_port), "smtp": format!("127.0.0.1:{}", server.smtp_port),
    }))
    .unwrap();
    Email::new(&config, "default", &ClientOptions::default(), Arc::new(move |_, _| Ok(password.clone())))
}

fn adapter(server: &MailServer) -> Email {
    adapter_with(server, "password")
}

/// A mail of Ann, with more headers.
fn mail(id: &str, headers: &str, text: &str) -> String {
    format!(
        "{VERDICT}From: =?utf-8?q?=C3=84nn?= <Ann@example.com>\nTo: agent@example.org\nSubject: Plans\n\
         Date: Mon, 16 Nov 2026 10:00:00 +0000\nMessage-ID: <{id}>\n{headers}\n{text}"
    )
}

struct Listening {
    intake: Arc<RecordingIntake>,
    task: JoinHandle<ListenError>,
}

impl Listening {
    async fn start(adapter: Arc<Email>, cursor: Option<String>) -> Listening {
        let intake = Arc::new(RecordingIntake::default());
        *intake.cursor.lock().unwrap() = cursor.clone();
        let heard = Arc::clone(&intake);
        let task = tokio::spawn(async move { adapter.listen(&*heard, cursor).await });
        eventually_async("the account is connected", SOON, || !intake.names.lock().unwrap().is_empty()).await;
        Listening { intake, task }
    }

    async fn hears(&self, id: &str) -> Inbound {
        let find =
            || self.intake.messages.lock().unwrap().iter().find(|inbound| inbound.event_id == id).cloned();
        eventually_async(&format!("{id} arrives"), SOON, || find().is_some()).await;
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

fn to(chat: &str, thread: Option<&str>) -> Address {
    Address {
        channel: "email".into(),
        account: "default".into(),
        kind: PeerKind::Dm,
        chat: chat.into(),
        thread: thread.map(str::to_owned),
    }
}

fn outbound(key: &str, address: Address, reply_to: Option<&str>, content: Content) -> Outbound {
    Outbound { key: key.to_owned(), address, reply_to: reply_to.map(str::to_owned), content }
}

fn header(mail: &Submitted, name: &str) -> Vec<String> {
    let headers = mail["headers"].as_array().unwrap().iter();
    let found = headers.filter(|header| header[0].as_str().unwrap().eq_ignore_ascii_case(name));
    found.map(|header| header[1].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_received_once_in_threads() {
    let mut server = MailServer::start(&[]);
    server.deliver(&mail("old@example.com", "", "before the first start"));
    let email = Arc::new(adapter(&server));
    let bot = Listening::start(Arc::clone(&email), None).await;
    server.deliver(&mail("one@example.com", "", "Hello\n\n-- \nAnn"));
    let one = bot.hears("one@example.com").await;
    assert_eq!(
        (one.text.as_str(), one.addressed, one.is_verified),
        ("Plans\n\nHello", Addressed::Direct, true)
    );
    assert_eq!(one.address, to("ann@example.com", Some("one@example.com")));
    assert_eq!((one.person.id.as_str(), one.person.name.as_str()), ("ann@example.com", "Änn"));
    assert_eq!(one.at, 1_794_823_200_000);
    eventually_async("it is marked as seen", SOON, || server.flags().contains("2 FETCH (FLAGS (\\Seen"))
        .await;
    assert!(!server.flags().contains("* 1 FETCH (FLAGS (\\Seen"), "{}", server.flags());

    let headers = "References: <one@example.com> <x@example.org>\nIn-Reply-To: <x@example.org>\n";
    server.deliver(&mail("two@example.com", headers, "Yes\n\nOn Monday, Agent wrote:\n> Really?\n"));
    let two = bot.hears("two@example.com").await;
    assert_eq!(
        (two.text.as_str(), two.quoted.as_deref()),
        ("Yes", Some("On Monday, Agent wrote:\n> Really?"))
    );
    assert_eq!(two.address.thread.as_deref(), Some("one@example.com"));

    // A topic, HTML, and a file.
    let parts =
        "MIME-Version: 1.0\nCc: agent+garden@example.org\nContent-Type: multipart/mixed; boundary=b\n";
    server.deliver(&mail("three@example.com", parts, "--b\nContent-Type: text/html; charset=utf-8\n\n<p>Some <b>bold</b></p><script>x</script>\n--b\nContent-Type: text/plain; name=\"a.txt\"\nContent-Disposition: attachment; filename=\"a.txt\"\nContent-Transfer-Encoding: base64\n\naGVsbG8gZmlsZQ==\n--b--\n"));
    let three = bot.hears("three@example.com").await;
    assert_eq!(three.address.thread.as_deref(), Some("garden"));
    assert!(
        three.text.contains("bold") && !three.text.contains('<') && !three.text.contains("script"),
        "{}",
        three.text
    );
    let file = &three.media[0];
    assert_eq!((file.kind, file.name.as_deref(), file.size), (MediaKind::Document, Some("a.txt"), Some(10)));
    assert_eq!(&email.fetch(file, 10).await.unwrap()[..], b"hello file");
    assert!(email.fetch(file, 9).await.is_err());
    for source in ["", "1:2", "../x", "1:1:0", "4294967295:1:0"] {
        assert!(email.fetch(&Media { source: source.into(), ..file.clone() }, 10).await.is_err(), "{source}");
    }

    // Programs, lists, forged and own mail are not answered.
    for (id, headers) in [
        ("a1@example.com", "Auto-Submitted: auto-replied\n"),
        ("a2@example.com", "List-Id: <x.y>\n"),
        ("a3@example.com", "Precedence: bulk\n"),
        ("a4@example.com", "From: Boss <boss@example.com>\n"),
    ] {
        server.deliver(&mail(id, headers, "loop"));
    }
    server.deliver(&mail("a5@example.com", "", "x").replace(VERDICT, ""));
    server.deliver(
        &mail("a6@example.com", "", "x")
            .replace(VERDICT, &format!("Authentication-Results: evil.example; none\n{VERDICT}")),
    );
    server.deliver(&mail("a7@example.com", "", "x").replace("Ann@example.com", "agent+x@example.org"));
    server.deliver("no headers at all");
    server.deliver(&mail("same@example.com", "", "once"));
    server.deliver(&mail("same@example.com", "", "twice"));
    server.deliver(&mail("last@example.com", "", "end"));
    bot.hears("last@example.com").await;
    let ids: Vec<String> =
        bot.intake.messages.lock().unwrap().iter().map(|inbound| inbound.event_id.clone()).collect();
    let expected = ["one", "two", "three", "same", "last"].map(|name| format!("{name}@example.com"));
    assert_eq!(ids, expected);

    // A mail that was not stored comes again, and is not marked as seen before.
    let cursor = bot.cursor();
    *bot.intake.fails.lock().unwrap() = true;
    server.deliver(&mail("full@example.com", "", "while the disk is full"));
    eventually_async("listening stops", SOON, || bot.task.is_finished()).await;
    assert!(!server.flags().contains("16 FETCH (FLAGS (\\Seen"), "{}", server.flags());
    assert_eq!(bot.cursor(), cursor);

    // The server restarts, and mail arrives meanwhile.
    let bot = Listening::start(Arc::clone(&email), cursor).await;
    bot.hears("full@example.com").await;
    server.stop_imap();
    eventually_async("listening stops", SOON, || bot.task.is_finished()).await;
    let cursor = bot.cursor();
    server.resume_imap();
    server.deliver(&mail("back@example.com", "", "after the restart"));
    let bot = Listening::start(Arc::clone(&email), cursor).await;
    bot.hears("back@example.com").await;
    let cursor = bot.cursor();
    drop(bot);

    // With new numbers, nothing old is read again.
    server.renumber();
    let bot = Listening::start(email, cursor.clone()).await;
    server.deliver(&mail("new@example.com", "", "in the new mailbox"));
    bot.hears("new@example.com").await;
    assert_eq!(bot.intake.texts().len(), 1);
    assert_ne!(bot.cursor().unwrap().split(':').next(), cursor.unwrap().split(':').next());
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_what_python_expects() {
    let server = MailServer::start(&[]);
    server.deliver(
        &mail("first@example.com", "References: <root@example.com>\n", "Hello").replace("Plans", "RE: Pläne"),
    );
    let email = adapter(&server);
    let markdown = "**Bold** and ünïcode\n.\n..dots\nFrom here\n";
    let message = outbound(
        "key1",
        to("ann@example.com", Some("root@example.com")),
        Some("first@example.com"),
        Content::Text(markdown.into()),
    );
    assert_eq!(email.send(&message).await, SendOutcome::Sent { message_id: Some("key1@example.org".into()) });
    let sent = server.submitted().remove(0);
    assert_eq!((&sent["from"], &sent["to"]), (&json!("agent@example.org"), &json!(["ann@example.com"])));
    for (name, value) in [
        ("From", "agent@example.org"),
        ("To", "ann@example.com"),
        ("Message-ID", "<key1@example.org>"),
        ("In-Reply-To", "<first@example.com>"),
        ("References", "<root@example.com> <first@example.com>"),
        ("Subject", "Re: Pläne"),
        ("Auto-Submitted", "auto-replied"),
    ] {
        let found: Vec<String> = header(&sent, name)
            .iter()
            .map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(found, [value], "{name}");
    }
    assert_eq!(header(&sent, "Date").len(), 1);
    assert_eq!(
        sent["text"].as_str().unwrap().replace("\r\n", "\n").trim_end(),
        markdown.replace("**", "").trim_end()
    );
    assert!(sent["html"].as_str().unwrap().contains("<strong>Bold</strong> and ünïcode"), "{}", sent["html"]);
    assert_eq!(sent["defects"], json!([]));
    assert!(sent["longest"].as_u64().unwrap() <= 998);

    // A topic keeps its address, and a file keeps its bytes.
    let file = Content::File {
        name: "übersicht \"1\".bin".into(),
        mime: "application/x-test".into(),
        bytes: (0..=255).collect::<Vec<u8>>().into(),
        caption: "See".into(),
    };
    email.send(&outbound("key2", to("ann@example.com", Some("garden")), None, file)).await;
    let sent = server.submitted().remove(1);
    assert_eq!(header(&sent, "Reply-To"), ["agent+garden@example.org"]);
    assert_eq!(header(&sent, "Subject"), ["See"]);
    let hex: String = (0..=255_u8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(sent["files"], json!([["übersicht \"1\".bin", "application/x-test", hex]]));

    // Hostile receivers, ids and names never reach the server.
    let text = || Content::Text("x".into());
    for chat in [
        "a@b.example\r\nRCPT TO:<c@d.example>",
        "a@b.example>",
        "a",
        "a@b.example,c@d.example",
        "ä@b.example",
    ] {
        let outcome = email.send(&outbound("key3", to(chat, None), None, text())).await;
        assert!(matches!(outcome, SendOutcome::Refused(_)), "{chat:?}: {outcome:?}");
    }
    let outcome =
        email.send(&outbound("key4", to("a@b.example", None), Some("x@y\r\nBcc: e@f"), text())).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    let named = Content::File {
        name: "a\r\nb".into(),
        mime: "x".into(),
        bytes: Bytes::new(),
        caption: String::new(),
    };
    let outcome = email.send(&outbound("key5", to("a@b.example", None), None, named)).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    assert_eq!(server.submitted().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_say_what_became_of_a_letter() {
    let mut server = MailServer::start(&["PLAIN"]);
    let email = adapter(&server);
    let send = async |chat: &str, content: Content| {
        email.send(&outbound("key", to(chat, None), None, content)).await
    };
    let text = || Content::Text("x".into());
    assert!(matches!(send("ann@example.com", text()).await, SendOutcome::Sent { .. }), "AUTH LOGIN");
    assert!(matches!(send("busy@example.com", text()).await, SendOutcome::Retry { .. }));
    assert!(matches!(send("late@example.com", text()).await, SendOutcome::Retry { .. }));
    assert!(matches!(send("never@example.com", text()).await, SendOutcome::Refused(_)));
    // The connection breaks after the letter's last dot: it may have arrived, and here it has.
    assert!(matches!(send("cut@example.com", text()).await, SendOutcome::Unknown(_)));
    assert_eq!(server.submitted().len(), 2);
    let big = Content::File {
        name: "b".into(),
        mime: "a/b".into(),
        bytes: vec![7; 900_000].into(),
        caption: String::new(),
    };
    let outcome = send("ann@example.com", big).await;
    assert!(matches!(&outcome, SendOutcome::Refused(why) if why.contains("at most 1000000")), "{outcome:?}");
    let edit = Content::Edit { message_id: "a@b".into(), markdown: "x".into() };
    assert!(matches!(send("ann@example.com", edit).await, SendOutcome::Refused(_)));

    let info = email.test().await.unwrap();
    assert_eq!((info.name.as_str(), info.warnings.len()), ("agent@example.org", 0));
    let wrong = adapter_with(&server, "wrong-password");
    let problem = wrong.test().await.unwrap_err();
    assert!(problem.fix.contains("gantry secrets set MAIL --host 127.0.0.1"), "{problem:?}");
    let listening = wrong.listen(&RecordingIntake::default(), None).await;
    assert!(matches!(listening, ListenError::NeedsLogin(_)), "{listening:?}");
    let outcome = wrong.send(&outbound("key", to("ann@example.com", None), None, text())).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
    for text in [format!("{problem:?}"), format!("{listening:?}"), format!("{outcome:?}")] {
        assert!(!text.contains("wrong-password") && !text.contains("d3JvbmctcGFzc3dvcmQ"), "{text}");
    }
    server.stop_imap();
    let problem = email.test().await.unwrap_err();
    assert!(problem.fix.contains("check `imap`"), "{problem:?}");
}
