//! Decides where a connection may go: first by name, then by the addresses of one lookup. The
//! caller connects to exactly these addresses; the name is never resolved again.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use crate::addresses::{forms, why_metadata, why_special};
use crate::client::{ClientOptions, NetError};
use crate::policy::{HostPattern, NetworkPolicy};
use crate::target::Target;

/// A stalled resolver blocks a thread. Further lookups wait in a queue until their deadline.
const MAX_LOOKUPS: usize = 32;

/// Names of this machine and of private networks. Whatever they resolve to is not on the internet.
const LOCAL_NAMES: &[&str] = &["localhost", "localdomain", "local", "internal", "svc", "home.arpa"];
const METADATA_NAMES: &[&str] =
    &["metadata", "metadata.google.internal", "instance-data", "metadata.tencentyun.com"];

#[derive(Debug)]
pub(crate) struct Guard {
    options: Arc<ClientOptions>,
    lookups: Arc<Semaphore>,
}

impl Guard {
    pub(crate) fn new(options: Arc<ClientOptions>) -> Guard {
        Guard { options, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }

    /// Makes the checks that need no lookup.
    pub(crate) fn check(&self, target: &Target, policy: &NetworkPolicy) -> Result<(), NetError> {
        if !policy.allows(&target.host) {
            let listed = *policy != NetworkPolicy::DenyAll;
            return Err(NetError::NotAllowed { host: target.host.clone(), listed });
        }
        match target.address {
            Some(address) => self.check_address(target, address),
            None => self.check_name(&target.host),
        }
    }

    /// Returns the addresses to connect to. One closed address among them closes the name.
    pub(crate) async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, NetError> {
        if let Some(address) = target.address {
            self.check_address(target, address)?;
            return Ok(vec![SocketAddr::new(address, target.port)]);
        }
        self.check_name(&target.host)?;
        let found = self.look_up(&target.host, target.port).await?;
        for address in &found {
            self.check_address(target, address.ip())?;
        }
        Ok(found)
    }

    /// Asks the system's resolver once. The answer is not judged here.
    pub(crate) async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, NetError> {
        let failed = |reason: String| NetError::Name { host: host.to_owned(), reason };
        let permit = Arc::clone(&self.lookups).acquire_owned().await;
        let permit = permit.map_err(|err| failed(err.to_string()))?;
        let (found_tx, found_rx) = oneshot::channel();
        let name = host.to_owned();
        // Uses a separate thread, so that nothing, including the runtime's shutdown, waits for a
        // stalled resolver.
        let thread = std::thread::Builder::new().name("look up".into()).spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map(Vec::from_iter);
            drop(permit);
            // Nobody waits any more if the deadline has passed.
            let _ = found_tx.send(found);
        });
        thread.map_err(|err| failed(err.to_string()))?;
        let found = found_rx.await.map_err(|err| failed(err.to_string()))?;
        let found = found.map_err(|err| failed(resolver_message(&err)))?;
        if found.is_empty() { Err(failed("it has no addresses".into())) } else { Ok(found) }
    }

    fn check_name(&self, host: &str) -> Result<(), NetError> {
        let refused = |why| Err(NetError::ForbiddenName { host: host.to_owned(), why });
        if METADATA_NAMES.contains(&host) && !self.names_exactly(host) {
            return refused("the name of a cloud's metadata service");
        }
        let is_local = LOCAL_NAMES
            .iter()
            .any(|name| host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
        if is_local && !self.opens_host(host) {
            return refused("a name of this machine or of a private network");
        }
        Ok(())
    }

    fn check_address(&self, target: &Target, address: IpAddr) -> Result<(), NetError> {
        let refused = |why| {
            let host = target.host.clone();
            Err(NetError::ForbiddenAddress { host, address, why })
        };
        if let Some(why) = forms(address).find_map(why_metadata) {
            // A name that happens to resolve to it is not enough, because its owner can make it
            // resolve to anything.
            let is_meant = target.address.is_some() || METADATA_NAMES.contains(&target.host.as_str());
            return if is_meant && self.names_exactly(&target.host) { Ok(()) } else { refused(why) };
        }
        if self.opens_host(&target.host) {
            return Ok(());
        }
        let mut closed = forms(address).filter(|form| !self.opens_address(*form)).peekable();
        if closed.peek().is_none() {
            return Ok(());
        }
        let own = own_addresses()
            .map_err(|err| NetError::Connect { host: target.host.clone(), reason: err.to_string() })?;
        let why = closed.find_map(|form| {
            why_special(form).or_else(|| own.contains(&form).then_some("an address of this machine"))
        });
        why.map_or(Ok(()), refused)
    }

    fn opens_host(&self, host: &str) -> bool {
        let ClientOptions { allowed_hosts, private_hosts, .. } = &*self.options;
        allowed_hosts.iter().chain(private_hosts).any(|pattern| pattern.matches(host))
    }

    fn names_exactly(&self, host: &str) -> bool {
        let exact = |pattern: &&HostPattern| matches!(pattern, HostPattern::Exact(_));
        self.options.allowed_hosts.iter().filter(exact).any(|pattern| pattern.matches(host))
    }

    fn opens_address(&self, address: IpAddr) -> bool {
        self.options.allowed_ranges.iter().any(|range| range.contains(&address))
    }
}

