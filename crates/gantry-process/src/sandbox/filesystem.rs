//! The file system part of a sandbox: Landlock rules.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, LandlockStatus, PathBeneath, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use super::links;

/// Before version 3 a command could truncate a file outside.
pub(super) const OLDEST_ABI: u32 = 3;
pub(super) const MISSING: &str =
    "the kernel has no Landlock, or it is switched off (see the `lsm=` boot parameter)";

/// Everything that the library knows. The kernel enforces the part that it knows.
const NEWEST: ABI = ABI::V9;

/// A directory with more entries than this on the path to a closed one is refused rather than
/// walked.
const MAX_RULES: usize = 100_000;

/// Disks, terminals, memory and other devices that lead to closed content.
const DEVICES: &str = "/dev";
const READ_DEVICES: &[&str] = &["/dev/random", "/dev/urandom"];
/// `/dev/tty` is the command's own terminal only.
const WRITE_DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];
/// Files in memory, which are not devices.
const SHARED_MEMORY: &[&str] = &["/dev/shm", "/dev/mqueue"];

pub(super) fn too_old(abi: u32) -> String {
    format!("the kernel has Landlock version {abi}, but version {OLDEST_ABI} is needed to prevent truncation")
}

/// Asks the kernel, on a separate thread because asking restricts the thread.
pub(super) fn abi() -> Option<u32> {
    let probe = std::thread::Builder::new().spawn(|| {
        let rules = Ruleset::default().handle_access(AccessFs::from_all(NEWEST)).ok()?.create().ok()?;
        version(&rules.restrict_self().ok()?)
    });
    probe.ok()?.join().ok()?
}

/// `Only` lists what another layer of rules lets a command reach.
#[derive(Clone, Copy)]
pub(super) struct Only<'a> {
    pub(super) read: &'a [PathBuf],
    pub(super) write: &'a [PathBuf],
}

/// Allows everything except `closed` and devices, and only reading of `read_only`.
///
/// If another layer allows writing only in certain directories, the rest of `read_only` needs no
/// rules. Devices that the other layer names were chosen by the operator.
pub(super) fn close(closed: &[PathBuf], read_only: &[PathBuf], only: Option<Only<'_>>) -> Result<(), String> {
    let mut special = Special::default();
    for path in closed {
        special.closed.insert(resolve(path)?);
    }
    for path in read_only {
        special.read_only.extend(links::places(path, read_only)?);
    }
    if let Some(only) = only {
        let writable = super::existing(only.write);
        special.read_only.retain(|place| writable.iter().any(|directory| place.starts_with(directory)));
        // A read-only place that is also listed as writable was listed by the operator.
        special.read_only.retain(|place| !writable.contains(place));
    }
    let root = Path::new("/");
    let mut rules = allow_devices(handle_all()?)?;
    let names = (Path::new(DEVICES), AccessFs::ReadDir.into());
    let memory = SHARED_MEMORY.iter().map(|path| (Path::new(path), AccessFs::from_all(NEWEST)));
    rules = allow_all(rules, memory.chain([names]))?;
    let named = only.iter().flat_map(|only| only.read.iter().chain(only.write));
    for path in named.filter(|path| path.starts_with(DEVICES)) {
        rules = allow_at(rules, path, AccessFs::from_all(NEWEST))?;
    }
    let mut count = 0;
    let mut on_the_way = vec![root.to_owned()];
    while let Some(directory) = on_the_way.pop() {
        if special.closed.contains(&directory) {
            continue;
        }
        if !special.has_closed_in(&directory) {
            // This access would apply to everything below, so it would include the devices.
            let access =
                if directory == root { AccessFs::ReadDir.into() } else { AccessFs::from_read(NEWEST) };
            rules = allow_at(rules, &directory, access)?;
        }
        // If the keeper cannot list a directory, the command cannot list it either and gets nothing
        // there.
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.map_err(|err| format!("cannot list {}: {err}", directory.display()))?.path();
            if path == Path::new(DEVICES) {
                continue;
            }
            let access = special.access(&path);
            let whole = access == AccessFs::from_all(NEWEST);
            if special.has_closed_in(&path) || (whole && special.lies_in(&path)) {
                on_the_way.push(path);
                continue;
            }
            count += 1;
            if count > MAX_RULES {
                return Err(format!("more than {MAX_RULES} entries are next to closed and read-only paths"));
            }
            rules = allow_at(rules, &path, access)?;
        }
    }
    restrict(rules)
}

/// `Special` holds the places that are not simply allowed, by their real paths.
#[derive(Default)]
struct Special {
    closed: BTreeSet<PathBuf>,
    read_only: BTreeSet<PathBuf>,
}

