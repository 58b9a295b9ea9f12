//! The addresses of this machine at which other machines may reach it.

use std::net::IpAddr;

/// Interfaces of containers and virtual machines, whose addresses exist on this machine only.
const VIRTUAL: [&str; 7] = ["docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "cni"];

/// Returns this machine's addresses, the likeliest to be reachable first. Loopback and link-local addresses are left
/// out.
pub fn lan_addresses() -> std::io::Result<Vec<IpAddr>> {
    let found = if_addrs::get_if_addrs()?;
    let usable = found.into_iter().filter(|found| !found.is_loopback() && !found.is_link_local());
    Ok(ordered(usable.map(|found| (found.ip(), found.name)).collect()))
}

fn ordered(mut found: Vec<(IpAddr, String)>) -> Vec<IpAddr> {
    found.retain(|(_, name)| !VIRTUAL.iter().any(|prefix| name.starts_with(prefix)));
    // IPv4 first: it is what people recognise, and the likelier one to work between two machines.
    found.sort_by_key(|(address, name)| (address.is_ipv6(), name.clone(), *address));
    let mut addresses: Vec<IpAddr> = found.into_iter().map(|(address, _)| address).collect();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_containers_are_left_out() {
        let found = [
            ("2001:db8::7", "eth0"),
            ("172.17.0.1", "docker0"),
            ("192.168.1.5", "wlan0"),
            ("10.0.0.9", "eth0"),
            ("172.18.0.1", "br-0123"),
        ];
        let found = found.map(|(address, name)| (address.parse().unwrap(), name.to_owned()));
        let expected: Vec<IpAddr> =
            ["10.0.0.9", "192.168.1.5", "2001:db8::7"].map(|address| address.parse().unwrap()).into();
        assert_eq!(ordered(found.to_vec()), expected);
    }
}
