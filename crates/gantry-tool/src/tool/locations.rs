//! Data locations beyond files: objects of agents, API profiles, paths on other machines. A tool declares those that a call
//! reads and writes, so that taint marks can follow the data.

use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::Call;
use crate::error::Violation;
use crate::tool::convert::convert;
use crate::tool::{Access, Tool, Touch};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataLocation {
    /// An object of the calling agent, by its path in the agent's storage.
    Object(String),
    /// An API profile by its id, or all of them.
    Api(Option<String>),
    /// A path on a machine, as the caller wrote it.
    OnNode { node: String, path: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataAccess {
    pub location: DataLocation,
    pub access: Access,
}

impl DataAccess {
    pub fn read(location: DataLocation) -> Self {
        DataAccess { location, access: Access::Read }
    }

    pub fn write(location: DataLocation) -> Self {
        DataAccess { location, access: Access::Write }
    }
}

pub(crate) type Locations = Arc<dyn Fn(&Value) -> Result<Vec<DataAccess>, Violation> + Send + Sync>;

impl Tool {
    /// Declares the data locations of a call, in place of the paths that [`Tool::touches`] names.
    ///
    /// `I` may be a smaller type than the tool's input.
    pub fn data_locations<I, F>(mut self, locations: F) -> Self
    where
        I: DeserializeOwned,
        F: Fn(I) -> Vec<DataAccess> + Send + Sync + 'static,
    {
        self.locations = Some(Arc::new(move |input| Ok(locations(convert(input)?))));
        self
    }

    /// The call reads the agent's object that this field of the input names.
    pub fn reads_object(self, field: &'static str) -> Self {
        self.object(field, Access::Read)
    }

    /// As [`Tool::reads_object`], for a call that writes it.
    pub fn writes_object(self, field: &'static str) -> Self {
        self.object(field, Access::Write)
    }

    fn object(mut self, field: &'static str, access: Access) -> Self {
        self.locations = Some(Arc::new(move |input| {
            let location = DataLocation::Object(required(input, field)?.to_owned());
            Ok(vec![DataAccess { location, access }])
        }));
        self
    }

    /// The data locations of a call, or `None` if the touched paths are its locations. An invalid input has no locations.
    pub fn locations_of(&self, input: &Value) -> Option<Vec<DataAccess>> {
        self.locations.as_ref().map(|locations| locations(input).unwrap_or_default())
    }

    /// Declares that a call reads the path in this field of its input. `resolve` follows its links.
    pub fn reads_path(self, field: &'static str, resolve: impl Resolve) -> Self {
        self.touches_path(move |call, input| Ok(Touch::read(resolve(call, required(input, field)?))))
    }

    /// As [`Tool::reads_path`], for a call that writes there.
    pub fn writes_path(mut self, field: &'static str, resolve: impl Resolve) -> Self {
        self.written_field = Some(field);
        self.touches_path(move |call, input| {
            let touch = Touch::write(resolve(call, required(input, field)?));
            Ok(touch.judged_against(&resolve(call, ".")))
        })
    }

    /// Declares that a call reads what is below the path in this field of its input, or below the workspace without one.
    pub fn reads_below(self, field: &'static str, resolve: impl Resolve) -> Self {
        self.touches_path(move |call, input| Ok(Touch::read(resolve(call, or_workspace(input, field)?))))
    }

    /// Declares that a call runs a command in the directory in this field of its input, or in the workspace without one.
    pub fn runs_in(self, field: &'static str, resolve: impl Resolve) -> Self {
        self.touches_path(move |call, input| Ok(Touch::write(resolve(call, or_workspace(input, field)?))))
    }

    fn touches_path(
        mut self,
        touch: impl Fn(&Call, &Value) -> Result<Touch, Violation> + Send + Sync + 'static,
    ) -> Self {
        self.touches = Some(Arc::new(move |call, input| Ok(vec![touch(call, input)?])));
        self
    }
}

/// Where a path of an input leads, for policy to judge.
pub trait Resolve: Fn(&Call, &str) -> PathBuf + Send + Sync + 'static {}

impl<F: Fn(&Call, &str) -> PathBuf + Send + Sync + 'static> Resolve for F {}

fn required<'a>(input: &'a Value, field: &str) -> Result<&'a str, Violation> {
    let text = input.get(field).and_then(Value::as_str);
    text.ok_or_else(|| Violation { path: field.to_owned(), message: "must be a string".to_owned() })
}

/// A path that was left out, is null or empty means the workspace: models write `""` for a path that they do not want to give.
fn or_workspace<'a>(input: &'a Value, field: &str) -> Result<&'a str, Violation> {
    match input.get(field) {
        None | Some(Value::Null) => Ok("."),
        Some(_) => required(input, field).map(|path| if path.is_empty() { "." } else { path }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::{Principal, Surface};
    use crate::testing::echo_tool;
    use crate::tool::Toolset;

    fn tool() -> Tool {
        echo_tool("x", Toolset::Basic)
    }

    fn touched(tool: &Tool, input: Value) -> Result<Vec<Touch>, Violation> {
        let call = Call::new(Principal::Operator, Surface::Cli, PathBuf::from("/"));
        tool.touched(&call, &input)
    }

    #[test]
    fn a_path_field_is_touched_as_it_is_written() {
        let path = |_: &Call, path: &str| PathBuf::from(path);
        let required = tool().reads_path("path", path);
        assert_eq!(touched(&required, json!({"path": "a"})), Ok(vec![Touch::read("a".into())]));
        assert_eq!(touched(&required, json!({"path": ""})), Ok(vec![Touch::read("".into())]));
        for wrong in [json!({}), json!({"path": 1})] {
            assert!(touched(&required, wrong).is_err());
        }
        let below = |_: &Call, path: &str| PathBuf::from("/w").join(path);
        let written = |path: &str| touched(&tool().writes_path("path", below), json!({"path": path}));
        assert_eq!(written("a"), Ok(vec![Touch { judged: true, ..Touch::write("/w/a".into()) }]));
        let outside = Touch { outside: true, judged: true, ..Touch::write("/v/a".into()) };
        assert_eq!(written("/v/a"), Ok(vec![outside]));
        let (below, runs) = (tool().reads_below("cwd", path), tool().runs_in("cwd", path));
        for here in [json!({}), json!({"cwd": null}), json!({"cwd": ""}), json!({"cwd": "."})] {
            assert_eq!(touched(&below, here.clone()), Ok(vec![Touch::read(".".into())]));
            assert_eq!(touched(&runs, here), Ok(vec![Touch::write(".".into())]));
        }
        assert!(touched(&runs, json!({"cwd": 1})).is_err());
    }

    #[test]
    fn objects_are_read_from_the_input() {
        let input = json!({"path": "a/b"});
        let object = DataLocation::Object("a/b".into());
        assert_eq!(tool().locations_of(&input), None);
        assert_eq!(
            tool().reads_object("path").locations_of(&input),
            Some(vec![DataAccess::read(object.clone())])
        );
        assert_eq!(tool().writes_object("path").locations_of(&input), Some(vec![DataAccess::write(object)]));
        assert_eq!(tool().reads_object("path").locations_of(&json!({})), Some(Vec::new()));
    }
}
