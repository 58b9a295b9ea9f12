//! Where a request goes, in one form: whatever way its address is spelt, a server takes it for the same.

use url::{Origin, Url};

/// An origin, and a path as a server may read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    origin: Origin,
    /// Every octet decoded, without empty segments.
    segments: Vec<Vec<u8>>,
}

impl Place {
    pub(super) fn of(url: &Url) -> Place {
        let decoded = decoded(url.path());
        // Some servers take an encoded slash for a slash, others merge slashes or take backslashes for them.
        let segments = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
        let segments = segments.filter(|segment| !segment.is_empty()).map(<[u8]>::to_vec).collect();
        Place { origin: without_dot(url).origin(), segments }
    }

    pub(super) fn is_below(&self, base: &Place) -> bool {
        self.origin == base.origin && self.path_is_below(base)
    }

    pub(super) fn path_is_below(&self, base: &Place) -> bool {
        self.segments.starts_with(&base.segments)
    }

    pub(super) fn same_origin(&self, other: &Place) -> bool {
        self.origin == other.origin
    }

    pub(super) fn depth(&self) -> usize {
        self.segments.len()
    }

    /// Dots that only some servers resolve, since they were encoded or have a parameter (`..;`): where the request ends up
    /// cannot be told.
    pub(super) fn is_unclear(&self) -> bool {
        let without_parameter = |segment: &[u8]| segment.iter().position(|byte| *byte == b';');
        self.segments.iter().any(|segment| {
            matches!(&segment[..without_parameter(segment).unwrap_or(segment.len())], b"." | b"..")
        })
    }

    /// The segments as text, for those who look for words in them.
    pub(super) fn words(&self) -> Vec<String> {
        self.segments.iter().map(|segment| String::from_utf8_lossy(segment).to_lowercase()).collect()
    }

    /// A file name that stands for it.
    pub(super) fn key(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.origin.ascii_serialization().as_bytes());
        for segment in &self.segments {
            hasher.update(b"/").update(segment);
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// The segments of a URL's path in lower case, as a server may read them: decoded, without empty ones.
pub fn path_words(url: &Url) -> Vec<String> {
    Place::of(url).words()
}

/// The host as the client will ask for it: a dot at its end says nothing.
pub(super) fn without_dot(url: &Url) -> Url {
    let mut url = url.clone();
    let bare = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned);
    if let Some(bare) = bare.filter(|bare| !bare.is_empty()) {
        // A name without its dot is a name, too.
        let _ = url.set_host(Some(&bare));
    }
    url
}

fn decoded(path: &str) -> Vec<u8> {
    let bytes = path.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let octet = match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        decoded.push(octet.unwrap_or(bytes[at]));
        at += if octet.is_some() { 3 } else { 1 };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place::of(&Url::parse(url).unwrap())
    }

    #[test]
    fn every_spelling_is_one_place() {
        let plain = place("https://api.example.com/a/b");
        for same in [
            "https://API.example.com:443/a/b/",
            "https://api.example.com./a/b",
            "https://api.example.com/%61/%62",
            "https://api.example.com//a//b",
            "https://api.example.com/a%2Fb",
            "https://api.example.com/a%5cb",
            "https://api.example.com/x/../a/b?c#d",
        ] {
            assert_eq!(place(same), plain, "{same}");
            assert_eq!(place(same).key(), plain.key());
        }
        for other in
            ["http://api.example.com/a/b", "https://api.example.com/a/bc", "https://api.example.com/%2561/b"]
        {
            assert_ne!(place(other), plain, "{other}");
            assert_ne!(place(other).key(), plain.key());
        }
        assert_ne!(place("https://a.example/ab").key(), place("https://a.example/a/b").key());
        for unclear in ["/a/..%2fb", "/a/..;/b", "/a/.;x=1/b", "/a/..%3bx/b"] {
            assert!(place(&format!("https://a.example{unclear}")).is_unclear(), "{unclear}");
        }
        for clear in ["/a/b", "/a/b;x=1/c", "/a/...;/b", "/;/a"] {
            assert!(!place(&format!("https://a.example{clear}")).is_unclear(), "{clear}");
        }
        assert_eq!(place("https://a.example/100%/%zz%4").words(), ["100%", "%zz%4"]);
    }
}
