//! `--help` of every command and subcommand, one file per top-level command.

use gantry_testkit::World;

#[test]
fn help_of_every_command_matches_its_snapshot() {
    let world = World::new();
    let top = help(&world, &[]);
    super::check("help", &top);
    let commands = subcommands(&top);
    assert!(commands.len() > 15, "the command list was not found: {commands:?}");
    for command in commands.iter().filter(|command| *command != "help") {
        let mut text = String::new();
        walk(&world, &mut vec![command.clone()], &mut text);
        super::check(&format!("help_{command}"), &text);
    }
}

/// Appends the help of a command and of everything below it.
fn walk(world: &World, path: &mut Vec<String>, text: &mut String) {
    let own = help(world, path);
    text.push_str(&format!("$ gantry {} --help\n{own}\n", path.join(" ")));
    for command in subcommands(&own).into_iter().filter(|command| command != "help") {
        path.push(command);
        walk(world, path, text);
        path.pop();
    }
}

/// Returns the help text at a width of 100 columns.
fn help(world: &World, path: &[String]) -> String {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let ran = world.run_with(&args, &[("COLUMNS", "100")]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
    ran.stdout
}

/// Returns the names in the `Commands:` section.
fn subcommands(help: &str) -> Vec<String> {
    let section = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = section.take_while(|line| !line.is_empty());
    // A name has two spaces before it; the lines of a wrapped description have more.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}
