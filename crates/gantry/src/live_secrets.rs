//! Masks secrets that a running gateway reads from a changed configuration, like those from its start.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_store::Secrets;
use gantry_tool::{SHORTEST_SECRET, SecretSource};

/// How many changed keys are kept. Old ones stay masked, because logs and answers may still contain them.
const MAX_VALUES: usize = 1_000;

/// Values of the configuration that were read after the start. Clones share the list.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveSecrets(Arc<Mutex<Vec<String>>>);

impl LiveSecrets {
    pub(crate) fn add(&self, values: impl Iterator<Item = String>) {
        let mut known = self.lock();
        for value in values.filter(|value| value.len() >= SHORTEST_SECRET) {
            if !known.contains(&value) {
                known.push(value);
            }
        }
        let surplus = known.len().saturating_sub(MAX_VALUES);
        known.drain(..surplus);
    }

    /// Combines these secrets with the stored ones.
    pub(crate) fn and(&self, stored: Secrets) -> AllSecrets {
        AllSecrets { stored, live: self.clone(), merged: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct AllSecrets {
    stored: Secrets,
    live: LiveSecrets,
    merged: Mutex<Merged>,
}

/// The combined list, and the lists it was made from.
#[derive(Debug, Default)]
struct Merged {
    stored: Arc<[String]>,
    live: Vec<String>,
    all: Arc<[String]>,
}

impl SecretSource for AllSecrets {
    fn values(&self) -> Arc<[String]> {
        let stored = self.stored.values();
        let live = self.live.lock();
        if live.is_empty() {
            return stored;
        }
        let mut merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&merged.stored, &stored) || merged.live != *live {
            let mut all: Vec<String> = stored.iter().chain(live.iter()).cloned().collect();
            // The longest comes first, so that a secret that contains another is masked completely.
            all.sort_by_key(|value| std::cmp::Reverse(value.len()));
            *merged = Merged { stored, live: live.clone(), all: all.into() };
        }
        merged.all.clone()
    }
}

#[cfg(test)]
mod tests {
    use gantry_store::DataDir;
    use gantry_tool::Masker;

    use super::*;

    #[test]
    fn later_keys_and_stored_secrets_are_masked() {
        let folder = tempfile::tempdir().unwrap();
        let live = LiveSecrets::default();
        let masker = Masker::new([])
            .following(Arc::new(live.and(Secrets::new(&DataDir::new(folder.path().into()), None))));
        let masked = |text: &str| {
            let mut text = text.to_owned();
            masker.mask_text(&mut text);
            text
        };
        assert_eq!(masked("first-key-1 short"), "first-key-1 short");
        live.add(["first-key-1", "short"].into_iter().map(str::to_owned));
        assert_eq!(masked("first-key-1 short"), "[masked] short");
        live.add(["later-key-2"].into_iter().map(str::to_owned));
        assert_eq!(masked("first-key-1 later-key-2"), "[masked] [masked]", "an old key stays masked");
    }
}
