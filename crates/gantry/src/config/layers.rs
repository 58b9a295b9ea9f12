//! Combines the layers of the configuration: defaults, the file, `GANTRY_*` variables, and `--set`.

use std::io;
use std::path::{Path, PathBuf};

use gantry_store::{ConfigLock, DataDir};
use gantry_tool::{Violation, nearest, parse_checked};
use serde_json::{Map, Value};
use toml_edit::DocumentMut;

use super::{Config, PolicyConfig, redacted_errors};

/// Variables that are not configuration keys.
const OTHER_VARIABLES: [&str; 11] = [
    "DATA_DIR",
    "CONFIG",
    "GATEWAY",
    "GATEWAY_KEY",
    "TOKEN",
    "TOKEN_FILE",
    "MASTER_KEY",
    "TLS_CA",
    "COLOR",
    "SOAK",
    "SEED",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration {path}: {cause}", path = path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("cannot read the configuration {path}: no such file; check the path after --config", path = .0.display())]
    Missing(PathBuf),
    #[error("cannot write the configuration {path}: {cause}", path = path.display())]
    Write { path: PathBuf, cause: io::Error },
    #[error("the configuration {path} is not valid TOML: {reason}", path = path.display())]
    Syntax { path: PathBuf, reason: String },
    #[error("the configuration is invalid{}", listed(violations))]
    Invalid { violations: Vec<Violation> },
    #[error("unknown configuration key \"{key}\"{}", meant(near.as_deref()))]
    UnknownKey { key: String, near: Option<String> },
    #[error("the configuration {path} has changed meanwhile; read it again", path = .0.display())]
    ChangedMeanwhile(PathBuf),
    #[error("--set must have the form KEY=VALUE, not \"{0}\"")]
    BadSet(String),
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n  - {violation}")).collect()
}

fn meant(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None => "; `gantry config show` lists the keys".to_owned(),
    }
}

/// `Layers` holds the sources of the configuration before they are combined.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layers {
    pub(crate) file: PathBuf,
    /// Whether `--config` names the file. Then it must exist.
    pub(crate) is_named: bool,
    /// `GANTRY_*` variables without the prefix.
    pub(crate) variables: Vec<(String, String)>,
    /// `--set KEY=VALUE` options.
    pub(crate) overrides: Vec<String>,
}

/// Parses a file. `nan` and `inf` are rejected, because JSON cannot represent them and such a limit would be lost.
fn from_toml(text: &str) -> Result<Value, String> {
    fn is_finite(value: &toml::Value) -> bool {
        match value {
            toml::Value::Float(number) => number.is_finite(),
            toml::Value::Array(items) => items.iter().all(is_finite),
            toml::Value::Table(table) => table.values().all(is_finite),
            _ => true,
        }
    }
    let describe =
        |err: toml::de::Error| redacted_errors::syntax(text, err.span(), err.message(), err.to_string());
    let table: toml::Table = toml::from_str(text).map_err(describe)?;
    match table.iter().find(|(_, value)| !is_finite(value)) {
        Some((key, _)) => Err(format!("{key}: `nan` and `inf` are not allowed; write a number")),
        None => toml::from_str(text).map_err(describe),
    }
}

