//! Tricks against the egress proxy. The judge allows everything, and still none of them reaches a
//! closed address or sends a byte to a host under another name.

use std::time::Duration;

use gantry_net::testing::forms::{CLOSED, CLOSED_V6, spellings};
use gantry_net::testing::names::Name;
use gantry_net::testing::{PUBLIC, address, on_a_private_internet};
use gantry_net::{EgressLimits, EgressOptions, EgressOutcome};

use crate::egress::{allow_all, connect_head, get, hello, socks_address, socks_name, start, with_www};

/// Joins the parts of what a client sends.
fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Tricks with the destination: its name, its address, its port.
fn destinations() -> Vec<(String, Vec<u8>)> {
    let hello = hello("www.example.com");
    let mut attacks = Vec::new();
    for place in [
        "169.254.169.254:80",
        "127.0.0.1:443",
        "10.0.0.1:443",
        "[::1]:80",
        "[::1]:443",
        "[::ffff:127.0.0.1]:80",
        "[::ffff:169.254.169.254]:80",
        "[::ffff:a9fe:a9fe]:80",
        "[64:ff9b::169.254.169.254]:80",
        "[64:ff9b::7f00:1]:80",
        "[2002:7f00:1::]:80",
        "[::127.0.0.1]:80",
        "[fe80::1%lo]:80",
        "[fe80::1%25lo]:80",
        "[::1%1]:80",
        "2130706433:80",
        "0x7f000001:80",
        "017700000001:80",
        "0177.0.0.1:80",
        "0x7f.0.0.1:80",
        "127.1:80",
        "127.0.1:80",
        "0:80",
        "0.0.0.0:80",
        "[::]:80",
        "127.0.0.1.:80",
        "localhost:80",
        "localhost.:80",
        "LOCALHOST:443",
        "a.localhost:80",
        "metadata.google.internal:80",
        "metadata:80",
        "host.docker.internal:80",
        "www.example.com.:443",
        "www.example.com..:443",
        ".www.example.com:443",
        "www.example.com:22",
        "www.example.com:25",
        "www.example.com:8080",
        "www.example.com:4430",
        "www.example.com:0",
        "www.example.com:65979",
        "www.example.com:+443",
        "www.example.com:0x1bb",
        "www.example.com:443:443",
        "www.example.com",
        "user@www.example.com:443",
        "user:pass@www.example.com:443",
        "www.example.com:443@10.0.0.1:443",
        "10.0.0.1:443@www.example.com:443",
        "www.example.com%2e10.0.0.1:443",
        "www.example.com/:443",
        "www.example.com\\.evil:443",
        "https://www.example.com:443",
        "//www.example.com:443",
        "93.184.216.34:443",
        "[2606:2800:220:1:248:1893:25c8:1946]:443",
        "inside.example.com:80",
        "inside.example.com:443",
        "both.example.com:443",
    ] {
        attacks.push((format!("CONNECT {place}"), join(&[&connect_head(place), &hello])));
    }
    for host in [
        "169.254.169.254",
        "127.0.0.1:80",
        "[::ffff:127.0.0.1]",
        "localhost",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "user:pass@www.example.com",
        "@www.example.com",
        "www.example.com@10.0.0.1",
        "www.example.com.",
        "www.example.com:443",
        "www.example.com:8080",
        "www.example.com:22",
        "[fe80::1%25lo]",
        "inside.example.com",
        "",
    ] {
        attacks.push((format!("GET http://{host}/"), get(host, "/")));
    }
    for (name, port) in [
        ("127.0.0.1", 80),
        ("::1", 80),
        ("[::1]", 80),
        ("::ffff:127.0.0.1", 80),
        ("fe80::1%lo", 80),
        ("2130706433", 80),
        ("localhost", 443),
        ("www.example.com.", 443),
        ("www.example.com", 22),
        ("www.example.com", 0),
        ("www.example.com\0.evil", 443),
        ("user@www.example.com", 443),
        ("inside.example.com", 80),
        ("", 443),
    ] {
        attacks.push((format!("SOCKS {name:?} {port}"), join(&[&socks_name(name, port), &hello])));
    }
    for closed in CLOSED.iter().chain(&CLOSED_V6) {
        let request = format!("GET / HTTP/1.1\r\nHost: {closed}\r\n\r\n");
        let attack = join(&[&socks_address(address(closed), 80), request.as_bytes()]);
        attacks.push((format!("SOCKS address {closed}"), attack));
    }
    for spelling in spellings("10.0.0.1".parse().unwrap()) {
        attacks.push((format!("GET {spelling}"), get(&spelling, "/")));
        attacks.push((format!("CONNECT {spelling}"), connect_head(&format!("{spelling}:80"))));
    }
    attacks
}

