//! An agent's network policy applies to every tool that can reach beyond the machine. Web tools
//! reach only the listed hosts. Commands have no sockets under any policy but `allow-all`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_net::{HostPattern, NetworkPolicy};
use gantry_tool::Tool;
use gantry_toolsets::testing::Bench;
use gantry_toolsets::testing::web_server::{TestResponse, WebServer, client_to_loopback};
use gantry_toolsets::{Isolation, IsolationLevel, MachineParts, SearchEndpoints, SearchKey, SearchSettings};
use serde_json::{Value, json};

/// Returns calls that make a tool connect to the server. Every new open-world tool must be added to
/// this list.
fn reaching(tool: &str, server: &WebServer) -> Option<Vec<Value>> {
    let (url, port) = (server.url(), server.port());
    let connect = format!(
        "import socket; socket.create_connection(('127.0.0.1', {port})).close(); print('conn' + 'ected')"
    );
    let command = format!("python3 -c \"{connect}\"");
    Some(match tool {
        "local__Bash" => vec![json!({"command": command}), json!({"command": command, "yieldMs": 20_000})],
        "exec" => vec![json!({"command": command, "source_rc": false})],
        "bash" => vec![json!({"command": command})],
        "tool::shell_exec" => vec![json!({"argv": ["python3", "-c", connect]})],
        "tool::web_search" => vec![json!({"query": "q"}), json!({"query": "q", "provider": "brave"})],
        "web_research" => {
            vec![json!({"action": "search", "query": "q"}), json!({"action": "read", "url": url})]
        }
        "tool::web_fetch" => vec![json!({"url": url})],
        "http_request" => vec![json!({"url": url, "method": "GET"})],
        // Sends input to a command that is confined by the call that started it.
        "local__Process" => Vec::new(),
        _ => return None,
    })
}

fn open_world(bench: &Bench) -> Vec<Arc<Tool>> {
    bench.gate.registry().entries().into_iter().filter(|tool| tool.is_open_world()).collect()
}

/// Configures a machine whose search providers are all the server, with one agent per policy.
fn agents(parts: &mut MachineParts, server: &WebServer) {
    let url = || server.url();
    parts.settings.web.client = client_to_loopback();
    parts.settings.web.search = SearchSettings {
        tavily_key: SearchKey::new("a-secret-key"),
        brave_key: SearchKey::new("a-secret-key"),
        searxng_url: Some(url()),
        endpoints: SearchEndpoints { tavily: url(), brave: url(), duckduckgo: url() },
        ..SearchSettings::default()
    };
    let list = |hosts: &[&str]| {
        NetworkPolicy::AllowList(hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect())
    };
    let isolation = |network| Isolation { network, ..Isolation::default() };
    let gap = Isolation { level: IsolationLevel::AirGapped, ..Isolation::default() };
    parts.settings.agent_isolation = BTreeMap::from([
        ("open".into(), isolation(NetworkPolicy::AllowAll)),
        ("listed".into(), isolation(list(&["127.0.0.1"]))),
        ("elsewhere".into(), isolation(list(&["api.example.com", "*.example.org"]))),
        ("empty".into(), isolation(list(&[]))),
        ("denied".into(), isolation(NetworkPolicy::DenyAll)),
        ("gap".into(), gap),
    ]);
}

async fn server() -> WebServer {
    WebServer::start(|request| match request.path() {
        "/html/" | "/" => {
            TestResponse::html("<div class=result><a class=result__a href=https://a.example>A</a></div>")
        }
        _ => TestResponse::json(200, &json!({"type": "search", "results": [], "web": {"results": []}})),
    })
}

