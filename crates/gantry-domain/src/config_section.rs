//! The configuration of one domain.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use gantry_tool::Violation;

/// A section of the configuration. The types of its fields define its format.
pub trait ConfigSection: Send + Sync {
    /// Rules that the types cannot express. `at` is the section's key, such as `storage`.
    fn violations(&self, at: &str) -> Vec<Violation> {
        let _ = at;
        Vec::new()
    }

    /// Whether a change of the section needs a restart of the gateway. A section whose domain applies changes in
    /// `Domain::apply_config` returns false.
    fn needs_restart(&self) -> bool {
        true
    }

    /// Paths in which `~` and links are resolved when the configuration is loaded.
    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// Values that are masked wherever the configuration or a result is shown.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Settings that are valid but probably a mistake.
    fn warnings(&self, at: &str) -> Vec<String> {
        let _ = at;
        Vec::new()
    }
}

/// The sections of a configuration, by their type.
#[derive(Default, Clone)]
pub struct ConfigSections(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl ConfigSections {
    pub fn with<T: Any + Send + Sync>(mut self, section: T) -> ConfigSections {
        self.0.insert(TypeId::of::<T>(), Arc::new(section));
        self
    }

    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

/// A checked configuration, ready to be applied by the domain that checked it.
pub struct Checked(Option<Box<dyn Any + Send>>);

impl Checked {
    pub fn new<T: Any + Send>(prepared: T) -> Checked {
        Checked(Some(Box::new(prepared)))
    }

    /// Nothing to apply.
    pub fn unchanged() -> Checked {
        Checked(None)
    }

    /// The value that the domain prepared. `None` when nothing changed.
    pub fn take<T: Any + Send>(self) -> Option<T> {
        self.0?.downcast().ok().map(|prepared| *prepared)
    }
}
