//! Runs that are much longer than the model's window.

use gantry_agent::SessionEvent;
use serde_json::json;

use crate::world::{Setup, World, calls, final_text, message, says, settled, texts};

/// The model calls `big` `count` times, then answers with its first text.
fn script(
    count: usize,
) -> impl Fn(&gantry_model::Request) -> Result<gantry_model::Reply, gantry_agent::ModelFailure> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    move |request| {
        if request.tools.is_empty() {
            let transcript = &texts(request)[0];
            return says(&format!("some pages were read; {} characters", transcript.len()));
        }
        let number = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if number < count {
            return calls(&[("a", "big", json!({"text": number.to_string()}))]);
        }
        says(&texts(request)[0])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_big_results_fit_a_small_window_and_the_task_is_kept() {
    let count = if gantry_testkit::is_soak() { 300 } else { 40 };
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 32_000, ..Setup::default() };
    let world = World::open(folder.path(), setup, script(count)).await;
    let mut events = world.sessions.listen(&world.key());
    let message = world.send("read every page and remember the word PERIWINKLE").await;
    let mut compactions = 0;
    let end = loop {
        match events.recv().await {
            Ok(event) if event.settles(&message) => break (*event).clone(),
            Ok(event) => {
                compactions += usize::from(matches!(*event, SessionEvent::Compacted { by_model: true, .. }))
            }
            Err(_) => {}
        }
    };
    assert!(final_text(&end).contains("PERIWINKLE"), "{end:?}");
    assert!(compactions > 2, "{compactions}");
    println!("{count} calls, {compactions} compactions");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_big_results_are_bounded_together_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 32_000, ..Setup::default() };
    let world = World::open(folder.path(), setup, |request| {
        let given = crate::world::results(request);
        if given.is_empty() {
            let ids: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
            let all: Vec<_> = ids.iter().map(|id| (id.as_str(), "big", json!({ "text": id }))).collect();
            return calls(&all);
        }
        let kept = given.iter().filter(|text| text.contains("result_read with handle")).count();
        says(&format!("{kept} of {} in {}", given.len(), given.iter().map(String::len).sum::<usize>() / 1000))
    })
    .await;
    let end = world.ask("read them all").await;
    let text = final_text(&end);
    assert!(text.starts_with("12 of 12 in "), "{text}");
    let kilobytes: usize = text.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(kilobytes < 40, "a third of the window: {text}");
    assert!(!world.kinds().await.contains(&"compacted".to_owned()), "it fits without compaction");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_summary_does_not_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { window: 32_000, ..Setup::default() };
    let inner = script(20);
    let world = World::open(folder.path(), setup, move |request| {
        if request.tools.is_empty() {
            return Err(gantry_agent::ModelFailure::Failed("overloaded".into()));
        }
        inner(request)
    })
    .await;
    let end = world.ask("remember PERIWINKLE").await;
    assert!(final_text(&end).contains("PERIWINKLE"), "{end:?}");
    assert!(world.kinds().await.contains(&"compacted".to_owned()));
    world.stop().await;
}

/// Measures the overhead of a turn with one tool call. The bound is generous.
#[tokio::test(flavor = "multi_thread")]
async fn turn_with_one_call_has_little_overhead() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path(), Setup::default(), |request| {
        match request.messages.last().unwrap().content.last().unwrap() {
            gantry_model::Block::ToolResult { .. } => says("done"),
            _ => calls(&[("a", "look", json!({"text": "x"}))]),
        }
    })
    .await;
    let key = world.key();
    let mut events = world.sessions.listen(&key);
    let mut times = Vec::new();
    for number in 0..50 {
        let began = std::time::Instant::now();
        let sent = world
            .sessions
            .send(&key, gantry_agent::NewMessage { id: Some(number.to_string()), ..message("go") })
            .await;
        sent.unwrap();
        settled(&mut events, &number.to_string()).await;
        times.push(began.elapsed());
    }
    times.sort();
    println!("a turn with one call: {:?} at the median", times[times.len() / 2]);
    assert!(times[times.len() / 2].as_millis() < 200, "{times:?}");
    world.stop().await;
}