/// Reports whether a URL itself names a metadata service, by name or by address in any form.
pub fn names_metadata(url: &url::Url) -> bool {
    Target::of(&mut url.clone()).is_ok_and(|target| match target.address {
        Some(address) => forms(address).any(|form| why_metadata(form).is_some()),
        None => METADATA_NAMES.contains(&target.host.as_str()),
    })
}

/// Returns the current addresses of all interfaces. They can change at any time.
pub(crate) fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs()?;
    Ok(interfaces.into_iter().map(|interface| interface.ip()).collect())
}

/// Removes the name of the C function that failed.
fn resolver_message(err: &io::Error) -> String {
    let text = err.to_string();
    text.strip_prefix("failed to lookup address information: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &[&str], ranges: &[&str], url: &str) -> Result<(), String> {
        let options = ClientOptions {
            allowed_hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            allowed_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            ..ClientOptions::default()
        };
        let target = Target::of(&mut url.parse().unwrap()).unwrap();
        let guard = Guard::new(Arc::new(options));
        guard.check(&target, &NetworkPolicy::AllowAll).map_err(|err| err.to_string())
    }

    #[test]
    fn metadata_services_are_opened_only_by_their_own_name() {
        let opened: &[(&[&str], &[&str], &str)] = &[
            (&["127.0.0.1"], &[], "http://127.0.0.1:11434/"),
            (&[], &["127.0.0.0/8"], "http://127.0.0.1:11434/"),
            (&[], &["10.0.0.0/8"], "http://[::ffff:10.1.2.3]/"),
            (&["::1"], &[], "http://[::1]/"),
            (&["localhost"], &[], "http://localhost./"),
            (&["*.lab.internal"], &[], "http://gpu.lab.internal/"),
            (&["169.254.169.254"], &[], "http://169.254.169.254/"),
            (&["metadata.google.internal"], &[], "http://metadata.google.internal/"),
            (&["fd00:ec2::254"], &[], "http://[fd00:ec2::254]/"),
        ];
        for (hosts, ranges, url) in opened {
            assert_eq!(check(hosts, ranges, url), Ok(()), "{hosts:?} {ranges:?} {url}");
        }
        let closed: &[(&[&str], &[&str], &str)] = &[
            (&[], &[], "http://127.0.0.1/"),
            (&["127.0.0.2"], &[], "http://127.0.0.1/"),
            (&[], &["10.0.0.0/8"], "http://192.168.0.1/"),
            (&[], &["0.0.0.0/0", "::/0"], "http://169.254.169.254/"),
            (&[], &["0.0.0.0/0", "::/0"], "http://168.63.129.16/"),
            (&[], &["0.0.0.0/0", "::/0"], "http://[fd00:ec2::254]/"),
            (&[], &["0.0.0.0/0", "::/0"], "http://[64:ff9b::a9fe:a9fe]/"),
            (&["169.254.169.254"], &[], "http://[64:ff9b::a9fe:a9fe]/"),
            (&["*.google.internal"], &[], "http://metadata.google.internal/"),
            (&[], &["0.0.0.0/0"], "http://localhost/"),
            // The outer prefix is open, but what it carries is not.
            (&[], &["2002::/16"], "http://[2002:a00:1::]/"),
        ];
        for (hosts, ranges, url) in closed {
            assert!(check(hosts, ranges, url).is_err(), "{hosts:?} {ranges:?} {url}");
        }
    }

    #[test]
    fn private_hosts_are_reached_and_metadata_stays_closed() {
        let check = |host: &str| {
            let url: url::Url = format!("http://{host}/").parse().unwrap();
            let host = HostPattern::parse(host).unwrap();
            let options = ClientOptions { private_hosts: vec![host], ..ClientOptions::default() };
            let target = Target::of(&mut url.clone()).unwrap();
            let opened = Guard::new(Arc::new(options)).check(&target, &NetworkPolicy::AllowAll).is_ok();
            assert_ne!(opened, names_metadata(&url), "{url}");
            opened
        };
        for host in ["127.0.0.1", "10.0.0.1", "localhost", "searx.lab.internal", "[::1]", "169.254.7.7"] {
            assert!(check(host), "{host}");
        }
        for host in
            ["169.254.169.254", "[fd00:ec2::254]", "168.63.129.16", "metadata.google.internal", "metadata"]
        {
            assert!(!check(host), "{host}");
        }
        for url in
            ["http://0xa9fea9fe/", "http://[64:ff9b::a9fe:a9fe]/", "http://METADATA.google.internal./x"]
        {
            assert!(names_metadata(&url.parse().unwrap()), "{url}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(own_addresses().unwrap().contains(&IpAddr::from([127, 0, 0, 1])));
    }
}