impl Layers {
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        parse(self.combined()?)
    }

    /// As [`Layers::load`], but the errors of every policy rule are listed, whatever else is invalid.
    pub(crate) fn check_policy(&self) -> Result<Config, ConfigError> {
        let value = self.combined()?;
        let secrets = redacted_errors::Secrets::of(&value);
        let of_rules = PolicyConfig::rule_violations(&value["policy"]["rules"]);
        parse(value).map_err(|mut err| {
            if let ConfigError::Invalid { violations } = &mut err {
                for mut violation in of_rules {
                    secrets.hide(&mut violation);
                    if !violations.contains(&violation) {
                        violations.push(violation);
                    }
                }
            }
            err
        })
    }

    fn combined(&self) -> Result<Value, ConfigError> {
        let mut value = self.read_file()?;
        for (name, text) in &self.variables {
            if !OTHER_VARIABLES.contains(&name.as_str()) {
                set(&mut value, &variable_key(name), parse_value(text));
            }
        }
        for text in &self.overrides {
            let (key, text) = text.split_once('=').ok_or_else(|| ConfigError::BadSet(text.clone()))?;
            set(&mut value, key.trim(), parse_value(text.trim()));
        }
        Ok(value)
    }

    fn read_file(&self) -> Result<Value, ConfigError> {
        let text = match read_text(&self.file)? {
            Some(text) => text,
            None if self.is_named => return Err(ConfigError::Missing(self.file.clone())),
            None => return Ok(Value::Object(Map::new())),
        };
        from_toml(&text).map_err(|reason| self.syntax(reason))
    }

    /// Changes one key of the file and keeps its comments. Fails if the configuration would be invalid.
    pub(crate) fn write(&self, key: &str, text: &str) -> Result<(), ConfigError> {
        let _changing = self.lock()?;
        let mut document = self.document()?;
        let (table, last) = parent(&mut document, key)?;
        let mut value = toml_value(&parse_value(text));
        match table.get_mut(last) {
            // Whitespace and comments around the old value are kept.
            Some(item) => {
                if let Some(old) = item.as_value() {
                    *value.decor_mut() = old.decor().clone();
                }
                *item = toml_edit::Item::Value(value);
            }
            None => drop(table.insert(last, toml_edit::Item::Value(value))),
        }
        self.save(key, &document)
    }

    /// Returns a hash of the file, which tells whether it has changed.
    pub(crate) fn file_hash(&self) -> Result<String, ConfigError> {
        Ok(hash_of(&read_text(&self.file)?.unwrap_or_default()))
    }

    /// Returns the keys that are set in the file, without the values of lists.
    pub(crate) fn keys_in_file(&self) -> Result<Vec<String>, ConfigError> {
        fn collect(path: &str, value: &Value, keys: &mut Vec<String>) {
            let Some(table) = value.as_object().filter(|table| !table.is_empty()) else {
                return keys.push(path.to_owned());
            };
            for (name, value) in table {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(&path, value, keys);
            }
        }
        let mut keys = Vec::new();
        collect("", &self.read_file()?, &mut keys);
        keys.retain(|key| !key.is_empty());
        Ok(keys)
    }

    /// Changes or removes a key of the file, if the file still has the hash that the change is based on. Returns the new
    /// hash. Without `save` the change is only checked.
    pub(crate) fn change(
        &self,
        key: &str,
        value: Option<&Value>,
        based_on: Option<&str>,
        save: Save,
    ) -> Result<String, ConfigError> {
        let _changing = self.lock()?;
        let mut document = self.document()?;
        let before = hash_of(&document.to_string());
        if based_on.is_some_and(|hash| hash != before) {
            return Err(ConfigError::ChangedMeanwhile(self.file.clone()));
        }
        let (table, last) = parent(&mut document, key)?;
        match (value, table.get_mut(last)) {
            (None, _) => drop(table.remove(last)),
            (Some(Value::Object(fields)), _) => {
                let mut section = toml_edit::Table::new();
                for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                    section.insert(name, toml_edit::Item::Value(toml_value(value)));
                }
                table.insert(last, toml_edit::Item::Table(section));
            }
            (Some(value), Some(item)) => {
                let mut new = toml_value(value);
                if let Some(old) = item.as_value() {
                    *new.decor_mut() = old.decor().clone();
                }
                *item = toml_edit::Item::Value(new);
            }
            (Some(value), None) => drop(table.insert(last, toml_edit::Item::Value(toml_value(value)))),
        }
        match save {
            Save::Yes => self.save(key, &document)?,
            Save::No => drop(self.checked(key, &document)?),
        }
        Ok(if save == Save::Yes { hash_of(&document.to_string()) } else { before })
    }

    /// Replaces the value of a key by a section.
    pub(crate) fn write_section(&self, key: &str, fields: &Map<String, Value>) -> Result<(), ConfigError> {
        let _changing = self.lock()?;
        let mut document = self.document()?;
        let (table, last) = parent(&mut document, key)?;
        let mut section = toml_edit::Table::new();
        for (name, value) in fields {
            section.insert(name, toml_edit::Item::Value(toml_value(value)));
        }
        table.insert(last, toml_edit::Item::Table(section));
        self.save(key, &document)
    }

    /// Removes a key from the file. Returns false if it is missing.
    pub(crate) fn remove(&self, key: &str) -> Result<bool, ConfigError> {
        let _changing = self.lock()?;
        let mut document = self.document()?;
        let (table, last) = parent(&mut document, key)?;
        if table.remove(last).is_none() {
            return Ok(false);
        }
        self.save(key, &document)?;
        Ok(true)
    }

    /// Locks the file from reading to writing, so that a concurrent command cannot undo the change.
    fn lock(&self) -> Result<ConfigLock, ConfigError> {
        ConfigLock::take(&self.file).map_err(|cause| ConfigError::Write { path: self.file.clone(), cause })
    }

    fn document(&self) -> Result<DocumentMut, ConfigError> {
        let text = read_text(&self.file)?.unwrap_or_default();
        text.parse().map_err(|err: toml_edit::TomlError| {
            self.syntax(redacted_errors::syntax(&text, err.span(), err.message(), err.to_string()))
        })
    }

    fn save(&self, key: &str, document: &DocumentMut) -> Result<(), ConfigError> {
        let changed = self.checked(key, document)?;
        DataDir::write_config(&self.file, &changed)
            .map_err(|cause| ConfigError::Write { path: self.file.clone(), cause })
    }

    /// Returns the text of a document with a valid configuration.
    fn checked(&self, key: &str, document: &DocumentMut) -> Result<String, ConfigError> {
        let changed = document.to_string();
        let value = from_toml(&changed).map_err(|reason| self.syntax(reason))?;
        let warnings = parse(value)?.warnings();
        // Invalid values are not written.
        if let Some(warning) = warnings.into_iter().find(|warning| warning.starts_with(key)) {
            let violations = vec![Violation { path: String::new(), message: warning }];
            return Err(ConfigError::Invalid { violations });
        }
        Ok(changed)
    }

    fn syntax(&self, reason: String) -> ConfigError {
        ConfigError::Syntax { path: self.file.clone(), reason }
    }
}

