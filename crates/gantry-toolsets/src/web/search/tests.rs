//! Tests of the providers through `tool::web_search`, against servers that follow the providers'
//! documentation.

#![allow(clippy::disallowed_methods, reason = "a server that never responds")]

use serde_json::{Value, json};

use super::*;
use crate::testing::Bench;
use crate::testing::web_server::{ReceivedRequest, TestResponse, WebServer, client_to_loopback};
use crate::{MachineParts, SearchEndpoints};

pub(super) fn query(text: &str) -> Query {
    Query {
        text: text.to_owned(),
        max_results: DEFAULT_RESULTS,
        topic: Topic::General,
        time_range: None,
        with_content: false,
    }
}

/// Configures all four providers on one server, which distinguishes them by path.
pub(crate) fn configure(parts: &mut MachineParts, server: &WebServer) {
    let url = || server.url();
    parts.settings.web.client = client_to_loopback();
    parts.settings.web.search = SearchSettings {
        tavily_key: SearchKey::new("tvly-a-secret-key"),
        brave_key: SearchKey::new("a-secret-brave-key"),
        searxng_url: Some(format!("{}/searx/", url())),
        endpoints: SearchEndpoints { tavily: url(), brave: url(), duckduckgo: url() },
        ..SearchSettings::default()
    };
}

pub(crate) fn provider_of(request: &ReceivedRequest) -> &'static str {
    match request.path() {
        "/search" => "tavily",
        "/res/v1/web/search" | "/res/v1/news/search" => "brave",
        "/searx/search" => "searxng",
        "/html/" => "duckduckgo",
        other => panic!("no provider requests {other}"),
    }
}

/// A successful response of each provider, as documented.
pub(crate) fn successful_response(provider: &str) -> TestResponse {
    match provider {
        "tavily" => TestResponse::json(
            200,
            &json!({"query": "q", "answer": null, "images": [], "follow_up_questions": null, "response_time": 1.2,
                "results": [{"title": "T1", "url": "https://t.example/1", "content": "from tavily", "score": 0.9, "raw_content": null}]}),
        ),
        "brave" => TestResponse::json(
            200,
            &json!({"type": "search", "query": {"original": "q"}, "mixed": {"main": []}, "web": {"type": "search", "results": [
                {"title": "B&amp;1", "url": "https://b.example/1", "description": "from <strong>brave</strong>", "page_age": "2026-01-02T03:04:05"}]}}),
        ),
        "searxng" => TestResponse::json(
            200,
            &json!({"query": "q", "number_of_results": 0, "answers": [], "infoboxes": [], "suggestions": [], "unresponsive_engines": [],
                "results": [{"title": "S1", "url": "https://s.example/1", "content": "from searxng", "engine": "x", "engines": ["x"], "publishedDate": null}]}),
        ),
        _ => TestResponse::html(
            r#"<div id="links" class="results"><div class="result results_links web-result"><h2><a class="result__a"
            href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fd.example%2F1&amp;rut=1">D1</a></h2><a class="result__snippet">from duckduckgo</a></div></div>"#,
        ),
    }
}

