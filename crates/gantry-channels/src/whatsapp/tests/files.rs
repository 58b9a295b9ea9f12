use gantry_testkit::chat::whatsapp::Fault;

use super::*;
use crate::adapter::MediaKind;

fn file(name: &str, mime: &str, size: usize) -> Outbound {
    outbound(Content::File {
        name: name.to_owned(),
        mime: mime.to_owned(),
        bytes: vec![b'x'; size].into(),
        caption: "**see**".to_owned(),
    })
}

fn media(source: &str) -> Media {
    let (mime, source) = ("image/png".to_owned(), source.to_owned());
    Media { kind: MediaKind::Image, mime, name: None, size: None, source }
}

#[tokio::test]
async fn file_is_uploaded_and_then_sent() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    for (name, mime, size) in [
        ("../a\r\n\"b.md", "text/markdown", 4),
        ("p.png", "image/png", 4),
        ("p.jpg", "image/jpeg", 4),
        ("v.mp4", "video/mp4", 4),
        ("s.ogg", "audio/ogg", 4),
        ("d.json", "application/json", 4),
    ] {
        sent_id(whatsapp.send(&file(name, mime, size)).await);
    }
    let (sent, uploads) = (fake.sent(), fake.uploads());
    let kinds: Vec<_> = sent.iter().map(|sent| sent["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["document", "image", "image", "video", "audio", "document"]);
    assert_eq!(uploads[0].mime, "text/plain");
    let expected = json!({ "id": uploads[0].id, "filename": "..a\"b.md", "caption": "*see*" });
    assert_eq!(sent[0]["document"], expected);
    assert_eq!(sent[4]["audio"], json!({ "id": uploads[4].id }));
    assert_eq!((uploads[1].name.as_str(), &uploads[1].bytes[..]), ("p.png", &b"xxxx"[..]));
    assert_eq!(fake.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn failed_upload_is_repeated_and_a_failed_message_is_not() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    for fault in [Fault::Before(500), Fault::After(500), Fault::Cut] {
        fake.fail("media", fault.clone());
        let outcome = whatsapp.send(&file("a.txt", "text/plain", 4)).await;
        assert!(matches!(outcome, SendOutcome::Retry { .. }), "{fault:?}: {outcome:?}");
    }
    let outcome = whatsapp.send(&file("a.exe", "application/x-msdownload", 4)).await;
    assert!(matches!(&outcome, SendOutcome::Refused(why) if why.contains("type")), "{outcome:?}");
    fake.fail("messages", Fault::After(500));
    let outcome = whatsapp.send(&file("a.txt", "text/plain", 4)).await;
    assert!(matches!(outcome, SendOutcome::Unknown(_)), "{outcome:?}");
    let outcome = whatsapp.send(&file("a.png", "image/png", (5 << 20) + 1)).await;
    assert!(matches!(outcome, SendOutcome::Refused(_)), "{outcome:?}");
}

#[tokio::test]
async fn file_of_a_person_is_read_within_limits() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    fake.add_file("77", "image/png", b"PNG!", None);
    assert_eq!(whatsapp.fetch(&media("77"), 4).await.unwrap(), "PNG!");
    assert!(whatsapp.fetch(&media("77"), 3).await.unwrap_err().contains("larger than 3 bytes"));
    // The size may be a lie.
    fake.report_size("77", 1);
    assert!(whatsapp.fetch(&media("77"), 3).await.unwrap_err().contains("larger than 3 bytes"));
    for id in ["", "../messages", "77/../78", "7 7", "77?x=1", &"7".repeat(65)] {
        assert!(whatsapp.fetch(&media(id), 10).await.unwrap_err().contains("invalid id"), "{id}");
    }
    assert!(whatsapp.fetch(&media("78"), 10).await.is_err(), "an unknown file");
    fake.fail("77", Fault::Before(500));
    assert!(whatsapp.fetch(&media("77"), 10).await.unwrap_err().contains("500"));
}

#[tokio::test]
async fn token_goes_to_no_other_host() {
    let fake = FakeWhatsApp::start().await;
    let whatsapp = whatsapp(&fake);
    for url in [
        "http://10.0.0.1/file",
        "http://169.254.169.254/latest/meta-data",
        "https://evil.example/file",
        "https://lookaside.fbsbx.com.evil.example/file",
        "http://localhost:1/file",
        "file:///etc/passwd",
        "ftp://127.0.0.1/file",
        "not a url",
        "",
    ] {
        fake.add_file("77", "image/png", b"PNG!", Some(url));
        let err = whatsapp.fetch(&media("77"), 10).await.unwrap_err();
        assert!(err.contains("WhatsApp sent an address"), "{url}: {err}");
    }
    fake.add_file("77", "image/png", b"PNG!", None);
    for to in
        ["http://10.0.0.1/file", "http://169.254.169.254/", &format!("http://{}/download/78", fake.address)]
    {
        fake.redirect("77", to);
        let err = whatsapp.fetch(&media("77"), 10).await.unwrap_err();
        assert!(err.contains("302"), "{to}: {err}");
    }
}

#[tokio::test]
async fn file_addresses_need_tls() {
    let (config, fake) = (config("https://127.0.0.1:1", false), FakeWhatsApp::start().await);
    let whatsapp = WhatsApp::new(&config, "a", &ClientOptions::default(), secrets(TOKEN, APP_SECRET), None);
    let url = format!("http://{}/download/77", fake.address);
    let checked = whatsapp.connection.pinned("WhatsApp", &url, ["https", "http"], whatsapp.api.as_ref());
    assert!(checked.unwrap_err().contains("without TLS"));
}

#[tokio::test]
async fn token_is_opened_for_the_host_that_gets_it() {
    let fake = FakeWhatsApp::start().await;
    let only_for_meta: SecretFor = Arc::new(|_, url| match url.host_str() {
        Some("graph.facebook.com") => Ok(TOKEN.to_owned()),
        _ => Err("the secret is not for this host".to_owned()),
    });
    let config = config(&fake.api_url(), false);
    let whatsapp = WhatsApp::new(&config, "default", &ClientOptions::default(), only_for_meta, None);
    fake.add_file("77", "image/png", b"PNG!", None);
    assert!(whatsapp.fetch(&media("77"), 10).await.unwrap_err().contains("not for this host"));
}
