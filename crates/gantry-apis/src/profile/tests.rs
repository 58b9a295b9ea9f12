use serde_json::{Value, json};

use super::*;

fn whole() -> Value {
    json!({
        "id": "stripe", "name": "Stripe", "base_url": "https://api.stripe.com/v1", "description": "Payments.",
        "auth": {"type": "bearer", "token": "secret:STRIPE"},
        "endpoints": [{"method": "GET", "path": "/charges", "description": "All charges."}],
        "guidelines": ["Ask for pages."], "avoid": ["Asking twice."],
    })
}

/// Returns the paths of all problems of the complete profile after `change` is applied to it.
fn problems(change: &Value) -> Vec<String> {
    let mut value = whole();
    for (name, item) in change.as_object().unwrap() {
        value[name] = item.clone();
    }
    let draft: ProfileDraft = serde_json::from_value(value).unwrap();
    let found = draft.check().err().unwrap_or_default();
    assert!(found.iter().all(|problem| !problem.message.contains("sk_live")), "{found:?}");
    found.into_iter().map(|problem| problem.path).collect()
}

#[test]
fn every_missing_field_is_reported() {
    let missing: Vec<String> =
        ProfileDraft::default().check().unwrap_err().into_iter().map(|problem| problem.path).collect();
    assert_eq!(
        missing,
        ["id", "name", "description", "base_url", "endpoints", "guidelines", "avoid", "auth"]
    );
    assert_eq!(problems(&json!({})), Vec::<String>::new());
    let empty = json!({"endpoints": [], "guidelines": [], "avoid": [" "], "name": " "});
    assert_eq!(problems(&empty), ["name", "endpoints", "guidelines", "avoid.0"]);
}

#[test]
fn problems_are_reported_with_their_paths() {
    let wrong = json!({
        "id": "Stripe!", "base_url": "https://u:p@api.stripe.com/v1?x=1",
        "rate_limit": {"requests_per_second": 0, "requests_per_day": 2_000_000},
        "endpoints": [{"method": "FETCH", "path": "charges", "description": ""}],
    });
    assert_eq!(
        problems(&wrong),
        [
            "id",
            "base_url",
            "base_url",
            "endpoints.0.method",
            "endpoints.0.path",
            "endpoints.0.description",
            "rate_limit.requests_per_second",
            "rate_limit.requests_per_day",
        ]
    );
    for base in ["nonsense", "ftp://a.example", "https://", "file:///etc", "https://a.example/#x"] {
        assert_eq!(problems(&json!({ "base_url": base })), ["base_url"], "{base}");
    }
}

#[test]
fn each_auth_type_reports_the_fields_it_needs() {
    for (auth, expected) in [
        (json!({"type": "none"}), vec![]),
        (json!({}), vec!["auth.type"]),
        (json!({"type": "baerer"}), vec!["auth.type"]),
        (json!({"type": "basic"}), vec!["auth.username", "auth.password"]),
        (json!({"type": "basic", "username": "me", "password": "secret:P"}), vec![]),
        (json!({"type": "bearer"}), vec!["auth.token"]),
        (json!({"type": "bearer", "token": "secret:T", "value": "x"}), vec!["auth.value"]),
        (json!({"type": "header", "value": "Token secret:T"}), vec!["auth.header_name"]),
        (json!({"type": "header", "header_name": "X Key", "value": "secret:T"}), vec!["auth.header_name"]),
        (json!({"type": "query", "query_param": "key", "value": "secret:T"}), vec![]),
        (
            json!({"type": "oauth2"}),
            vec!["auth.token_url", "auth.token_url", "auth.client_id", "auth.client_secret"],
        ),
        (
            json!({"type": "oauth2", "token_url": "https://a.example/token", "client_id": "me",
                   "client_secret": "secret:C", "client_style": "bodi"}),
            vec!["auth.client_style"],
        ),
    ] {
        assert_eq!(problems(&json!({ "auth": auth })), expected, "{auth}");
    }
}

