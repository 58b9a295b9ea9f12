//! Limits of the egress proxy: waiting decisions, connections, time, memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use gantry_net::testing::site::{Say, Site, answer};
use gantry_net::{EgressDecision, EgressLimits, EgressOptions, EgressOutcome, egress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::egress::{allow_all, connect_head, get, read_all, socks_name, start};

fn limited(limits: EgressLimits) -> EgressOptions {
    EgressOptions { limits, ..EgressOptions::default() }
}

#[tokio::test]
async fn unanswered_question_ends_with_a_denial() {
    assert_eq!(EgressLimits::default().decision, Duration::from_secs(25));
    let limits = EgressLimits { decision: Duration::from_millis(400), ..EgressLimits::default() };
    let proxy = start(limited(limits), |_| std::future::pending().boxed());
    let began = Instant::now();
    for bytes in [connect_head("www.example.com:443"), get("www.example.com", "/")] {
        let answer = proxy.say(&bytes).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 www.example.com is not allowed: the user did not answer"),
            "{answer}"
        );
        assert!(answer.contains("egress.allow"), "{answer}");
        assert!(matches!(proxy.record().await.outcome, EgressOutcome::Denied { .. }));
    }
    let mut stream = proxy.connect().await;
    stream.write_all(&socks_name("www.example.com", 443)).await.unwrap();
    let mut code = [0; 12];
    stream.read_exact(&mut code).await.unwrap();
    assert_eq!(code[..4], [5, 0, 5, 2]);
    assert!(began.elapsed() >= Duration::from_millis(1200));
}

/// `Dropped` reports that the future which holds it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn client_that_leaves_cancels_the_question() {
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&dropped);
    let proxy = start(EgressOptions::default(), move |_| {
        let guard = Dropped(Arc::clone(&flag));
        async move {
            let _guard = guard;
            std::future::pending().await
        }
        .boxed()
    });
    for bytes in [
        connect_head("www.example.com:443"),
        get("www.example.com", "/"),
        socks_name("www.example.com", 443),
        // Bytes that were sent ahead do not hide that the client left.
        [&connect_head("www.example.com:443")[..], &[22; 30_000]].concat(),
    ] {
        dropped.store(false, Ordering::SeqCst);
        let mut stream = proxy.connect().await;
        stream.write_all(&bytes).await.unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(!dropped.load(Ordering::SeqCst), "the question waits");
        drop(stream);
        let began = Instant::now();
        assert_eq!(proxy.record().await.outcome, EgressOutcome::ClientLeft);
        assert!(dropped.load(Ordering::SeqCst) && began.elapsed() < Duration::from_secs(3));
    }
}

#[tokio::test]
async fn too_many_questions_are_refused_and_quick_decisions_pass() {
    let site = Site::start(|_| answer("200 OK", &[], b"service")).await;
    let limits = EgressLimits { waiting_decisions: 3, ..EgressLimits::default() };
    let proxy = start(limited(limits), |wanted| {
        if wanted.loopback_service { allow_all(wanted) } else { std::future::pending().boxed() }
    });
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut stream = proxy.connect().await;
        stream.write_all(&connect_head("www.example.com:443")).await.unwrap();
        waiting.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let answer = proxy.say(&connect_head("www.example.com:443")).await;
    assert!(answer.starts_with("HTTP/1.1 503 too many connections wait"), "{answer}");
    let host = format!("host.gantry.internal:{}", site.address.port());
    assert!(proxy.say(&get(&host, "/")).await.ends_with("service"));
    drop(waiting);
    proxy.records(5).await;
    let mut stream = proxy.connect().await;
    stream.write_all(&connect_head("www.example.com:443")).await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(600), read_all(&mut stream)).await;
    assert!(waits.is_err(), "there is room again");
}

#[tokio::test]
async fn connections_above_the_limit_wait() {
    let site = Site::start(|_| answer("200 OK", &[], b"service")).await;
    let host = format!("host.gantry.internal:{}", site.address.port());
    let limits = EgressLimits { connections: 4, ..EgressLimits::default() };
    let proxy = start(limited(limits), allow_all);
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = proxy.connect().await;
        stream.write_all(b"G").await.unwrap();
        open.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut fifth = proxy.connect().await;
    fifth.write_all(&get(&host, "/")).await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(300), fifth.read_u8()).await;
    assert!(waits.is_err(), "the fifth waits");
    open.pop();
    assert!(read_all(&mut fifth).await.ends_with("service"));
    drop(open);
    // Far more connections than the limit are all served.
    let request = get(&host, "/");
    let all = (0..200).map(|_| proxy.say(&request));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().all(|answer| answer.ends_with("service")));
    let records = proxy.records(205).await;
    assert_eq!(records.len(), 205, "each connection has one record");
}

