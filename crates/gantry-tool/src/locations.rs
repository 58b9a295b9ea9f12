//! Data locations beyond files: objects of agents, API profiles, paths on other machines. A tool declares those that a call
//! reads and writes, so that taint marks can follow the data.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::Call;
use crate::convert::convert;
use crate::error::Violation;
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

    /// Where a call of this input reads and writes; `None` if the paths that it touches say so. An input that the tool would
    /// reject has no locations.
    pub fn locations_of(&self, input: &Value) -> Option<Vec<DataAccess>> {
        self.locations.as_ref().map(|locations| locations(input).unwrap_or_default())
    }

    /// Declares that a call touches the path in this field of its input.
    pub fn touches_path(
        mut self,
        field: &'static str,
        touch: impl Fn(&Call, &str) -> Touch + Send + Sync + 'static,
    ) -> Self {
        self.touches = Some(Arc::new(move |call, input| Ok(vec![touch(call, required(input, field)?)])));
        self
    }

    /// As [`Tool::touches_path`], for a field that may be left out, null or empty: then it is the workspace.
    pub fn touches_path_or_workspace(
        mut self,
        field: &'static str,
        touch: impl Fn(&Call, &str) -> Touch + Send + Sync + 'static,
    ) -> Self {
        self.touches = Some(Arc::new(move |call, input| {
            let path = match input.get(field) {
                None | Some(Value::Null) => ".",
                Some(_) => match required(input, field)? {
                    "" => ".",
                    path => path,
                },
            };
            Ok(vec![touch(call, path)])
        }));
        self
    }
}

fn required<'a>(input: &'a Value, field: &str) -> Result<&'a str, Violation> {
    let text = input.get(field).and_then(Value::as_str);
    text.ok_or_else(|| Violation { path: field.to_owned(), message: "must be a string".to_owned() })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
        let path = |_: &Call, path: &str| Touch::read(PathBuf::from(path));
        let required = tool().touches_path("path", path);
        assert_eq!(touched(&required, json!({"path": "a"})), Ok(vec![Touch::read("a".into())]));
        assert_eq!(touched(&required, json!({"path": ""})), Ok(vec![Touch::read("".into())]));
        for wrong in [json!({}), json!({"path": 1})] {
            assert!(touched(&required, wrong).is_err());
        }
        let optional = tool().touches_path_or_workspace("cwd", path);
        for here in [json!({}), json!({"cwd": null}), json!({"cwd": ""}), json!({"cwd": "."})] {
            assert_eq!(touched(&optional, here), Ok(vec![Touch::read(".".into())]));
        }
        assert!(touched(&optional, json!({"cwd": 1})).is_err());
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
        assert_eq!(
            tool().writes_object("path").locations_of(&input),
            Some(vec![DataAccess::write(object)])
        );
        assert_eq!(tool().reads_object("path").locations_of(&json!({})), Some(Vec::new()));
    }
}
