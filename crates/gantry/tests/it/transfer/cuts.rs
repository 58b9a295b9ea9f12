//! One large transfer whose connection is cut repeatedly.

use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use gantry_testkit::{Fleet, Proxy, Random, SOON, Terminal, eventually, scaled};
use serde_json::json;

const MIB: u64 = 1 << 20;

/// How long a connection lasts before it is cut: long enough to count as one that worked.
const LASTS_MS: u64 = 1_000;
const LUCK_MS: u64 = 300;

fn size() -> u64 {
    scaled(1_024, 64) * MIB
}

/// Bytes that no shifted or repeated piece could pass for.
fn make(path: &Path, bytes: u64) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for number in 0..bytes / 8 {
        file.write_all(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).unwrap();
    }
    file.flush().unwrap();
}

fn is_same(one: &Path, other: &Path) -> bool {
    let (mut one, mut other) = (std::fs::File::open(one).unwrap(), std::fs::File::open(other).unwrap());
    let (mut here, mut there) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let length = one.metadata().unwrap().len();
    if length != other.metadata().unwrap().len() {
        return false;
    }
    let mut left = length as usize;
    while left > 0 {
        let piece = left.min(here.len());
        one.read_exact(&mut here[..piece]).unwrap();
        other.read_exact(&mut there[..piece]).unwrap();
        if here[..piece] != there[..piece] {
            return false;
        }
        left -= piece;
    }
    true
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn transfer_resumes_after_its_node_is_renamed() {
    const SIZE: u64 = 48 * MIB;
    let fleet = Fleet::start();
    let cable = Proxy::with_rate(fleet.address, Some(8 * MIB));
    let mut from = fleet.add("from", &[]);
    let mut to = fleet.add("to", &[]);
    to.gateway = cable.address;
    for machine in [&mut from, &mut to] {
        machine.start();
        fleet.wait_online(&machine.id);
    }
    make(&from.path("large"), SIZE);
    let workspace = to.world.workspace();
    // Of the part, or of what it has become.
    let come = || {
        let name = names(&workspace).into_iter().next()?;
        Some(std::fs::metadata(workspace.join(name)).ok()?.len())
    };
    let answer = std::thread::scope(|scope| {
        let transferring = scope.spawn(|| {
            let input = json!({"source": "from:large", "destination": "to:arrived"});
            fleet.try_call("gsv__Transfer", &input, &[("Gantry-Deadline-Ms", "60000")])
        });
        eventually("some of it has come", SOON, || come().is_some_and(|bytes| bytes >= 16 * MIB));
        assert_eq!(fleet.run(&["nodes", "rename", "to", "other"]).code, 0);
        to.wait_stopped(SOON);
        assert!(come().is_some_and(|bytes| (16 * MIB..SIZE).contains(&bytes)), "{:?}", come());
        to.id = "other".into();
        to.start();
        fleet.wait_online("other");
        transferring.join().unwrap().unwrap()
    });
    assert_eq!(answer.json()["ok"], true, "{answer:?}");
    assert!(is_same(&from.path("large"), &to.path("arrived")));
    assert_eq!(names(&workspace), ["arrived"], "nothing is left over");
    assert!(!to.world.data().join("parts").exists() || names(&to.world.data().join("parts")).is_empty());
}

#[test]
fn transfer_survives_cuts_of_either_side() {
    let mut random = Random::new();
    let fleet = Fleet::start();
    let cuts = scaled(100, 10);
    // So slow that it is not over before the last cut.
    let rate = size() * 1_000 / (cuts * (LASTS_MS + LUCK_MS));
    let cables = [Proxy::with_rate(fleet.address, Some(rate)), Proxy::with_rate(fleet.address, Some(rate))];
    let mut machines = [fleet.add("from", &[]), fleet.add("to", &[])];
    for (machine, cable) in machines.iter_mut().zip(&cables) {
        machine.gateway = cable.address;
        machine.start();
        fleet.wait_online(&machine.id);
    }
    let [from, to] = &machines;
    make(&from.path("large"), size());
    let began = Instant::now();
    let (answer, made) = std::thread::scope(|scope| {
        let transferring = scope.spawn(|| {
            let input = json!({"source": "from:large", "destination": "to:arrived"});
            fleet.try_call("gsv__Transfer", &input, &[("Gantry-Deadline-Ms", "1200000")])
        });
        let mut made = 0;
        while made < cuts && !transferring.is_finished() {
            std::thread::sleep(
                Duration::from_millis(LASTS_MS) + random.duration_below(Duration::from_millis(LUCK_MS)),
            );
            // It may have its name, and who waits for it not have heard.
            let named = std::fs::metadata(to.path("arrived"));
            assert!(
                named.is_err() || named.is_ok_and(|meta| meta.len() == size()),
                "a partial file under the name"
            );
            let side = random.below(2);
            cables[side].cut();
            cables[side].heal();
            made += 1;
            std::thread::sleep(Duration::from_millis(20));
            for machine in [&from.id, &to.id] {
                fleet.wait_online(machine);
            }
        }
        (transferring.join().unwrap().unwrap(), made)
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["ok"], true, "{answer:?}");
    assert!(made >= cuts * 8 / 10, "it was over after {made} cuts");
    assert!(is_same(&from.path("large"), &to.path("arrived")));
    assert_eq!(names(&to.world.workspace()), ["arrived"], "nothing is left over");
    println!("cut transfer: {} MiB over {made} cuts in {:?}", size() / MIB, began.elapsed());
}

#[test]
fn transfer_at_a_terminal_names_the_node_it_waits_for() {
    let fleet = Fleet::start();
    let cable = Proxy::with_rate(fleet.address, Some(4 * MIB));
    let mut to = fleet.add("box", &[]);
    to.gateway = cable.address;
    to.start();
    fleet.wait_online("box");
    let large = fleet.world.workspace().join("large");
    make(&large, 24 * MIB);
    let mut terminal = Terminal::open_sized(&fleet.world, 100, "transfer local:large box:arrived");
    // The bar comes after a second.
    terminal.sees("of 24.00 MiB");
    to.kill();
    terminal.sees("waiting for box to reconnect");
    to.start();
    terminal.sees("24.00 MiB");
    terminal.ends();
    assert!(is_same(&large, &to.path("arrived")));
}
