//! The configuration through the command line.

use crate::run::World;
use serde_json::json;

#[test]
fn set_get_show_and_path_agree() {
    let world = World::new();
    assert_eq!(world.run(&["config", "set", "maxToolResultChars", "5000"]).code, 0);
    assert_eq!(world.run(&["config", "get", "maxToolResultChars"]).stdout, "5000\n");
    assert_eq!(world.run(&["config", "show"]).json()["maxToolResultChars"], 5000);
    assert_eq!(
        world.run(&["config", "path"]).stdout.trim(),
        world.data().join("gantry.toml").to_str().unwrap()
    );
    let layered =
        world.run_with(&["config", "get", "maxToolResultChars"], &[("GANTRY_MAX_TOOL_RESULT_CHARS", "7")]);
    assert_eq!(layered.stdout, "7\n");
    let flagged = world.run_with(
        &["config", "get", "maxToolResultChars", "--set", "maxToolResultChars=9"],
        &[("GANTRY_MAX_TOOL_RESULT_CHARS", "7")],
    );
    assert_eq!(flagged.stdout, "9\n");
}

#[test]
fn an_unknown_key_is_an_error_with_the_nearest() {
    let world = World::new();
    let ran = world.run(&["config", "set", "shell.sandbx", "off"]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean \"sandbox\"?"), "{}", ran.stderr);
    world.configure("maxToolResultChar = 1\n");
    let ran = world.run(&["call", "read", r#"{"path": "x"}"#]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean \"maxToolResultChars\"?"), "{}", ran.stderr);
}

#[test]
fn secrets_are_masked_with_and_without_a_key() {
    let world = World::new();
    world.configure("[isolation.envVars]\nAPI_TOKEN = \"abc\"\nPLAIN = \"shown\"\n");
    assert_eq!(
        world.run(&["config", "show"]).json()["isolation"]["envVars"],
        json!({"API_TOKEN": "[masked]", "PLAIN": "shown"})
    );
    assert_eq!(world.run(&["config", "get", "isolation.envVars.API_TOKEN"]).stdout, "[masked]\n");
}
