//! Tests of the confinement of shells: keys, start files, sockets, and contained machines.

use serde_json::json;

use gantry_tool::{Call, Principal};

use crate::testing::{Bench, set_variable};

#[tokio::test]
async fn shell_of_an_agent_cannot_read_keys_in_the_home_directory() {
    let bench = Bench::new();
    let home = bench.workspace().parent().unwrap().join("home");
    for folder in [".ssh", "notes"] {
        std::fs::create_dir(home.join(folder)).unwrap();
        std::fs::write(home.join(folder).join("file"), format!("text of {folder}")).unwrap();
    }
    std::fs::write(home.join(".netrc"), "text of .netrc").unwrap();
    let script = format!("cd {}; cat notes/file; cat .s*/file .ss\"h\"/file; cat .ne\"trc\"", home.display());
    let answer = bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await;
    let output = format!("{answer:?}");
    assert!(output.contains("text of notes") && !output.contains("text of ."), "{output}");
}

/// The operator's next login shell, which is not confined, would run these files.
#[tokio::test]
async fn confined_shell_cannot_write_start_files() {
    let bench = Bench::new();
    let home = bench.workspace().parent().unwrap().join("home");
    std::fs::write(home.join(".profile"), "echo from the profile\n").unwrap();
    let script = "cd; echo x >> .profile; echo x > t-$$; rm .profile; echo x > ../workspace/t; mv -f ../workspace/t .profile; echo x > .bash_profile; cat .profile";
    let client = Call { principal: Principal::Client { token: "c".to_owned() }, ..bench.agent_call("a") };
    for call in [bench.agent_call("a"), client] {
        let output = format!("{:?}", bench.call_as(call, "Bash", json!({"command": script})).await);
        assert!(output.contains("from the profile"), "{output}");
        let left: Vec<_> =
            std::fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [".profile"]);
        assert_eq!(std::fs::read_to_string(home.join(".profile")).unwrap(), "echo from the profile\n");
    }
    // The start files of git and fish are in subdirectories, which may be missing.
    std::fs::create_dir_all(home.join(".config/other")).unwrap();
    let script = "cd ~/.config; echo x > other/t && echo made; mkdir git zsh; echo x > bash_completion; mkdir -p fish/conf.d; mv other git; mkdir -p ../.config/git; git config --global alias.x y";
    let output =
        format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await);
    assert!(output.contains("made"), "{output}");
    let left: Vec<_> =
        std::fs::read_dir(home.join(".config")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other"], "{output}");
    std::fs::remove_dir_all(home.join(".config")).unwrap();
    // A client may add known hosts, but may not write files that ssh or its server runs or
    // trusts.
    std::fs::create_dir(home.join(".ssh")).unwrap();
    std::fs::write(home.join(".ssh/known_hosts"), "").unwrap();
    std::fs::write(home.join(".ssh/config"), "").unwrap();
    let client = Call { principal: Principal::Client { token: "c".to_owned() }, ..bench.agent_call("a") };
    let script = "cd ~/.ssh; echo host >> known_hosts; for name in rc environment config authorized_keys; do echo x > $name; done";
    let output = format!("{:?}", bench.call_as(client, "Bash", json!({"command": script})).await);
    let left = |name: &str| std::fs::read_to_string(home.join(".ssh").join(name)).unwrap_or_default();
    assert_eq!((&*left("known_hosts"), &*left("config")), ("host\n", ""), "{output}");
    assert_eq!(std::fs::read_dir(home.join(".ssh")).unwrap().count(), 2, "{output}");
    std::fs::remove_dir_all(home.join(".ssh")).unwrap();
    // The same holds if the workspace is the home directory itself, and for `tool::shell_exec`.
    let mut call = bench.agent_call("a");
    call.workspace = home.clone();
    let input = json!({"argv": ["python3", "-c", "open('.profile', 'a').write('x')"]});
    let output = format!("{:?}", bench.call_as(call, "tool::shell_exec", input).await);
    assert!(output.contains("PermissionError"), "{output}");
}

#[tokio::test]
async fn start_files_are_found_where_the_environment_points() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["config/git", "config/other", "zsh/plugins"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    let bench = Bench::with(|parts| {
        set_variable(parts, "XDG_CONFIG_HOME", root.join("config"));
        set_variable(parts, "ZDOTDIR", root.join("zsh"));
        set_variable(parts, "BASH_ENV", root.join("config/other/env"));
    });
    let script = format!(
        "cd {}; echo x > zsh/plugins/t && echo made; echo x > config/other/env; echo x > config/git/config; mkdir config/fish; echo x > zsh/.zshrc",
        root.display()
    );
    let output =
        format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", json!({"command": script})).await);
    assert!(output.contains("made"), "{output}");
    for name in ["config/git/config", "config/fish", "config/other/env", "zsh/.zshrc"] {
        assert!(!root.join(name).exists(), "{name}: {output}");
    }
}