/// Whether a change is written or only checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Save {
    Yes,
    No,
}

fn hash_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().chars().take(32).collect()
}

/// Returns the table of a dotted key, created if missing, and the last part of the key.
fn parent<'a>(
    document: &'a mut DocumentMut,
    key: &'a str,
) -> Result<(&'a mut dyn toml_edit::TableLike, &'a str), ConfigError> {
    let (parents, last) = key.rsplit_once('.').map_or((None, key), |(parents, last)| (Some(parents), last));
    let mut table = document.as_table_mut() as &mut dyn toml_edit::TableLike;
    for name in parents.into_iter().flat_map(|parents| parents.split('.')) {
        let item = table.entry(name).or_insert_with(|| {
            let mut table = toml_edit::Table::new();
            table.set_implicit(true);
            toml_edit::Item::Table(table)
        });
        table = item
            .as_table_like_mut()
            .ok_or_else(|| ConfigError::UnknownKey { key: key.to_owned(), near: None })?;
    }
    Ok((table, last))
}

fn parse(mut value: Value) -> Result<Config, ConfigError> {
    let mut violations = super::web::accept_older_names(&mut value);
    let secrets = redacted_errors::Secrets::of(&value);
    let checked = match parse_checked::<Config>(value) {
        Ok(config) if violations.is_empty() => config.check().map(|()| config),
        Ok(_) => Err(ConfigError::Invalid { violations }),
        Err(further) => {
            violations.extend(further);
            Err(ConfigError::Invalid { violations })
        }
    };
    checked.map_err(|mut err| {
        if let ConfigError::Invalid { violations } = &mut err {
            violations.iter_mut().for_each(|violation| secrets.hide(violation));
        }
        err
    })
}

