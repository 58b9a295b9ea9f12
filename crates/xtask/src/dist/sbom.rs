//! The list of dependencies in the form of CycloneDX, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Returns the version of the `gantry` package.
pub(super) fn version(metadata: &Value) -> Result<String> {
    let version = root(metadata)?["version"].as_str();
    version.map(str::to_owned).context("gantry has no version")
}

fn root(metadata: &Value) -> Result<&Value> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    packages.iter().find(|package| package["name"] == "gantry").context("there is no package gantry")
}

/// Lists everything that is linked into the program, or runs while it is built. Dependencies of tests are left out.
pub(super) fn cyclonedx(metadata: &Value) -> Result<Value> {
    let by_id = |key: &str, list: &Value| -> BTreeMap<String, Value> {
        let entries = list.as_array().into_iter().flatten();
        entries.filter_map(|entry| Some((entry[key].as_str()?.to_owned(), entry.clone()))).collect()
    };
    let packages = by_id("id", &metadata["packages"]);
    let nodes = by_id("id", &metadata["resolve"]["nodes"]);
    let root = root(metadata)?;
    let first = root["id"].as_str().context("gantry has no id")?.to_owned();
    let mut reached = BTreeSet::from([first.clone()]);
    let mut waiting = vec![first.clone()];
    let mut dependencies = Vec::new();
    while let Some(id) = waiting.pop() {
        let edges = nodes.get(&id).map(|node| node["deps"].clone()).unwrap_or_default();
        let is_linked = |edge: &&Value| {
            let kinds = edge["dep_kinds"].as_array();
            kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
        };
        let needs: Vec<String> = edges
            .as_array()
            .into_iter()
            .flatten()
            .filter(is_linked)
            .filter_map(|edge| edge["pkg"].as_str().map(str::to_owned))
            .collect();
        for needed in &needs {
            if reached.insert(needed.clone()) {
                waiting.push(needed.clone());
            }
        }
        let reference = |id: &String| packages.get(id).map(purl);
        dependencies.push(json!({
            "ref": reference(&id),
            "dependsOn": needs.iter().filter_map(reference).collect::<BTreeSet<_>>(),
        }));
    }
    dependencies.sort_by_key(|entry| entry["ref"].to_string());
    let components: Vec<Value> =
        reached.iter().filter(|id| **id != first).filter_map(|id| packages.get(id)).map(component).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root)},
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(package: &Value) -> Value {
    let kind = if package["name"] == "gantry" { "application" } else { "library" };
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    });
    if let Some(license) = package["license"].as_str() {
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    component
}

fn purl(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_are_left_out() {
        let package =
            |name: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0"});
        let edge = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("gantry"), package("linked"), package("built"), package("tested"), package("below")],
            "resolve": {"nodes": [
                {"id": "gantry", "deps": [edge("linked", Value::Null), edge("built", json!("build")), edge("tested", json!("dev"))]},
                {"id": "linked", "deps": [edge("below", Value::Null)]},
            ]},
        });
        let list = cyclonedx(&metadata).unwrap();
        let names: Vec<&str> =
            list["components"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["below", "built", "linked"]);
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(version(&metadata).unwrap(), "1.0.0");
    }
}
