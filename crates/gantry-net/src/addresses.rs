//! Decides which addresses are on the public internet, by number. The tables hold the
//! special-purpose registries; the longest prefix wins.
//!
//! An IPv6 address that carries an IPv4 address is also judged by what it carries. Names and ways
//! to write an address are not handled here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use Reach::{Closed, Public, Within};

/// Returns why an address is closed to tools unless the operator opens it; `None` for public ones.
pub fn why_closed(address: IpAddr) -> Option<&'static str> {
    forms(address).find_map(|form| why_metadata(form).or_else(|| why_special(form)))
}

/// Returns why an address belongs to a metadata service, which no configured range opens.
pub(crate) fn why_metadata(form: IpAddr) -> Option<&'static str> {
    METADATA.iter().find(|(address, _)| *address == form).map(|(_, why)| *why)
}

/// Looks only at the tables, not at a carried address.
pub(crate) fn why_special(form: IpAddr) -> Option<&'static str> {
    match row(form).reach {
        Closed(why) => Some(why),
        Public | Within(_) => None,
    }
}

/// Returns the address in canonical form, then every IPv4 address that it carries.
pub(crate) fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let address = address.to_canonical();
    let mut carried = [None, None, None];
    if let IpAddr::V6(v6) = address {
        let octets = v6.octets();
        let v4 =
            |from: usize| Ipv4Addr::new(octets[from], octets[from + 1], octets[from + 2], octets[from + 3]);
        match row(address).reach {
            Within(Wrapping::LowBits) => carried[0] = Some(v4(12)),
            Within(Wrapping::SixToFour) => carried[0] = Some(v4(2)),
            Within(Wrapping::Teredo) => {
                carried[0] = Some(v4(4));
                carried[1] = Some(Ipv4Addr::from_bits(!v4(12).to_bits()));
            }
            Public | Closed(_) => {}
        }
        if matches!(octets[8..12], [0 | 2, 0, 0x5e, 0xfe]) {
            carried[2] = Some(v4(12));
        }
    }
    std::iter::once(address).chain(carried.into_iter().flatten().map(IpAddr::V4))
}

fn row(address: IpAddr) -> &'static Row {
    let (table, bits) = match address {
        // IPv4 addresses use the upper bits, so that both tables compare in the same way.
        IpAddr::V4(v4) => (IPV4, u128::from(v4.to_bits()) << 96),
        IpAddr::V6(v6) => (IPV6, v6.to_bits()),
    };
    let matching = table.iter().filter(|row| (bits ^ row.bits).leading_zeros() >= row.prefix);
    matching.max_by_key(|row| row.prefix).unwrap_or(&UNKNOWN)
}

#[derive(Debug)]
struct Row {
    bits: u128,
    prefix: u32,
    reach: Reach,
}

#[derive(Debug)]
enum Reach {
    Public,
    Closed(&'static str),
    /// The address is as public as the one it carries.
    Within(Wrapping),
}

#[derive(Debug)]
enum Wrapping {
    LowBits,
    SixToFour,
    /// Carries the server's address unchanged and the client's address inverted.
    Teredo,
}

/// Both tables begin with a row that matches everything.
static UNKNOWN: Row = v6(Ipv6Addr::UNSPECIFIED, 0, Closed("unknown"));

const fn v4(octets: [u8; 4], prefix: u32, reach: Reach) -> Row {
    Row { bits: (u32::from_be_bytes(octets) as u128) << 96, prefix, reach }
}

const fn v6(address: Ipv6Addr, prefix: u32, reach: Reach) -> Row {
    Row { bits: address.to_bits(), prefix, reach }
}

const fn ip6(a: u16, b: u16, c: u16, d: u16, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, last)
}

/// The IANA registries of special-purpose and multicast addresses.
static IPV4: &[Row] = &[
    v4([0, 0, 0, 0], 0, Public),
    v4([0, 0, 0, 0], 8, Closed("this network itself")),
    v4([10, 0, 0, 0], 8, Closed("a private network")),
    v4([100, 64, 0, 0], 10, Closed("a provider's internal network")),
    v4([127, 0, 0, 0], 8, Closed("this machine itself")),
    v4([169, 254, 0, 0], 16, Closed("link-local")),
    v4([172, 16, 0, 0], 12, Closed("a private network")),
    v4([192, 0, 0, 0], 24, Closed("reserved for protocols")),
    // These are anycast addresses for port control and TURN.
    v4([192, 0, 0, 9], 32, Public),
    v4([192, 0, 0, 10], 32, Public),
    v4([192, 0, 2, 0], 24, Closed("for documentation")),
    // These are AS112 and AMT.
    v4([192, 31, 196, 0], 24, Public),
    v4([192, 52, 193, 0], 24, Public),
    v4([192, 175, 48, 0], 24, Public),
    v4([192, 88, 99, 0], 24, Closed("a relay that no longer exists")),
    v4([192, 168, 0, 0], 16, Closed("a private network")),
    v4([198, 18, 0, 0], 15, Closed("for benchmarks")),
    v4([198, 51, 100, 0], 24, Closed("for documentation")),
    v4([203, 0, 113, 0], 24, Closed("for documentation")),
    v4([224, 0, 0, 0], 4, Closed("multicast")),
    v4([240, 0, 0, 0], 4, Closed("reserved")),
    v4([255, 255, 255, 255], 32, Closed("broadcast")),
];

