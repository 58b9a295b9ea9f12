//! After `kill -9` at any moment, acknowledged data is complete and everything opens again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_store::{
    Begun, DataDir, Database, Depth, GatewayLock, NewTransfer, Objects, Running, StoredAnswer,
};

/// The environment variable with the folder of the writer process below.
const DIR: &str = "GANTRY_TEST_CRASH_DIR";
const ROUNDS: &str = "GANTRY_TEST_CRASH_ROUNDS";

#[tokio::test]
async fn writer() {
    let Some(dir) = std::env::var_os(DIR) else {
        // Run as a normal test, this checks that the writer works without a kill.
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let database = Database::open(&data).await.unwrap();
        write_round(&database, &Objects::folder(&data), "first", 0).await;
        return check_round(&database, &Objects::folder(&data), "first", 0).await;
    };
    let data = DataDir::new(Path::new(&dir).join("data"));
    let instance = std::process::id().to_string();
    let running = Running { pid: std::process::id(), url: String::new(), started: 0, key: None };
    let _lock = GatewayLock::take(&data, running).unwrap();
    let (database, objects) = (Database::open(&data).await.unwrap(), Objects::folder(&data));
    let rounds = std::env::var(ROUNDS).map_or(u64::MAX, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        write_round(&database, &objects, &instance, round).await;
        println!("\nacknowledged {instance} {round}");
    }
}

fn body(instance: &str, round: u64) -> String {
    format!("{instance}-{round} ").repeat(1_000)
}

async fn write_round(database: &Database, objects: &Objects, instance: &str, round: u64) {
    let key = format!("{instance}-{round}");
    let hash = blake3::hash(key.as_bytes());
    assert_eq!(database.begin_request("p", &key, &hash, instance, 1).await.unwrap(), Begun::New);
    let answer = StoredAnswer {
        status: 200,
        content_type: "text/plain".into(),
        headers: Vec::new(),
        body: body(instance, round).into(),
    };
    database.finish_request("p", &key, &answer).await.unwrap();
    let transfer = NewTransfer {
        id: key.clone(),
        agent: "a".into(),
        principal: "p".into(),
        autonomy: "supervised".into(),
        source: "s".into(),
        destination: "d".into(),
        standing: None,
    };
    database.insert_transfer(&transfer, 1).await.unwrap();
    objects.put(&format!("{instance}/{}", round % 7), body(instance, round), "text/plain").await.unwrap();
}

async fn check_round(database: &Database, objects: &Objects, instance: &str, round: u64) {
    let key = format!("{instance}-{round}");
    let hash = blake3::hash(key.as_bytes());
    let Begun::Replay(answer) = database.begin_request("p", &key, &hash, "later", 2).await.unwrap() else {
        panic!("the answer of {key} is lost");
    };
    assert_eq!(answer.body, body(instance, round).into_bytes());
    assert!(database.transfer(&key).await.unwrap().is_some(), "the transfer {key} is lost");
    let object = objects.get(&format!("{instance}/{}", round % 7), 1 << 20).await.unwrap();
    let text = String::from_utf8(object.expect("the object is lost").bytes.to_vec()).unwrap();
    let (found, _) = text.split_once(' ').unwrap();
    let (_, found_round) = found.rsplit_once('-').unwrap();
    let found_round: u64 = found_round.parse().unwrap();
    assert!(found_round >= round, "round {found_round} is stored, but round {round} was acknowledged");
    assert_eq!(text, body(instance, found_round), "a torn object");
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::writer", "--nocapture"]).env(DIR, folder).stderr(Stdio::null());
    command
}

#[tokio::test]
async fn killed_gateways_lose_nothing_acknowledged() {
    let mut random = gantry_testkit::seed() | 1;
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::new(folder.path().join("data"));
    let kills = gantry_testkit::scaled(100, 8);
    for _ in 0..kills {
        let mut child = command(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged: Vec<(String, u64)> = Vec::new();
        let mut note = |line: &str| {
            if let Some(rest) = line.strip_prefix("acknowledged ") {
                let (instance, round) = rest.split_once(' ').unwrap();
                acknowledged.push((instance.to_owned(), round.parse().unwrap()));
            }
        };
        loop {
            let line = lines.next().unwrap().unwrap();
            note(&line);
            if line.starts_with("acknowledged") {
                break;
            }
        }
        assert_eq!(GatewayLock::running(&data).map(|running| running.pid), Some(child.id()));
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(random % 50_000));
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(|line| note(&line));
        assert_eq!(GatewayLock::running(&data), None, "the lock died with its process");
        let (database, objects) = (Database::open(&data).await.unwrap(), Objects::folder(&data));
        for (instance, round) in &acknowledged {
            check_round(&database, &objects, instance, *round).await;
        }
        // A request without an answer is reported as interrupted and does not run again.
        let (instance, last) = acknowledged.last().unwrap();
        let next = format!("{instance}-{}", last + 1);
        let begun =
            database.begin_request("p", &next, &blake3::hash(next.as_bytes()), "later", 2).await.unwrap();
        assert!(!matches!(begun, Begun::InProgress { .. } | Begun::OtherRequest), "{begun:?}");
        database.close().await;
    }
    let listing = Objects::folder(&data).list("", Depth::All).await.unwrap();
    assert!(!listing.objects.is_empty());
}

/// Surviving `kill -9` needs no sync, but surviving a power failure does, so this test checks the system calls.
#[test]
fn object_is_synced_before_and_after_its_rename() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let test = command(folder.path());
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-e", "trace=rename,renameat,renameat2,fsync,fdatasync", "-o"]).arg(&trace);
    strace.arg(test.get_program()).args(test.get_args()).env(DIR, folder.path()).env(ROUNDS, "1");
    let ran = strace.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(ran.expect("strace is needed for this test").success());
    let trace = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let renamed =
        lines.iter().position(|line| line.contains("rename") && line.contains("objects/data/")).unwrap();
    let before = lines[..renamed].iter().any(|line| line.contains("sync(") && line.contains("objects/temp/"));
    assert!(before, "the content was not synced before the rename:\n{trace}");
    let folders = ["objects/data/", "objects/data>", "objects>", "data>"];
    for folder in folders {
        let after = lines[renamed..].iter().any(|line| line.contains("fsync(") && line.contains(folder));
        assert!(after, "{folder} was not synced after the rename:\n{trace}");
    }
    let database =
        lines.iter().filter(|line| line.contains("sync(") && line.contains("gateway.db-wal")).count();
    assert!(database >= 3, "three acknowledged transactions, {database} syncs of the log:\n{trace}");
}
