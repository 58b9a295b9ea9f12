//! Collects the results of several nodes for one call, in order and within a total size.

use std::io::{self, Write};

use gantry_protocol::ErrorCode;
use serde_json::{Value, json};

use super::Answer;
use crate::tool::Reply;

/// The results of the nodes. If they exceed the limit, the longest are replaced by an error. A result within its share
/// (the limit divided by the number of nodes) is always kept.
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
            "the result has {} bytes; the results of all nodes together may have at most {most}",
            self.bytes
        );
        let hint = "the call ran; repeat it for this node alone, or request less";
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

/// The length of the value as JSON, without building the text.
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
    // Serialising a `Value` into a counter cannot fail.
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
    fn longest_results_are_replaced_until_the_rest_fits() {
        let results = answered(10_000, &[20, 9_000, 3_000, 8_000, 40]);
        let ok: Vec<bool> = results.iter().map(|one| one["ok"] == true).collect();
        assert_eq!(ok, [true, false, true, false, true]);
        assert_eq!(results[1]["error"]["code"], "too_large");
        let message = results[1]["error"]["message"].as_str().unwrap();
        assert!(message.contains("the result has 9035 bytes"), "{message}");
        assert_eq!(results[4], json!({"node": "n4", "ok": true, "result": "x".repeat(40)}));
        assert!(encoded_bytes(&Value::Array(results)) <= 10_000 + 10);
    }

    #[test]
    fn result_within_its_share_is_always_kept() {
        let mut lengths = [5_000; 20];
        lengths[0] = 400;
        lengths[19] = 400;
        let results = answered(10_000, &lengths);
        assert_eq!((&results[0]["ok"], &results[19]["ok"]), (&json!(true), &json!(true)));
    }

    #[test]
    fn single_result_above_the_limit_is_replaced() {
        let results = answered(1_000, &[5_000]);
        assert_eq!(results[0]["error"]["code"], "too_large");
    }
}