/// A failing provider and its response.
type Failing = (&'static str, fn() -> TestResponse);

/// Configures all providers; those not listed respond successfully.
async fn bench(failing: &'static [Failing]) -> (Bench, WebServer) {
    let server = WebServer::start(move |request| {
        let provider = provider_of(request);
        failing
            .iter()
            .find(|(name, _)| *name == provider)
            .map_or_else(|| successful_response(provider), |(_, respond)| respond())
    });
    (Bench::with(|parts| configure(parts, &server)), server)
}

async fn call(bench: &Bench, input: Value) -> Value {
    bench.call("tool::web_search", input).await.unwrap()
}

#[tokio::test]
async fn each_provider_gets_a_request_in_its_own_format() {
    let (bench, server) = bench(&[]).await;
    for (provider, title, url, content) in [
        ("tavily", "T1", "https://t.example/1", "from tavily"),
        ("brave", "B&1", "https://b.example/1", "from brave"),
        ("searxng", "S1", "https://s.example/1", "from searxng"),
        ("duckduckgo", "D1", "https://d.example/1", "from duckduckgo"),
    ] {
        let input = json!({"query": " c++ & \"q\" ", "provider": provider, "maxResults": 7});
        let results = json!([{"title": title, "url": url, "content": content}]);
        assert_eq!(call(&bench, input).await, json!({"results": results, "provider": provider}));
    }
    let [tavily, brave, searxng, duckduckgo] = server.requests().try_into().unwrap();
    assert_eq!(
        (tavily.method.as_str(), tavily.header("authorization")),
        ("POST", Some("Bearer tvly-a-secret-key"))
    );
    assert_eq!(
        serde_json::from_str::<Value>(&tavily.body).unwrap(),
        json!({"query": "c++ & \"q\"", "max_results": 7, "search_depth": "basic", "topic": "general"})
    );
    assert_eq!(tavily.header("content-type"), Some("application/json"));
    assert_eq!(
        (brave.method.as_str(), brave.header("x-subscription-token")),
        ("GET", Some("a-secret-brave-key"))
    );
    assert_eq!(
        brave.target,
        "/res/v1/web/search?q=c%2B%2B+%26+%22q%22&count=7&text_decorations=false&result_filter=web"
    );
    assert_eq!(searxng.target, "/searx/search?q=c%2B%2B+%26+%22q%22&format=json&categories=general");
    assert_eq!(duckduckgo.target, "/html/?q=c%2B%2B+%26+%22q%22");
    for (request, keyless) in [(&searxng, true), (&duckduckgo, true), (&brave, false)] {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.header("x-subscription-token").is_none(), keyless);
    }
}

#[tokio::test]
async fn first_configured_provider_serves_unless_another_is_requested() {
    let (bench, server) = bench(&[]).await;
    assert_eq!(call(&bench, json!({"query": "q"})).await["provider"], "tavily");
    assert_eq!(server.requests().len(), 1, "no other provider is tried");
    let without_keys = Bench::with(|parts| {
        configure(parts, &server);
        parts.settings.web.search.tavily_key = None;
        parts.settings.web.search.brave_key = None;
    });
    let served = call(&without_keys, json!({"query": "q"})).await;
    assert_eq!((&served["provider"], served.get("fallbacks")), (&json!("searxng"), None));
    let served = call(&without_keys, json!({"query": "q", "provider": "brave"})).await;
    let error = "is not configured; ask the operator to set BRAVE_API_KEY or web.search.braveKey";
    assert_eq!(served["fallbacks"], json!([{"provider": "brave", "error": error}]));
    assert_eq!(served["provider"], "searxng");
    let ordered = Bench::with(|parts| {
        configure(parts, &server);
        parts.settings.web.search.order = vec![SearchProvider::Duckduckgo, SearchProvider::Brave];
    });
    assert_eq!(call(&ordered, json!({"query": "q"})).await["provider"], "duckduckgo");
    let served = call(&ordered, json!({"query": "q", "provider": "tavily"})).await;
    assert_eq!(served["fallbacks"][0]["error"], "is not in web.search.order");
    let unknown =
        bench.call("tool::web_search", json!({"query": "q", "provider": "bing"})).await.unwrap_err();
    let known = "\"bing\" is not one of \"tavily\", \"brave\", \"searxng\", \"duckduckgo\"";
    assert!(unknown.to_string().replace("\\\"", "\"").contains(known), "{unknown}");
}