/// Returns the value of a dotted key.
pub(crate) fn get<'a>(config: &'a Value, key: &str) -> Result<&'a Value, ConfigError> {
    let mut value = config;
    let mut walked = String::new();
    for step in key.split('.') {
        let Some(next) =
            value.get(step).or_else(|| step.parse::<usize>().ok().and_then(|index| value.get(index)))
        else {
            let known = value.as_object().into_iter().flat_map(|object| object.keys().map(String::as_str));
            let near = nearest(step, known).first().map(|near| format!("{walked}{near}"));
            return Err(ConfigError::UnknownKey { key: key.to_owned(), near });
        };
        walked.push_str(step);
        walked.push('.');
        value = next;
    }
    Ok(value)
}

fn read_text(path: &Path) -> Result<Option<String>, ConfigError> {
    DataDir::read_config(path).map_err(|cause| ConfigError::Read { path: path.to_owned(), cause })
}

/// Converts a variable's name to a key: `SHELL__SANDBOX` is `shell.sandbox`, `MAX_TOOL_RESULT_CHARS` is `maxToolResultChars`.
fn variable_key(name: &str) -> String {
    let camel = |part: &str| {
        let mut words = part.split('_').map(str::to_lowercase);
        let first = words.next().unwrap_or_default();
        words.fold(first, |mut camel, word| {
            let mut letters = word.chars();
            camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            camel.extend(letters);
            camel
        })
    };
    name.split("__").map(camel).collect::<Vec<_>>().join(".")
}

/// Parses a value as JSON (numbers, true, lists), or else takes it as text.
fn parse_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn set(root: &mut Value, key: &str, new: Value) {
    let mut value = root;
    for step in key.split('.') {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        let Value::Object(object) = value else { return };
        value = object.entry(step).or_insert(Value::Null);
    }
    *value = new;
}

