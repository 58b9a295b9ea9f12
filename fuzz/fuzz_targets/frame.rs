//! No text and no bytes make the protocol panic; what parses survives the wire.
#![no_main]

use gantry_protocol::{ConnectParams, Frame, NodeCallParams, NodeTools, StreamFrame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = StreamFrame::parse(bytes.to_vec().into()) {
        assert_eq!(frame.payload().len() + 16, bytes.len());
        let _ = (frame.stream(), frame.offset(), frame.hash(), frame.reason());
        assert_eq!(frame.clone().into_bytes(), bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(frame) = Frame::parse(text) {
        let sent = frame.to_text();
        let again = Frame::parse(&sent).expect("what was sent can be read");
        assert_eq!(again.to_text(), sent);
        if let Frame::Request { params, .. } = frame {
            let _ = serde_json::from_str::<ConnectParams>(params.get());
            let _ = serde_json::from_str::<NodeTools>(params.get());
            let _ = serde_json::from_str::<NodeCallParams>(params.get());
        }
    }
});