#[tokio::test]
async fn errors_and_quotas_are_reported_and_the_next_one_serves() {
    let (bench, server) = bench(&[
        ("tavily", || {
            TestResponse::json(
                432,
                &json!({"detail": {"error": "This request exceeds your plan's set usage limit."}}),
            )
        }),
        ("brave", || {
            TestResponse::json(
                429,
                &json!({"type": "ErrorResponse", "error": {"id": "x", "status": 429, "code": "RATE_LIMITED",
                "detail": "Request rate limit\n exceeded for plan."}}),
            )
        }),
        ("searxng", || TestResponse::new(403, "text/html", "<title>403 Forbidden</title>")),
    ])
    .await;
    let served = call(&bench, json!({"query": "q"})).await;
    assert_eq!(served["provider"], "duckduckgo");
    assert_eq!(
        served["fallbacks"],
        json!([
            {"provider": "tavily", "error": "its quota or rate limit is exceeded (432 <unknown status code>): This request exceeds your plan's set usage limit."},
            {"provider": "brave", "error": "its quota or rate limit is exceeded (429 Too Many Requests): Request rate limit exceeded for plan."},
            {"provider": "searxng", "error": "answered 403 Forbidden"},
        ])
    );
    assert_eq!(server.requests().len(), 4, "each once: no retries");
}

#[tokio::test]
async fn rejected_key_and_missing_payment_are_distinguished() {
    let (bench, _server) = bench(&[
        ("tavily", || {
            TestResponse::json(
                401,
                &json!({"detail": {"error": "Unauthorized: missing or invalid API key."}}),
            )
        }),
        ("brave", || TestResponse::json(402, &json!({"message": "pay"}))),
        ("searxng", || TestResponse::new(500, "text/plain", "x".repeat(100_000))),
    ])
    .await;
    let served = call(&bench, json!({"query": "q"})).await;
    let errors = served["fallbacks"].to_string();
    for part in [
        "rejected the key (401 Unauthorized): Unauthorized",
        "(402 Payment Required): pay",
        "500 Internal Server Error\"",
    ] {
        assert!(errors.contains(part), "{part} not in {errors}");
    }
}

#[tokio::test]
async fn unexpected_answers_are_reported_and_the_next_provider_serves() {
    let (bench, _server) = bench(&[
        ("tavily", || TestResponse::json(200, &json!({"results": {"0": "no list"}}))),
        ("brave", || TestResponse::html("<html>a login page</html>")),
        ("searxng", || {
            TestResponse::json(
                200,
                &json!({"results": [], "unresponsive_engines": [["google", "CAPTCHA"], ["bing"], 7]}),
            )
        }),
        ("duckduckgo", || TestResponse::new(202, "text/html", "<div class='anomaly-modal'>")),
    ])
    .await;
    let failed = bench.call("tool::web_search", json!({"query": "q"})).await.unwrap_err();
    let errors = failed["error"].as_str().unwrap();
    for part in [
        "no search provider answered: tavily: returned an unexpected answer: it has no list of results; brave: ",
        "brave: returned an unexpected answer: it is not JSON (",
        "searxng: returned an unexpected answer: no results, and these engines did not answer: google (CAPTCHA), bing",
        "duckduckgo: requires a human check",
    ] {
        assert!(errors.contains(part), "{part} not in {errors}");
    }
}

#[tokio::test]
async fn oversized_answer_is_rejected() {
    let (bench, _server) =
        bench(&[("tavily", || TestResponse::new(200, "application/json", vec![b' '; 9 * 1024 * 1024]))])
            .await;
    let served = call(&bench, json!({"query": "q"})).await;
    assert_eq!(
        served["fallbacks"][0]["error"],
        "returned an unexpected answer: it has more than 8388608 bytes"
    );
    assert_eq!(served["provider"], "brave");
}

