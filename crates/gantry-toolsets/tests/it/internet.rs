//! Every web tool in a simulated internet where closed addresses answer and count connections. No
//! tool connects to a closed address, whatever the spelling of the URL, the DNS name behind it or
//! the redirect before it.

use gantry_net::testing::forms::{CLOSED, CLOSED_V6, hostile};
use gantry_net::testing::names::Name;
use gantry_net::testing::{Internet, PUBLIC, address, on_a_private_internet};
use gantry_net::{Client, ClientOptions, Trust};
use gantry_toolsets::testing::Bench;
use serde_json::{Value, json};

/// Returns calls that make each tool fetch the URL.
fn asking(url: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("tool::web_fetch", json!({"url": url})),
        ("web_research", json!({"action": "read", "url": url})),
        ("http_request", json!({"url": url, "method": "GET"})),
        (
            "http_request",
            json!({"url": url, "method": "POST", "json": {"a": 1}, "headers": {"x-trace": "1"}}),
        ),
    ]
}

fn bench(internet: &Internet) -> Bench {
    let trust = Trust::And { name: "authority".into(), pem: internet.authority.clone() };
    Bench::with(|parts| {
        parts.settings.web.client = Client::new(ClientOptions { trust, ..ClientOptions::default() });
    })
}

#[test]
fn no_tool_reaches_a_closed_address_in_any_spelling() {
    let test = "internet::no_tool_reaches_a_closed_address_in_any_spelling";
    on_a_private_internet(test, |internet| async move {
        let bench = bench(&internet);
        let mut forms = hostile();
        for (position, closed) in CLOSED.iter().chain(&CLOSED_V6).enumerate() {
            let host = format!("inside{position}.example.com");
            internet.names.set(&host, Name::Always(vec![address(closed)]));
            forms.push(format!("http://{host}/"));
        }
        assert!(forms.len() >= 400, "{}", forms.len());
        for form in &forms {
            for (tool, input) in asking(form) {
                let answer = bench.call(tool, input).await;
                assert!(answer.is_err(), "{tool} {form}: {answer:?}");
                internet.assert_untouched(&format!("{tool} {form}"));
            }
        }
        println!("{} forms refused by every tool", forms.len());
    });
}

#[test]
fn redirects_and_dns_changes_do_not_reach_closed_addresses() {
    let test = "internet::redirects_and_dns_changes_do_not_reach_closed_addresses";
    on_a_private_internet(test, |internet| async move {
        let bench = bench(&internet);
        internet.public_name("first.example.com", PUBLIC[0]);
        internet.public_name("second.example.com", PUBLIC[1]);
        internet.names.set("inside.example.com", Name::Always(vec![address("10.0.0.1")]));
        internet
            .names
            .set("flip.example.com", Name::Flip(vec![address(PUBLIC[0])], vec![address("127.0.0.1")]));
        let targets = [
            "http://127.0.0.1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[fd00:ec2::254]/",
            "http://inside.example.com/",
            "//2130706433/",
        ];
        for status in [301, 302, 303, 307, 308] {
            for target in targets {
                let url = format!("http://first.example.com/hop/{status}/2/second.example.com?{target}");
                for (tool, input) in asking(&url) {
                    let answer = bench.call(tool, input).await;
                    assert!(answer.is_err(), "{tool} {url}: {answer:?}");
                    internet.assert_untouched(&format!("{tool} {url}"));
                }
            }
        }
        for (tool, input) in asking("http://flip.example.com/") {
            let _ = bench.call(tool, input).await;
            internet.assert_untouched(tool);
        }
    });
}

#[test]
fn every_tool_reaches_the_open_internet() {
    let test = "internet::every_tool_reaches_the_open_internet";
    on_a_private_internet(test, |internet| async move {
        let bench = bench(&internet);
        internet.public_name("www.example.com", PUBLIC[0]);
        for url in ["http://www.example.com/", "https://www.example.com/a?b=c", "http://93.184.216.34:8080/"]
        {
            for (tool, input) in asking(url) {
                let answer = bench.call(tool, input).await;
                let output = format!("{answer:?}");
                assert!(answer.is_ok() && output.contains("public"), "{tool} {url}: {output}");
            }
        }
        internet.assert_untouched("open");
    });
}
