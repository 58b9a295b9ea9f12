//! Heads of HTTP/1 requests and responses, parsed strictly: a head that two parsers could read
//! differently is refused.

use super::refusal::Refusal;

const MAX_HEADERS: usize = 128;

/// `HeadScan` finds the end of a head that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    scanned: usize,
}

impl HeadScan {
    /// Returns where the head ends, with its empty line. `bytes` begins with the same bytes each
    /// time.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        while let Some(byte) = bytes.get(self.scanned) {
            let before = |back: usize| self.scanned.checked_sub(back).and_then(|at| bytes.get(at));
            match byte {
                b'\n' if before(1) != Some(&b'\r') => {
                    return Err(Refusal::invalid("a line ends with LF instead of CRLF"));
                }
                b'\n' if before(2) == Some(&b'\n') || self.scanned == 1 => {
                    return Ok(Some(self.scanned + 1));
                }
                0 => return Err(Refusal::invalid("the head contains a null byte")),
                byte if *byte != b'\n' && before(1) == Some(&b'\r') => {
                    return Err(Refusal::invalid("the head contains CR without LF"));
                }
                _ => {}
            }
            self.scanned += 1;
        }
        Ok(None)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// In lower case.
    pub(super) name: String,
    pub(super) value: Vec<u8>,
}

/// `Headers` keeps the order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Headers(pub(super) Vec<Header>);

impl Headers {
    /// Returns the value of a header that may occur at most once.
    pub(super) fn single(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut values = self.0.iter().filter(|header| header.name == name);
        let Some(first) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Refusal::invalid(format!("the header {name} occurs twice")));
        }
        let text = std::str::from_utf8(&first.value).ok().filter(|text| text.is_ascii());
        text.map(Some).ok_or_else(|| Refusal::invalid(format!("the header {name} is not ASCII")))
    }

    /// Returns the headers that `Connection` names, in lower case.
    pub(super) fn named_by_connection(&self) -> Vec<String> {
        let named = self.0.iter().filter(|header| header.name == "connection");
        let named = named.flat_map(|header| header.value.split(|byte| *byte == b','));
        named.map(|token| String::from_utf8_lossy(token).trim().to_ascii_lowercase()).collect()
    }
}

/// `RequestHead` is a head whose target has not been interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestHead {
    pub(super) method: String,
    pub(super) target: String,
    /// The 1 of HTTP/1.1, or 0.
    pub(super) minor: u8,
    pub(super) headers: Headers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseHead {
    /// The whole status line.
    pub(super) line: Vec<u8>,
    pub(super) status: u16,
    pub(super) headers: Headers,
}

impl RequestHead {
    /// Takes the bytes up to and including the empty line.
    pub(super) fn parse(bytes: &[u8]) -> Result<RequestHead, Refusal> {
        let bad = || Refusal::invalid("the first line is not a request of HTTP/1.1 or HTTP/1.0");
        let (line, headers) = split(bytes)?;
        let line = std::str::from_utf8(line).map_err(|_| bad())?;
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(bad());
        };
        let minor = match version {
            "HTTP/1.1" => 1,
            "HTTP/1.0" => 0,
            _ => return Err(bad()),
        };
        let is_method = !method.is_empty() && method.bytes().all(is_token);
        if !is_method || target.is_empty() || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad());
        }
        Ok(RequestHead { method: method.into(), target: target.into(), minor, headers })
    }
}

impl ResponseHead {
    pub(super) fn parse(bytes: &[u8]) -> Result<ResponseHead, Refusal> {
        let bad = || Refusal::failed("the server's answer is not HTTP/1");
        let (line, headers) = split(bytes).map_err(|_| bad())?;
        let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "));
        let (code, after) = rest.and_then(|rest| rest.split_at_checked(3)).ok_or_else(bad)?;
        let digits = code.iter().all(u8::is_ascii_digit);
        let status = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
        match status {
            Some(status) if digits && (after.is_empty() || after[0] == b' ') => {
                Ok(ResponseHead { line: line.to_vec(), status, headers })
            }
            _ => Err(bad()),
        }
    }
}

/// Returns the first line and the headers. `HeadScan` has refused bare LF, bare CR and null.
fn split(bytes: &[u8]) -> Result<(&[u8], Headers), Refusal> {
    let text = bytes.strip_suffix(b"\r\n\r\n").ok_or_else(|| Refusal::invalid("the head is empty"))?;
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().unwrap_or_default();
    let mut headers = Vec::new();
    for line in lines {
        if headers.len() == MAX_HEADERS {
            return Err(Refusal::too_large(format!("there are more than {MAX_HEADERS} headers")));
        }
        headers.push(header(line)?);
    }
    Ok((first, Headers(headers)))
}

fn header(line: &[u8]) -> Result<Header, Refusal> {
    if line.first().is_some_and(|byte| [b' ', b'\t'].contains(byte)) {
        return Err(Refusal::invalid("a header continues on the next line"));
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = match colon {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => return Err(Refusal::invalid("a header has no colon")),
    };
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return Err(Refusal::invalid("the name of a header is invalid"));
    }
    let value = value.trim_ascii();
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(Refusal::invalid("a header contains a control character"));
    }
    Ok(Header { name: String::from_utf8_lossy(name).to_ascii_lowercase(), value: value.to_vec() })
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RequestHead, String> {
        let reason = |refusal: Refusal| refusal.outcome.reason().to_owned();
        let end = HeadScan::default().end(text.as_bytes()).map_err(reason)?;
        let end = end.ok_or("incomplete")?;
        RequestHead::parse(&text.as_bytes()[..end]).map_err(reason)
    }

    #[test]
    fn head_is_parsed_in_pieces_of_any_size() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\nX-Y:  b c\t\r\n\r\nrest";
        for size in 1..text.len() {
            let mut scan = HeadScan::default();
            let ends = (0..=text.len()).step_by(size).find_map(|end| scan.end(&text[..end]).unwrap());
            if let Some(end) = ends {
                assert_eq!(&text[end..], b"rest");
            }
        }
        let head = parse(std::str::from_utf8(text).unwrap()).unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str(), head.minor), ("GET", "/", 1));
        assert_eq!(head.headers.0[1], Header { name: "x-y".into(), value: b"b c".to_vec() });
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        for text in [
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n",
            "GET / HTTP/1.1\r\n A: b\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\n: b\r\n\r\n",
            "GET / HTTP/1.1\r\nA\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\x0bc\r\n\r\n",
            "GET / HTTP/1.1\r\nA\x00: b\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 \r\n\r\n",
            "GET /a b HTTP/1.1\r\n\r\n",
            "GET\t/ HTTP/1.1\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / http/1.1\r\n\r\n",
            "GET / HTTP/1.10\r\n\r\n",
            "GET /\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "G@T / HTTP/1.1\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            let parsed = parse(text);
            assert!(parsed.as_ref().is_err_and(|reason| reason != "incomplete"), "{text:?}: {parsed:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        assert!(parse(&many).unwrap_err().contains("more than"));
    }

    #[test]
    fn response_heads_are_parsed() {
        let parse = |text: &str| ResponseHead::parse(text.as_bytes()).map(|head| head.status).ok();
        assert_eq!(parse("HTTP/1.1 200 OK\r\nA: b\r\n\r\n"), Some(200));
        assert_eq!(parse("HTTP/1.0 404\r\n\r\n"), Some(404));
        for text in
            ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 20\r\n\r\n", "HTTP/1.1 2000 x\r\n\r\n", "HTTP/2 200\r\n\r\n"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
