//! Tests of the hosts and fields that a secret may go to.

use super::*;

const VALUE: &str = "s3cr3t/value+of \"github\"";

fn with_secrets() -> Bench {
    let bench = bench();
    let set = |name: &str, value: &str, host: &str| {
        bench.secrets().set(name, value, &[host.to_owned()], 1).unwrap();
    };
    set("GITHUB", VALUE, "127.0.0.1");
    set("PAIR", "user-name:pass-word", "127.0.0.1");
    set("ELSEWHERE", "elsewhere-value", "*.example.com");
    bench
}

/// Asserts that no file but the sealed one, and no audit record, contains a value.
fn assert_hidden(bench: &Bench, values: &[&str]) {
    let mut folders = vec![bench.data()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            for value in values {
                assert!(!text.contains(value), "{value} is in {}", path.display());
            }
        }
    }
    let audit = format!("{:?}", bench.audit.records());
    for value in values {
        assert!(!audit.contains(value), "{value} is in the audit log: {audit}");
    }
}

#[tokio::test]
async fn secret_is_sent_and_its_echo_is_masked_in_every_form() {
    let bench = with_secrets();
    for (input, sent) in [
        (
            json!({"headers": {"Authorization": "Bearer secret:GITHUB"}}),
            format!("authorization: Bearer {VALUE}"),
        ),
        (json!({"headers": {"X-Odd-Name": "a secret:GITHUB b"}}), format!("x-odd-name: a {VALUE} b")),
        (
            json!({"headers": {"Authorization": "Basic secret:PAIR"}}),
            "authorization: Basic dXNlci1uYW1lOnBhc3Mtd29yZA==".to_owned(),
        ),
        (
            json!({"method": "POST", "form": {"key": "secret:GITHUB", "b": "2"}}),
            "key=s3cr3t%2Fvalue%2Bof+%22github%22&b=2".to_owned(),
        ),
        (
            json!({"method": "POST", "json": {"key": "secret:GITHUB", "text": "see secret:GITHUB"}}),
            r#"{"key":"s3cr3t/value+of \"github\"","text":"see secret:GITHUB"}"#.to_owned(),
        ),
    ] {
        let site = Site::echo();
        let mut input = input;
        input["url"] = json!(site.url("/"));
        let text = send(&bench, input.clone()).await.unwrap();
        let seen = site.seen().concat();
        assert!(seen.contains(&sent), "{input}: {seen}");
        assert!(text.contains("[masked]"), "{input}: {text}");
        for part in ["s3cr3t", "pass-word", "dXNlci1uYW1lOn"] {
            assert!(!text.contains(part), "{part} is in {text}");
        }
    }
    assert_hidden(&bench, &["s3cr3t", "pass-word", "dXNlci1uYW1lOn"]);
}

#[tokio::test]
async fn stored_echo_of_a_secret_is_masked() {
    let bench = with_secrets();
    let site = Site::start(|request| {
        let token = request.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
        match request.contains("/binary") {
            true => page("image/png", [b"\x89PNG\0".as_slice(), token.as_bytes()].concat()),
            false => page("text/plain", format!("{}{token}", "x".repeat(200_000))),
        }
    });
    for path in ["/long", "/binary"] {
        let input = json!({"url": site.url(path), "headers": {"Authorization": "Bearer secret:GITHUB"}});
        let text = send(&bench, input).await.unwrap();
        let handle =
            text.split(|c: char| !c.is_alphanumeric() && c != '_').find(|word| word.starts_with("res_"));
        let kept = bench
            .call(
                "result_read",
                json!({"handle": handle.unwrap(), "offset": if path == "/long" { 199_990 } else { 0 }}),
            )
            .await;
        let kept = kept.unwrap()["text"].as_str().unwrap().to_owned();
        assert!(kept.contains("[masked]") || kept == "iVBORwBbbWFza2VkXQ==", "{kept}");
    }
    assert_hidden(&bench, &["s3cr3t", "czNjcjN0"]);
}

