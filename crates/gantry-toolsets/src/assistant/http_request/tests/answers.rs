//! Tests of the text of a response, and of the stored body.

use super::*;

async fn shown(content_type: &'static str, body: &'static [u8]) -> String {
    let bench = bench();
    let site = Site::start(move |_| page(content_type, body));
    send(&bench, json!({"url": site.url("/")})).await.unwrap()
}

#[tokio::test]
async fn response_shows_status_headers_and_body_with_credentials_redacted() {
    let bench = bench();
    let site = Site::start(|_| {
        answer(
            "404 Nope",
            "Content-Type: application/json\r\nSet-Cookie: sid=abc\r\nX-Auth-Token: tok\r\nX-Plain: yes\r\n",
            r#"{"b":1.10,"a":[]}"#,
        )
    });
    let text = send(&bench, json!({"url": site.url("/")})).await.unwrap();
    assert_eq!(
        text,
        "HTTP/1.1 404 Not Found\ncontent-length: 17\nconnection: close\ncontent-type: application/json\n\
         set-cookie: [redacted]\nx-auth-token: [redacted]\nx-plain: yes\n\n{\n  \"b\": 1.10,\n  \"a\": []\n}"
    );
}

#[tokio::test]
async fn charset_is_decoded_and_invalid_json_is_shown_as_text() {
    assert!(shown("text/plain; charset=iso-8859-1", b"gr\xf6\xdfe").await.ends_with("\n\ngröße"));
    assert!(shown("text/plain; charset=utf-16le", b"h\0\xe9\0").await.ends_with("\n\nhé"));
    assert!(shown("application/json", b"{\"a\": ").await.ends_with("\n\n{\"a\": "));
    assert!(shown("text/plain", b"").await.ends_with("text/plain\n\n"));
}

#[tokio::test]
async fn long_body_is_truncated_and_stored_whole() {
    let bench = Bench::with(|parts| {
        reach_this_machine(parts);
        parts.settings.web.http_response_limit = 1001;
    });
    let body = "é".repeat(5_000);
    let sent = body.clone();
    let site = Site::start(move |_| page("text/plain; charset=utf-8", &sent));
    let text = send(&bench, json!({"url": site.url("/")})).await.unwrap();
    let (_, shown) = text.split_once("\n\n").unwrap();
    let (shown, note) = shown.split_once('\n').unwrap();
    assert_eq!(shown, "é".repeat(500));
    assert!(
        note.starts_with("[truncated: 1000 of 10000 bytes shown; use result_read with handle res_"),
        "{note}"
    );
    let handle = note.split_whitespace().find(|word| word.starts_with("res_")).unwrap();
    let page = bench.call("result_read", json!({"handle": handle, "limit": 40_000})).await.unwrap();
    assert_eq!(page["text"], json!(body));
    assert!(note.contains(" and offset 500 to continue"), "{note}");
    let rest = json!({"handle": handle, "offset": 500, "limit": 40_000});
    let rest = bench.call("result_read", rest).await.unwrap();
    assert_eq!(format!("{shown}{}", rest["text"].as_str().unwrap()), body);
}

#[tokio::test]
async fn long_json_is_stored_indented() {
    let bench = Bench::with(|parts| {
        reach_this_machine(parts);
        parts.settings.web.http_response_limit = 10_000;
    });
    let items: Vec<Value> = (0..3_000).map(|number| json!({"number": number, "name": "é"})).collect();
    let expected = serde_json::to_string_pretty(&items).unwrap();
    let site = Site::start(move |_| page("application/json", json!(items).to_string()));
    let text = send(&bench, json!({"url": site.url("/")})).await.unwrap();
    let (shown, note) = text.split_once("\n\n").unwrap().1.rsplit_once("\n[truncated: ").unwrap();
    assert!(shown.len() <= 10_000 && shown.len() > 9_990 && expected.starts_with(shown), "{shown}");
    assert!(note.contains(&format!(" of {} bytes shown", expected.len())), "{note}");
    let handle = note.split_whitespace().find(|word| word.starts_with("res_")).unwrap();
    let (mut kept, mut offset) = (String::new(), json!(0));
    while !offset.is_null() {
        let input = json!({"handle": handle, "offset": offset, "limit": 40_000});
        let page = bench.call("result_read", input).await.unwrap();
        kept.push_str(page["text"].as_str().unwrap());
        offset = page["nextOffset"].clone();
    }
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn binary_body_is_stored_and_not_shown() {
    let bench = bench();
    let site = Site::start(|_| page("image/png", b"\x89PNG\r\n\x1a\n\0\0"));
    let text = send(&bench, json!({"url": site.url("/")})).await.unwrap();
    assert!(text.contains("\n[binary, image/png, 10 bytes, not shown; stored as base64: "), "{text}");
    let handle = text.split_whitespace().find(|word| word.starts_with("res_")).unwrap();
    let page =
        bench.call("result_read", json!({"handle": handle.trim_end_matches([']', ';'])})).await.unwrap();
    assert_eq!(page["text"], "iVBORw0KGgoAAA==");
}

#[tokio::test]
async fn redirects_are_followed_and_reported() {
    let bench = bench();
    let site = Site::start(|request| {
        if request.starts_with("GET /from") {
            return answer("302 Found", "Location: /to\r\n", "");
        }
        page("text/plain", "there")
    });
    let text = send(&bench, json!({"url": site.url("/from")})).await.unwrap();
    assert!(text.ends_with(&format!("\n\nthere\n[after 1 redirect, from {}]\n", site.url("/to"))), "{text}");
}