/// File rules cannot close the sockets of outside servers, such as docker or an ssh agent.
#[tokio::test]
async fn command_confined_to_the_workspace_cannot_use_unix_sockets() {
    let contained = Bench::with(|parts| parts.contain = true);
    let path = contained.workspace().parent().unwrap().join("home/server");
    let _server = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let code = format!(
        "import socket; socket.socketpair(); socket.socket(); print('tried'); socket.socket(socket.AF_UNIX).connect('{}')",
        path.display()
    );
    let shell = json!({"command": format!("/usr/bin/python3 -c \"{code}\"")});
    let program = json!({"argv": ["python3", "-c", code]});
    for (tool, input) in
        [("Bash", &shell), ("exec", &shell), ("bash", &shell), ("tool::shell_exec", &program)]
    {
        let output = format!("{:?}", contained.call(tool, input.clone()).await);
        assert!(output.contains("tried") && output.contains("Operation not permitted"), "{tool}: {output}");
    }
    // An agent's ordinary shell keeps Unix sockets: people use docker and ssh from it.
    let bench = Bench::new();
    let output = format!("{:?}", bench.call_as(bench.agent_call("a"), "Bash", shell).await);
    assert!(output.contains("tried") && !output.contains("rror"), "{output}");
}

/// Everything that a contained machine must refuse to every caller.
#[tokio::test]
async fn contained_machine_keeps_every_tool_in_the_workspace() {
    let bench = Bench::with(|parts| {
        parts.contain = true;
        parts.settings.shell.sandbox = crate::SandboxMode::Off;
    });
    let outside = bench.workspace().parent().unwrap().join("home/outside.txt");
    std::fs::write(&outside, "text outside").unwrap();
    std::os::unix::fs::symlink(&outside, bench.workspace().join("link")).unwrap();
    let inside = bench.write("inside.txt", "text inside\n");
    let (path, home) = (outside.to_str().unwrap(), outside.parent().unwrap());
    for (tool, input) in [
        ("Read", json!({"path": path})),
        ("Read", json!({"path": "link"})),
        ("Read", json!({"path": "../home/outside.txt"})),
        ("Write", json!({"path": path, "content": "x"})),
        ("Edit", json!({"path": path, "oldString": "text", "newString": "x"})),
        ("Glob", json!({"pattern": "*", "path": home})),
        ("Grep", json!({"pattern": "text", "path": path})),
        ("Bash", json!({"command": "true", "workdir": home})),
        ("read", json!({"path": path})),
        ("write", json!({"path": path, "data": "x"})),
        ("exec", json!({"command": "true", "cwd": home})),
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "x"})),
        ("batch_files", json!({"pattern": "*", "directory": home, "operation": "rename", "rename_to": "x"})),
        ("batch_files", json!({"pattern": "*", "directory": ".", "operation": "move", "destination": home})),
    ] {
        let refused = format!("{:?}", bench.call(tool, input.clone()).await.expect_err(tool));
        assert!(refused.contains("path is outside the workspace"), "{tool} {input}: {refused}");
    }
    let read = bench.call("read_file", json!({"path": inside})).await;
    assert!(format!("{read:?}").contains("text inside"), "{read:?}");
    let script = format!(
        "cat inside.txt; cat {path}; cat link; echo new > made; echo x > {path}; touch {0}/new; echo x > /tmp/x-{1}; cd; pwd",
        home.display(),
        std::process::id()
    );
    for (tool, input) in [
        ("Bash", json!({"command": script})),
        ("Bash", json!({"command": script, "yieldMs": 60_000})),
        ("exec", json!({"command": script})),
        ("bash", json!({"command": script})),
    ] {
        let output = format!("{:?}", bench.call(tool, input).await);
        assert!(output.contains("text inside") && !output.contains("text outside"), "{tool}: {output}");
        assert!(output.contains(bench.workspace().to_str().unwrap()), "{tool}: {output}");
        assert_eq!(bench.read("made"), "new\n");
        std::fs::remove_file(bench.workspace().join("made")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "text outside");
    assert!(!home.join("new").exists());
    assert!(!std::path::Path::new(&format!("/tmp/x-{}", std::process::id())).exists());
}