#[tokio::test]
async fn secret_goes_only_to_its_hosts_over_tls() {
    let bench = with_secrets();
    let site = Site::echo();
    for (input, expected) in [
        (
            json!({"url": site.url("/"), "headers": {"A": "secret:ELSEWHERE"}}),
            "is stored for *.example.com, not for 127.0.0.1",
        ),
        (
            json!({"url": "https://example.com/", "headers": {"A": "secret:ELSEWHERE"}}),
            "is stored for *.example.com, not for example.com",
        ),
        (
            json!({"url": "https://a.example.com.evil.org/", "headers": {"A": "secret:ELSEWHERE"}}),
            "not for a.example.com.evil.org",
        ),
        (
            json!({"url": "http://a.example.com/", "headers": {"A": "secret:ELSEWHERE"}}),
            "is sent over https only",
        ),
        (
            json!({"url": "http://a.example.com/", "method": "POST", "form": {"a": "secret:ELSEWHERE"}}),
            "form.a: secret:ELSEWHERE is sent over https only",
        ),
        (
            json!({"url": "http://a.example.com/", "method": "POST", "json": {"x": ["secret:ELSEWHERE"]}}),
            "json.x: secret:ELSEWHERE is sent",
        ),
        (json!({"url": site.url("/"), "headers": {"A": "secret:GITHIB"}}), "did you mean secret:GITHUB?"),
    ] {
        let error = send(&bench, input.clone()).await.unwrap_err();
        assert!(error.contains(expected), "{input}: {error}");
        assert!(!error.contains("elsewhere-value"), "{error}");
    }
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn redirect_to_another_origin_drops_credentials() {
    let bench = with_secrets();
    let other = Site::echo();
    let to = other.url("/stolen");
    let site = Site::start(move |request| match request.contains("/same") {
        true => page("text/plain", request),
        false if request.contains("/near") => answer("307 Temporary Redirect", "Location: /same\r\n", ""),
        false => answer("307 Temporary Redirect", &format!("Location: {to}\r\n"), ""),
    });
    let headers = json!({"Authorization": "Bearer secret:GITHUB", "X-Custom": "secret:GITHUB", "X-Api-Key": "literal-key"});
    let text = send(&bench, json!({"url": site.url("/"), "headers": headers})).await.unwrap();
    assert!(text.contains("/stolen"), "{text}");
    let stolen = other.seen().concat();
    assert!(stolen.starts_with("GET /stolen") && !stolen.contains("s3cr3t"), "{stolen}");
    assert!(!stolen.to_lowercase().contains("authorization") && !stolen.contains("literal-key"), "{stolen}");
    // A redirect to the same origin keeps it.
    send(&bench, json!({"url": site.url("/near"), "headers": headers})).await.unwrap();
    assert!(site.seen().last().unwrap().contains(VALUE));
    // A body that contains a secret is not sent to another address.
    let text = send(&bench, json!({"url": site.url("/"), "method": "POST", "form": {"k": "secret:GITHUB"}}))
        .await
        .unwrap();
    assert!(text.starts_with("HTTP/1.1 307") && text.contains("the redirect was not followed"), "{text}");
    assert_eq!(other.connections(), 1);
}

#[tokio::test]
async fn secret_stored_during_a_run_is_masked_by_all_tools() {
    let bench = bench();
    let echo = || async { bench.call("bash", json!({"command": "echo stored-later-value"})).await.unwrap() };
    assert_eq!(echo().await, json!("stored-later-value\n"));
    bench.secrets().set("LATER", "stored-later-value", &["a.example".into()], 1).unwrap();
    // The tools read the secrets file themselves, as another process would, at most every 10 ms.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(echo().await, json!("[masked]\n"));
}

#[tokio::test]
async fn sent_secret_is_masked_in_every_escaping_and_place() {
    const KEY: &str = r#"S3cr3t/Val+ue"AB?CDEF\GH12345678"#;
    let bench = bench();
    bench.secrets().set("KEY", KEY, &["127.0.0.1".to_owned()], 1).unwrap();
    let respond = |path: &str| match path {
        "/php" => page("application/json", r#"{"k": "S3cr3t\/Val+ue\"AB?CDEF\\GH12345678"}"#),
        "/nested" => {
            page("application/json", r#"{"k": "{\"a\": \"S3cr3t/Val+ue\\\"AB?CDEF\\\\GH12345678\"}"}"#)
        }
        "/lower" => page("text/plain", "S3cr3t%2fVal%2bue%22AB%3fCDEF%5cGH12345678"),
        "/html" => page("text/html", "<p>S3cr3t/Val+ue&quot;AB?CDEF&#x5C;GH12345678</p>"),
        "/binary" => page("image/png", "\0%53%33cr3t/Val+ue%22AB?CDEF%5CGH12345678"),
        "/name" => answer("200 OK", "X-Abcdefghij-S3cret99: 1\r\n", ""),
        "/ftp" => answer("302 Found", &format!("Location: ftp://x/{KEY}\r\n"), ""),
        "/hop" => answer("302 Found", &format!("Location: /end/{KEY}\r\n"), ""),
        "/host" => answer("302 Found", "Location: http://Abcdefghij-S3cret99.invalid/\r\n", ""),
        _ => page("text/plain", "here"),
    };
    let site = Site::start(move |request| respond(request.split(' ').nth(1).unwrap_or_default()));
    bench.secrets().set("NAME", "Abcdefghij-S3cret99", &["127.0.0.1".to_owned()], 1).unwrap();
    for path in ["/php", "/nested", "/lower", "/html", "/binary", "/name", "/ftp", "/hop", "/host"] {
        let headers = json!({"X-Api-Key": "secret:KEY", "X-Other": "secret:NAME"});
        let output = match send(&bench, json!({"url": site.url(path), "headers": headers})).await {
            Ok(text) | Err(text) => text,
        };
        assert!(output.contains("[masked]") || path == "/binary", "{path}: {output}");
        for part in ["cr3t", "s3cret", "GH1234"] {
            assert!(!output.contains(part), "{path} reveals {part}: {output}");
        }
    }
    assert_hidden(&bench, &["GH1234", "R0gxMjM0"]);
}
