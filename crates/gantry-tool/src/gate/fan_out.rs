//! What several machines answered to one call, in order, each named, and of bounded size together.

use std::io::{self, Write};

use gantry_protocol::ErrorCode;
use serde_json::{Value, json};

use super::Answer;
use crate::tool::Reply;

/// Where the results do not fit, the longest make room. One that is no longer than its share, the bound divided by the
/// number of machines, is always kept.
pub(super) struct Results {
    most: usize,
    bytes: usize,
    kept: Vec<OneResult>,
}

struct OneResult {
    node: String,
    bytes: usize,
    value: Value,
    left_out: bool,
}

impl Results {
    pub(super) fn up_to(most: usize) -> Results {
        Results { most, bytes: 0, kept: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn push(&mut self, node: String, answer: Answer) {
        let value = one_result(&node, answer);
        let bytes = encoded_bytes(&value);
        self.bytes += bytes;
        self.kept.push(OneResult { node, bytes, value, left_out: false });
        while self.bytes > self.most {
            let longest = self.kept.iter_mut().filter(|one| !one.left_out).max_by_key(|one| one.bytes);
            let Some(longest) = longest else { return };
            self.bytes -= longest.bytes;
            longest.leave_out(self.most);
            self.bytes += longest.bytes;
        }
    }

    pub(super) fn into_values(self) -> Vec<Value> {
        self.kept.into_iter().map(|one| one.value).collect()
    }
}

impl OneResult {
    fn leave_out(&mut self, most: usize) {
        let message = format!(
            "the result has {} bytes, and those of all machines together have at most {most}",
            self.bytes
        );
        let hint = "the call has run; ask this machine alone, or for less";
        let error = json!({"code": ErrorCode::TooLarge, "message": message, "hint": hint});
        self.value = json!({"node": self.node, "ok": false, "error": error});
        self.bytes = encoded_bytes(&self.value);
        self.left_out = true;
    }
}

fn one_result(node: &str, answer: Answer) -> Value {
    let value = |reply| match reply {
        Reply::Json(value) => value,
        Reply::Text(text) => Value::String(text),
    };
    match answer {
        Answer::Success(reply) => json!({"node": node, "ok": true, "result": value(reply)}),
        Answer::ToolError(reply) => json!({"node": node, "ok": false, "result": value(reply)}),
        Answer::Refused(refusal) => {
            let error = refusal.to_json();
            json!({"node": node, "ok": false, "error": error["error"]})
        }
    }
}

/// Counted, not kept.
fn encoded_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value is always JSON, and counting does not fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(most: usize, lengths: &[usize]) -> Vec<Value> {
        let mut results = Results::up_to(most);
        for (index, length) in lengths.iter().enumerate() {
            results.push(format!("n{index}"), Answer::Success(Reply::Text("x".repeat(*length))));
        }
        results.into_values()
    }

    #[test]
    fn the_longest_make_room_and_the_others_stay() {
        let results = answered(10_000, &[20, 9_000, 3_000, 8_000, 40]);
        let ok: Vec<bool> = results.iter().map(|one| one["ok"] == true).collect();
        assert_eq!(ok, [true, false, true, false, true]);
        assert_eq!(results[1]["error"]["code"], "too_large");
        let told = results[1]["error"]["message"].as_str().unwrap();
        assert!(told.contains("the result has 9035 bytes"), "{told}");
        assert_eq!(results[4], json!({"node": "n4", "ok": true, "result": "x".repeat(40)}));
        assert!(encoded_bytes(&Value::Array(results)) <= 10_000 + 10);
    }

    #[test]
    fn what_is_within_its_share_is_kept_whatever_the_others_say() {
        let mut lengths = [5_000; 20];
        lengths[0] = 400;
        lengths[19] = 400;
        let results = answered(10_000, &lengths);
        assert_eq!((&results[0]["ok"], &results[19]["ok"]), (&json!(true), &json!(true)));
    }

    #[test]
    fn one_that_is_too_long_alone_is_told_too() {
        let results = answered(1_000, &[5_000]);
        assert_eq!(results[0]["error"]["code"], "too_large");
    }
}