/// The same for IPv6, including ranges that IANA has since dropped: compatible addresses,
/// site-local ones, the first ORCHID.
static IPV6: &[Row] = &[
    v6(Ipv6Addr::UNSPECIFIED, 0, Closed("not given to anybody")),
    v6(ip6(0x2000, 0, 0, 0, 0), 3, Public),
    v6(Ipv6Addr::UNSPECIFIED, 96, Closed("an IPv4 address in an obsolete form")),
    v6(Ipv6Addr::UNSPECIFIED, 128, Closed("no address")),
    v6(Ipv6Addr::LOCALHOST, 128, Closed("this machine itself")),
    // Mapped addresses never reach this row, because forms() converts them to IPv4 first.
    v6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Within(Wrapping::LowBits)),
    // NAT64: the well-known prefix leads to the public internet, and the local one wherever its
    // operator decides.
    v6(ip6(0x64, 0xff9b, 0, 0, 0), 96, Within(Wrapping::LowBits)),
    v6(ip6(0x64, 0xff9b, 1, 0, 0), 48, Closed("a local translation to IPv4")),
    v6(ip6(0x100, 0, 0, 0, 0), 64, Closed("discarded")),
    v6(ip6(0x100, 0, 0, 1, 0), 64, Closed("discarded")),
    v6(ip6(0x2001, 0, 0, 0, 0), 23, Closed("reserved for protocols")),
    v6(ip6(0x2001, 0, 0, 0, 0), 32, Within(Wrapping::Teredo)),
    // These are anycast addresses for port control, TURN and service registration; AMT; AS112;
    // ORCHIDv2; drones.
    v6(ip6(0x2001, 1, 0, 0, 1), 128, Public),
    v6(ip6(0x2001, 1, 0, 0, 2), 128, Public),
    v6(ip6(0x2001, 1, 0, 0, 3), 128, Public),
    v6(ip6(0x2001, 2, 0, 0, 0), 48, Closed("for benchmarks")),
    v6(ip6(0x2001, 3, 0, 0, 0), 32, Public),
    v6(ip6(0x2001, 4, 0x112, 0, 0), 48, Public),
    v6(ip6(0x2001, 0x10, 0, 0, 0), 28, Closed("a hash, not a host")),
    v6(ip6(0x2001, 0x20, 0, 0, 0), 28, Public),
    v6(ip6(0x2001, 0x30, 0, 0, 0), 28, Public),
    v6(ip6(0x2001, 0xdb8, 0, 0, 0), 32, Closed("for documentation")),
    v6(ip6(0x2002, 0, 0, 0, 0), 16, Within(Wrapping::SixToFour)),
    v6(ip6(0x2620, 0x4f, 0x8000, 0, 0), 48, Public),
    v6(ip6(0x3fff, 0, 0, 0, 0), 20, Closed("for documentation")),
    v6(ip6(0x5f00, 0, 0, 0, 0), 16, Closed("a segment of somebody's routing")),
    v6(ip6(0xfc00, 0, 0, 0, 0), 7, Closed("a private network")),
    v6(ip6(0xfe80, 0, 0, 0, 0), 10, Closed("link-local")),
    v6(ip6(0xfec0, 0, 0, 0, 0), 10, Closed("a private network")),
    v6(ip6(0xff00, 0, 0, 0, 0), 8, Closed("multicast")),
];

/// Metadata services give credentials to anybody who asks from inside. Some have public addresses.
static METADATA: &[(IpAddr, &str)] = &[
    // Amazon, Google, Azure, DigitalOcean, OpenStack, Oracle and most others.
    (IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), "a cloud's metadata service"),
    // Amazon: tasks of ECS, pods of EKS.
    (IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)), "a cloud's metadata service"),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)), "a cloud's metadata service"),
    // Tencent and Scaleway.
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 23)), "a cloud's metadata service"),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 42, 42)), "a cloud's metadata service"),
    // Azure's wire server, a public address.
    (IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), "a cloud's metadata service"),
    // Alibaba.
    (IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), "a cloud's metadata service"),
    // Oracle, the first one.
    (IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)), "a cloud's metadata service"),
    // Amazon's, by IPv6: instances, and pods of EKS.
    (IpAddr::V6(ip6(0xfd00, 0xec2, 0, 0, 0x254)), "a cloud's metadata service"),
    (IpAddr::V6(ip6(0xfd00, 0xec2, 0, 0, 0x23)), "a cloud's metadata service"),
    // Google and Scaleway.
    (IpAddr::V6(ip6(0xfd20, 0xce, 0, 0, 0x254)), "a cloud's metadata service"),
    (IpAddr::V6(ip6(0xfd00, 0x42, 0, 0, 0x42)), "a cloud's metadata service"),
    // OpenStack.
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe)), "a cloud's metadata service"),
];
