use std::time::Duration;

use gantry_process::{DEFAULT_KEEP_TAIL, TAIL_CHARS};
use serde_json::{Value, json};

use super::*;
use crate::process_end;
use crate::testing::Bench;

const SECRET: &str = "S3cr3tValueLongKWJXQPZHVB";
const MIB: usize = 1 << 20;

/// A bench that knows the secret and has it in the file `s`.
fn with_secret(bench: Bench) -> Bench {
    bench.secrets().set("KEY", SECRET, &["127.0.0.1".to_owned()], 1).unwrap();
    bench.write("s", SECRET);
    bench
}

/// A command that prints the secret with so many characters before and after it.
fn print(before: usize, after: usize) -> String {
    let fill = |count: usize, letter: char| format!("head -c {count} /dev/zero | tr '\\0' {letter}");
    format!("{}; cat s; {}", fill(before, 'z'), fill(after, 'y'))
}

/// Every way to split the secret at a cut, as how many of its characters are shown. Three for large texts.
fn splits(all: bool) -> Vec<usize> {
    if all { (0..=SECRET.len()).collect() } else { vec![1, SECRET.len() / 2, SECRET.len() - 1] }
}

/// Fails if an answer holds a part of the secret.
#[track_caller]
fn assert_no_part(answer: &Value, of: &str, shown: usize) {
    let text = answer.to_string();
    for start in 0..=SECRET.len() - 4 {
        let part = &SECRET[start..start + 4];
        assert!(!text.contains(part), "{of}: {part} is shown where the cut leaves {shown} characters");
    }
}

