//! Web settings through the command line: search providers, and the network policy of agents.

use gantry_testkit::World;
use serde_json::json;

fn has_research(world: &World, variables: &[(&str, &str)]) -> bool {
    let list = world.run_with(&["tools", "--json"], variables).json();
    list.as_array().unwrap().iter().any(|tool| tool["name"] == "web_research")
}

fn doctor_line(world: &World, name: &str, variables: &[(&str, &str)]) -> (String, String) {
    let checks = world.run_with(&["doctor", "--json"], variables).json();
    let found = checks["checks"].as_array().unwrap().iter().find(|check| check["check"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {checks}"));
    (found["health"].as_str().unwrap().to_owned(), found["text"].as_str().unwrap().to_owned())
}

#[test]
fn doctor_names_search_providers_from_environment_and_config() {
    let world = World::new();
    assert!(!has_research(&world, &[]));
    let (health, text) = doctor_line(&world, "web search", &[]);
    assert!(health == "good" && text.starts_with("duckduckgo (needs no key)"), "{text}");
    let keys = [("TAVILY_API_KEY", "tvly-from-the-environment"), ("BRAVE_API_KEY", "")];
    assert!(has_research(&world, &keys));
    let (_, text) = doctor_line(&world, "web search", &keys);
    assert_eq!(text, "tavily, then duckduckgo; web_research is available");
    world.configure("search_provider = \"brave\"\nsearch_api_key = \"brave-from-the-file\"\n[web.search]\nsearxngUrl = \"http://127.0.0.1:1\"\n");
    assert!(has_research(&world, &[]));
    let (_, text) = doctor_line(&world, "web search", &keys);
    assert_eq!(text, "brave, then tavily, then searxng, then duckduckgo; web_research is available");
}

#[test]
fn provider_keys_are_never_printed() {
    let world = World::new();
    world.configure("[web.search]\ntavilyKey = \"tvly-from-the-file\"\nbraveKey = \"brave-from-the-file\"\norder = [\"tavily\"]\n");
    let shown = world.run(&["config", "show"]);
    assert_eq!(shown.json()["web"]["search"]["tavilyKey"], "[masked]");
    let echoed =
        world.run(&["call", "bash", r#"{"command": "echo tvly-from-the-file brave-from-the-file"}"#]);
    assert_eq!(echoed.stdout, "[masked] [masked]\n");
    for text in [shown.stdout, world.run(&["doctor"]).stdout, world.run(&["call", "gsv__ConfigGet"]).stdout] {
        assert!(!text.contains("from-the-file"), "{text}");
    }
}

#[test]
fn unknown_network_policy_denies_and_warns() {
    let world = World::new();
    world.configure(
        "[agents.typo]\nautonomy = \"autonomous\"\nisolation = { networkPolicy = \"alow-all\" }\n\
         [agents.none]\nautonomy = \"autonomous\"\nisolation = { networkPolicy = \"deny-all\" }\n\
         [agents.list]\nautonomy = \"autonomous\"\nisolation = { networkPolicy = \"allow-list\", allowedHosts = [\"*.example.org\"] }\n\
         [agents.open]\nautonomy = \"autonomous\"\n[web]\nallowedHosts = [\"127.0.0.1\"]\n",
    );
    let reported =
        "agents.typo.isolation.networkPolicy is \"alow-all\", which is not allow-all, allow-list or deny-all";
    let socket = r#"{"command": "python3 -c 'import socket; socket.socket()'"}"#;
    for (agent, code) in [("typo", 1), ("none", 1), ("list", 0), ("open", 0)] {
        for tool in ["bash", "exec", "Bash"] {
            let ran = world.run(&["call", tool, socket, "--agent", agent]);
            let denied = ran.stdout.contains("PermissionError");
            assert_eq!(denied, code == 1, "{agent} {tool}: {} {}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains(reported), "{}", ran.stderr);
        }
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let endpoint = format!("web.search.searxngUrl={url}");
    let search = json!({"query": "q", "provider": "searxng"}).to_string();
    for agent in ["typo", "none", "list"] {
        let ran = world.run(&["call", "tool::web_search", &search, "--agent", agent, "--set", &endpoint]);
        assert_eq!(ran.code, 3, "{agent}: {} {}", ran.stdout, ran.stderr);
        assert!(listener.accept().is_err(), "{agent}: nobody connects");
    }
    let (health, text) = doctor_line(&world, "network", &[]);
    assert!(health == "warning" && text.starts_with(reported), "{text}");
    let set = world.run(&["config", "set", "agents.open.isolation.networkPolicy", "open"]);
    assert!(
        set.code == 2 && set.stderr.contains("is not allow-all, allow-list or deny-all"),
        "{}",
        set.stderr
    );
}
