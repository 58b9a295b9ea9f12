//! What a node left running goes with it when it gets another id: its sessions lie in a folder of its id.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gantry_node::{HomeError, NodeHome, NodeLock, NodeLog};
use gantry_process::move_sessions;
use serde_json::json;

/// How long the process of the former id may take to learn that it was sent away.
const LEAVING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Brings what is running to the home of the node's new id, so that nobody who gets the old id finds it. The node itself is over.
pub(super) fn hand_over(data_dir: &Path, home: &NodeHome, new_id: &str, badge: &str, log: &NodeLog) {
    let moved = NodeHome::new(data_dir, new_id).map_err(anyhow::Error::from).and_then(|new| {
        let _lock = new.take()?;
        // Of another gateway perhaps: ids are its own.
        ensure!(!new.is_of_another(badge), "{new_id} is another node here");
        new.wear(badge)?;
        Ok(move_sessions(&home.processes(), &new.processes())?)
    });
    match moved {
        Ok(count) => {
            home.take_off_badge();
            log.info("handedOver", json!({"newId": new_id, "processes": count}));
        }
        // Started with its new id and the token it has, the node takes them.
        Err(err) => log.info("processesStay", json!({"newId": new_id, "reason": format!("{err:#}")})),
    }
}

/// Goes on with what the node left running under former ids, if that did not learn of the new one.
pub(super) fn take_over(data_dir: &Path, home: &NodeHome, badge: &str, log: &NodeLog) -> Result<()> {
    for former in home.former(data_dir, badge) {
        let moved = once_gone(&former)
            .map_err(anyhow::Error::from)
            .and_then(|_lock| Ok(move_sessions(&former.processes(), &home.processes())?));
        match moved {
            Ok(count) => {
                former.take_off_badge();
                log.info("renamed", json!({"formerId": former.id(), "processes": count}));
            }
            Err(err) => {
                let error = format!("{err:#}");
                log.warning("formerProcessesStay", json!({"formerId": former.id(), "error": error}));
            }
        }
    }
    Ok(home.wear(badge)?)
}

fn once_gone(former: &NodeHome) -> Result<NodeLock, HomeError> {
    let until = Instant::now() + LEAVING;
    loop {
        match former.take() {
            Err(HomeError::AlreadyRunning { .. }) if Instant::now() < until => std::thread::sleep(PAUSE),
            taken => return taken,
        }
    }
}
