//! [`NormalizedUrl`] is the same for all spellings of a URL that a server may treat as one address.

use url::{Origin, Url};

/// An origin and a path, decoded as far as any server decodes it. The query and the fragment are
/// dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NormalizedUrl {
    origin: Origin,
    /// The segments of the path with every octet decoded and empty segments removed.
    segments: Vec<Vec<u8>>,
}

impl NormalizedUrl {
    pub(crate) fn of(url: &Url) -> NormalizedUrl {
        let decoded = decoded(url.path());
        // Some servers treat an encoded slash or a backslash as a slash, and some merge slashes.
        let segments = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
        let segments = segments.filter(|segment| !segment.is_empty()).map(<[u8]>::to_vec).collect();
        NormalizedUrl { origin: without_dot(url).origin(), segments }
    }

    pub(crate) fn is_below(&self, base: &NormalizedUrl) -> bool {
        self.origin == base.origin && self.path_is_below(base)
    }

    pub(crate) fn path_is_below(&self, base: &NormalizedUrl) -> bool {
        self.segments.starts_with(&base.segments)
    }

    pub(crate) fn same_origin(&self, other: &NormalizedUrl) -> bool {
        self.origin == other.origin
    }

    pub(crate) fn depth(&self) -> usize {
        self.segments.len()
    }

    /// Whether the path holds dot segments that only some servers resolve, because they are encoded
    /// or carry a parameter (`..;`). Different servers then serve different resources.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let without_parameter = |segment: &[u8]| segment.iter().position(|byte| *byte == b';');
        self.segments.iter().any(|segment| {
            matches!(&segment[..without_parameter(segment).unwrap_or(segment.len())], b"." | b"..")
        })
    }

    /// The segments as lower-case text.
    pub(crate) fn words(&self) -> Vec<String> {
        self.segments.iter().map(|segment| String::from_utf8_lossy(segment).to_lowercase()).collect()
    }

    /// A hash of the URL that can be used as a file name.
    pub(crate) fn key(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.origin.ascii_serialization().as_bytes());
        for segment in &self.segments {
            hasher.update(b"/").update(segment);
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// Returns the segments of a URL's path in lower case, decoded and without empty ones.
pub fn path_words(url: &Url) -> Vec<String> {
    NormalizedUrl::of(url).words()
}

/// Returns the URL without the dot that may end its host name; the dot does not change the host.
pub(crate) fn without_dot(url: &Url) -> Url {
    let mut url = url.clone();
    let bare = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned);
    if let Some(bare) = bare.filter(|bare| !bare.is_empty()) {
        // This cannot fail: a valid host name stays valid without its final dot.
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

    fn normalized(url: &str) -> NormalizedUrl {
        NormalizedUrl::of(&Url::parse(url).unwrap())
    }

    #[test]
    fn all_spellings_of_an_address_are_equal() {
        let plain = normalized("https://api.example.com/a/b");
        for same in [
            "https://API.example.com:443/a/b/",
            "https://api.example.com./a/b",
            "https://api.example.com/%61/%62",
            "https://api.example.com//a//b",
            "https://api.example.com/a%2Fb",
            "https://api.example.com/a%5cb",
            "https://api.example.com/x/../a/b?c#d",
        ] {
            assert_eq!(normalized(same), plain, "{same}");
            assert_eq!(normalized(same).key(), plain.key());
        }
        for other in
            ["http://api.example.com/a/b", "https://api.example.com/a/bc", "https://api.example.com/%2561/b"]
        {
            assert_ne!(normalized(other), plain, "{other}");
            assert_ne!(normalized(other).key(), plain.key());
        }
        assert_ne!(normalized("https://a.example/ab").key(), normalized("https://a.example/a/b").key());
        for ambiguous in ["/a/..%2fb", "/a/..;/b", "/a/.;x=1/b", "/a/..%3bx/b"] {
            assert!(normalized(&format!("https://a.example{ambiguous}")).is_ambiguous(), "{ambiguous}");
        }
        for clear in ["/a/b", "/a/b;x=1/c", "/a/...;/b", "/;/a"] {
            assert!(!normalized(&format!("https://a.example{clear}")).is_ambiguous(), "{clear}");
        }
        assert_eq!(normalized("https://a.example/100%/%zz%4").words(), ["100%", "%zz%4"]);
    }
}
