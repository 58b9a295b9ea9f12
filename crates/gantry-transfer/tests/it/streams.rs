//! One file over one stream, with cuts and tampering on the wire.

use std::os::unix::fs::PermissionsExt;

use gantry_protocol::{ErrorCode, StreamFrame, StreamKind, method};
use serde_json::{Value, json};

use crate::wire::{CUT_NEVER, Tamper, World, ask};

const MIB: usize = 1 << 20;

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 3 + at / MIB) as u8).collect()
}

fn intact(frame: StreamFrame) -> Vec<StreamFrame> {
    vec![frame]
}

fn check_whole(world: &World, expected: &[u8]) {
    assert!(std::fs::read(world.path("to/b")).unwrap() == expected);
    assert_eq!(world.received(), ["b"], "no part is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_every_size_arrive_complete_with_their_mode() {
    for size in [0, 1, MIB - 1, MIB, MIB + 1, 20 * MIB + 7] {
        let world = World::new();
        let expected = content(size);
        std::fs::write(world.path("from/a"), &expected).unwrap();
        std::fs::set_permissions(world.path("from/a"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let done = world.transfer(CUT_NEVER, intact).await.unwrap();
        assert_eq!(done.bytes, size as u64);
        assert_eq!(done.hash, blake3::hash(&expected).to_hex().as_str());
        check_whole(&world, &expected);
        let mode = std::fs::metadata(world.path("to/b")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_resumes_after_a_cut_at_any_frame() {
    // Twelve blocks and an end frame, with credit frames in between.
    let expected = content(12 * MIB + 5);
    let mut kept_some = 0;
    for frames in 0.. {
        let mut world = World::new();
        std::fs::write(world.path("from/a"), &expected).unwrap();
        std::fs::write(world.path("to/b"), "old").unwrap();
        if world.transfer(frames, intact).await.is_ok() {
            assert!(frames > 13, "a wire that carries {frames} frames is not enough");
            break;
        }
        assert_eq!(std::fs::read(world.path("to/b")).unwrap(), b"old", "after {frames} frames");
        if frames % 2 == 0 {
            world.restart_receiver();
        }
        let part = std::fs::metadata(world.path("to/.gantry-t.part")).unwrap().len();
        kept_some += u32::from(part > 0);
        world.transfer(CUT_NEVER, intact).await.unwrap();
        check_whole(&world, &expected);
    }
    assert!(kept_some > 5, "bytes received before a cut are kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_tampered_on_the_wire_is_not_committed() {
    let wrong_byte: Tamper = |frame| match frame.kind() {
        StreamKind::Data => {
            let (stream, offset) = (frame.stream(), frame.offset());
            let bytes = frame.payload().to_vec();
            let changed = StreamFrame::data_with(stream, offset, bytes.len(), |room| {
                room.copy_from_slice(&bytes);
                room[0] ^= 1;
                Ok::<_, ()>(bytes.len())
            });
            changed.unwrap().into_iter().collect()
        }
        _ => vec![frame],
    };
    let wrong_hash: Tamper = |frame| match frame.kind() {
        StreamKind::End => vec![StreamFrame::end(frame.stream(), frame.offset(), &[0; 32])],
        _ => vec![frame],
    };
    let wrong_length: Tamper = |frame| match frame.hash() {
        Some(hash) => vec![StreamFrame::end(frame.stream(), frame.offset() + 1, &hash)],
        None => vec![frame],
    };
    let early_end: Tamper = |frame| match (frame.kind(), frame.offset()) {
        (StreamKind::Data, 1_048_576) => {
            vec![StreamFrame::end(frame.stream(), MIB as u64, blake3::hash(&content(MIB)).as_bytes())]
        }
        _ => vec![frame],
    };
    let lost_block: Tamper = |frame| match (frame.kind(), frame.offset()) {
        (StreamKind::Data, 1_048_576) => Vec::new(),
        _ => vec![frame],
    };
    let twice: Tamper = |frame| match frame.kind() {
        StreamKind::Data => vec![frame.clone(), frame],
        _ => vec![frame],
    };
    for (name, tamper, code) in [
        ("a wrong byte", wrong_byte, ErrorCode::PrefixMismatch),
        ("a wrong hash", wrong_hash, ErrorCode::PrefixMismatch),
        ("a wrong length", wrong_length, ErrorCode::PrefixMismatch),
        ("an end that comes early", early_end, ErrorCode::PrefixMismatch),
        ("a lost block", lost_block, ErrorCode::Unavailable),
        ("a block twice", twice, ErrorCode::Unavailable),
    ] {
        let world = World::new();
        let expected = content(3 * MIB + 1);
        std::fs::write(world.path("from/a"), &expected).unwrap();
        let error = world.transfer(CUT_NEVER, tamper).await.unwrap_err();
        assert_eq!(error.code, code, "{name}: {error}");
        assert!(!world.path("to/b").exists(), "{name}");
        world.transfer(CUT_NEVER, intact).await.unwrap();
        check_whole(&world, &expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sender_that_exceeds_its_credit_is_aborted() {
    // The wire raises the receiver's first credit far beyond what was granted.
    let world = World::new();
    std::fs::write(world.path("from/a"), content(30 * MIB)).unwrap();
    let generous: Tamper = |frame| match frame.kind() {
        StreamKind::Credit => vec![StreamFrame::credit(frame.stream(), u64::MAX)],
        StreamKind::Data if frame.offset() == 0 => {
            let far = StreamFrame::data_with(frame.stream(), 9 << 20, 1, |room| {
                room[0] = 1;
                Ok::<_, ()>(1)
            });
            vec![frame, far.unwrap().unwrap()]
        }
        _ => vec![frame],
    };
    let error = world.transfer(CUT_NEVER, generous).await.unwrap_err();
    assert!(error.message.contains("credit"), "{error}");
    assert!(!world.path("to/b").exists());

    // Tiny frames within the credit cannot fill memory, because the queue is bounded.
    let crumbs: Tamper = |frame| match frame.kind() {
        StreamKind::Data if frame.offset() == 0 => (0..3000)
            .map(|at| {
                let crumb = StreamFrame::data_with(frame.stream(), at, 1, |room| {
                    room[0] = 1;
                    Ok::<_, ()>(1)
                });
                crumb.unwrap().unwrap()
            })
            .collect(),
        _ => vec![frame],
    };
    world.abandon().await;
    assert!(world.transfer(CUT_NEVER, crumbs).await.is_err());
    world.abandon().await;
    // Frames of unknown streams are answered with an abort; an abort is not answered.
    let stray = world.to.take(StreamFrame::end(999, 0, &[0; 32])).unwrap();
    assert_eq!((stray.kind(), stray.stream()), (StreamKind::Abort, 999));
    assert_eq!(world.to.take(StreamFrame::abort(999, "no")), None);
    world.transfer(CUT_NEVER, intact).await.unwrap();
    check_whole(&world, &content(30 * MIB));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_source_is_sent_again_from_the_first_byte() {
    let world = World::new();
    std::fs::write(world.path("from/a"), content(10 * MIB)).unwrap();
    world.transfer(6, intact).await.unwrap_err();
    assert!(std::fs::metadata(world.path("to/.gantry-t.part")).unwrap().len() > 0);
    let other: Vec<u8> = content(10 * MIB).iter().map(|byte| !byte).collect();
    std::fs::write(world.path("from/a"), &other).unwrap();
    let error = world.transfer(CUT_NEVER, intact).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PrefixMismatch);
    assert!(error.message.contains("not the beginning"), "detected before anything is sent: {error}");
    // The gateway does the same: the received bytes are useless.
    world.abandon().await;
    assert!(world.received().is_empty());
    world.transfer(CUT_NEVER, intact).await.unwrap();
    check_whole(&world, &other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unopened_transfers_and_entries_are_rejected() {
    let world = World::new();
    for (method, params) in [
        (method::TRANSFER_MANIFEST, json!({"transfer": "x"})),
        (method::TRANSFER_HAVE, json!({"transfer": "x"})),
        (method::TRANSFER_MAKE, json!({"transfer": "x", "entry": "e", "mode": 0o755})),
    ] {
        let error = ask::<_, Value>(&world.to, method, &params, None).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::NotFound, "{method}");
    }
    for (method, params) in [
        (method::TRANSFER_SEND, json!({"transfer": "x", "stream": 1, "from": 0, "credit": 0})),
        (method::TRANSFER_SEND, json!({"transfer": 7})),
        ("transfer.none", json!({})),
    ] {
        assert!(ask::<_, Value>(&world.to, method, &params, None).await.is_err(), "{method}");
    }
    world.abandon().await;
}
