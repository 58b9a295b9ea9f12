use gantry_testkit::chat::discord::{Fault, OTHER_DIRECT, THREAD};
use tokio::net::TcpListener;

use super::super::cursor::Cursor;
use super::*;

#[tokio::test]
async fn session_is_resumed_after_a_cut_and_nothing_is_lost() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    fake.say(fake.message(DIRECT, "before"));
    listening.hear(1).await;
    let intake = Arc::clone(&listening.intake);
    fake.cut();
    again(&listening.ended().await);
    fake.say(fake.message(DIRECT, "while away"));
    let listening = Listening::with(discord(&fake), &intake);
    listening.hear(2).await;
    assert_eq!(intake.texts(), ["before", "while away"]);
    assert_eq!(fake.sessions(), (1, 1));
    listening.connected(2).await;
}

#[tokio::test]
async fn restarted_process_resumes_from_the_stored_cursor() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    fake.say(fake.message(DIRECT, "before"));
    listening.hear(1).await;
    let intake = Arc::clone(&listening.intake);
    listening.kill().await;
    eventually_async("the connection ends", SOON, || !fake.is_connected()).await;
    fake.say(fake.message(DIRECT, "while away"));
    let listening = Listening::with(discord(&fake), &intake);
    listening.hear(2).await;
    assert_eq!(fake.sessions(), (1, 1));
    assert!(fake.close_codes().iter().all(|code| !matches!(code, 1000 | 1001)), "the session must survive");
    assert_eq!(intake.texts(), ["before", "while away"]);
}

#[tokio::test]
async fn event_that_is_not_stored_comes_again() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let intake = Arc::clone(&listening.intake);
    *intake.fails.lock().unwrap() = true;
    fake.say(fake.message(DIRECT, "keep me"));
    let ended = listening.ended().await;
    assert!(again(&ended).contains("not stored"), "{ended:?}");
    *intake.fails.lock().unwrap() = false;
    Listening::with(discord(&fake), &intake).hear(1).await;
    assert_eq!(fake.sessions(), (1, 1));
}

#[tokio::test]
async fn request_to_reconnect_keeps_the_session() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    let intake = Arc::clone(&listening.intake);
    fake.frame(&json!({ "op": 7, "d": null }));
    let ended = listening.ended().await;
    assert!(
        matches!(ended, ListenError::Again { after: Some(after), .. } if after <= Duration::from_secs(1))
    );
    eventually_async("closed", SOON, || !fake.close_codes().is_empty()).await;
    assert_eq!(fake.close_codes(), [4900]);
    Listening::with(discord(&fake), &intake).connected(2).await;
    assert_eq!(fake.sessions(), (1, 1));
}

#[tokio::test]
async fn invalid_session_is_resumed_only_if_discord_allows_it() {
    for (may_resume, sessions) in [(true, (1, 1)), (false, (2, 0))] {
        let fake = FakeDiscord::start().await;
        let listening = Listening::start(&fake).await;
        let intake = Arc::clone(&listening.intake);
        fake.frame(&json!({ "op": 9, "d": may_resume }));
        let ended = listening.ended().await;
        assert!(
            matches!(ended, ListenError::Again { after: Some(after), .. } if after >= Duration::from_secs(1)),
            "{ended:?}"
        );
        Listening::with(discord(&fake), &intake).connected(2).await;
        assert_eq!(fake.sessions(), sessions, "{may_resume}");
    }
}