#[tokio::test]
async fn unusable_fields_are_noted_and_max_results_applies() {
    let (bench, _server) = bench(&[
        ("tavily", || {
            let results: Vec<Value> =
                (0..30).map(|n| json!({"title": n, "url": format!("https://t.example/{n}")})).collect();
            TestResponse::json(200, &json!({ "results": results }))
        }),
        ("brave", || TestResponse::json(200, &json!({"type": "search", "query": {"original": "q"}}))),
        ("searxng", || {
            TestResponse::json(
                200,
                &json!({"results": [{"url": "https://s.example/", "content": "a <b>b</b>"}, {"url": ""}],
                "unresponsive_engines": [["google", "timeout"]]}),
            )
        }),
    ])
    .await;
    let served = call(&bench, json!({"query": "q", "maxResults": 20})).await;
    assert_eq!(served["results"].as_array().unwrap().len(), 20);
    assert_eq!(
        served["results"][3],
        json!({"title": "https://t.example/3", "url": "https://t.example/3", "content": ""})
    );
    assert_eq!(served["notes"], json!(["30 result fields were not text and are left empty"]));
    assert_eq!(call(&bench, json!({"query": "q"})).await["results"].as_array().unwrap().len(), 5);
    let served = call(&bench, json!({"query": "q", "provider": "brave"})).await;
    assert_eq!(served, json!({"results": [], "provider": "brave"}), "no results is an answer");
    let served = call(&bench, json!({"query": "q", "provider": "searxng"})).await;
    assert_eq!(served["results"][0]["content"], "a b");
    assert_eq!(
        served["notes"],
        json!([
            "1 results without a usable address were left out",
            "engines that did not answer: google (timeout)"
        ])
    );
}

#[tokio::test]
async fn key_is_not_sent_to_a_redirect_target() {
    let other = WebServer::always(TestResponse::json(200, &json!({"results": []})));
    let elsewhere = format!("{}/search", other.url());
    let server = WebServer::start(move |request| match provider_of(request) {
        "tavily" => {
            TestResponse { status: 307, headers: vec![("location", elsewhere.clone())], body: Vec::new() }
        }
        provider => successful_response(provider),
    });
    let bench = Bench::with(|parts| {
        configure(parts, &server);
        parts.settings.web.search.endpoints.brave = "http://127.0.0.1:9".to_owned();
    });
    call(&bench, json!({"query": "q"})).await;
    let served = call(&bench, json!({"query": "q", "provider": "brave"})).await;
    assert_eq!(served["fallbacks"][0]["provider"], "brave");
    for request in other.requests() {
        assert!(!format!("{request:?}").contains("secret-key"), "{request:?}");
    }
    assert!(!other.requests().is_empty());
}

#[tokio::test]
async fn invalid_key_is_reported_and_not_shown() {
    let server = WebServer::start(|request| successful_response(provider_of(request)));
    let bench = Bench::with(|parts| {
        configure(parts, &server);
        parts.settings.web.search.tavily_key = SearchKey::new("tvly\nsecret");
    });
    let served = call(&bench, json!({"query": "q"})).await;
    assert_eq!((&served["provider"], served.to_string().contains("secret")), (&json!("brave"), false));
    assert!(served["fallbacks"][0]["error"].as_str().unwrap().starts_with("the key contains characters"));
}

#[tokio::test]
async fn invalid_queries_are_rejected_and_nothing_is_sent() {
    let (bench, server) = bench(&[]).await;
    for (input, part) in [
        (json!({"query": ""}), "query must not be empty"),
        (json!({"query": " \n\t "}), "query must not be empty"),
        (json!({"query": "ä".repeat(401)}), "query has 401 characters, at most 400"),
        (json!({}), "required field \\\"query\\\" is missing"),
        (json!({"query": "q", "maxResults": 0}), "maxResults"),
        (json!({"query": "q", "maxResults": 21}), "maxResults"),
        (json!({"query": "q", "max_results": 2}), "did you mean \\\"maxResults\\\"?"),
        (json!({"query": ["q"]}), "query"),
    ] {
        let refused = bench.call("tool::web_search", input.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(part), "{input}: {refused}");
    }
    assert_eq!(call(&bench, json!({"query": "ä".repeat(400)})).await["provider"], "tavily");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn slow_provider_leaves_time_for_the_next_and_cancellation_works() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let bench = Bench::with(|parts| {
        parts.settings.web.client = client_to_loopback();
        parts.settings.web.search.tavily_key = SearchKey::new("a-secret-key");
        parts.settings.web.search.endpoints.tavily = silent;
    });
    let mut call = bench.operator_call();
    call.deadline = Some(std::time::Instant::now() + Duration::from_millis(300));
    let started = std::time::Instant::now();
    let late = bench.call_as(call, "tool::web_search", json!({"query": "q"})).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(3), "{late}");
    let call = bench.operator_call();
    let cancel = call.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    let started = std::time::Instant::now();
    let cancelled = bench.call_as(call, "tool::web_search", json!({"query": "q"})).await.unwrap_err();
    assert!(
        cancelled.to_string().contains("cancelled") && started.elapsed() < Duration::from_secs(3),
        "{cancelled}"
    );
}

