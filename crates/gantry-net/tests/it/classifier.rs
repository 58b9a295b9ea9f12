//! Every row of the special-purpose registries, at its ends and next to them, in every form that
//! can carry it. The expectations are written here from the registries, and looked up with another
//! crate's arithmetic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gantry_net::{IpNet, why_closed};

/// `+` is globally reachable, `-` is not.
const V4: &str = "
    + 0.0.0.0/0            - 0.0.0.0/8            - 10.0.0.0/8           - 100.64.0.0/10        - 127.0.0.0/8
    - 169.254.0.0/16       - 172.16.0.0/12        - 192.0.0.0/24         - 192.0.0.0/29         - 192.0.0.8/32
    + 192.0.0.9/32         + 192.0.0.10/32        - 192.0.0.170/32       - 192.0.0.171/32       - 192.0.2.0/24
    + 192.31.196.0/24      + 192.52.193.0/24      - 192.88.99.0/24       - 192.88.99.2/32       - 192.168.0.0/16
    + 192.175.48.0/24      - 198.18.0.0/15        - 198.51.100.0/24      - 203.0.113.0/24       - 224.0.0.0/4
    - 240.0.0.0/4          - 255.255.255.255/32
    - 169.254.169.254/32   - 169.254.170.2/32     - 168.63.129.16/32     - 100.100.100.200/32   - 192.0.0.192/32
    - 169.254.169.253/32   - 169.254.42.42/32     - 169.254.0.23/32      - 169.254.170.23/32";

/// `4` is as reachable as the IPv4 address in its last bits, `6` as the one behind its first 16
/// bits, `t` as both that Teredo carries.
const V6: &str = "
    - ::/0                 + 2000::/3             - ::/128               - ::1/128              - ::/96
    4 ::ffff:0:0/96        4 64:ff9b::/96         - 64:ff9b:1::/48       - 100::/64             - 100:0:0:1::/64
    - 2001::/23            t 2001::/32            + 2001:1::1/128        + 2001:1::2/128        + 2001:1::3/128
    - 2001:2::/48          + 2001:3::/32          + 2001:4:112::/48      - 2001:10::/28         + 2001:20::/28
    + 2001:30::/28         - 2001:db8::/32        6 2002::/16            + 2620:4f:8000::/48    - 3fff::/20
    - 5f00::/16            - fc00::/7             - fe80::/10            - fec0::/10            - ff00::/8
    - fd00:ec2::254/128    - fd00:ec2::23/128     - fd20:ce::254/128     - fd00:42::42/128      - fe80::a9fe:a9fe/128";

fn table(text: &str) -> Vec<(char, IpNet)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.chunks(2).map(|row| (row[0].chars().next().unwrap(), row[1].parse().unwrap())).collect()
}

struct Registries {
    v4: Vec<(char, IpNet)>,
    v6: Vec<(char, IpNet)>,
}

impl Registries {
    fn is_open(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => longest(&self.v4, address) == '+',
            IpAddr::V6(v6) => self.is_open_v6(v6),
        }
    }

    fn is_open_v6(&self, v6: Ipv6Addr) -> bool {
        let [_, b, c, d, e, f, g, h] = v6.segments();
        let carried = |high: u16, low: u16| {
            self.is_open(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into())
        };
        let open = match longest(&self.v6, v6.into()) {
            '+' => true,
            '-' => false,
            '4' => carried(g, h),
            '6' => carried(b, c),
            't' => carried(c, d) && carried(!g, !h),
            other => panic!("{other}"),
        };
        let isatap = f == 0x5efe && (e == 0 || e == 0x200);
        open && (!isatap || carried(g, h))
    }
}

fn longest(table: &[(char, IpNet)], address: IpAddr) -> char {
    let matching = table.iter().filter(|(_, range)| range.contains(&address));
    matching.max_by_key(|(_, range)| range.prefix_len()).unwrap().0
}