impl Special {
    fn has_closed_in(&self, directory: &Path) -> bool {
        has_in(&self.closed, directory)
    }

    /// Reports whether one of the places is `directory` or below it.
    fn lies_in(&self, directory: &Path) -> bool {
        self.has_closed_in(directory) || has_in(&self.read_only, directory)
    }

    fn access(&self, path: &Path) -> BitFlags<AccessFs> {
        match path.ancestors().any(|place| self.read_only.contains(place)) {
            true => AccessFs::from_read(NEWEST),
            false => AccessFs::from_all(NEWEST),
        }
    }
}

/// Paths are ordered by their components, so the content of a directory directly follows it.
fn has_in(places: &BTreeSet<PathBuf>, directory: &Path) -> bool {
    let from = (Bound::Included(directory), Bound::Unbounded);
    places.range::<Path, _>(from).next().is_some_and(|place| place.starts_with(directory))
}

/// Closes devices to a command that may reach everything else.
pub(super) fn close_devices(only: Only<'_>) -> Result<(), String> {
    let is_root = |path: &PathBuf| path.parent().is_none();
    match only.read.iter().chain(only.write).any(is_root) {
        true => close(&[], &[], Some(only)),
        false => Ok(()),
    }
}

/// Allows only the lists and what nearly every program needs.
pub(super) fn open_only(Only { read, write }: Only<'_>) -> Result<(), String> {
    let read_only = AccessFs::from_read(NEWEST);
    let grants = (read.iter().map(|path| (path.as_path(), read_only)))
        .chain(write.iter().map(|path| (path.as_path(), AccessFs::from_all(NEWEST))))
        .chain([(Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)]);
    restrict(allow_all(allow_devices(handle_all()?)?, grants)?)
}

/// Allows the devices that nearly every program needs.
fn allow_devices(rules: RulesetCreated) -> Result<RulesetCreated, String> {
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let readable = READ_DEVICES.iter().map(|path| (Path::new(path), AccessFs::ReadFile.into()));
    let writable = WRITE_DEVICES.iter().map(|path| (Path::new(path), device));
    allow_all(rules, readable.chain(writable))
}

fn allow_all<'a>(
    mut rules: RulesetCreated,
    grants: impl Iterator<Item = (&'a Path, BitFlags<AccessFs>)>,
) -> Result<RulesetCreated, String> {
    for (path, access) in grants {
        match open(path, OFlags::empty()) {
            Ok(file) => rules = allow(rules, file, access, path)?,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS) => {}
            Err(err) => return Err(format!("cannot open {}: {err}", path.display())),
        }
    }
    Ok(rules)
}

fn handle_all() -> Result<RulesetCreated, String> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|err| format!("cannot make a Landlock ruleset: {err}"))
}

/// Links are not followed: one that points to an ancestor would open everything below it.
fn allow_at(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    match open(path, OFlags::NOFOLLOW) {
        Ok(file) => allow(rules, file, access, path),
        // The file is gone, or this user cannot reach it.
        Err(_) => Ok(rules),
    }
}

fn allow(
    rules: RulesetCreated,
    file: OwnedFd,
    access: BitFlags<AccessFs>,
    path: &Path,
) -> Result<RulesetCreated, String> {
    let stat = rustix::fs::fstat(&file).map_err(|err| format!("cannot stat {}: {err}", path.display()))?;
    let access = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => access,
        FileType::Symlink => return Ok(rules),
        _ => access & AccessFs::from_file(NEWEST),
    };
    rules
        .add_rule(PathBeneath::new(file.as_fd(), access))
        .map_err(|err| format!("cannot allow {}: {err}", path.display()))
}

fn restrict(rules: RulesetCreated) -> Result<(), String> {
    let status = rules.restrict_self().map_err(|err| format!("cannot apply the Landlock rules: {err}"))?;
    match version(&status) {
        _ if !status.no_new_privs => Err("the kernel refused no_new_privs".to_owned()),
        None => Err(MISSING.to_owned()),
        Some(abi) if abi < OLDEST_ABI => Err(too_old(abi)),
        Some(_) => Ok(()),
    }
}

fn version(status: &RestrictionStatus) -> Option<u32> {
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => u32::try_from(effective_abi as i32).ok(),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())
}

/// Returns the real path: links are resolved as far as the path exists, and the rest stays as
/// written.
fn resolve(path: &Path) -> Result<PathBuf, String> {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("a closed directory must be an absolute path without `..`: {}", path.display()));
    }
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(real) => return Ok(missing.iter().rev().fold(real, |path, name| path.join(name))),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
            Err(err) => return Err(format!("cannot resolve {}: {err}", path.display())),
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name);
                existing = parent;
            }
            _ => return Err(format!("cannot resolve {}", path.display())),
        }
    }
}