#[tokio::test]
async fn deadline_of_the_call_is_reported_as_deadline() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    for (tool, input) in [
        ("tool::web_fetch", json!({"url": url})),
        ("http_request", json!({"url": url})),
        ("web_research", json!({"action": "read", "url": url})),
        ("tool::web_search", json!({"query": "q"})),
    ] {
        let bench = Bench::with(|parts| {
            parts.settings.web.client = client_to_loopback();
            parts.settings.web.search.searxng_url = Some(url.clone());
        });
        let mut call = bench.operator_call();
        call.deadline = Some(std::time::Instant::now() + Duration::from_millis(300));
        let refused = bench.call_as(call, tool, input).await.unwrap_err();
        assert_eq!(refused["error"]["code"], "deadline", "{tool}: {refused}");
    }
}

#[tokio::test]
async fn secret_is_masked_before_truncation() {
    const SECRET: &str = "SUPERSECRETVALUE1";
    let server = WebServer::start(|request| {
        let across = |limit: usize| format!("{}{SECRET} and more", "x".repeat(limit - 5));
        let (title, content, date) = (across(300), across(4_000), across(40));
        match provider_of(request) {
            "tavily" => TestResponse::json(429, &json!({"detail": {"error": across(200)}})),
            "brave" => TestResponse::json(
                200,
                &json!({"web": {"results": [{"title": title, "url": "https://b.example/", "description": content, "page_age": date}]}}),
            ),
            "searxng" => TestResponse::json(
                200,
                &json!({"results": [{"title": title, "url": "https://s.example/", "content": content, "publishedDate": date}]}),
            ),
            _ => TestResponse::html(&format!(
                r#"<div class="result"><a class="result__a" href="https://d.example/">{title}</a><a class="result__snippet">{content}</a></div>"#
            )),
        }
    });
    let bench = Bench::with(|parts| {
        configure(parts, &server);
        parts.settings.web.masker = gantry_tool::Masker::new([SECRET.to_owned()]);
    });
    for provider in ["tavily", "brave", "searxng", "duckduckgo"] {
        let answer = call(&bench, json!({"query": "q", "provider": provider})).await.to_string();
        assert!(answer.contains("x[mas") && !answer.contains("SUPER"), "{provider}: {answer}");
    }
}

#[tokio::test]
async fn client_of_the_own_instance_is_used_for_it_only() {
    let server = WebServer::start(|request| successful_response(provider_of(request)));
    let bench = Bench::with(|parts| {
        configure(parts, &server);
        parts.settings.web.search.client = Some(std::mem::take(&mut parts.settings.web.client));
    });
    let answer = call(&bench, json!({"query": "q", "provider": "searxng"})).await;
    assert_eq!((&answer["provider"], answer.get("fallbacks")), (&json!("searxng"), None), "{answer}");
    // The other providers are at the same private address, which stays closed to them and to every
    // other tool.
    for provider in ["tavily", "brave", "duckduckgo"] {
        let answer = call(&bench, json!({"query": "q", "provider": provider})).await;
        assert_eq!(answer["provider"], "searxng", "{answer}");
        assert_eq!(answer["fallbacks"][0]["provider"], provider, "{answer}");
        assert!(answer["fallbacks"][0]["error"].as_str().unwrap().contains("127.0.0.1"), "{answer}");
    }
    let url = json!({"url": format!("{}/searx/search", server.url())});
    let closed = bench.call("tool::web_fetch", url).await.unwrap_err();
    assert!(closed.to_string().contains("127.0.0.1"), "{closed}");
    assert!(
        server.requests().iter().all(|request| provider_of(request) == "searxng"),
        "{:?}",
        server.requests()
    );
}
