//! The guard on a private internet, where every closed address answers and is counted.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use gantry_net::testing::forms::{CLOSED, CLOSED_V6, hostile};
use gantry_net::testing::names::Name;
use gantry_net::testing::{Internet, OWN, PUBLIC, address, on_a_private_internet};
use gantry_net::{Client, ClientOptions, HeaderValue, Method, NetError, Request, Trust, Url};

const REBINDINGS: usize = 1000;

fn client(internet: &Internet) -> Client {
    let trust = Trust::And { name: "authority".into(), pem: internet.authority.clone() };
    Client::new(ClientOptions { trust, ..ClientOptions::default() })
}

async fn fetch(client: &Client, url: &str) -> Result<String, String> {
    let url = Url::parse(url).map_err(|err| err.to_string())?;
    let request = Request::get(url, tokio::time::Instant::now() + Duration::from_secs(20));
    let response = client.send(request).await.map_err(|err| err.to_string())?;
    let body = response.body.read(1000).await.map_err(|err| err.to_string())?;
    Ok(format!("{} {}", response.status.as_u16(), String::from_utf8_lossy(&body.bytes)))
}

#[test]
fn no_url_form_reaches_a_closed_address() {
    on_a_private_internet("internet::no_url_form_reaches_a_closed_address", |internet| async move {
        // Without the guard the canaries are reachable, so they would record a leak.
        for closed in CLOSED.iter().filter(|closed| **closed != "0.0.0.0") {
            tokio::net::TcpStream::connect((*closed, 80)).await.unwrap();
        }
        tokio::net::TcpStream::connect(("fd00:ec2::254", 80)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(std::mem::take(&mut *internet.canaries.lock().unwrap()).len(), CLOSED.len());

        let client = client(&internet);
        let mut forms = hostile();
        for (position, closed) in CLOSED.iter().chain(&CLOSED_V6).enumerate() {
            let host = format!("inside{position}.example.com");
            internet.names.set(&host, Name::Always(vec![address(closed)]));
            forms.push(format!("http://{host}/"));
            forms.push(format!("https://{host}./"));
        }
        assert!(forms.len() >= 400, "{}", forms.len());
        for form in &forms {
            let answer = fetch(&client, form).await;
            assert!(answer.is_err(), "{form}: {answer:?}");
            internet.assert_untouched(form);
        }
        println!("{} forms refused", forms.len());
    });
}

#[test]
fn public_addresses_are_reachable() {
    on_a_private_internet("internet::public_addresses_are_reachable", |internet| async move {
        let client = client(&internet);
        let mut urls = Vec::new();
        for (position, public) in PUBLIC.iter().enumerate() {
            let name = format!("site{position}.example.com");
            internet.public_name(&name, public);
            let literal = if public.contains(':') { format!("[{public}]") } else { (*public).to_owned() };
            for form in [
                "http://LITERAL/",
                "http://LITERAL:8080/a",
                "http://NAME/",
                "http://NAME./",
                "HTTP://NAME:8080/a?b#c",
                "https://NAME/",
                "https://NAME:443/x/../y",
                "http://NAME/%20/ü?q=a|b",
                "http:NAME/",
            ] {
                urls.push(form.replace("LITERAL", &literal).replace("NAME", &name));
            }
        }
        // These names only look closed, and these addresses carry open ones.
        for name in [
            "localhost.example.com",
            "notlocalhost",
            "internal.example.com",
            "local.example.com",
            "xn--bcher-kva.example.com",
        ] {
            internet.public_name(name, PUBLIC[0]);
            urls.push(format!("http://{name}/"));
        }
        internet
            .names
            .set("many.example.com", Name::Always(PUBLIC.iter().map(|public| address(public)).collect()));
        internet
            .names
            .set("alias.example.com", Name::Alias("elsewhere.test".into(), vec![address(PUBLIC[1])]));
        urls.extend([
            "https://93.184.216.34/".into(),
            "http://[::ffff:93.184.216.34]/".into(),
            "http://1572395042/".into(),
            "http://many.example.com/".into(),
            "https://alias.example.com/".into(),
        ]);
        assert!(urls.len() >= 100, "{}", urls.len());
        for url in &urls {
            assert_eq!(fetch(&client, url).await.as_deref(), Ok("200 public"), "{url}");
        }
        internet.assert_untouched("open");
        println!("{} open addresses reached", urls.len());
    });
}

#[test]
fn dns_rebinding_never_reaches_a_closed_address() {
    let test = "internet::dns_rebinding_never_reaches_a_closed_address";
    on_a_private_internet(test, |internet| async move {
        let mut closed = CLOSED.iter().chain(&CLOSED_V6).filter(|text| !text.starts_with("ff")).cycle();
        let started = Instant::now();
        for run in 0..REBINDINGS {
            let host = format!("r{run}.rebind.test");
            let inside = vec![address(closed.next().unwrap())];
            let open: Vec<IpAddr> = vec![address(PUBLIC[run % PUBLIC.len()])];
            let both = |first: &[IpAddr], second: &[IpAddr]| [first, second].concat();
            let (name, reached) = match run % 7 {
                0 => (Name::Flip(open.clone(), inside.clone()), vec![true, false, false]),
                1 => (Name::Flip(inside.clone(), open.clone()), vec![false, true, true]),
                2 => (Name::Alternate(open.clone(), inside.clone()), vec![true, false, true, false]),
                3 => (Name::Always(both(&open, &inside)), vec![false, false]),
                4 => (Name::Always(both(&inside, &open)), vec![false, false]),
                5 => (Name::Alias("inside.test".into(), inside.clone()), vec![false, false]),
                _ => (Name::Alias("mixed.test".into(), both(&open, &inside)), vec![false, false]),
            };
            internet.names.set(&host, name.clone());
            for (position, expected) in reached.into_iter().enumerate() {
                // Uses a new client each time, so that each request opens its own connection.
                let answer = fetch(&client(&internet), &format!("http://{host}/")).await;
                assert_eq!(answer.is_ok(), expected, "{name:?}, request {position}: {answer:?}");
                assert_eq!(internet.names.lookups(&host), position + 1, "{name:?}: one lookup a connection");
            }
            internet.assert_untouched(&format!("{name:?}"));
        }
        println!("{REBINDINGS} names in {:?}", started.elapsed());

        // A reused connection needs no lookup.
        internet.names.set("again.test", Name::Flip(vec![address(PUBLIC[0])], vec![address("10.0.0.1")]));
        let client = client(&internet);
        for _ in 0..5 {
            assert_eq!(fetch(&client, "http://again.test/").await.as_deref(), Ok("200 public"));
            // The connection returns to the pool a moment after the body's last byte.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(internet.names.lookups("again.test"), 1);
        internet.assert_untouched("used again");
    });
}

#[test]
fn failing_and_stalled_lookups_are_reported_in_time() {
    on_a_private_internet(
        "internet::failing_and_stalled_lookups_are_reported_in_time",
        |internet| async move {
            internet.names.set("fails.test", Name::Fails);
            internet.names.set("stalls.test", Name::Stall);
            internet.names.set("nothing.test", Name::Always(Vec::new()));
            let client = client(&internet);
            for name in ["fails.test", "nothing.test", "unknown.test"] {
                let err = fetch(&client, &format!("http://{name}/")).await.unwrap_err();
                assert!(err.starts_with(&format!("{name} cannot be found: ")), "{err}");
            }
            let started = Instant::now();
            let mut request = Request::get(
                "http://stalls.test/".parse().unwrap(),
                tokio::time::Instant::now() + Duration::from_millis(300),
            );
            request.method = Method::POST;
            let err = client.send(request).await.unwrap_err();
            assert!(matches!(err, NetError::TimedOut { .. }), "{err}");
            assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());

            // There are more stalled names than parallel lookups. The others wait, and none longer
            // than its deadline.
            let flood = (0..100).map(|_| fetch(&client, "http://stalls.test/"));
            let flood =
                tokio::time::timeout(Duration::from_millis(200), futures_util::future::join_all(flood));
            assert!(flood.await.is_err());
            let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
            assert!(threads < 60, "{threads} threads");
        },
    );
}

#[test]
fn redirects_reach_no_closed_address_and_carry_no_secrets() {
    let test = "internet::redirects_reach_no_closed_address_and_carry_no_secrets";
    on_a_private_internet(test, |internet| async move {
        for (name, public) in [("first", PUBLIC[0]), ("second", PUBLIC[1])] {
            internet.public_name(&format!("{name}.example.com"), public);
        }
        internet.names.set("inside.example.com", Name::Always(vec![address("10.0.0.1")]));
        internet
            .names
            .set("mixed.example.com", Name::Always(vec![address(PUBLIC[0]), address("fd00:ec2::254")]));
        let targets = [
            "http://127.0.0.1/",
            "http://10.0.0.1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://100.64.0.1/",
            "http://[fd00:ec2::254]/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://inside.example.com/",
            "http://mixed.example.com/",
            "http://localhost./",
            "http://11.0.0.2/",
            "//2130706433/",
            "ftp://second.example.com/",
            "http://user@second.example.com/",
            "http://second.example.com:25/",
        ];
        let client = client(&internet);
        let mut runs = 0;
        for status in [301, 302, 303, 307, 308] {
            for target in targets {
                for hops in 1..=5 {
                    for scheme in ["http", "https"] {
                        let url = format!(
                            "{scheme}://first.example.com/hop/{status}/{hops}/second.example.com?{target}"
                        );
                        let mut request = Request {
                            method: Method::POST,
                            body: "body".into(),
                            ..Request::get(
                                url.parse().unwrap(),
                                tokio::time::Instant::now() + Duration::from_secs(20),
                            )
                        };
                        request.secret_headers.insert("x-api-key", HeaderValue::from_static("secret"));
                        request.headers.insert("cookie", HeaderValue::from_static("secret"));
                        let answer = client.send(request).await;
                        assert!(answer.is_err(), "{url}: {answer:?}");
                        internet.assert_untouched(&url);
                        let heard = std::mem::take(&mut *internet.heard.lock().unwrap());
                        assert_eq!(heard.len(), hops, "{url}");
                        for (hop, heard) in heard.iter().enumerate() {
                            let secrets = heard.headers.iter().filter(|(_, value)| value == "secret").count();
                            assert_eq!(secrets, if hop == 0 { 2 } else { 0 }, "{url}, hop {hop}: {heard:?}");
                        }
                        runs += 1;
                    }
                }
            }
        }
        println!("{runs} chains of redirects ended where they must");
    });
}

#[test]
fn https_requires_a_certificate_for_the_requested_name() {
    on_a_private_internet(
        "internet::https_requires_a_certificate_for_the_requested_name",
        |internet| async move {
            internet.public_name("www.example.com", PUBLIC[0]);
            internet.public_name("www.example.org", PUBLIC[0]);
            let believing = client(&internet);
            assert_eq!(fetch(&believing, "https://www.example.com./").await.as_deref(), Ok("200 public"));
            for url in ["https://www.example.org/", "https://1.1.1.1/"] {
                let err = fetch(&believing, url).await.unwrap_err();
                assert!(err.contains("certificate"), "{url}: {err}");
            }
            let err = fetch(&Client::default(), "https://www.example.com/").await.unwrap_err();
            assert!(err.contains("certificate"), "{err}");
            internet.heard.lock().unwrap().clear();
            let down = "https://www.example.com/hop/302/1/x?http://www.example.com/";
            let err = fetch(&believing, down).await.unwrap_err();
            assert!(err.contains("from https to http"), "{err}");
            let hosts: Vec<_> = internet.heard.lock().unwrap().iter().map(|heard| heard.at.port()).collect();
            assert_eq!(hosts, [443]);
        },
    );
}

#[test]
fn operators_can_open_hosts_and_ranges() {
    on_a_private_internet("internet::operators_can_open_hosts_and_ranges", |internet| async move {
        internet.names.set("lab.example.com", Name::Always(vec![address("10.0.0.1")]));
        internet.names.set("turned.example.com", Name::Always(vec![address("169.254.169.254")]));
        let hosts = ["lab.example.com", "turned.example.com"];
        let open = Client::new(ClientOptions {
            allowed_hosts: hosts.iter().map(|host| gantry_net::HostPattern::parse(host).unwrap()).collect(),
            allowed_ranges: vec![
                "192.168.0.0/16".parse().unwrap(),
                format!("{}/32", OWN[0]).parse().unwrap(),
            ],
            ..ClientOptions::default()
        });
        // Canaries accept and disconnect, which is enough for this test.
        for url in ["http://lab.example.com/", "http://192.168.1.1/", "http://11.0.0.2/"] {
            fetch(&open, url).await.unwrap_err();
            assert_eq!(std::mem::take(&mut *internet.canaries.lock().unwrap()).len(), 1, "{url}");
        }
        for url in ["http://10.0.0.1/", "http://turned.example.com/", "http://169.254.169.254/"] {
            fetch(&open, url).await.unwrap_err();
            internet.assert_untouched(url);
        }
    });
}