async fn connections_as(
    bench: &Bench,
    server: &WebServer,
    agent: &str,
    tool: &str,
    input: &Value,
) -> (usize, Result<Value, Value>) {
    let before = server.connections();
    let answer = bench.call_as(bench.agent_call(agent), tool, input.clone()).await;
    // The server may count a connection only after its client is gone.
    let until = Instant::now() + Duration::from_secs(5);
    let says_so = format!("{answer:?}").contains("connected");
    while says_so && server.connections() == before && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (server.connections() - before, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_open_world_tool_obeys_the_network_policy() {
    let server = server().await;
    let bench = Bench::with(|parts| agents(parts, &server));
    for tool in open_world(&bench) {
        let name = tool.name();
        let inputs = reaching(name, &server)
            .unwrap_or_else(|| panic!("{name} is an open-world tool; add a call for it in network.rs"));
        for input in &inputs {
            let (made, answer) = connections_as(&bench, &server, "open", name, input).await;
            assert!(made > 0, "{name} {input} reaches the server when it may: {answer:?}");
            for agent in ["elsewhere", "empty", "denied", "gap"] {
                let (made, answer) = connections_as(&bench, &server, agent, name, input).await;
                assert_eq!(made, 0, "{name} {input} as {agent}: {answer:?}");
                let output = format!("{answer:?}");
                assert!(!output.contains("connected"), "{name} {input} as {agent}: {output}");
                let is_web = input.get("command").or(input.get("argv")).is_none();
                assert!(!is_web || output.contains("denied"), "{name} {input} as {agent}: {output}");
            }
            // A list can name hosts for web tools. Sockets cannot be limited by name, so commands
            // have none.
            let is_web = input.get("command").or(input.get("argv")).is_none();
            let (made, answer) = connections_as(&bench, &server, "listed", name, input).await;
            assert_eq!(made > 0, is_web, "{name} {input} as listed: {answer:?}");
        }
    }
}

/// A call that acts for two agents reaches only the hosts that both may reach.
#[tokio::test(flavor = "multi_thread")]
async fn call_for_two_agents_reaches_only_what_both_may() {
    let server = server().await;
    let bench = Bench::with(|parts| agents(parts, &server));
    let (command, page) = (reaching("local__Bash", &server).unwrap(), json!({"url": server.url()}));
    for (agent, policy_agents, reaches) in [
        ("open", "open", (true, true)),
        ("open", "listed", (false, true)),
        ("listed", "open", (false, true)),
        ("listed", "elsewhere", (false, false)),
        ("open", "denied", (false, false)),
        ("gap", "open", (false, false)),
        ("open", "gap", (false, false)),
    ] {
        let reached = async |tool: &str, input: &Value| {
            let before = server.connections();
            let call =
                gantry_tool::Call { policy_agents: vec![policy_agents.into()], ..bench.agent_call(agent) };
            let _ = bench.call_as(call, tool, input.clone()).await;
            server.connections() > before
        };
        let made = (reached("local__Bash", &command[0]).await, reached("tool::web_fetch", &page).await);
        assert_eq!(made, reaches, "{agent} also as {policy_agents}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_cannot_leave_the_allow_list() {
    let other = server().await;
    let target = other.url().replace("127.0.0.1", "localhost");
    let server = WebServer::start(move |_| TestResponse {
        status: 302,
        headers: vec![("location", target.clone())],
        body: Vec::new(),
    });
    let bench = Bench::with(|parts| {
        agents(parts, &server);
        // The operator allows both names for everyone; the agent's own list has one.
        let allowed_hosts = ["127.0.0.1", "localhost"].map(|host| HostPattern::parse(host).unwrap()).to_vec();
        parts.settings.web.client =
            gantry_net::Client::new(gantry_net::ClientOptions { allowed_hosts, ..Default::default() });
    });
    let input = json!({"action": "read", "url": server.url()});
    let (_, answer) = connections_as(&bench, &server, "listed", "web_research", &input).await;
    assert!(format!("{answer:?}").contains("not on the list of hosts this agent may reach"), "{answer:?}");
    assert_eq!((server.connections(), other.connections()), (1, 0));
    let (_, answer) = connections_as(&bench, &server, "open", "web_research", &input).await;
    assert!(answer.is_ok() && other.connections() == 1, "{answer:?}");
}
