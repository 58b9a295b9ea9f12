//! Hosts that development tools need, with the direction in which data can flow.

/// `PresetKind` says what a host of the preset can receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PresetKind {
    /// Indexes and downloads. Nobody can publish there, so a connection does not carry data to
    /// others.
    PullOnly,
    /// Anybody with an account can also upload, so a connection can carry data out.
    TwoWay,
}

use PresetKind::{PullOnly, TwoWay};

/// Each entry is one host, not the hosts below it.
const PRESET: &[(&str, PresetKind)] = &[
    // The sparse index of crates.io, which cargo reads by default.
    ("index.crates.io", PullOnly),
    // Downloads of crates.
    ("static.crates.io", PullOnly),
    // The index of PyPI, which pip and uv read by default. Uploads go to upload.pypi.org.
    ("pypi.org", PullOnly),
    // Downloads of PyPI's packages.
    ("files.pythonhosted.org", PullOnly),
    // Debian's packages, and its security updates.
    ("deb.debian.org", PullOnly),
    ("security.debian.org", PullOnly),
    // Repositories over https, for clone, fetch and push; links to releases.
    ("github.com", TwoWay),
    // Archives of a repository's sources, to which github.com redirects.
    ("codeload.github.com", TwoWay),
    // Files of releases, to which github.com redirects. The first host is the older one.
    ("objects.githubusercontent.com", TwoWay),
    ("release-assets.githubusercontent.com", TwoWay),
    // Repositories, archives and files of releases.
    ("gitlab.com", TwoWay),
    // The npm registry: index, downloads, and `npm publish`.
    ("registry.npmjs.org", TwoWay),
    // The Go module mirror fetches any public module that is asked for, and the checksum database
    // records it.
    ("proxy.golang.org", TwoWay),
    ("sum.golang.org", TwoWay),
    // The API of crates.io: search, download links, and `cargo publish`.
    ("crates.io", TwoWay),
];

/// Returns what the preset says about a host, in the form of [`super::Wanted::host`].
pub fn preset(host: &str) -> Option<PresetKind> {
    PRESET.iter().find(|(name, _)| *name == host).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_matches_whole_hosts_only() {
        assert_eq!(preset("index.crates.io"), Some(PullOnly));
        assert_eq!(preset("github.com"), Some(TwoWay));
        for host in [
            "upload.pypi.org",
            "gist.github.com",
            "evil.github.com",
            "github.com.evil.example",
            "notgithub.com",
            "github.com.",
            "GitHub.com",
            "io",
            "",
        ] {
            assert_eq!(preset(host), None, "{host}");
        }
    }

    #[test]
    fn preset_names_each_host_once_in_its_only_form() {
        for (position, (host, _)) in PRESET.iter().enumerate() {
            let place = crate::egress::place::Place::of_name(host, 443).unwrap();
            assert_eq!((place.host.as_str(), place.address), (*host, None));
            assert!(!PRESET[..position].iter().any(|(other, _)| other == host), "{host} is there twice");
        }
    }
}
