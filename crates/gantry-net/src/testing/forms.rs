//! Ways to write a URL that leads to a closed address, for tests of anything that takes a URL. All
//! of them must be refused.

use std::net::Ipv4Addr;

/// Closed addresses, one of each kind. Each of them would answer. The last one is the client's own.
pub const CLOSED: [&str; 16] = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.7",
    "11.0.0.2",
];

/// Closed addresses that carry no IPv4 address.
pub const CLOSED_V6: [&str; 14] = [
    "::1",
    "::",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fc00::1",
    "fdff::1",
    "fec0::1",
    "fe80::1",
    "ff02::1",
    "64:ff9b:1::1",
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "2a0f::2",
];

/// Names that are closed whatever they resolve to.
pub const CLOSED_NAMES: [&str; 16] = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "LocalHost.",
    "a.localhost",
    "a.b.localhost.",
    "localhost.localdomain",
    "ⓛocalhost",
    "ｌｏｃａｌｈｏｓｔ",
    "loc%61lhost",
    "metadata",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "host.docker.internal",
    "printer.local",
    "kubernetes.default.svc.cluster.local",
];

/// Returns at least 400 URLs. A form that no parser accepts counts as refused.
pub fn hostile() -> Vec<String> {
    let mut forms = Vec::new();
    for text in CLOSED {
        let address: Ipv4Addr = text.parse().unwrap();
        for host in spellings(address) {
            forms.push(format!("http://{host}/"));
        }
        for form in [
            "http:ADDRESS/",
            "http:/ADDRESS/",
            "http:///ADDRESS/",
            "http:\\\\ADDRESS\\",
            "HtTp://ADDRESS",
            " http://ADDRESS/ ",
            "http://ADDRESS:8080/a/b?c#d",
            "https://ADDRESS/",
            "http://\tADDRESS/",
            "http://ADDRESS\\@93.184.216.34/",
            "http://93.184.216.34@ADDRESS/",
            "http://93.184.216.34:80@ADDRESS:80/",
            "http://ADDRESS#@93.184.216.34/",
            "http://ADDRESS?@93.184.216.34/",
            "http://[::ffff:ADDRESS]:8080/",
        ] {
            forms.push(form.replace("ADDRESS", text));
        }
    }
    for address in CLOSED_V6 {
        forms.push(format!("http://[{address}]/"));
        forms.push(format!("http://[{address}]:8080/x"));
        forms.push(format!("https://[{}]/", address.to_uppercase()));
    }
    for name in CLOSED_NAMES {
        forms.push(format!("http://{name}/"));
        forms.push(format!("https://{name}:8080/x"));
    }
    for form in [
        "http://user@93.184.216.34/",
        "http://user:pass@93.184.216.34/",
        "http://93.184.216.34:22/",
        "http://93.184.216.34:25/",
        "http://93.184.216.34:6667/",
        "http://a..example.com/",
        "http://.example.com/",
        "ftp://93.184.216.34/",
        "gopher://127.0.0.1:80/_GET",
        "file:///etc/passwd",
        "ws://127.0.0.1/",
        "data:text/plain,x",
        "javascript:alert(1)",
        "unix:/run/docker.sock",
        "http://[::1%25lo]/",
        "http://127.0.0.1\r\nHost: a/",
    ] {
        forms.push(form.to_owned());
    }
    forms
}

/// Returns ways to write one IPv4 address as a host.
pub fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let number = address.to_bits();
    let (high, low) = (number >> 16, number & 0xffff);
    let dotted = address.to_string();
    let digits = |zero: u32, text: &str| -> String {
        let other = |ch: char| ch.to_digit(10).and_then(|digit| char::from_u32(zero + digit)).unwrap_or(ch);
        text.chars().map(other).collect()
    };
    let percent: String = dotted.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let inverted = !number;
    vec![
        dotted.clone(),
        format!("{dotted}."),
        number.to_string(),
        format!("{number}."),
        format!("0x{number:x}"),
        format!("0X{number:08X}"),
        format!("0{number:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("00{a:o}.0{b:o}.{c}.0x{d:x}"),
        format!("{a}.{}", number & 0xff_ffff),
        format!("{a}.{b}.{low}"),
        format!("0x{a:x}.{b}.0{low:o}"),
        digits(0xff10, &dotted),
        dotted.replace('.', "。"),
        dotted.replace('.', "．"),
        dotted.replace('.', "%2e"),
        percent,
        dotted.replace('1', "①"),
        format!("[::ffff:{dotted}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:FFFF:{dotted}]"),
        format!("[::{dotted}]"),
        format!("[64:ff9b::{dotted}]"),
        format!("[64:ff9b:1::{dotted}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::]"),
        format!("[2001:0:5db8:d822:0:0:{:x}:{:x}]", inverted >> 16, inverted & 0xffff),
        format!("[2606:2800:220:1:0:5efe:{high:x}:{low:x}]"),
        format!("[2606:2800:220:1:200:5efe:{high:x}:{low:x}]"),
        format!("[fe80::5efe:{dotted}]"),
    ]
}
