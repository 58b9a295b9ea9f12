use std::time::{Duration, Instant};

use gantry_tool::{Call, Principal, Surface};
use serde_json::{Value, json};

use crate::testing::Bench;
use crate::{Isolation, IsolationLevel, MachineParts};
use gantry_net::NetworkPolicy;

async fn check(bench: &Bench, command: &str, expected: Result<&str, &str>) {
    let actual = bench.call("bash", json!({"command": command})).await;
    assert_eq!(actual, expected.map(Value::from).map_err(Value::from), "{command}");
}

#[tokio::test]
async fn success_returns_standard_output_only() {
    for bench in Bench::without_and_with_workers() {
        check(&bench, "printf 'a\\n\\nb'", Ok("a\n\nb")).await;
        check(&bench, "echo out; echo err >&2", Ok("out\n")).await;
        check(&bench, "true", Ok("(no output)")).await;
        check(&bench, "printf err >&2", Ok("(no output; 3 bytes on standard error; add 2>&1 to see them)"))
            .await;
        check(&bench, "cat | wc -c", Ok("0\n")).await;
        check(
            &bench,
            "[[ abc == a* ]] && echo bash; shopt -q login_shell || echo plain",
            Ok("bash\nplain\n"),
        )
        .await;
        check(&bench, "pwd", Ok(&format!("{}\n", bench.workspace().display()))).await;
    }
}

#[tokio::test]
async fn failure_returns_both_streams_and_the_exit_status() {
    for bench in Bench::without_and_with_workers() {
        check(&bench, "exit 3", Err("exit code 3")).await;
        check(&bench, "echo out; echo err >&2; exit 1", Err("out\nerr\nexit code 1")).await;
        check(&bench, "printf out; printf err >&2; exit 255", Err("out\nerr\nexit code 255")).await;
        check(&bench, "echo out; kill -TERM $$", Err("out\nkilled by SIGTERM")).await;
        check(&bench, "kill -KILL $$", Err("killed by SIGKILL")).await;
        let error = bench.call("bash", json!({"command": "no-such-program-here"})).await.unwrap_err();
        assert!(error.as_str().unwrap().ends_with("not found\nexit code 127"), "{error}");
    }
}

#[tokio::test]
async fn timeout_keeps_partial_output_and_kills_all_processes() {
    for bench in Bench::without_and_with_workers() {
        let started = Instant::now();
        let input = json!({"command": "echo before; sleep 600 & sleep 600", "timeout_ms": 300});
        assert_eq!(bench.call("bash", input).await, Err(json!("before\ntimed out after 300 ms")));
        assert!(started.elapsed() < Duration::from_secs(10));
        let input = json!({"command": "sleep 0.4; echo late", "timeout_ms": 0});
        assert_eq!(bench.call("bash", input).await, Ok(json!("late\n")));
    }
}

#[tokio::test]
async fn schema_has_the_default_timeout() {
    for bench in Bench::without_and_with_workers() {
        let tool = bench.gate.registry().find("bash").unwrap();
        assert_eq!(tool.input_schema()["properties"]["timeout_ms"]["default"], 120_000);
        assert!(tool.is_open_world() && tool.is_destructive() && tool.output_schema().is_none());
        for input in [json!({}), json!({"command": ""}), json!({"command": "x", "timeout_ms": -1})] {
            let error = bench.call("bash", input).await.unwrap_err();
            assert_eq!(error["error"]["code"], "invalid_input");
        }
        let error = bench.call("bash", json!({"command": "echo \0"})).await.unwrap_err();
        assert_eq!(error, "invalid command: an argument contains a NUL byte");
    }
}

#[tokio::test]
async fn output_over_ten_mebibytes_is_truncated_with_a_note() {
    for bench in Bench::without_and_with_workers() {
        let exact =
            bench.call("bash", json!({"command": "head -c 10485760 /dev/zero | tr '\\0' x"})).await.unwrap();
        assert_eq!(exact.as_str().unwrap().len(), 10_485_760);
        let cut =
            bench.call("bash", json!({"command": "head -c 10485761 /dev/zero | tr '\\0' x"})).await.unwrap();
        let (kept, note) = cut.as_str().unwrap().split_once('\n').unwrap();
        assert_eq!(kept.len(), 10_485_760);
        assert_eq!(note, "(standard output was truncated to the first 10485760 of 10485761 bytes)");
    }
}

#[tokio::test]
async fn cancelled_call_kills_its_command() {
    for bench in Bench::without_and_with_workers() {
        let call = bench.operator_call();
        let cancel = call.cancel.clone();
        let marker = bench.workspace().join("survived");
        let input = json!({"command": format!("sleep 1.5; touch {}", marker.display())});
        let stop = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            cancel.cancel();
        };
        let (answer, ()) = tokio::join!(bench.call_as(call, "bash", input), stop);
        assert_eq!(answer.unwrap_err()["error"]["code"], "cancelled");
        tokio::time::sleep(Duration::from_millis(1700)).await;
        assert!(!marker.exists());
    }
}

