//! Models with a smaller window than documented: the conversation is compacted until it fits.

use gantry_agent::{ModelFailure, SessionEvent};
use gantry_model::{Reply, Request};
use serde_json::json;

use crate::world::{Setup, World, calls, final_text, results, says, size, texts};

/// Reads big pages, then says what it still knows of the task. `real` is the window in tokens of four bytes; beyond it the
/// model fails as `refuse` says.
fn script(
    pages: usize,
    real: usize,
    refuse: impl Fn() -> ModelFailure + Send + Sync + 'static,
) -> impl Fn(&Request) -> Result<Reply, ModelFailure> + Send + Sync {
    let read = std::sync::atomic::AtomicUsize::new(0);
    move |request| {
        if size(request) / 4 + request.max_tokens as usize > real {
            return Err(refuse());
        }
        if request.tools.is_empty() {
            return says("pages were read");
        }
        let number = read.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match number < pages {
            true => calls(&[(&format!("c{number}"), "big", json!({"text": number.to_string()}))]),
            false => says(&texts(request).join("\n")),
        }
    }
}

fn refused(window: Option<usize>) -> ModelFailure {
    ModelFailure::Overflow { message: "prompt is too long".into(), window }
}

async fn ask(
    script: impl Fn(&Request) -> Result<Reply, ModelFailure> + Send + Sync + 'static,
) -> (World, SessionEvent) {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 200_000, ..Setup::default() };
    let world = World::open(&folder.keep(), setup, script).await;
    let end = world.ask("read every page and remember the word PERIWINKLE").await;
    (world, end)
}

#[tokio::test(flavor = "multi_thread")]
async fn window_named_in_an_error_is_respected() {
    let (world, end) = ask(script(6, 9_000, || refused(Some(9_000)))).await;
    assert!(final_text(&end).contains("PERIWINKLE"), "{end:?}");
    let kinds = world.kinds().await;
    let failed = kinds.iter().filter(|kind| *kind == "request_failed").count();
    assert!(failed <= 3, "the learned window is remembered: {kinds:?}");
    world.stop().await;
}

/// The first compaction keeps half of the documented window, which is more than the real one.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_window_is_found_by_halving() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 20_000, ..Setup::default() };
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let script = move |request: &Request| {
        let number = asked.load(std::sync::atomic::Ordering::SeqCst);
        if number >= 50 && size(request) / 4 + request.max_tokens as usize > 4_000 {
            return Err(refused(None));
        }
        if request.tools.is_empty() {
            // The summary is long, so that together with the kept part it does not fit half of the window.
            return says(&"many things were looked at ".repeat(80));
        }
        asked.store(number + 1, std::sync::atomic::Ordering::SeqCst);
        match number < 50 {
            true => {
                calls(&[(&format!("c{number}"), "look", json!({"text": format!("{number}").repeat(150)}))])
            }
            false => says(&texts(request).join("\n")),
        }
    };
    let world = World::open(folder.path(), setup, script).await;
    let end = world.ask("look at everything and remember the word PERIWINKLE").await;
    assert!(final_text(&end).contains("PERIWINKLE"), "{end:?}");
    let failures = async || world.kinds().await.iter().filter(|kind| *kind == "request_failed").count();
    let failed = failures().await;
    assert!((2..=5).contains(&failed), "several tries, and not the last resort: {failed}");
    assert!(!final_text(&end).contains("is omitted"), "{end:?}");
    // The next run uses the learned window.
    assert!(final_text(&world.ask("and now?").await).contains("and now?"));
    assert_eq!(failures().await, failed);
    world.stop().await;
}

/// llama-cpp-python answers 200 with an empty body.
#[tokio::test(flavor = "multi_thread")]
async fn empty_answer_to_a_long_request_counts_as_overflow() {
    let empty = || ModelFailure::Empty("it said nothing".into());
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 32_000, ..Setup::default() };
    let world = World::open(folder.path(), setup, script(6, 12_000, empty)).await;
    let end = world.ask("remember PERIWINKLE").await;
    assert!(final_text(&end).contains("PERIWINKLE"), "{end:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_answer_to_a_short_request_is_an_error() {
    let (world, end) = ask(|_| Err(ModelFailure::Empty("it said nothing".into()))).await;
    let SessionEvent::Error { message, .. } = &end else { panic!("{end:?}") };
    assert_eq!(message, "it said nothing");
    assert_eq!(world.model.requests.lock().unwrap().len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_ends_if_not_even_the_task_fits() {
    let (world, end) = ask(|request: &Request| match results(request).len() {
        0 if size(request) < 8_000 && world_is_new(request) => calls(&[("a", "big", json!({"text": "x"}))]),
        _ => Err(refused(None)),
    })
    .await;
    let SessionEvent::Error { message, .. } = &end else { panic!("{end:?}") };
    assert!(message.contains("not even the task alone fits"), "{message}");
    let asked = world.model.requests.lock().unwrap().len();
    assert!(asked <= 12, "{asked} requests");
    // The next message starts a new run.
    assert!(matches!(world.ask("again").await, SessionEvent::Error { .. }));
    world.stop().await;
}

/// Whether no message was compacted yet.
fn world_is_new(request: &Request) -> bool {
    texts(request).iter().all(|text| !text.contains('['))
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_without_text_is_answered_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |_| says(" ")).await;
    let end = world.ask("hello?").await;
    assert!(final_text(&end).contains("without an answer"), "{end:?}");
    world.stop().await;
}
