//! [`Multipart`] builds the body of a `multipart/form-data` request.

use bytes::Bytes;

pub(crate) struct Multipart {
    boundary: String,
    body: Vec<u8>,
}

impl Multipart {
    pub(crate) fn new() -> Multipart {
        Multipart { boundary: format!("gantry-{}", uuid::Uuid::new_v4().simple()), body: Vec::new() }
    }

    pub(crate) fn text(mut self, name: &str, value: &str) -> Multipart {
        self.part(
            &format!("Content-Disposition: form-data; name=\"{}\"\r\n\r\n", quoted(name)),
            value.as_bytes(),
        );
        self
    }

    pub(crate) fn file(mut self, name: &str, file_name: &str, mime: &str, bytes: &[u8]) -> Multipart {
        let mime: String = mime.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
        let head = format!(
            "Content-Disposition: form-data; name=\"{}\"; filename=\"{}\"\r\nContent-Type: {mime}\r\n\r\n",
            quoted(name),
            quoted(file_name)
        );
        self.part(&head, bytes);
        self
    }

    /// Returns the value of `Content-Type` and the body.
    pub(crate) fn finish(mut self) -> (String, Bytes) {
        self.body.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        (format!("multipart/form-data; boundary={}", self.boundary), self.body.into())
    }

    fn part(&mut self, head: &str, value: &[u8]) {
        self.body.extend_from_slice(format!("--{}\r\n{head}", self.boundary).as_bytes());
        self.body.extend_from_slice(value);
        self.body.extend_from_slice(b"\r\n");
    }
}

/// Escapes a name as browsers do. Line ends cannot start another header.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_add_headers() {
        let (content_type, body) = Multipart::new()
            .text("a", "1")
            .file("f", "x\"\r\nEvil: 1", "text/plain\r\nEvil: 2", b"data")
            .finish();
        let boundary = content_type.split("boundary=").nth(1).unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.starts_with(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n"
        )));
        assert!(text.ends_with(&format!("data\r\n--{boundary}--\r\n")));
        assert!(!text.lines().any(|line| line.starts_with("Evil")), "{text}");
    }
}