/// Tricks with the protocol: names that do not agree, other protocols, ambiguous requests.
fn protocols() -> Vec<(String, Vec<u8>)> {
    let (www, other) = (hello("www.example.com"), hello("other.example.com"));
    let connect = connect_head("www.example.com:443");
    let socks = socks_name("www.example.com", 443);
    let connect80 = connect_head("www.example.com:80");
    let socks80 = socks_name("www.example.com", 80);
    let plain = b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
    let foreign = b"GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n";
    let mut attacks: Vec<(&str, Vec<u8>)> = vec![
        ("SNI of another host after CONNECT", join(&[&connect, &other])),
        ("SNI of another host after SOCKS", join(&[&socks, &other])),
        ("no SNI", join(&[&connect, &hello("93.184.216.34")])),
        ("HTTP on 443", join(&[&connect, plain])),
        ("SSH on 443", join(&[&connect, b"SSH-2.0-OpenSSH_9.9\r\n"])),
        ("SSH on 443 by SOCKS", join(&[&socks, b"SSH-2.0-OpenSSH_9.9\r\n"])),
        ("a TLS alert first", join(&[&connect, &[21, 3, 3, 0, 2, 1, 0], &www])),
        ("application data first", join(&[&connect, &[23, 3, 3, 0, 1, 0], &www])),
        ("an empty record first", join(&[&connect, &[22, 3, 1, 0, 0], &www])),
        ("TLS on 80 by CONNECT", join(&[&connect80, &www])),
        ("TLS on 80 by SOCKS", join(&[&socks80, &www])),
        ("SSH on 80", join(&[&connect80, b"SSH-2.0-OpenSSH_9.9\r\n\r\n"])),
        ("Host of another host after CONNECT", join(&[&connect80, foreign])),
        ("Host of another host after SOCKS", join(&[&socks80, foreign])),
        ("nested CONNECT", join(&[&connect80, &connect_head("other.example.com:443")])),
        ("HTTP/2 preface", join(&[&connect80, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])),
        ("another URL in the tunnel", join(&[&connect80, &get("other.example.com", "/")])),
        ("no bytes in the tunnel", connect.clone()),
        ("half a hello", join(&[&connect, &www[..www.len() / 2]])),
        (
            "CONNECT with a body",
            b"CONNECT www.example.com:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello".to_vec(),
        ),
        (
            "CONNECT with chunks",
            b"CONNECT www.example.com:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        ),
        (
            "Host against CONNECT",
            join(&[b"CONNECT www.example.com:443 HTTP/1.1\r\nHost: other.example.com:443\r\n\r\n", &www]),
        ),
        (
            "Host's port against CONNECT",
            join(&[b"CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:80\r\n\r\n", &www]),
        ),
        ("CONNECT of HTTP/2", b"CONNECT www.example.com:443 HTTP/2\r\n\r\n".to_vec()),
        ("SOCKS4", vec![4, 1, 0, 80, 93, 184, 216, 34, 0]),
        ("SOCKS BIND", vec![5, 1, 0, 5, 2, 0, 1, 93, 184, 216, 34, 0, 80]),
        ("SOCKS UDP", vec![5, 1, 0, 5, 3, 0, 1, 93, 184, 216, 34, 0, 80]),
        ("SOCKS with a password only", vec![5, 1, 2, 5, 1, 0, 1, 93, 184, 216, 34, 0, 80]),
        ("SOCKS without a method", vec![5, 0, 5, 1, 0, 1, 93, 184, 216, 34, 0, 80]),
        ("SOCKS with an unknown type", vec![5, 1, 0, 5, 1, 0, 2, 93, 184, 216, 34, 0, 80]),
        ("SOCKS with a second version", vec![5, 1, 0, 4, 1, 0, 1, 93, 184, 216, 34, 0, 80]),
        ("TLS to the proxy", www.clone()),
        ("a null byte", vec![0; 100]),
        ("an empty line first", join(&[b"\r\n", &get("www.example.com", "/")])),
    ];
    for (name, head) in [
        ("Host against URL", "Host: other.example.com\r\n"),
        ("two Hosts", "Host: www.example.com\r\nHost: other.example.com\r\n"),
        ("the same Host twice", "Host: www.example.com\r\nHost: www.example.com\r\n"),
        ("no Host", ""),
        ("an empty Host", "Host:\r\n"),
        ("a list of Hosts", "Host: www.example.com, other.example.com\r\n"),
        ("a Host with a dot", "Host: www.example.com.\r\n"),
        ("a Host with credentials", "Host: x@www.example.com\r\n"),
        ("a Host with a port", "Host: www.example.com:8080\r\n"),
        ("a Host with a space before the colon", "Host : www.example.com\r\n"),
        ("a folded Host", "Host:\r\n www.example.com\r\n"),
        ("a folded header", "Host: www.example.com\r\nX: a\r\n\tb\r\n"),
        ("bare LF", "Host: www.example.com\nX: y\r\n"),
        ("bare CR", "Host: www.example.com\rX: y\r\n"),
        ("a null byte in a header", "Host: www.example.com\r\nX: a\0b\r\n"),
        ("a header without a colon", "Host: www.example.com\r\nGET http://10.0.0.1/ HTTP/1.1\r\n"),
        ("two lengths", "Host: www.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n"),
        ("the same length twice", "Host: www.example.com\r\nContent-Length: 1\r\nContent-Length: 1\r\n"),
        ("a list of lengths", "Host: www.example.com\r\nContent-Length: 1, 1\r\n"),
        ("a signed length", "Host: www.example.com\r\nContent-Length: +1\r\n"),
        ("length and chunks", "Host: www.example.com\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        ("an unknown coding", "Host: www.example.com\r\nTransfer-Encoding: xchunked\r\n"),
        ("two codings", "Host: www.example.com\r\nTransfer-Encoding: gzip, chunked\r\n"),
        (
            "chunks twice",
            "Host: www.example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ),
        ("a vertical tab before chunked", "Host: www.example.com\r\nTransfer-Encoding: \x0bchunked\r\n"),
    ] {
        attacks.push((name, format!("GET http://www.example.com/ HTTP/1.1\r\n{head}\r\n").into_bytes()));
        let inner = format!("GET / HTTP/1.1\r\n{head}\r\n").into_bytes();
        attacks.push((name, join(&[&connect80, &inner])));
    }
    for (name, line) in [
        ("a URL with credentials", "GET http://u:p@www.example.com/ HTTP/1.1"),
        ("a URL with a backslash", "GET http://www.example.com\\@10.0.0.1/ HTTP/1.1"),
        ("a URL with a fragment", "GET http://www.example.com#@10.0.0.1/ HTTP/1.1"),
        ("an https URL", "GET https://www.example.com/ HTTP/1.1"),
        ("an ftp URL", "GET ftp://www.example.com/ HTTP/1.1"),
        ("a file URL", "GET file:///etc/passwd HTTP/1.1"),
        ("a path only", "GET / HTTP/1.1"),
        ("a URL with a space", "GET http://www.example.com/ HTTP/1.1 HTTP/1.1"),
        ("HTTP/0.9", "GET http://www.example.com/"),
        ("HTTP/3", "GET http://www.example.com/ HTTP/3.0"),
    ] {
        attacks.push((name, format!("{line}\r\nHost: www.example.com\r\n\r\n").into_bytes()));
    }
    let long = "x".repeat(40_000);
    attacks.push((
        "a huge header",
        format!("GET http://www.example.com/ HTTP/1.1\r\nHost: www.example.com\r\nX: {long}\r\n\r\n")
            .into_bytes(),
    ));
    attacks.push((
        "a huge URL",
        format!("GET http://www.example.com/{long} HTTP/1.1\r\nHost: www.example.com\r\n\r\n").into_bytes(),
    ));
    attacks.push((
        "many headers",
        format!(
            "GET http://www.example.com/ HTTP/1.1\r\nHost: www.example.com\r\n{}\r\n",
            "X: y\r\n".repeat(1000)
        )
        .into_bytes(),
    ));
    let record = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &[0; 16380]].concat();
    attacks.push(("a huge hello", join(&[&connect, &record, &record, &record, &record, &record])));
    attacks.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

#[test]
fn no_trick_reaches_a_closed_address_or_sends_a_byte() {
    let name = "egress_attacks::no_trick_reaches_a_closed_address_or_sends_a_byte";
    on_a_private_internet(name, |internet| async move {
        with_www(&internet);
        internet.names.set("inside.example.com", Name::Always(vec![address("10.0.0.1")]));
        let both = vec![address(PUBLIC[0]), address("169.254.169.254")];
        internet.names.set("both.example.com", Name::Always(both));
        let limits = EgressLimits {
            head: Duration::from_millis(500),
            hello: Duration::from_millis(500),
            ..EgressLimits::default()
        };
        let proxy = start(EgressOptions { limits, ..EgressOptions::default() }, allow_all);
        let attacks: Vec<_> = destinations().into_iter().chain(protocols()).collect();
        assert!(attacks.len() >= 40, "{}", attacks.len());
        for (name, bytes) in &attacks {
            let answer = proxy.say(bytes).await;
            let record = proxy.record().await;
            assert!(!answer.contains("public"), "{name}: {answer}");
            let refused =
                matches!(record.outcome, EgressOutcome::Refused { .. } | EgressOutcome::TimedOut { .. });
            assert!(refused, "{name}: {record:?}");
            assert_eq!((record.bytes_up, record.bytes_down), (0, 0), "{name}: {record:?}");
            internet.assert_untouched(name);
            assert!(internet.heard.lock().unwrap().is_empty(), "{name}");
        }
        // The same proxy still serves honest clients.
        assert!(proxy.say(&get("www.example.com", "/")).await.ends_with("public"));
        println!("{} attacks refused", attacks.len());
    });
}
