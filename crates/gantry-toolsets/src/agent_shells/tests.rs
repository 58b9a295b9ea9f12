use gantry_process::ProcessesOptions;
use gantry_tool::testing::MemoryAudit;
use gantry_tool::{Principal, Surface};

use super::*;

fn shells(folder: &tempfile::TempDir) -> AgentShells {
    let options = ProcessesOptions::new(crate::testing::keeper(), folder.path().join("processes"));
    let audit = Arc::new(MemoryAudit::default());
    let temp_dir = folder.path().to_owned();
    let settings = Live::new(MachineSettings::default());
    AgentShells::new(Processes::new(options), temp_dir, settings, audit, Masker::default())
}

fn call(session: &str) -> Arc<Call> {
    let mut call = Call::new(Principal::Agent { id: "main".into() }, Surface::Agent, "/w".into());
    call.session = Some(session.into());
    Arc::new(call)
}

#[tokio::test]
async fn session_keeps_one_network_and_one_temporary_directory() {
    let folder = tempfile::tempdir().unwrap();
    let shells = shells(&folder);
    let first = call("one");
    let enter = |call| shells.enter(call, "Bash", NetworkPolicy::AllowAll);
    let (one, two) = tokio::join!(enter(&first), enter(&first));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(Arc::ptr_eq(&one.network().unwrap(), &two.network().unwrap()));
    let other = enter(&call("other")).await.unwrap();
    assert!(!Arc::ptr_eq(&one.network().unwrap(), &other.network().unwrap()));
    assert_ne!(one.tmp(), other.tmp());
    let offline = shells.enter(&first, "Bash", NetworkPolicy::DenyAll).await.unwrap();
    assert!(offline.network().is_none() && offline.tmp().is_some());
}

#[tokio::test]
async fn variables_lead_to_the_proxy_only() {
    let folder = tempfile::tempdir().unwrap();
    let shells = shells(&folder);
    let entered = shells.enter(&call("one"), "Bash", NetworkPolicy::AllowAll).await.unwrap();
    let inherited =
        ["http_proxy", "FTP_PROXY", "npm_config_proxy", "GIT_SSH_COMMAND", "GIT_CONFIG_KEY_1", "PATH"];
    let mut variables = inherited.map(|name| (name.into(), "inherited".into())).to_vec();
    entered.set_proxy(&mut variables);
    let left: Vec<_> = variables.iter().filter(|(_, value)| value == "inherited").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let value = |name: &str| variables.iter().find(|(known, _)| known == name).unwrap().1.to_str().unwrap();
    assert!(value("HTTPS_PROXY").starts_with("http://127.0.0.1:"));
    assert!(value("GIT_SSH_COMMAND").contains("use https"));
}

#[tokio::test]
async fn least_recently_used_idle_session_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let shells = shells(&folder);
    let enter = async |name: &str| shells.enter(&call(name), "Bash", NetworkPolicy::DenyAll).await;
    let busy = enter("busy").await.unwrap();
    let mut paths = Vec::new();
    for number in 0..MAX_SHELL_SESSIONS {
        paths.push(enter(&number.to_string()).await.unwrap().tmp().unwrap().to_owned());
    }
    assert_eq!(shells.sessions().len(), MAX_SHELL_SESSIONS);
    assert!(busy.tmp().unwrap().exists(), "a session with a command stays");
    assert!(shells.attend(&call("0"), "Process", NetworkPolicy::DenyAll).is_none(), "the oldest one is gone");
    assert!(shells.attend(&call("1"), "Process", NetworkPolicy::DenyAll).is_some());
    let mut held = vec![busy];
    for number in 1..MAX_SHELL_SESSIONS {
        held.push(enter(&number.to_string()).await.unwrap());
    }
    let refused = enter("one too many").await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("agent sessions run commands"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn idle_session_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let shells = shells(&folder);
    let entered = shells.enter(&call("one"), "Bash", NetworkPolicy::DenyAll).await.unwrap();
    let path = entered.tmp().unwrap().to_owned();
    tokio::time::sleep(IDLE_LIMIT * 2).await;
    assert_eq!(shells.sessions().len(), 1, "a command runs");
    drop(entered);
    tokio::time::sleep(IDLE_LIMIT * 2).await;
    assert!(shells.sessions().is_empty());
    for _ in 0..100 {
        if !path.exists() {
            return;
        }
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(10))).await.unwrap();
    }
    panic!("the temporary directory stays");
}

#[tokio::test]
async fn labels_of_the_session_count_for_commands_that_run_already() {
    let folder = tempfile::tempdir().unwrap();
    let shells = shells(&folder);
    let background = shells.enter(&call("one"), "Bash", NetworkPolicy::AllowAll).await.unwrap();
    let session = shells.sessions()[0].clone();
    let (tunnels, is_labelled) = (session.tunnels(), || session.ledger.current().is_labelled());
    assert!(!is_labelled());
    shells.set_labels("other", &Label::BOTH);
    shells.set_labels("one", &[Label::Private]);
    assert!(!is_labelled() && !tunnels.is_cancelled());
    shells.set_labels("one", &Label::BOTH);
    assert!(is_labelled() && tunnels.is_cancelled(), "open connections end");
    let later = session.tunnels();
    shells.set_labels("one", &Label::BOTH);
    assert!(!later.is_cancelled(), "once");
    assert_eq!(session.ledger.take_changes().len(), 1, "what the command writes from now on is untrusted");
    // A new conversation starts without labels, and so does its first command.
    drop(background);
    session.ledger.take_changes();
    shells.set_labels("one", &[]);
    let fresh = shells.enter(&call("one"), "Bash", NetworkPolicy::AllowAll).await.unwrap();
    assert!(!is_labelled() && session.ledger.take_changes().is_empty());
    drop(fresh);
}