/// Returns both ends of a range, their neighbours, and its middle.
fn edges_v4(range: &IpNet) -> Vec<Ipv4Addr> {
    let (IpAddr::V4(first), IpAddr::V4(last)) = (range.network(), range.broadcast()) else {
        panic!("{range}")
    };
    let (first, last) = (first.to_bits(), last.to_bits());
    let all = [first, last, first.wrapping_sub(1), last.wrapping_add(1), first.midpoint(last)];
    all.map(Ipv4Addr::from_bits).to_vec()
}

fn edges_v6(range: &IpNet) -> Vec<Ipv6Addr> {
    let (IpAddr::V6(first), IpAddr::V6(last)) = (range.network(), range.broadcast()) else {
        panic!("{range}")
    };
    let (first, last) = (first.to_bits(), last.to_bits());
    let all = [first, last, first.wrapping_sub(1), last.wrapping_add(1), first.midpoint(last)];
    all.map(Ipv6Addr::from_bits).to_vec()
}

/// Returns one IPv4 address in everything that can carry it.
fn wrapped(address: Ipv4Addr) -> Vec<IpAddr> {
    let (high, low) = ((address.to_bits() >> 16) as u16, address.to_bits() as u16);
    let mut all: Vec<IpAddr> = vec![address.into()];
    // 5db8:d822 is an open address.
    for words in [
        [0, 0, 0, 0, 0, 0xffff, high, low],
        [0, 0, 0, 0, 0, 0, high, low],
        [0x64, 0xff9b, 0, 0, 0, 0, high, low],
        [0x64, 0xff9b, 1, 0, 0, 0, high, low],
        [0x2002, high, low, 0, 0, 0, 0, 1],
        [0x2002, 0x5db8, 0xd822, 0, 0, 0x5efe, high, low],
        [0x2001, 0, high, low, 0, 0, !0x5db8, !0xd822],
        [0x2001, 0, 0x5db8, 0xd822, 0x8000, 0xffff, !high, !low],
        [0x2606, 0x2800, 1, 1, 0, 0x5efe, high, low],
        [0x2606, 0x2800, 1, 1, 0x200, 0x5efe, high, low],
        [0xfe80, 0, 0, 0, 0, 0x5efe, high, low],
        // This looks similar to ISATAP but is not.
        [0x2606, 0x2800, 1, 1, 0x100, 0x5efe, high, low],
    ] {
        all.push(Ipv6Addr::from(words).into());
    }
    all
}

#[test]
fn every_registry_row_is_classified_in_every_form() {
    let registries = Registries { v4: table(V4), v6: table(V6) };
    let mut cases: Vec<IpAddr> = Vec::new();
    for (_, range) in &registries.v4 {
        cases.extend(edges_v4(range).into_iter().flat_map(wrapped));
    }
    for (_, range) in &registries.v6 {
        cases.extend(edges_v6(range).into_iter().map(IpAddr::V6));
    }
    // These well-known addresses detect a row that is missing on both sides.
    for open in ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::200e"] {
        assert_eq!(why_closed(open.parse().unwrap()), None, "{open}");
    }
    let (mut open, mut closed, mut wrong) = (0, 0, Vec::new());
    for address in cases {
        let expected = registries.is_open(address);
        *if expected { &mut open } else { &mut closed } += 1;
        let reason = why_closed(address);
        if reason.is_none() != expected {
            wrong.push(format!("{address}: {reason:?}, expected open = {expected}"));
        }
    }
    println!("{open} open and {closed} closed addresses, {} judged wrong", wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(open > 100 && closed > 1000);
}

#[test]
fn random_addresses_are_classified_like_the_registries() {
    let registries = Registries { v4: table(V4), v6: table(V6) };
    let seed = gantry_testkit::seed_or(0x5eed);
    let count = gantry_testkit::scaled(500_000, 20_000);
    // xorshift: the values need to be spread, not secret.
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..count {
        for address in wrapped(Ipv4Addr::from_bits(next() as u32)) {
            assert_eq!(why_closed(address).is_none(), registries.is_open(address), "{address}");
        }
        let v6 = Ipv6Addr::from_bits(u128::from(next()) << 64 | u128::from(next()));
        assert_eq!(why_closed(v6.into()).is_none(), registries.is_open(v6.into()), "{v6}");
    }
}
