use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_protocol::raw;
use tokio::sync::oneshot;

use super::*;

fn said(answer: Answer) -> String {
    match answer {
        Ok(json) => json.get().to_owned(),
        Err(error) => format!("{}: {}", error.code.name(), error.message),
    }
}

/// A call that ends when its sender fires or it is cancelled.
fn until(finished: oneshot::Receiver<&'static str>) -> impl FnOnce(CancellationToken) -> AnswerFuture {
    move |cancel| {
        Box::pin(async move {
            tokio::select! {
                text = finished => Ok(raw(&text.unwrap_or("dropped"))),
                () = cancel.cancelled() => Err(WireError::new(ErrorCode::Cancelled, "cancelled")),
            }
        })
    }
}

type AnswerFuture = std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>;

fn at_once(text: &'static str) -> impl FnOnce(CancellationToken) -> AnswerFuture {
    move |_| Box::pin(async move { Ok(raw(&text)) })
}

#[tokio::test]
async fn same_id_joins_the_running_or_held_call() {
    let calls = Calls::new(4);
    let runs = Arc::new(AtomicUsize::new(0));
    let (finish, finished) = oneshot::channel();
    let counted = |work: AnswerFuture| {
        runs.fetch_add(1, Ordering::SeqCst);
        work
    };
    let work = until(finished);
    let mut first = calls.attach("a", None, |cancel| counted(work(cancel))).unwrap();
    let mut second = calls.attach("a", None, |cancel| counted(at_once("other")(cancel))).unwrap();
    assert_eq!(calls.listed(), ["a"]);
    finish.send("done").unwrap();
    assert_eq!(said(first.answer().await), "\"done\"");
    assert_eq!(said(second.answer().await), "\"done\"");
    let mut third = calls.attach("a", None, |cancel| counted(at_once("other")(cancel))).unwrap();
    assert_eq!(said(third.answer().await), "\"done\"");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn acknowledged_call_never_runs_again() {
    let calls = Calls::new(4);
    calls.attach("a", None, at_once("x")).unwrap().answer().await.unwrap();
    // Acknowledging a running call has no effect.
    let (_finish, finished) = oneshot::channel();
    let _running = calls.attach("b", None, until(finished)).unwrap();
    calls.acknowledge(&["a".into(), "b".into(), "unknown".into()]);
    assert_eq!(calls.listed(), ["b"]);
    let refused = calls.attach("a", None, at_once("again")).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
}

#[tokio::test]
async fn only_listed_unwanted_calls_are_cancelled() {
    let calls = Calls::new(4);
    let (_tell_a, finished_a) = oneshot::channel();
    let (_tell_b, finished_b) = oneshot::channel();
    let mut a = calls.attach("a", None, until(finished_a)).unwrap();
    let _b = calls.attach("b", None, until(finished_b)).unwrap();
    let listed = calls.listed();
    let (_tell_c, finished_c) = oneshot::channel();
    let _c = calls.attach("c", None, until(finished_c)).unwrap();
    assert_eq!(calls.keep_only(&listed, &["b".into()]), 1);
    assert!(said(a.answer().await).starts_with("cancelled"));
    let mut left = calls.listed();
    left.sort();
    assert_eq!(left, ["b", "c"]);
}

#[tokio::test]
async fn waiting_calls_run_in_order_and_too_many_are_rejected() {
    let calls = Calls::new(1);
    let (finish, finished) = oneshot::channel();
    let _first = calls.attach("first", None, until(finished)).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..MAX_WAITING {
        let order = Arc::clone(&order);
        let work = move |_| async move {
            order.lock().unwrap().push(number);
            Ok(raw(&number))
        };
        waiting.push(calls.attach(&format!("c{number}"), None, work).unwrap());
        tokio::task::yield_now().await;
    }
    let refused = calls.attach("surplus", None, at_once("x")).unwrap_err();
    assert_eq!((refused.code, refused.retryable), (ErrorCode::TooMany, true));
    assert_eq!(order.lock().unwrap().len(), 0);
    finish.send("done").unwrap();
    for attached in &mut waiting {
        attached.answer().await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..MAX_WAITING).collect::<Vec<_>>());
    calls.attach("surplus", None, at_once("x")).unwrap();
}

#[tokio::test]
async fn waiting_call_can_be_cancelled_or_miss_its_deadline() {
    let calls = Calls::new(1);
    let (_finish, finished) = oneshot::channel();
    let _first = calls.attach("first", None, until(finished)).unwrap();
    let mut cancelled = calls.attach("second", None, at_once("x")).unwrap();
    calls.cancel("second");
    assert!(said(cancelled.answer().await).starts_with("cancelled"));
    let soon = Instant::now() + Duration::from_millis(20);
    let mut late = calls.attach("third", Some(soon), at_once("x")).unwrap();
    assert!(said(late.answer().await).starts_with("deadline"));
}

#[tokio::test]
async fn held_results_are_bounded_and_the_oldest_are_dropped() {
    let calls = Calls::new(4);
    for number in 0..MAX_HELD + 3 {
        calls.attach(&format!("c{number}"), None, at_once("x")).unwrap().answer().await.unwrap();
    }
    assert_eq!(calls.table().held, MAX_HELD);
    assert_eq!(calls.take_dropped(), ["c0", "c1", "c2"]);
    assert_eq!(calls.attach("c0", None, at_once("again")).unwrap_err().code, ErrorCode::Conflict);
    let newest = format!("c{}", MAX_HELD + 2);
    assert_eq!(calls.listed()[0], newest);
    calls.acknowledge(&[newest]);
    let held_bytes = calls.table().held_bytes;
    assert_eq!(held_bytes, 3 * (MAX_HELD - 1));
}

#[tokio::test]
async fn listed_ids_fit_into_connect() {
    let calls = Calls::new(4);
    for number in 0..MAX_HELD {
        let id = format!("{number:04}{}", "\u{1}".repeat(60));
        calls.attach(&id, None, at_once("x")).unwrap().answer().await.unwrap();
    }
    let listed = calls.listed();
    assert!(!listed.is_empty());
    assert!(serde_json::to_string(&listed).unwrap().len() <= MAX_LISTED_BYTES + 2);
    assert!(calls.attach(&"x".repeat(65), None, at_once("x")).is_err());
    assert!(calls.attach("", None, at_once("x")).is_err());
}

#[tokio::test]
async fn a_panic_is_an_answer_too() {
    let calls = Calls::new(1);
    let work = |_| async { panic!("on purpose") };
    let mut attached = calls.attach("a", None, work).unwrap();
    assert!(said(attached.answer().await).starts_with("internal"));
    assert_eq!(said(calls.attach("b", None, at_once("x")).unwrap().answer().await), "\"x\"");
}

#[tokio::test]
async fn drain_waits_then_cancels_and_starts_nothing() {
    let calls = Calls::new(4);
    let (finish, finished) = oneshot::channel();
    let (_never, finished_never) = oneshot::channel();
    let mut finishes = calls.attach("finishes", None, until(finished)).unwrap();
    let mut hangs = calls.attach("hangs", None, until(finished_never)).unwrap();
    let draining = tokio::spawn({
        let calls = calls.clone();
        async move { calls.drain(Duration::from_millis(200), Duration::from_secs(2)).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(calls.attach("new", None, at_once("x")).unwrap_err().code, ErrorCode::Unavailable);
    finish.send("done").unwrap();
    draining.await.unwrap();
    assert_eq!(said(finishes.answer().await), "\"done\"");
    assert!(said(hangs.answer().await).starts_with("cancelled"));
    assert!(calls.is_idle());
}