#[tokio::test]
async fn messages_are_read_when_the_session_is_lost() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    fake.say(fake.message(DIRECT, "before"));
    listening.hear(1).await;
    let intake = Arc::clone(&listening.intake);
    listening.kill().await;
    fake.end_sessions();
    fake.say(fake.message(CHANNEL, "in the channel"));
    for number in 0..150 {
        fake.say(fake.message(DIRECT, &format!("missed {number}")));
    }
    fake.say(fake.message(THREAD, "in the thread"));
    // This chat is not known, so nobody can find the message.
    fake.say(fake.message(OTHER_DIRECT, "unknown"));
    again(&Listening::with(discord(&fake), &intake).ended().await);
    let listening = Listening::with(discord(&fake), &intake);
    listening.hear(153).await;
    fake.say(fake.message(DIRECT, "live"));
    listening.hear(154).await;
    moment().await;
    let texts = intake.texts();
    assert_eq!(texts.len(), 154);
    assert_eq!((texts[1].as_str(), texts[150].as_str()), ("missed 0", "missed 149"), "in order");
    let messages = intake.messages.lock().unwrap().clone();
    let threaded = messages.iter().find(|message| message.text == "in the thread").unwrap();
    assert_eq!(threaded.address, to(CHANNEL, Some(THREAD)));
    let cursor = Cursor::read(intake.cursor.lock().unwrap().as_deref());
    assert_eq!(cursor.missing_after, None);
}

#[tokio::test]
async fn reading_missed_messages_begins_again_after_a_kill() {
    let fake = FakeDiscord::start().await;
    let listening = Listening::start(&fake).await;
    fake.say(fake.message(DIRECT, "before"));
    listening.hear(1).await;
    let intake = Arc::clone(&listening.intake);
    fake.end_sessions();
    fake.say(fake.message(DIRECT, "missed"));
    listening.kill().await;
    again(&Listening::with(discord(&fake), &intake).ended().await);
    // The new session begins, but the messages cannot be read.
    fake.fail("history", Fault::Before(503));
    again(&Listening::with(discord(&fake), &intake).ended().await);
    assert_eq!(intake.texts(), ["before"]);
    Listening::with(discord(&fake), &intake).hear(2).await;
    assert_eq!(intake.texts(), ["before", "missed"]);
    assert_eq!(fake.sessions(), (2, 1), "the new session was resumed");
}

#[tokio::test]
async fn silent_gateway_is_left_and_the_session_resumed() {
    let fake = FakeDiscord::start().await;
    fake.beat_every(200);
    let listening = Listening::start(&fake).await;
    eventually_async("heartbeats", SOON, || fake.heartbeats() >= 4).await;
    assert!(!listening.task.is_finished(), "confirmed heartbeats keep it alive");
    let intake = Arc::clone(&listening.intake);
    fake.mute();
    let ended = listening.ended().await;
    assert!(again(&ended).contains("heartbeat"), "{ended:?}");
    eventually_async("closed", SOON, || !fake.close_codes().is_empty()).await;
    assert_eq!(fake.close_codes(), [4900]);
    Listening::with(discord(&fake), &intake).connected(2).await;
    assert_eq!(fake.sessions(), (1, 1));
}

#[tokio::test]
async fn half_open_connection_is_noticed() {
    let fake = FakeDiscord::start().await;
    // A server that accepts connections and says nothing more than the first frame.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok((_, mut socket)) = tokio_websockets::ServerBuilder::new().accept(stream).await else {
                    return;
                };
                let hello = json!({ "op": 10, "d": { "heartbeat_interval": 150 } }).to_string();
                let _ =
                    futures_util::SinkExt::send(&mut socket, tokio_websockets::Message::text(hello)).await;
                std::future::pending::<()>().await;
            });
        }
    });
    fake.redirect_gateway(Some(&format!("ws://{address}")), None);
    let intake = Arc::new(RecordingIntake::default());
    let ended = Listening::with(discord(&fake), &intake).ended().await;
    assert!(again(&ended).contains("heartbeat"), "{ended:?}");
    assert!(intake.names.lock().unwrap().is_empty(), "it was never connected");
}