fn with_variables(level: IsolationLevel, network: NetworkPolicy) -> impl Fn(&mut MachineParts) {
    move |parts| {
        let known = ["PATH", "HOME"].map(|name| (name.into(), std::env::var_os(name).unwrap_or_default()));
        let more = [
            ("TMPDIR", "/tmp"),
            ("LC_ALL", "C.UTF-8"),
            ("GIT_COMMITTER_EMAIL", "me@example.org"),
            ("GIT_ASKPASS", "/bin/evil"),
            ("GITHUB_TOKEN", "t"),
            ("NODE_OPTIONS", "--require evil"),
            ("NODE_AUTH_TOKEN", "t"),
            ("GANTRY_TOKEN", "t"),
            ("ANTHROPIC_API_KEY", "k"),
            ("PATHX", "prefix"),
        ];
        parts.variables =
            known.into_iter().chain(more.map(|(name, value)| (name.into(), value.into()))).collect();
        parts.settings.isolation = Isolation {
            level,
            variables: vec![("INJECTED_TOKEN".into(), "yes".into())],
            network: network.clone(),
        };
    }
}

fn benches(level: IsolationLevel, network: NetworkPolicy) -> [Bench; 2] {
    Bench::changed_without_and_with_workers(with_variables(level, network))
}

/// The names of the variables that a command gets, without those that every bash sets.
async fn names(bench: &Bench) -> Vec<String> {
    let answer = bench.call("bash", json!({"command": "env | cut -d= -f1 | sort"})).await.unwrap();
    let made = ["PWD", "OLDPWD", "SHLVL", "_"];
    answer.as_str().unwrap().lines().filter(|name| !made.contains(name)).map(str::to_owned).collect()
}

#[tokio::test]
async fn each_isolation_level_passes_exactly_its_variables() {
    let allowed = ["GIT_COMMITTER_EMAIL", "HOME", "LC_ALL", "PATH", "TMPDIR"];
    for level in [IsolationLevel::Shared, IsolationLevel::Scoped] {
        for bench in benches(level, NetworkPolicy::AllowAll) {
            assert_eq!(names(&bench).await, allowed);
        }
    }
    for bench in benches(IsolationLevel::Sandboxed, NetworkPolicy::AllowAll) {
        let expected = ["GIT_COMMITTER_EMAIL", "HOME", "INJECTED_TOKEN", "LC_ALL", "PATH", "TMPDIR"];
        assert_eq!(names(&bench).await, expected);
    }
    for bench in benches(IsolationLevel::AirGapped, NetworkPolicy::AllowAll) {
        assert_eq!(names(&bench).await, ["HOME", "PATH", "TMPDIR"]);
    }
}

#[tokio::test]
async fn isolation_of_an_agent_replaces_the_default() {
    let bench = Bench::with(|parts| {
        let own = Isolation { level: IsolationLevel::AirGapped, ..Isolation::default() };
        parts.settings.agent_isolation.insert("hermit".into(), own);
        parts.variables.push(("LC_MARK".into(), "seen".into()));
    });
    let input = json!({"command": "echo \"[$LC_MARK]\""});
    assert_eq!(bench.call_as(bench.agent_call("a"), "bash", input.clone()).await, Ok(json!("[seen]\n")));
    assert_eq!(bench.call_as(bench.agent_call("hermit"), "bash", input).await, Ok(json!("[]\n")));
}

#[tokio::test]
async fn command_without_network_fails_with_a_note() {
    let command = json!({"command": "exec 3<>/dev/tcp/127.0.0.1/9"});
    for (level, network) in [
        (IsolationLevel::AirGapped, NetworkPolicy::AllowAll),
        (IsolationLevel::Shared, NetworkPolicy::DenyAll),
    ] {
        for bench in benches(level, network.clone()) {
            let error = bench.call("bash", command.clone()).await.unwrap_err();
            let note = "(the command ran without network access)\nexit code 1";
            assert!(error.as_str().unwrap().ends_with(note), "{error}");
            assert!(error.as_str().unwrap().contains("not permitted"), "{error}");
        }
    }
    let open = Bench::new().call("bash", command).await.unwrap_err();
    assert!(open.as_str().unwrap().contains("refused"), "{open}");
}

#[tokio::test]
async fn only_shells_of_the_operator_reach_the_data_directory() {
    for bench in Bench::without_and_with_workers() {
        let token = bench.data().join("token");
        std::fs::write(&token, "secret").unwrap();
        let input = json!({"command": format!("cat {}; echo x > {}", token.display(), token.display())});
        let mcp = Call::new(Principal::Mcp { client: "c".into() }, Surface::Cli, bench.workspace());
        for call in [bench.agent_call("a"), mcp] {
            let error = bench.call_as(call, "bash", input.clone()).await.unwrap_err();
            let text = error.as_str().unwrap();
            assert!(text.contains("Permission denied") && !text.contains("secret"), "{text}");
        }
        assert_eq!(std::fs::read_to_string(&token).unwrap(), "secret");
        let mut inside = bench.operator_call();
        inside.workspace = bench.data();
        let error = bench.call_as(inside, "bash", json!({"command": "true"})).await.unwrap_err();
        assert_eq!(error["error"]["code"], "denied");
    }
}
