//! What each tool says in a question about its call.

use std::sync::{Arc, Mutex};

use gantry_protocol::{AskedAction, ChangeKind};
use gantry_tool::{Approval, Approver, Autonomy, Call, Consent, Masker, Principal, QuestionText};
use serde_json::{Value, json};

use crate::testing::Bench;

/// Returns how a call of a supervised agent is described.
async fn asked(bench: &Bench, tool: &str, input: Value) -> AskedAction {
    let mut call = bench.agent_call("a");
    call.autonomy = Autonomy::Supervised;
    asked_as(bench, call, tool, input).await
}

async fn asked_as(bench: &Bench, mut call: Call, tool: &str, input: Value) -> AskedAction {
    let seen: Arc<Mutex<Option<Approval>>> = Arc::default();
    let own = seen.clone();
    call.approver = Some(Approver::new(move |approval| {
        *own.lock().unwrap() = Some(approval);
        std::future::ready(Consent::Denied("no".into()))
    }));
    let answer = bench.call_as(call, tool, input).await;
    let approval = seen.lock().unwrap().take();
    approval.unwrap_or_else(|| panic!("{tool} was not asked about: {answer:?}")).action
}

fn text(action: &AskedAction) -> String {
    QuestionText::new(action).whole()
}

#[tokio::test]
async fn commands_show_the_line_and_what_changes_its_meaning() {
    let bench = Bench::new();
    let cases = [
        ("Bash", json!({"command": "cargo test"}), "Run on local?  $ cargo test"),
        ("Bash", json!({"command": "ls", "workdir": "sub"}), "Run on local in sub?  $ ls"),
        ("bash", json!({"command": "a\nb"}), "Run on local?\n    $ a\n    b"),
        ("exec", json!({"command": "ls", "cwd": "sub"}), "Run on local in sub?  $ ls"),
        (
            "exec",
            json!({"command": "ls -l", "shell": "/tmp/sh", "env": {"PATH": "/x y"}}),
            "Run on local?  $ PATH='/x y' /tmp/sh -c 'ls -l'",
        ),
        (
            "tool::shell_exec",
            json!({"argv": ["git", "commit", "-m", "it's"]}),
            r"Run on local?  $ git commit -m 'it'\''s'",
        ),
    ];
    std::fs::create_dir(bench.workspace().join("sub")).unwrap();
    for (tool, input, expected) in cases {
        let action = asked(&bench, tool, input).await;
        assert_eq!(text(&action), expected, "{tool}");
        assert!(matches!(action, AskedAction::Command { sandboxed: false, .. }), "the bench is not isolated");
    }
}

#[tokio::test]
async fn writes_show_a_diff_against_the_present_file() {
    let bench = Bench::new();
    let path = bench.write("f.txt", "one\ntwo\nthree\n").display().to_string();
    let changed = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
    let patch = format!("--- a/f.txt\n+++ b/f.txt\n{changed}");
    for (tool, input) in [
        ("Write", json!({"path": "f.txt", "content": "one\n2\nthree\n"})),
        ("tool::file_write", json!({"path": "f.txt", "content": "one\n2\nthree\n"})),
        ("write_file", json!({"path": path, "content": "one\n2\nthree\n"})),
        ("write", json!({"path": "f.txt", "data": "one\n2\nthree\n"})),
        ("write", json!({"path": "f.txt", "data": "2", "start_line": 2, "end_line": 2})),
        ("Edit", json!({"path": "f.txt", "oldString": "two", "newString": "2"})),
        ("tool::apply_patch", json!({"path": "f.txt", "patch": patch})),
    ] {
        let action = asked(&bench, tool, input).await;
        let AskedAction::FileChange { machine, paths, change, text, .. } = &action else {
            panic!("{tool}: {action:?}")
        };
        assert_eq!((machine.as_str(), paths.as_slice()), ("local", &[path.clone()][..]), "{tool}");
        assert_eq!((*change, text.as_str()), (ChangeKind::Change, changed), "{tool}");
    }
    assert_eq!(bench.read("f.txt"), "one\ntwo\nthree\n", "nothing has changed");
    let new = asked(&bench, "Write", json!({"path": "new.txt", "content": "x\n"})).await;
    let expected = format!("Create {}/new.txt?\n    x", bench.workspace().display());
    assert_eq!(text(&new), expected);
    // A link leads elsewhere, and the question names that place.
    std::os::unix::fs::symlink("/nowhere/else", bench.workspace().join("link")).unwrap();
    let linked = asked(&bench, "Write", json!({"path": "link", "content": "x"})).await;
    assert!(text(&linked).contains("/nowhere/else?"), "{linked:?}");
}

#[tokio::test]
async fn batch_shows_its_dry_run() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let input = json!({"pattern": "*.txt", "directory": ".", "operation": "transform", "find": "one", "replace": "two"});
    let action = asked(&bench, "batch_files", input).await;
    let shown = text(&action);
    assert!(shown.contains("    -one") && shown.contains("    +two") && shown.contains("a.txt"), "{shown}");
    assert_eq!(bench.read("a.txt"), "one\n");
}