#[test]
fn literal_credential_is_rejected_and_not_quoted() {
    for auth in [
        json!({"type": "bearer", "token": "sk_live_123456789"}),
        json!({"type": "bearer", "token": "sk_live_123456789 secret:X"}),
        json!({"type": "bearer", "token": "secret:X.sk_live_123456789"}),
        json!({"type": "basic", "username": "me", "password": "sk_live_1"}),
        json!({"type": "header", "header_name": "X-Key", "value": "sk_live_123456789"}),
        json!({"type": "header", "header_name": "X-Key", "value": "sk_live_123456789 secret:X"}),
        json!({"type": "query", "query_param": "key", "value": "sk_live_123"}),
        json!({"type": "oauth2", "token_url": "https://a.example/t", "client_id": "me", "client_secret": "sk_live_1"}),
    ] {
        assert_eq!(problems(&json!({ "auth": auth })).len(), 1, "{auth}");
    }
}

#[test]
fn control_characters_literals_and_client_headers_are_rejected() {
    let text = "E\u{1b}]0;x\u{7}";
    assert_eq!(problems(&json!({"name": text, "description": text})), ["name", "description"]);
    assert_eq!(problems(&json!({"name": "a\nb", "description": "two\nlines"})), ["name"]);
    let endpoint = json!([{"method": "GET", "path": "/a\u{1b}[2J", "description": "d"}]);
    assert_eq!(
        problems(&json!({"endpoints": endpoint, "avoid": ["\u{9b}x"]})),
        ["endpoints.0.path", "avoid.0"]
    );
    let header =
        |name: &str, value: &str| json!({"auth": {"type": "header", "header_name": name, "value": value}});
    assert_eq!(problems(&header("Host", "secret:A")), ["auth.header_name"]);
    for value in ["literalvalue123 secret:A", "a b secret:A", "sk_live_ secret:A", "A1 secret:A"] {
        assert_eq!(problems(&header("X-Key", value)), ["auth.value"], "{value}");
    }
    for value in ["secret:A", "Token secret:A", "GenieKey secret:A", "token=secret:A", "Api-Key: secret:A"] {
        assert_eq!(problems(&header("X-Key", value)), Vec::<String>::new(), "{value}");
    }
}

#[test]
fn unreadable_field_does_not_hide_missing_ones() {
    let value = json!({"id": "a", "nmae": "A", "endpoints": 7, "avoid": ["x"]});
    let found = ProfileDraft::read_whole(value).unwrap_err();
    let text: String = found.iter().map(|problem| format!("- {problem}\n")).collect();
    for part in [
        "nmae",
        "- endpoints",
        "- name: missing",
        "- base_url: missing",
        "- auth: missing",
        "- guidelines: missing",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(text.matches("- endpoints").count(), 1, "{text}");
    assert!(ProfileDraft::read_whole(json!([1])).is_err() && ProfileDraft::read_whole(whole()).is_ok());
}

#[test]
fn incomplete_endpoint_does_not_hide_problems_of_others() {
    let mut value = whole();
    value["endpoints"] = json!([{"path": "/a"}, {"method": "FETCH", "path": "b", "description": "d"}, {}]);
    value["auth"] = json!({"type": "bearer"});
    let found = ProfileDraft::read_whole(value).unwrap_err();
    let paths: Vec<String> = found.into_iter().map(|problem| problem.path).collect();
    assert_eq!(
        paths,
        [
            "endpoints.0.method",
            "endpoints.0.description",
            "endpoints.1.method",
            "endpoints.1.path",
            "endpoints.2.method",
            "endpoints.2.path",
            "endpoints.2.description",
            "auth.token",
        ]
    );
}

#[test]
fn limit_is_looser_where_it_is_higher_or_missing() {
    let limit = |minute: Option<u32>, day: Option<u32>| RateLimit {
        requests_per_minute: minute,
        requests_per_day: day,
        ..RateLimit::default()
    };
    let old = limit(Some(10), Some(100));
    for (new, looser) in [
        (limit(Some(10), Some(100)), vec![]),
        (limit(Some(1), Some(99)), vec![]),
        (RateLimit { requests_per_hour: Some(1_000), ..old }, vec![]),
        (limit(Some(11), Some(100)), vec!["minute"]),
        (limit(None, Some(101)), vec!["minute", "day"]),
    ] {
        assert_eq!(new.looser_than(&old), looser, "{new:?}");
    }
    assert!(limit(Some(5), None).looser_than(&RateLimit::default()).is_empty());
}
