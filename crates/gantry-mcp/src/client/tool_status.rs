//! Computes the status of each tool: compares the accepted definition with the one that the server offers now.

use std::collections::BTreeMap;

use gantry_store::{Pin, ServerRecord};
use gantry_tool::published_name;
use serde_json::Value;

use super::definition;
use super::sanitize::shown_name;

/// `ToolStatus` is the status of one tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolStatus {
    pub name: String,
    pub state: State,
    /// The accepted definition.
    pub accepted: Option<Value>,
    /// The definition that the server offers now.
    pub offered: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Offered in its accepted definition.
    Ready,
    /// Offered, but never accepted.
    New,
    /// Offered in a changed definition. Blocked.
    Changed,
    /// Invalid, with the reason. Blocked.
    Unusable(String),
    /// Accepted before, but no longer offered.
    Gone,
    /// Not one of the tools that the operator configured.
    NotChosen,
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::New => "new",
            State::Changed => "changed",
            State::Unusable(_) => "unusable",
            State::Gone => "gone",
            State::NotChosen => "notChosen",
        }
    }
}

/// Returns the status of all tools of a server. `chosen` are the configured tools, if not all.
pub(super) fn statuses(server: &str, record: &ServerRecord, chosen: Option<&[String]>) -> Vec<ToolStatus> {
    let mut offers: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let mut nameless = Vec::new();
    for definition in &record.offered {
        match definition::name(definition) {
            Some(name) if !name.is_empty() => offers.entry(name.to_owned()).or_default().push(definition),
            _ => nameless.push(definition),
        }
    }
    // Names as clients and models see them. If two look alike, a rule or a call could reach the wrong tool.
    let published = |name: &str| published_name(&format!("{server}__{name}"));
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in offers.keys() {
        alike.entry(published(name)).or_default().push(name);
    }
    let mut all: BTreeMap<String, ToolStatus> = BTreeMap::new();
    for (name, definitions) in &offers {
        let Some(offered) = definitions.first() else { continue };
        let pin = record.accepted.get(name).filter(|pin| is_whole(pin));
        let alike = alike.get(&published(name)).and_then(|all| all.iter().find(|other| *other != name));
        let state = match (definition::problem(offered), pin, alike) {
            _ if chosen.is_some_and(|chosen| !chosen.contains(name)) => State::NotChosen,
            _ if definitions.len() > 1 => State::Unusable("the server defines it more than once".to_owned()),
            (Some(problem), _, _) => State::Unusable(problem),
            (None, _, Some(other)) => {
                State::Unusable(format!("clients cannot distinguish its name from {}", shown_name(other)))
            }
            (None, None, None) => State::New,
            (None, Some(pin), None) if pin.hash == definition::hash(offered) => State::Ready,
            (None, Some(_), None) => State::Changed,
        };
        let accepted = pin.map(|pin| pin.definition.clone());
        let offered = Some((*offered).clone());
        all.insert(name.clone(), ToolStatus { name: name.clone(), state, accepted, offered });
    }
    for (name, pin) in &record.accepted {
        let gone = || ToolStatus {
            name: name.clone(),
            state: State::Gone,
            accepted: Some(pin.definition.clone()),
            offered: None,
        };
        all.entry(name.clone()).or_insert_with(gone);
    }
    // Each nameless definition is a separate entry, so that all are counted.
    let nameless = nameless.into_iter().map(|definition| ToolStatus {
        name: String::new(),
        state: State::Unusable(
            definition::problem(definition).unwrap_or_else(|| "it has no name".to_owned()),
        ),
        accepted: None,
        offered: Some(definition.clone()),
    });
    nameless.chain(all.into_values()).collect()
}

/// Returns whether a pin matches its own hash.
fn is_whole(pin: &Pin) -> bool {
    definition::hash(&pin.definition) == pin.hash
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> Value {
        json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
    }

    fn pin(definition: Value) -> Pin {
        Pin { hash: definition::hash(&definition), definition, accepted: 1 }
    }

    fn states(record: &ServerRecord) -> Vec<(String, &'static str)> {
        states_of(record, None)
    }

    fn states_of(record: &ServerRecord, chosen: Option<&[String]>) -> Vec<(String, &'static str)> {
        let all = statuses("fs", record, chosen).into_iter();
        all.map(|status| (status.name, status.state.name())).collect()
    }

    #[test]
    fn each_tool_has_its_own_state() {
        let bad = json!({"name": "bad", "inputSchema": 7});
        let record = ServerRecord {
            offered: vec![tool("same", "x"), tool("other", "y"), tool("new", "z"), bad],
            accepted: [("same", "x"), ("other", "x"), ("left", "x")]
                .map(|(name, text)| (name.to_owned(), pin(tool(name, text))))
                .into(),
            ..ServerRecord::default()
        };
        let expected =
            [("bad", "unusable"), ("left", "gone"), ("new", "new"), ("other", "changed"), ("same", "ready")];
        assert_eq!(states(&record), expected.map(|(name, state)| (name.to_owned(), state)));
    }

    #[test]
    fn tools_that_were_not_chosen_are_marked() {
        let bad = json!({"name": "bad", "inputSchema": 7});
        let record = ServerRecord {
            offered: vec![tool("same", "x"), tool("other", "y"), tool("new", "z"), bad],
            accepted: [("same", "x"), ("other", "x")]
                .map(|(name, text)| (name.to_owned(), pin(tool(name, text))))
                .into(),
            ..ServerRecord::default()
        };
        let expected = [("bad", "notChosen"), ("new", "new"), ("other", "notChosen"), ("same", "notChosen")];
        let chosen = ["new".to_owned()];
        assert_eq!(states_of(&record, Some(&chosen)), expected.map(|(name, state)| (name.to_owned(), state)));
    }

    #[test]
    fn ambiguous_names_are_unusable() {
        let twice = ServerRecord { offered: vec![tool("a", "x"), tool("a", "y")], ..ServerRecord::default() };
        assert_eq!(states(&twice), [("a".to_owned(), "unusable")]);
        let alike = ServerRecord {
            offered: vec![tool("a::b", "x"), tool("a__b", "x"), tool("c", "x")],
            ..ServerRecord::default()
        };
        let held = |record: &ServerRecord| {
            let states = states(record).into_iter();
            states.filter(|(_, state)| *state == "unusable").map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(held(&alike), ["a::b", "a__b"]);
        let published = published_name("fs__a.b");
        let hashed = published.strip_prefix("fs__").unwrap();
        let hidden = ServerRecord {
            offered: vec![tool("a.b", "x"), tool(hashed, "x"), tool("a.c", "x")],
            ..ServerRecord::default()
        };
        assert_eq!(held(&hidden), ["a.b", hashed]);
    }

    #[test]
    fn nameless_tools_are_unusable() {
        let nameless = json!({"inputSchema": {"type": "object"}});
        let record = ServerRecord { offered: vec![nameless.clone(), nameless], ..ServerRecord::default() };
        let all = statuses("fs", &record, None);
        let State::Unusable(why) = &all[0].state else { panic!() };
        assert_eq!((why.as_str(), all.len()), ("it has no name", 2), "each is counted");
    }

    #[test]
    fn tampered_pin_is_ignored() {
        let mut forged = pin(tool("a", "x"));
        forged.definition = tool("a", "evil");
        let record = ServerRecord {
            offered: vec![tool("a", "evil")],
            accepted: [("a".to_owned(), forged)].into(),
            ..ServerRecord::default()
        };
        assert_eq!(states(&record), [("a".to_owned(), "new")]);
    }
}
