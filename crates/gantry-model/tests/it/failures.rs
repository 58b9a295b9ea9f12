//! All kinds of failures, on request.

use std::time::{Duration, Instant};

use gantry_model::testing::{Failure, KEY, Order, Say, Script, ScriptedServer, Turn, quick_retries};
use gantry_model::{
    Key, Limits, ModelError, Models, ModelsConfig, Provider, ProviderKind, Request, RetryPolicy, StopReason,
    StreamEvent, list_models,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{BOTH, ask, ask_within, assert_clean, calls, request, tool};

const LONG: &str = "a rather long answer that takes a number of events, one after the other, until it ends";

fn restarts(events: &[StreamEvent]) -> usize {
    events.iter().filter(|event| matches!(event, StreamEvent::Restart { .. })).count()
}

#[tokio::test]
async fn temporary_failures_are_retried() {
    for kind in BOTH {
        for status in [408, 429, 500, 502, 503, 529] {
            let server =
                ScriptedServer::start(vec![Turn::status(status), Turn::status(status), Turn::text("ok")])
                    .await;
            let outcome = ask(&server.models(kind), &request("hi")).await;
            assert_eq!((outcome.text().as_str(), restarts(&outcome.events)), ("ok", 0), "{kind:?} {status}");
            assert_clean(&server);
        }
        let server = ScriptedServer::start(vec![Turn::fail(Failure::Close), Turn::text("ok")]).await;
        assert_eq!(ask(&server.models(kind), &request("hi")).await.text(), "ok", "{kind:?}");
        assert_clean(&server);
    }
}

#[tokio::test]
async fn attempts_are_counted() {
    for kind in BOTH {
        let script = Script { turns: vec![Turn::status(529)], repeat: true, ..Script::default() };
        let server = ScriptedServer::start(script).await;
        let outcome = ask(&server.models(kind), &request("hi")).await;
        let ModelError::Unavailable { attempts: 4, reason, .. } = outcome.error() else {
            panic!("{:?}", outcome.answer)
        };
        assert!(reason.contains("529"), "{reason}");
        assert_eq!(server.requests().len(), 4);
        assert!(outcome.error().hint().unwrap().contains("fallback"));
    }
}

#[tokio::test]
async fn retry_after_is_respected_within_limits() {
    let soon = |after: &str| {
        Turn::fail(Failure::Status {
            status: 429,
            retry_after: Some(after.into()),
            message: None,
            location: None,
        })
    };
    let server = ScriptedServer::start(vec![soon("0.4"), Turn::text("ok")]).await;
    let began = Instant::now();
    assert_eq!(ask(&server.models(ProviderKind::Anthropic), &request("hi")).await.text(), "ok");
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    // A date has no fractions of seconds.
    let at = jiff::Timestamp::now() + Duration::from_secs(2);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).unwrap();
    let server = ScriptedServer::start(vec![soon(&date), Turn::text("ok")]).await;
    let began = Instant::now();
    assert_eq!(ask(&server.models(ProviderKind::Openai), &request("hi")).await.text(), "ok");
    assert!(began.elapsed() >= Duration::from_millis(900), "{date} {:?}", began.elapsed());
    // An hour is too long to wait.
    let server = ScriptedServer::start(vec![soon("3600")]).await;
    let began = Instant::now();
    let outcome = ask(&server.models(ProviderKind::Anthropic), &request("hi")).await;
    assert!(outcome.error().to_string().contains("asks to wait longer"), "{}", outcome.error());
    assert!(began.elapsed() < Duration::from_secs(5));
    // The deadline also limits the wait.
    let server = ScriptedServer::start(vec![soon("30")]).await;
    let limits = Limits::within(Duration::from_secs(5));
    let outcome = ask_within(&server.models(ProviderKind::Anthropic), &request("hi"), limits).await;
    assert!(outcome.error().to_string().contains("no time left"), "{}", outcome.error());
    assert!(began.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn cut_stream_is_retried_with_a_restart_event() {
    for kind in BOTH {
        let after = match kind {
            ProviderKind::Anthropic => 900,
            ProviderKind::Openai => 700,
        };
        for fail in [
            Failure::Cut(after),
            Failure::End(after),
            Failure::Error { kind: "overloaded_error".into(), message: "Overloaded".into(), after },
        ] {
            let cut = Turn { piece: Some(5), ..Turn::text(LONG) }.failing(fail.clone());
            let server = ScriptedServer::start(vec![cut, Turn::text(LONG)]).await;
            let outcome = ask(&server.models(kind), &request("hi")).await;
            assert_eq!(outcome.reply().message.text(), LONG);
            assert_eq!(restarts(&outcome.events), 1, "{kind:?} {fail:?} {:?}", outcome.events);
            assert_eq!(outcome.text(), LONG, "output before the restart is discarded");
            assert!(matches!(outcome.events.last(), Some(StreamEvent::Done(_))));
            assert_clean(&server);
        }
    }
}

/// The stream is cut at any byte. The result is the whole answer or another attempt, never a
/// partial answer.
#[tokio::test]
async fn cut_stream_is_never_taken_for_complete() {
    for kind in BOTH {
        for after in (0..2_000).step_by(gantry_testkit::scaled(1, 23)) {
            let call = Say::Call { name: "see".into(), input: json!({"a": "b"}) };
            let fail = if after % 2 == 0 { Failure::Cut(after) } else { Failure::End(after) };
            let cut = Turn::say(vec![Say::Text("words".into()), call]).failing(fail);
            let script = Script { turns: vec![cut, Turn::text("again")], ..Script::default() };
            let server = ScriptedServer::start(script).await;
            let request = Request { tools: vec![tool("see")], ..request("hi") };
            let outcome = ask(&server.models(kind), &request).await;
            let reply = outcome.reply();
            match reply.stop {
                StopReason::EndTurn => assert_eq!(reply.message.text(), "again", "{kind:?} cut at {after}"),
                _ => {
                    assert_eq!(calls(&reply.message)[0].2, json!({"a": "b"}), "{kind:?} cut at {after}");
                    assert_eq!(reply.stop, StopReason::ToolUse);
                }
            }
            assert_eq!(server.violations(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn stalled_stream_is_given_up() {
    for kind in BOTH {
        for after in [0, 700] {
            let stalled = Turn { piece: Some(5), ..Turn::text(LONG) }.failing(Failure::Stall(after));
            let server = ScriptedServer::start(vec![stalled, Turn::text("ok")]).await;
            let limits =
                Limits { stall: Duration::from_millis(200), ..Limits::within(Duration::from_secs(20)) };
            let began = Instant::now();
            let outcome = ask_within(&server.models(kind), &request("hi"), limits).await;
            assert_eq!(outcome.text(), "ok", "{kind:?} after {after}");
            assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
            assert_clean(&server);
        }
    }
}

#[tokio::test]
async fn pings_count_as_activity() {
    for kind in BOTH {
        let say = vec![Say::Text("a".into()), Say::Pings { count: 6, every_ms: 100 }, Say::Text("b".into())];
        let server = ScriptedServer::start(vec![Turn::say(say)]).await;
        let limits = Limits { stall: Duration::from_millis(400), ..Limits::within(Duration::from_secs(20)) };
        let outcome = ask_within(&server.models(kind), &request("hi"), limits).await;
        assert_eq!((outcome.text().as_str(), restarts(&outcome.events)), ("ab", 0), "{kind:?}");
        assert_clean(&server);
    }
}

/// A local server may read a prompt for minutes before its first word.
#[tokio::test]
async fn first_byte_may_take_longer() {
    let server = ScriptedServer::start(vec![Turn { delay_ms: 500, ..Turn::text("ok") }]).await;
    let mut provider = server.provider("scripted", ProviderKind::Openai);
    provider.first_byte = Some(Duration::from_secs(10));
    let models = Models::new(ModelsConfig { providers: vec![provider], ..ModelsConfig::default() });
    let limits = Limits { stall: Duration::from_millis(100), ..Limits::within(Duration::from_secs(20)) };
    assert_eq!(ask_within(&models, &request("hi"), limits).await.text(), "ok");
    assert_clean(&server);
}

#[tokio::test]
async fn deadline_ends_the_answer() {
    let slow = Turn { piece: Some(1), ..Turn::text(LONG) }.paced(Duration::from_millis(50));
    let server = ScriptedServer::start(vec![slow]).await;
    let began = Instant::now();
    let limits = Limits::within(Duration::from_millis(600));
    let outcome = ask_within(&server.models(ProviderKind::Anthropic), &request("hi"), limits).await;
    assert_eq!(*outcome.error(), ModelError::Deadline { model: "scripted/scripted-1".into() });
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(!outcome.text().is_empty());
}

#[tokio::test]
async fn cancel_takes_effect_at_once() {
    let server = ScriptedServer::start(vec![Turn::text(LONG).failing(Failure::Stall(300))]).await;
    let models = server.models(ProviderKind::Anthropic);
    let cancel = CancellationToken::new();
    let after = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        after.cancel();
    });
    let began = Instant::now();
    let answer =
        models.answer(&request("hi"), Limits::within(Duration::from_secs(20)), &cancel, &mut |_| {}).await;
    assert_eq!(answer.unwrap_err(), ModelError::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(2));
}

async fn with_fallback(first: Vec<Turn>, second: Vec<Turn>) -> (ScriptedServer, ScriptedServer, Models) {
    let one = ScriptedServer::start(first).await;
    let two = ScriptedServer::start(second).await;
    let models = Models::new(ModelsConfig {
        providers: vec![
            one.provider("one", ProviderKind::Anthropic),
            two.provider("two", ProviderKind::Openai),
        ],
        fallback: Some("two/scripted-1".into()),
        retry: RetryPolicy { attempts: 2, ..quick_retries() },
        ..ModelsConfig::default()
    });
    (one, two, models)
}

#[tokio::test]
async fn fallback_answers_when_the_first_model_fails() {
    let cut = Turn { piece: Some(5), ..Turn::text(LONG) }.failing(Failure::Cut(900));
    let (one, two, models) = with_fallback(vec![Turn::status(529), cut], vec![Turn::text("ok")]).await;
    let outcome = ask(&models, &Request { model: "one/scripted-1".into(), ..request("hi") }).await;
    assert_eq!((outcome.text().as_str(), outcome.reply().model.as_str()), ("ok", "two/scripted-1"));
    assert_eq!(restarts(&outcome.events), 1);
    assert_clean(&one);
    assert_clean(&two);
    // Both models fail, and the error names both.
    let failing = || vec![Turn::status(529), Turn::status(529)];
    let (_one, _two, models) = with_fallback(failing(), failing()).await;
    let outcome = ask(&models, &Request { model: "one/scripted-1".into(), ..request("hi") }).await;
    let message = outcome.error().to_string();
    assert!(message.contains("one/scripted-1") && message.contains("two/scripted-1"), "{message}");
}

#[tokio::test]
async fn permanent_failures_are_not_retried() {
    for kind in BOTH {
        for (status, message, expected) in [
            (400, "messages: wrong", "refused the request"),
            (401, "invalid x-api-key", "does not accept the key"),
            (403, "not yours", "does not accept the key"),
            (404, "model: scripted-1", "does not have the model"),
            (400, "prompt is too long: 300000 tokens > 200000 maximum", "too long for scripted/scripted-1"),
            (413, "too large", "too long"),
        ] {
            let fail =
                Failure::Status { status, retry_after: None, message: Some(message.into()), location: None };
            let server = ScriptedServer::start(vec![Turn::fail(fail)]).await;
            let outcome = ask(&server.models(kind), &request("hi")).await;
            let said = outcome.error().to_string();
            assert!(said.contains(expected) && said.contains(message), "{kind:?} {status}: {said}");
            assert!(outcome.error().hint().is_some() || expected == "refused the request", "{said}");
            assert_eq!(server.requests().len(), 1);
        }
    }
    // The fallback is not asked either, because it would refuse the same request.
    let (_one, two, models) = with_fallback(vec![Turn::status(400)], vec![Turn::text("no")]).await;
    ask(&models, &Request { model: "one/scripted-1".into(), ..request("hi") }).await.error();
    assert_eq!(two.requests().len(), 0);
}

#[tokio::test]
async fn permanent_stream_error_is_not_retried() {
    for kind in BOTH {
        let fail = Failure::Error { kind: "invalid_request_error".into(), message: "no".into(), after: 300 };
        let server = ScriptedServer::start(vec![Turn::text(LONG).failing(fail)]).await;
        let outcome = ask(&server.models(kind), &request("hi")).await;
        assert!(matches!(outcome.error(), ModelError::Refused { status: 400, .. }), "{:?}", outcome.answer);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn malformed_arguments_are_kept_for_the_model() {
    for kind in BOTH {
        for arguments in ["{\"a\": \"b", "[1]", "\"text\"", "nonsense", "{\"a\":1} {\"a\":2}"] {
            let bad = Say::Malformed { name: "see".into(), arguments: arguments.into() };
            let server = ScriptedServer::start(vec![Turn::say(vec![bad]), Turn::text("sorry")]).await;
            let models = server.models(kind);
            let mut request = Request { tools: vec![tool("see")], ..request("hi") };
            let outcome = ask(&models, &request).await;
            let (_, _, input, malformed) = &calls(&outcome.reply().message)[0];
            assert_eq!((input, malformed.as_deref()), (&json!({}), Some(arguments)), "{kind:?}");
            super::continue_with(&mut request, outcome.reply());
            assert_eq!(ask(&models, &request).await.text(), "sorry");
            assert_clean(&server);
        }
        // Missing arguments are empty.
        let none = Say::Malformed { name: "see".into(), arguments: String::new() };
        let server = ScriptedServer::start(vec![Turn::say(vec![none])]).await;
        let outcome = ask(&server.models(kind), &request("hi")).await;
        assert_eq!(calls(&outcome.reply().message)[0].3, None);
    }
}

/// This holds even if the server repeats the key.
#[tokio::test]
async fn errors_never_contain_the_key() {
    for kind in BOTH {
        for status in [400, 401, 404, 413, 429, 500] {
            let fail = Failure::Status {
                status,
                retry_after: None,
                message: Some(format!("bad key {KEY}!")),
                location: None,
            };
            let script = Script { turns: vec![Turn::fail(fail)], repeat: true, ..Script::default() };
            let server = ScriptedServer::start(script).await;
            let models = server.models(kind);
            let outcome = ask(&models, &request("hi")).await;
            let said = format!("{0} {0:?} {models:?}", outcome.error());
            assert!(said.contains("bad key …!") && !said.contains(KEY), "{said}");
        }
        let fail = Failure::Error { kind: "overloaded_error".into(), message: KEY.into(), after: 300 };
        let cut = Turn { piece: Some(2), ..Turn::text(LONG) }.failing(fail);
        let server = ScriptedServer::start(vec![cut, Turn::text("ok")]).await;
        let outcome = ask(&server.models(kind), &request("hi")).await;
        assert!(!format!("{:?}", outcome.events).contains(KEY));
    }
    let nobody = ScriptedServer::start(vec![]).await.base_url();
    let closed =
        Provider { key: Some(Key::fixed(KEY)), ..Provider::new("closed", ProviderKind::Anthropic, nobody) };
    let models = Models::new(ModelsConfig {
        providers: vec![closed.clone()],
        fallback: Some("closed/m".into()),
        retry: quick_retries(),
        ..ModelsConfig::default()
    });
    let outcome = ask(&models, &Request { model: "closed/m".into(), ..request("hi") }).await;
    assert!(matches!(outcome.error(), ModelError::Unavailable { attempts: 4, .. }), "{:?}", outcome.answer);
    let listed = list_models(&closed, &Default::default(), Duration::from_secs(5)).await.unwrap_err();
    for said in [format!("{0} {0:?}", outcome.error()), format!("{listed} {listed:?}")] {
        assert!(!said.contains(KEY), "{said}");
    }
}

#[tokio::test]
async fn unreadable_key_is_reported_before_sending() {
    let server = ScriptedServer::start(vec![]).await;
    let mut provider = server.provider("scripted", ProviderKind::Anthropic);
    provider.key = Some(Key::read_by(|| Err("the secret \"x\" is not there".into())));
    let models = Models::new(ModelsConfig { providers: vec![provider], ..ModelsConfig::default() });
    let outcome = ask(&models, &request("hi")).await;
    assert_eq!(
        outcome.error().to_string(),
        "the key of scripted cannot be used: the secret \"x\" is not there"
    );
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn unknown_model_is_reported_with_suggestions() {
    let server = ScriptedServer::start(vec![]).await;
    let models = server.models(ProviderKind::Anthropic);
    let outcome = ask(&models, &Request { model: "scriptd-1".into(), ..request("hi") }).await;
    assert_eq!(outcome.error().to_string(), "unknown model \"scriptd-1\"; did you mean scripted/scripted-1?");
}

/// A redirect would send the key elsewhere.
#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = ScriptedServer::start(vec![Turn::text("no")]).await;
    let location = Some(format!("{}v1/chat/completions", elsewhere.base_url()));
    let redirect = Failure::Status { status: 307, retry_after: None, message: None, location };
    let server = ScriptedServer::start(vec![Turn::fail(redirect)]).await;
    let outcome = ask(&server.models(ProviderKind::Openai), &request("hi")).await;
    assert!(outcome.error().to_string().contains("redirect"), "{}", outcome.error());
    assert_eq!(elsewhere.requests().len(), 0);
}

/// A complete answer is accepted although the server keeps the connection open.
#[tokio::test]
async fn complete_answer_does_not_wait_for_the_server_to_close() {
    for kind in BOTH {
        let server = ScriptedServer::start(vec![Turn::text("ok").failing(Failure::Linger)]).await;
        let began = Instant::now();
        assert_eq!(ask(&server.models(kind), &request("hi")).await.text(), "ok");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_clean(&server);
    }
}

#[tokio::test]
async fn provider_lists_its_models() {
    let script = Script { models: vec!["a".into(), "b:7b".into()], window: Some(4_096), ..Script::default() };
    let server = ScriptedServer::start(script).await;
    for kind in BOTH {
        let provider = server.provider("x", kind);
        let listed = list_models(&provider, &Default::default(), Duration::from_secs(5)).await;
        let listed = listed.unwrap();
        let outcome: Vec<_> = listed.iter().map(|entry| (entry.id.as_str(), entry.context_window)).collect();
        assert_eq!(outcome, [("a", Some(4_096)), ("b:7b", Some(4_096))]);
    }
}

/// The server detects a request that no provider accepts.
#[tokio::test]
async fn scripted_server_reports_violations() {
    let server = ScriptedServer::start(vec![Turn::text("ok")]).await;
    let models = server.models(ProviderKind::Anthropic);
    let wrong = Request { tools: vec![tool("no spaces"), tool("twice"), tool("twice")], ..request("hi") };
    let outcome = ask(&models, &wrong).await;
    assert!(matches!(outcome.error(), ModelError::Refused { status: 400, .. }), "{:?}", outcome.answer);
    assert_eq!(
        server.violations(),
        ["Some(\"no spaces\") is not a valid tool name", "two tools are named Some(\"twice\")"]
    );
    // It also detects a request that the script has no turn for.
    let server = ScriptedServer::start(vec![Turn::text("ok").when("only this")]).await;
    ask(&server.models(ProviderKind::Openai), &request("that")).await.error();
    assert_eq!(server.violations(), ["the script has no turn for \"that\""]);
}

/// A server whose turns are positions gives the same answer to the same request. A failure occurs
/// once.
#[tokio::test]
async fn step_script_repeats_the_turn_of_a_position() {
    let turns = vec![Turn::status(529), Turn::call("see", json!({})), Turn::status(500), Turn::text("done")];
    for kind in BOTH {
        let script = Script { turns: turns.clone(), order: Order::Step, ..Script::default() };
        let server = ScriptedServer::start(script).await;
        let models = server.models(kind);
        let mut request = Request { tools: vec![tool("see")], ..request("hi") };
        let first = ask(&models, &request).await;
        let again = ask(&models, &request).await;
        assert_eq!(first.reply(), again.reply());
        super::continue_with(&mut request, first.reply());
        for _ in 0..3 {
            assert_eq!(ask(&models, &request).await.text(), "done", "{kind:?}");
        }
        assert_eq!(server.requests().len(), 7);
        assert_clean(&server);
    }
}