#[tokio::test]
async fn heartbeats_go_on_while_a_message_is_stored_slowly() {
    let fake = FakeDiscord::start().await;
    fake.beat_every(150);
    let listening = Listening::start(&fake).await;
    *listening.intake.pause.lock().unwrap() = Duration::from_millis(900);
    for number in 0..3 {
        fake.say(fake.message(DIRECT, &number.to_string()));
    }
    let before = fake.heartbeats();
    listening.hear(3).await;
    assert!(fake.heartbeats() >= before + 5, "{} after {before}", fake.heartbeats());
    assert!(!listening.task.is_finished());
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let fake = FakeDiscord::start().await;
    let intake = Arc::new(RecordingIntake::default());
    let ended = Listening::with(discord_with(&fake, "aaa.bbb.SECRET", &[]), &intake).ended().await;
    assert!(matches!(&ended, ListenError::NeedsLogin(why) if why.contains("Reset Token")), "{ended:?}");
    let ended = Listening::with(discord_with(&fake, "no token SECRET", &[]), &intake).ended().await;
    assert!(matches!(&ended, ListenError::NeedsLogin(why) if why.contains("three parts")), "{ended:?}");
    fake.switch_content_intent(false);
    let ended = Listening::with(discord(&fake), &intake).ended().await;
    assert!(
        matches!(&ended, ListenError::Refused(why) if why.contains("Message Content Intent")),
        "{ended:?}"
    );
    fake.switch_content_intent(true);
    let listening = Listening::with(discord(&fake), &intake);
    listening.connected(1).await;
    fake.close(4004);
    let ended = listening.ended().await;
    assert!(matches!(&ended, ListenError::NeedsLogin(why) if why.contains("Reset Token")), "{ended:?}");
    assert_eq!(Cursor::read(intake.cursor.lock().unwrap().as_deref()).session, None);
}

#[tokio::test]
async fn sessions_of_a_day_are_not_used_up() {
    let fake = FakeDiscord::start().await;
    fake.allow_sessions(10);
    let intake = Arc::new(RecordingIntake::default());
    let ended = Listening::with(discord(&fake), &intake).ended().await;
    assert!(
        matches!(&ended, ListenError::Again { after: Some(after), .. } if after.as_secs() == 3_600),
        "{ended:?}"
    );
    assert_eq!(fake.sessions(), (0, 0));
    fake.allow_sessions(11);
    Listening::with(discord(&fake), &intake).connected(1).await;
}

#[tokio::test]
async fn gateways_at_other_hosts_get_no_token() {
    let fake = FakeDiscord::start().await;
    let port = FakeDiscord::start().await.address.port();
    for base in ["wss://gateway.discord.gg.evil.example".to_owned(), format!("ws://localhost:{port}")] {
        let intake = Arc::new(RecordingIntake::default());
        fake.redirect_gateway(Some(&base), None);
        let ended = Listening::with(discord(&fake), &intake).ended().await;
        let is_refused = matches!(&ended, ListenError::Refused(why) if why.contains("not one of its hosts"));
        assert!(is_refused, "{ended:?}");
        fake.redirect_gateway(None, Some(&base));
        let ended = Listening::with(discord(&fake), &intake).ended().await;
        let is_refused = matches!(&ended, ListenError::Refused(why) if why.contains("not one of its hosts"));
        assert!(is_refused, "{ended:?}");
    }
}

#[tokio::test]
async fn lost_address_for_resuming_falls_back_to_any_gateway() {
    let fake = FakeDiscord::start().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    fake.redirect_gateway(None, Some(&format!("ws://{nobody}")));
    let listening = Listening::start(&fake).await;
    let intake = Arc::clone(&listening.intake);
    fake.cut();
    again(&listening.ended().await);
    Listening::with(discord(&fake), &intake).connected(2).await;
    assert_eq!(fake.sessions(), (1, 1));
}

#[tokio::test]
async fn failures_of_the_interface_are_told_apart() {
    let fake = FakeDiscord::start().await;
    let intake = Arc::new(RecordingIntake::default());
    fake.fail("me", Fault::Before(503));
    again(&Listening::with(discord(&fake), &intake).ended().await);
    fake.fail("gateway", Fault::Limited(7.5));
    let ended = Listening::with(discord(&fake), &intake).ended().await;
    let after = Duration::from_millis(7_500);
    assert!(matches!(&ended, ListenError::Again { after: Some(found), .. } if *found == after), "{ended:?}");
}