fn toml_value(value: &Value) -> toml_edit::Value {
    match value {
        Value::Null => toml_edit::Value::from(""),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => toml_edit::Value::Array(items.iter().map(toml_value).collect()),
        Value::Object(object) => toml_edit::Value::InlineTable(
            object.iter().map(|(name, item)| (name.as_str(), toml_value(item))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, variables: &[(&str, &str)], overrides: &[&str]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gantry.toml");
        DataDir::write_config(&path, file).unwrap();
        let variables = variables.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        let overrides = overrides.iter().map(|text| text.to_string()).collect();
        Layers { file: path, is_named: false, variables, overrides }.load().map_err(|err| err.to_string())
    }

    #[test]
    fn later_layers_win() {
        let file = "maxToolResultChars = 1\n[shell]\nallow = [\"a\"]\n";
        assert_eq!(load(file, &[], &[]).unwrap().max_tool_result_chars, 1);
        let variable = [("MAX_TOOL_RESULT_CHARS", "2"), ("DATA_DIR", "/x")];
        assert_eq!(load(file, &variable, &[]).unwrap().max_tool_result_chars, 2);
        assert_eq!(load(file, &variable, &["maxToolResultChars=3"]).unwrap().max_tool_result_chars, 3);
        let nested = load(file, &[("SHELL__ALLOW", "[\"b\",\"c\"]")], &[]).unwrap();
        assert_eq!(nested.shell.settings().allow, ["b", "c"]);
    }

    #[test]
    fn errors_do_not_tell_secrets() {
        for text in [
            "[storage]\nsecretAccessKey = [\"super-secret-1\"]\n",
            "[storage]\nsecretAccessKey = super-secret-1\n",
            "storage = [{secretAccessKey = \"super-secret-1\"}]\n",
            "[mcpServers.x]\ncommand = \"x\"\nenv = {API_TOKEN = {a = \"super-secret-1\"}}\n",
            "[storage]\nsecretAccessKey = \"super-secret-1\"\n x y\n",
        ] {
            let err = load(text, &[], &[]).unwrap_err();
            assert!(!err.contains("super-secret"), "{err}");
        }
        let err = load("[shell]\nsandbox = offf\n", &[], &[]).unwrap_err();
        assert!(err.contains("sandbox = offf"), "other lines are shown: {err}");
    }

    #[test]
    fn nan_and_inf_are_rejected() {
        for budget in ["nan", "inf", "-inf"] {
            let err = load(&format!("[models.budgets]\nrun = {budget}\n"), &[], &[]).unwrap_err();
            assert!(err.contains("models: `nan` and `inf` are not allowed"), "{err}");
        }
    }

    #[test]
    fn every_unknown_key_is_named_with_its_nearest() {
        let err =
            load("maxToolResultChar = 1\n[shel]\n[agents.a]\ntoools = \"all\"\n", &[], &[]).unwrap_err();
        for part in [
            "\"maxToolResultChars\"?",
            "\"shell\"?",
            "agents.a: unknown field \"toools\"; did you mean \"tools\"?",
        ] {
            assert!(err.contains(part), "{part} not in {err}");
        }
        assert!(load("", &[("SHEL__X", "1")], &[]).unwrap_err().contains("did you mean \"shell\""));
        assert!(load("x = ", &[], &[]).unwrap_err().contains("is not valid TOML"));
    }

    #[test]
    fn rules_are_checked_at_load() {
        let rule =
            |when: &str| format!("[[policy.rules]]\ntool = \"*\"\ndecision = \"deny\"\nwhen = [{when}]\n");
        assert!(load(&rule("{path = \"command\", startsWith = \"rm\"}"), &[], &[]).is_ok());
        let two = rule("{path = \"command\", regex = \"(\"}") + &rule("{path = \"command\"}");
        let err = load(&two, &[], &[]).unwrap_err();
        assert!(
            err.contains("policy.rules.0: regex")
                && err.contains("policy.rules.1")
                && err.contains("needs equals"),
            "{err}"
        );
    }

    #[test]
    fn paths_and_selectors_must_mean_something() {
        let err = load(
            "[policy]\nsensitivePaths = [\"x\"]\n[agents.a]\ndenyTools = [\"local__{Bash\"]\n",
            &[],
            &[],
        )
        .unwrap_err();
        assert!(
            err.contains("policy.sensitivePaths: x must be absolute") && err.contains("agents.a: "),
            "{err}"
        );
        assert!(load("[policy]\nsensitivePaths = [\"~/x\", \"/y\"]\n", &[], &[]).is_ok());
    }

    #[test]
    fn writing_keeps_comments_and_refuses_what_is_not_valid() {
        let folder = tempfile::tempdir().unwrap();
        let layers = Layers { file: folder.path().join("gantry.toml"), ..Layers::default() };
        DataDir::write_config(&layers.file, "# mine\nmaxToolResultChars = 1 # small\n").unwrap();
        layers.write("shell.sandbox", "off").unwrap();
        layers.write("maxToolResultChars", "2").unwrap();
        layers.write("agents.bot.tools", "[\"read\", \"node\"]").unwrap();
        let before = DataDir::read_config(&layers.file).unwrap();
        assert!(
            layers.write("shell.sandbx", "off").unwrap_err().to_string().contains("did you mean \"sandbox\"")
        );
        assert!(layers.write("maxToolResultChars", "many").is_err());
        let unknown = layers.write("agents.bot.isolation.networkPolicy", "allow").unwrap_err().to_string();
        assert!(unknown.contains("is not allow-all, allow-list or deny-all"), "{unknown}");
        let after = DataDir::read_config(&layers.file).unwrap();
        assert_eq!(before, after, "a refused change changes nothing");
        let text = after.unwrap();
        assert!(
            text.contains("# mine") && text.contains("# small") && text.contains("sandbox = \"off\""),
            "{text}"
        );
        assert!(layers.load().unwrap().agents.contains_key("bot"));
    }

    #[test]
    fn get_names_the_nearest_key() {
        let config = serde_json::to_value(Config::default()).unwrap();
        assert_eq!(get(&config, "shell.sandbox").unwrap(), "required");
        assert!(get(&config, "shell.sandbax").unwrap_err().to_string().contains("\"shell.sandbox\"?"));
    }

    #[test]
    fn variables_become_camel_case_keys() {
        assert_eq!(variable_key("MAX_TOOL_RESULT_CHARS"), "maxToolResultChars");
        assert_eq!(variable_key("ISOLATION__NETWORK_POLICY"), "isolation.networkPolicy");
    }
}