async fn until(bench: &Bench, id: &Value, done: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..600 {
        let input = json!({"action": "poll", "sessionId": id, "waitMs": 100});
        let answer = bench.call("local__Process", input).await.unwrap();
        if done(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the command did not get that far");
}

#[tokio::test]
async fn output_cut_at_its_start_shows_no_part_of_a_secret() {
    let bench = with_secret(Bench::new());
    for (limit, all) in [(TAIL_CHARS, true), (DEFAULT_KEEP_TAIL, false)] {
        for shown in splits(all) {
            let command = print(60, limit - shown);
            let answer = bench.call("local__Bash", json!({"command": command})).await.unwrap();
            assert_no_part(&answer, "Bash", shown);
            assert_eq!(answer["truncated"], limit == DEFAULT_KEEP_TAIL, "{shown}");
            let mut call = bench.operator_call();
            call.surface = gantry_tool::Surface::Mcp;
            let answer = bench.call_as(call, "local__Bash", json!({"command": command})).await.unwrap();
            assert_no_part(&answer, "Bash for a model", shown);
            assert!(
                answer.get("tail").is_none() || limit == DEFAULT_KEEP_TAIL,
                "the tail repeats the output"
            );
        }
    }
}

#[tokio::test]
async fn background_output_cut_at_its_start_shows_no_part_of_a_secret() {
    let bench = with_secret(Bench::surviving().await);
    let masker = Masker::new([SECRET.to_owned()]);
    let mut ends = bench.processes.exit_reports();
    for (limit, all) in [(TAIL_CHARS, true), (DEFAULT_KEEP_TAIL, false)] {
        for shown in splits(all) {
            let command = format!("{}; printf end; read -r line", print(60, limit - shown - 3));
            let input = json!({"command": command, "background": true});
            let id = bench.call("local__Bash", input).await.unwrap()["sessionId"].clone();
            let running =
                until(&bench, &id, |answer| answer["tail"].as_str().unwrap().ends_with("end")).await;
            assert_eq!(running["running"], true);
            assert_no_part(&running, "poll of a running command", shown);
            bench.call("local__Process", json!({"action": "close", "sessionId": id})).await.unwrap();
            let ended = until(&bench, &id, |answer| answer["running"] == false).await;
            assert_no_part(&ended, "poll of an ended command", shown);
            let report = tokio::time::timeout(Duration::from_secs(30), ends.next()).await.unwrap().unwrap();
            let end = process_end(&report, &masker);
            assert!(end.tail.ends_with("yend"), "{end:?}");
            assert_no_part(&serde_json::to_value(end).unwrap(), "exit report", shown);
        }
    }
}

#[tokio::test]
async fn output_cut_at_its_end_shows_no_part_of_a_secret() {
    let bench = with_secret(Bench::new());
    for (tool, limit, all) in
        [("tool::shell_exec", 100 * 1024, true), ("exec", 10 * MIB, false), ("bash", 10 * MIB, false)]
    {
        for shown in splits(all) {
            let file = [&"z".repeat(limit - shown), SECRET, "yyyy"].concat();
            bench.write("text", file);
            let input = match tool {
                "tool::shell_exec" => json!({"argv": ["cat", "text"]}),
                _ => json!({"command": "cat text; cat text >&2"}),
            };
            let answer = bench.call(tool, input).await.unwrap();
            assert!(answer.to_string().len() > limit - 100, "{tool}");
            assert_no_part(&answer, tool, shown);
        }
    }
}

#[tokio::test]
async fn long_line_cut_at_its_end_shows_no_part_of_a_secret() {
    let bench = with_secret(Bench::new());
    for (tool, limit, all) in
        [("tool::file_read", 100, true), ("read", 10 * MIB, false), ("local__Read", 10 * MIB, false)]
    {
        for shown in splits(all) {
            bench.write("text", [&"z".repeat(limit - shown), SECRET, "yyyy"].concat());
            let mut input = json!({"path": "text"});
            if tool == "tool::file_read" {
                input["maxBytes"] = json!(limit);
            }
            let answer = bench.call(tool, input).await.unwrap();
            assert!(answer["content"].as_str().unwrap().len() >= limit - SECRET.len(), "{tool}");
            assert_no_part(&answer, tool, shown);
        }
    }
}

#[tokio::test]
async fn log_and_list_show_no_part_of_a_secret() {
    let bench = with_secret(Bench::new());
    for shown in splits(false) {
        let command = format!("{}; sleep 100", print(MIB - shown, 10));
        let input = json!({"command": command, "background": true});
        let id = bench.call("local__Bash", input).await.unwrap()["sessionId"].clone();
        until(&bench, &id, |answer| answer["tail"].as_str().unwrap().ends_with("yyyyyyyyyy")).await;
        let log = bench.call("local__Process", json!({"action": "log", "sessionId": id})).await.unwrap();
        assert_eq!(log["cutLine"], 0);
        assert_no_part(&log, "log", shown);
        bench.call("local__Process", json!({"action": "kill", "sessionId": id})).await.unwrap();

        let start = "sleep 100 #";
        let command = [start, &"z".repeat(500 - start.len() - shown), SECRET, "yyyy"].concat();
        let input = json!({"command": command, "background": true});
        let id = bench.call("local__Bash", input).await.unwrap()["sessionId"].clone();
        let list = bench.call("local__Process", json!({"action": "list"})).await.unwrap();
        assert_no_part(&list, "list", shown);
        bench.call("local__Process", json!({"action": "kill", "sessionId": id})).await.unwrap();
    }
}

#[test]
fn cuts_move_only_past_whole_secrets() {
    let masker = Masker::new([SECRET.to_owned()]);
    let text = format!("before{SECRET}after");
    for end in 0..=text.len() {
        let inside = (7..6 + SECRET.len()).contains(&end);
        let cut = cut_end(&masker, text[..end].to_owned(), &text[end..]);
        assert_eq!(cut.len(), if inside { 6 } else { end });
        let shown = cut_start(&masker, &text[..end], &text[end..], usize::MAX);
        assert_eq!(shown.len(), if inside { 5 } else { text.len() - end });
        assert_eq!(
            shown,
            cut_start(&masker, "", &text, text.len() - end),
            "the limit cuts as the engine does"
        );
    }
    // A part alone moves no cut, so that nobody can guess a secret letter by letter.
    let part = &SECRET[5..];
    assert_eq!(cut_start(&masker, "zzz", part, usize::MAX), part);
    assert_eq!(cut_end(&masker, SECRET[..9].to_owned(), "zzz"), SECRET[..9]);
}