#[tokio::test]
async fn slow_clients_are_cut() {
    let second = Duration::from_secs(1);
    let limits = EgressLimits { head: second, hello: second, ..EgressLimits::default() };
    let proxy = start(limited(limits), allow_all);
    let mut silent = proxy.connect().await;
    let mut slow = proxy.connect().await;
    let mut slow_socks = proxy.connect().await;
    slow_socks.write_all(&[5, 1]).await.unwrap();
    let drip = async {
        for byte in get("www.example.com", "/") {
            if slow.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        read_all(&mut slow).await
    };
    let (_, answer, _) = tokio::join!(read_all(&mut silent), drip, read_all(&mut slow_socks));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let records = proxy.records(3).await;
    assert!(
        records.iter().all(|record| matches!(record.outcome, EgressOutcome::TimedOut { .. })),
        "{records:?}"
    );
    assert!(records.iter().all(|record| record.duration < Duration::from_secs(5)), "{records:?}");
}

#[tokio::test]
async fn idle_connections_are_cut_and_busy_ones_are_not() {
    let site = Site::start(|heard| match heard.target.as_str() {
        "/never" => vec![Say::Wait(Duration::from_secs(60))],
        _ => {
            let mut said = vec![Say::Bytes(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())];
            for _ in 0..10 {
                said.extend([Say::Wait(Duration::from_millis(200)), Say::Bytes(b"tick".to_vec())]);
            }
            said.push(Say::Close);
            said
        }
    })
    .await;
    let host = format!("host.gantry.internal:{}", site.address.port());
    let limits = EgressLimits { idle: Duration::from_millis(800), ..EgressLimits::default() };
    let proxy = start(limited(limits), allow_all);
    let answer = proxy.say(&get(&host, "/")).await;
    assert!(answer.ends_with(&"tick".repeat(10)), "{answer}");
    assert_eq!(proxy.record().await.outcome, EgressOutcome::Finished);
    let answer = proxy.say(&get(&host, "/never")).await;
    assert!(answer.starts_with("HTTP/1.1 504 there was no traffic"), "{answer}");
    assert!(matches!(proxy.record().await.outcome, EgressOutcome::TimedOut { .. }));
    let answer = proxy.say(&connect_head(&host)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(matches!(proxy.record().await.outcome, EgressOutcome::TimedOut { .. }));
}

#[tokio::test]
async fn proxy_reads_no_more_than_the_client_takes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let block = vec![7; 64 * 1024];
        while stream.write_all(&block).await.is_ok() {
            count.fetch_add(block.len(), Ordering::SeqCst);
        }
    });
    let proxy = start(EgressOptions::default(), allow_all);
    let mut stream = proxy.connect().await;
    stream.write_all(&connect_head(&format!("host.gantry.internal:{port}"))).await.unwrap();
    stream.read_u8().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = sent.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(sent.load(Ordering::SeqCst), before, "the server must wait for the client");
    // What is in flight is in the buffers of the sockets.
    assert!(before < 64 * 1024 * 1024, "{before}");
}

#[tokio::test]
async fn stop_ends_connections_and_records_each_once() {
    let proxy = start(EgressOptions::default(), |_| std::future::pending().boxed());
    let mut streams = Vec::new();
    for bytes in [&b""[..], b"GET", &connect_head("www.example.com:443")] {
        let mut stream = proxy.connect().await;
        stream.write_all(bytes).await.unwrap();
        streams.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), proxy.served).await.unwrap().unwrap().unwrap();
    let records = std::mem::take(&mut *proxy.judge.records.lock().unwrap());
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record.outcome == EgressOutcome::Stopped), "{records:?}");
    for mut stream in streams {
        assert_eq!(read_all(&mut stream).await, "");
    }
    assert!(tokio::net::TcpStream::connect(proxy.address).await.is_err());
}

#[tokio::test]
async fn judge_that_panics_ends_only_its_connection() {
    let site = Site::start(|_| answer("200 OK", &[], b"service")).await;
    let proxy = start(EgressOptions::default(), |wanted| {
        if !wanted.loopback_service {
            return async { panic!("the judge failed") }.boxed();
        }
        async { EgressDecision::Allow }.boxed()
    });
    assert_eq!(proxy.say(&get("www.example.com", "/")).await, "");
    assert_eq!(proxy.record().await.outcome, EgressOutcome::Stopped);
    let host = format!("host.gantry.internal:{}", site.address.port());
    assert!(proxy.say(&get(&host, "/")).await.ends_with("service"));
}

#[test]
fn limits_have_their_documented_values() {
    let limits = EgressLimits::default();
    assert_eq!(limits.connections, egress::MAX_CONNECTIONS);
    assert_eq!(limits.waiting_decisions, egress::MAX_WAITING_DECISIONS);
    assert_eq!((limits.head, limits.hello), (egress::HEAD_LIMIT, egress::HELLO_LIMIT));
    assert_eq!((limits.decision, limits.idle), (egress::DECISION_LIMIT, egress::IDLE_LIMIT));
}