#[tokio::test]
async fn secrets_and_sensitive_files_are_not_shown() {
    let masker = Masker::new(["hunter2\nhunter3-hunter4".to_owned()]);
    let bench = Bench::with(|parts| parts.settings.web.masker = masker);
    bench.write("f.txt", "a\nhunter2\nhunter3-hunter4\nb\n");
    let action = asked(&bench, "Write", json!({"path": "f.txt", "content": "a\n"})).await;
    let shown = text(&action);
    assert!(!shown.contains("hunter") && shown.contains("-[masked]"), "{shown}");
    std::fs::create_dir(bench.workspace().join(".ssh")).unwrap();
    bench.write(".ssh/config", "Host secret\n");
    let action = asked(&bench, "Write", json!({"path": ".ssh/config", "content": "Host new\n"})).await;
    let shown = text(&action);
    assert!(
        shown.contains("Write ") && shown.contains("Host new") && !shown.contains("Host secret"),
        "{shown}"
    );
    let edited = json!({"path": ".ssh/config", "oldString": "guess", "newString": "new"});
    let shown = text(&asked(&bench, "Edit", edited).await);
    assert!(shown.contains("    -guess") && !shown.contains("Host secret"), "{shown}");
}

/// Another program could otherwise read a file through the question about its call.
#[tokio::test]
async fn questions_of_other_clients_show_no_present_content() {
    let bench = Bench::new();
    std::fs::create_dir(bench.workspace().join(".ssh")).unwrap();
    bench.write(".ssh/config", "Host secret\n");
    let mut call = bench.agent_call("a");
    call.principal = Principal::Mcp { client: "editor".into() };
    let input = json!({"path": ".ssh/config", "content": "Host new\n"});
    let action = asked_as(&bench, call, "Write", input).await;
    assert!(text(&action).contains("Host new") && !text(&action).contains("secret"), "{action:?}");
}

#[tokio::test]
async fn reads_requests_and_messages_name_their_target() {
    let bench = Bench::new();
    std::fs::create_dir(bench.workspace().join(".ssh")).unwrap();
    let key = bench.write(".ssh/id_rsa", "x").display().to_string();
    for tool in ["Read", "read", "read_file", "tool::file_read"] {
        let path = if tool == "read_file" { key.as_str() } else { ".ssh/id_rsa" };
        let action = asked(&bench, tool, json!({"path": path})).await;
        assert_eq!(text(&action), format!("Read {key}?"), "{tool}");
    }
    let url = "https://Example.com:8443/x?q=1";
    let fetched = asked(&bench, "tool::web_fetch", json!({"url": url})).await;
    assert_eq!(text(&fetched), format!("Fetch {url}?"));
    assert!(matches!(fetched, AskedAction::WebRequest { host, .. } if host == "example.com:8443"));
    let read = asked(&bench, "web_research", json!({"action": "read", "url": "https://example.com/x"})).await;
    assert_eq!(text(&read), "Fetch https://example.com/x?");
    let searched = asked(&bench, "web_research", json!({"action": "search", "query": "x"})).await;
    assert!(matches!(searched, AskedAction::Other { .. }), "{searched:?}");
    let posted = json!({"url": "https://example.com/x", "method": "post", "json": {"a": 1}});
    assert_eq!(
        text(&asked(&bench, "http_request", posted).await),
        "POST https://example.com/x?\n    {\"a\":1}"
    );
    let sent = json!({"action": "submit", "sessionId": "1", "data": "rm -rf x"});
    assert_eq!(
        text(&asked(&bench, "Process", sent).await),
        "Send a message to the running command 1 on local?\n    rm -rf x"
    );
}

#[tokio::test]
async fn stored_files_are_compared_too() {
    let bench = Bench::new();
    let path = "notes.md";
    let write = |content: &str| json!({"path": path, "content": content});
    let new = asked(&bench, "gsv__WriteFile", write("one\n")).await;
    assert_eq!(text(&new), "Create gsv:notes.md?\n    one");
    let mut call = bench.agent_call("a");
    call.approver = Some(Approver::new(|_| std::future::ready(Consent::Allowed)));
    bench.call_as(call, "gsv__WriteFile", write("one\n")).await.unwrap();
    let changed = "Change gsv:notes.md?\n    @@ -1 +1 @@\n    -one\n    +two";
    assert_eq!(text(&asked(&bench, "gsv__WriteFile", write("two\n")).await), changed);
    let edit = json!({"path": path, "oldString": "one", "newString": "two"});
    assert_eq!(text(&asked(&bench, "gsv__EditFile", edit).await), changed);
    assert_eq!(text(&asked(&bench, "gsv__DeleteFile", json!({"path": path})).await), "Delete gsv:notes.md?");
    let copy = json!({"source": "gsv:notes.md", "destination": "laptop:/tmp/x"});
    assert_eq!(
        text(&asked(&bench, "gsv__Transfer", copy).await),
        "Copy to laptop:/tmp/x on laptop?\n    from gsv:notes.md"
    );
}
