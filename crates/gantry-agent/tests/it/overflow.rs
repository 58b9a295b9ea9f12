//! Models whose window is smaller than it is said to be: the conversation is made shorter until it fits.

use gantry_agent::{Event, ModelFailure};
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
) -> (World, Event) {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 200_000, ..Setup::default() };
    let world = World::open(&folder.keep(), setup, script).await;
    let told = world.ask("read every page and remember the word PERIWINKLE").await;
    (world, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_a_refusal_names_is_kept_to() {
    let (world, told) = ask(script(6, 9_000, || refused(Some(9_000)))).await;
    assert!(final_text(&told).contains("PERIWINKLE"), "{told:?}");
    let kinds = world.kinds().await;
    let failed = kinds.iter().filter(|kind| *kind == "request_failed").count();
    assert!(failed <= 3, "what was learned is kept: {kinds:?}");
    world.stop().await;
}

/// Half of the window that the model is said to have is kept by the first summary, and is more than it really has.
#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_nobody_names_is_found_by_halving() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 20_000, ..Setup::default() };
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let script = move |request: &Request| {
        let number = asked.load(std::sync::atomic::Ordering::SeqCst);
        if number >= 50 && size(request) / 4 + request.max_tokens as usize > 4_000 {
            return Err(refused(None));
        }
        if request.tools.is_empty() {
            // Longer than one call, so that with the part that stays it never fits into half of the window.
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
    let told = world.ask("look at everything and remember the word PERIWINKLE").await;
    assert!(final_text(&told).contains("PERIWINKLE"), "{told:?}");
    let failures = async || world.kinds().await.iter().filter(|kind| *kind == "request_failed").count();
    let failed = failures().await;
    assert!((2..=5).contains(&failed), "more than one try, and not the last resort: {failed}");
    assert!(!final_text(&told).contains("is left out"), "{told:?}");
    // The next run knows what was learned.
    assert!(final_text(&world.ask("and now?").await).contains("and now?"));
    assert_eq!(failures().await, failed);
    world.stop().await;
}

/// As llama-cpp-python does: it answers 200, and then nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_to_a_full_request_counts_as_too_long() {
    let empty = || ModelFailure::Empty("it said nothing".into());
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 32_000, ..Setup::default() };
    let world = World::open(folder.path(), setup, script(6, 12_000, empty)).await;
    let told = world.ask("remember PERIWINKLE").await;
    assert!(final_text(&told).contains("PERIWINKLE"), "{told:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_to_a_short_request_is_told() {
    let (world, told) = ask(|_| Err(ModelFailure::Empty("it said nothing".into()))).await;
    let Event::Error { message, .. } = &told else { panic!("{told:?}") };
    assert_eq!(message, "it said nothing");
    assert_eq!(world.model.requests.lock().unwrap().len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_holds_not_even_the_task_ends_the_run_after_a_few_tries() {
    let (world, told) = ask(|request: &Request| match results(request).len() {
        0 if size(request) < 8_000 && world_is_new(request) => calls(&[("a", "big", json!({"text": "x"}))]),
        _ => Err(refused(None)),
    })
    .await;
    let Event::Error { message, .. } = &told else { panic!("{told:?}") };
    assert!(message.contains("not even the task alone fits"), "{message}");
    let asked = world.model.requests.lock().unwrap().len();
    assert!(asked <= 12, "{asked} requests");
    // Another message is answered as soon as the model can.
    assert!(matches!(world.ask("again").await, Event::Error { .. }));
    world.stop().await;
}

/// Nothing was replaced by a summary yet.
fn world_is_new(request: &Request) -> bool {
    texts(request).iter().all(|text| !text.contains('['))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_ends_without_a_word_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |_| says(" ")).await;
    let told = world.ask("hello?").await;
    assert!(final_text(&told).contains("without an answer"), "{told:?}");
    world.stop().await;
}
