//! 200 command lines: 100 that a prefix covers, and 100 tricks that it must not cover.

use super::*;

/// The prefixes that are granted in these tests.
const GRANTED: [&[&str]; 6] =
    [&["cargo", "test"], &["cargo", "build"], &["ls"], &["git", "status"], &["tail"], &["make", "check"]];

fn is_covered(line: &str) -> bool {
    let starts = |command: &Vec<String>| {
        GRANTED.iter().any(|prefix| {
            command.len() >= prefix.len() && prefix.iter().zip(command).all(|(word, own)| word == own)
        })
    };
    commands(line).is_some_and(|commands| commands.iter().all(starts))
}

/// Every command of these lines starts with a granted prefix.
const COVERED: [&str; 100] = [
    "cargo test",
    "cargo build",
    "ls",
    "git status",
    "tail",
    "make check",
    "cargo test --workspace",
    "cargo test -p gantry-files",
    "cargo test -- --nocapture",
    "cargo  test",
    "  cargo test",
    "cargo test  ",
    "\tcargo\ttest",
    "cargo test\n",
    "\ncargo test",
    "cargo test;",
    "cargo test ;",
    "cargo test; ls",
    "cargo test ; ls ; ls",
    "cargo test && cargo build",
    "cargo test||ls",
    "cargo test || ls",
    "cargo test | tail",
    "cargo test|tail -5",
    "cargo test | tail -n 5 | tail -n 1",
    "cargo build && cargo test | tail -5",
    "cargo build\ncargo test",
    "cargo build\n\n\ncargo test\n",
    "cargo test 2>&1",
    "cargo test 2>&1 | tail -5",
    "cargo test > /dev/null",
    "cargo test >/dev/null",
    "cargo test 2>/dev/null",
    "cargo test 2> /dev/null",
    "cargo test > /dev/null 2>&1",
    "cargo test 1>&2",
    "cargo test &> /dev/null",
    "cargo test >> /dev/null",
    "ls -la",
    "ls -la src",
    "ls *.rs",
    "ls src/**/*.rs",
    "ls file?",
    "ls [abc].txt",
    "ls a{b,c}",
    "ls {a,b}",
    "ls ~",
    "ls ~/src",
    "ls ..",
    "ls ../..",
    "ls /",
    "ls 'a b'",
    "ls \"a b\"",
    "ls 'a;b'",
    "ls 'a && rm -rf x'",
    "ls \"a; rm -rf x\"",
    "ls \"a | b\"",
    "ls 'it'\\''s'",
    "ls a\\ b",
    "ls \\;",
    "ls \\&",
    "ls \\|",
    "ls \"\"",
    "ls ''",
    "ls -- -x",
    "ls #comment",
    "ls # rm -rf x",
    "cargo test # ; rm -rf x",
    "# a comment\ncargo test",
    "cargo \\\n  test",
    "cargo test \\\n  --workspace",
    "cargo test &&\n  ls",
    "cargo test |\n  tail",
    "'cargo' test",
    "\"cargo\" test",
    "cargo 'test'",
    "c\\argo test",
    "ca'rg'o te\"st\"",
    "git status --short",
    "git status -sb && ls",
    "git status ; cargo test ; ls",
    "make check",
    "make check CC=gcc",
    "make check -j4",
    "make check V=1 -j 8",
    "cargo test a=b",
    "cargo test --features=x,y",
    "cargo test --config key=1",
    "tail -f log.txt",
    "tail -c +5 x",
    "tail x@y:z",
    "tail 50%",
    "tail +1",
    "ls a,b",
    "ls größe",
    "ls 日本",
    "ls '*'",
    "ls '$HOME'",
    "cargo test '#[ignore]'",
    "cargo test x#y",
];

/// Something in these lines is not covered, or is not understood.
const NOT_COVERED: [&str; 100] = [
    "",
    "   ",
    "# only a comment",
    "rm -rf x",
    "cargo",
    "cargo run",
    "cargo tests",
    "cargotest",
    "cargo-test",
    "xcargo test",
    "./cargo test",
    "/tmp/cargo test",
    "CARGO TEST",
    "cargo test; rm -rf x",
    "cargo test && rm -rf x",
    "cargo test || rm -rf x",
    "cargo test | sh",
    "cargo test | tee out",
    "cargo test\nrm -rf x",
    "cargo test\n\n  rm -rf x",
    "rm -rf x; cargo test",
    "rm x && cargo test",
    "echo x | cargo test",
    "ls;rm x",
    "ls;;",
    "cargo test &",
    "cargo test & rm -rf x",
    "cargo test & ls",
    "cargo test |& tail",
    "ls $(rm -rf x)",
    "ls \"$(rm -rf x)\"",
    "ls `rm -rf x`",
    "ls \"`rm -rf x`\"",
    "$(echo cargo) test",
    "`echo cargo` test",
    "cargo $(echo test)",
    "cargo test ${x:-$(rm x)}",
    "cargo test ${x:=y}",
    "cargo test $X",
    "cargo test \"$X\"",
    "$CARGO test",
    "${CARGO} test",
    "cargo $SUB",
    "ls $((1+1))",
    "ls $[1+1]",
    "ls $'a\\nb'",
    "$'cargo' test",
    "$\"cargo\" test",
    "ls <(rm x)",
    "ls >(rm x)",
    "ls =(rm x)",
    "tail < /dev/tcp/example.com/80",
    "tail < file",
    "tail <<< text",
    "tail <<EOF\nx\nEOF",
    "tail <<'EOF'\nrm\nEOF",
    "cargo test > out",
    "cargo test >> out",
    "cargo test >| out",
    "cargo test 2> out",
    "cargo test &> out",
    "cargo test >& out",
    "cargo test <> out",
    "cargo test > /dev/nullx",
    "cargo test > /dev/null/../sda",
    "> out cargo test",
    ">/dev/null cargo test",
    "X=1 cargo test",
    "PATH=/tmp cargo test",
    "LD_PRELOAD=/tmp/x.so cargo test",
    "X=1",
    "env cargo test",
    "sudo cargo test",
    "nohup cargo test",
    "command cargo test",
    "exec cargo test",
    "eval cargo test",
    "eval 'cargo test'",
    "time cargo test",
    "! cargo test",
    "sh -c 'cargo test'",
    "bash -c 'cargo test'",
    "xargs cargo test",
    "ls | xargs rm",
    "find . -exec rm {} +",
    ". ./cargo test",
    "source cargo test",
    "alias ls='rm -rf x'; ls",
    "ls() { rm -rf x; }; ls",
    "function ls { rm x; }; ls",
    "{ cargo test; }",
    "(cargo test)",
    "if ls; then rm x; fi",
    "for f in a b; do rm f; done",
    "while ls; do rm x; done",
    "case x in x) rm x;; esac",
    "[[ -f x ]] && ls",
    "ls *(e:'rm x':)",
    "carg? test",
    "cargo test\r\nrm -rf x",
];

#[test]
fn lines_of_granted_commands_are_covered() {
    for line in COVERED {
        assert!(is_covered(line), "{line:?}: {:?}", commands(line));
    }
}

#[test]
fn no_trick_is_covered() {
    for line in NOT_COVERED {
        assert!(!is_covered(line), "{line:?}: {:?}", commands(line));
    }
}

#[test]
fn long_and_nested_lines_are_not_understood() {
    for line in [
        "ls ".repeat(4_000),
        format!("{}ls{}", "( ".repeat(1_000), " )".repeat(1_000)),
        "if ".repeat(1_300),
        "! ".repeat(2_000) + "ls",
        "{ ".repeat(2_000),
        "\"".repeat(4_001),
        "ls 'open".to_owned(),
        "ls \"open".to_owned(),
        "ls \u{0}x".to_owned(),
        "ls \u{1b}[2Kx".to_owned(),
    ] {
        let start: String = line.chars().take(40).collect();
        assert_eq!(commands(&line), None, "{start:?}");
    }
}

/// bash itself splits a covered line into the same words.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test compares with a real shell")]
fn words_are_those_of_a_real_shell() {
    for line in ["ls 'it'\\''s' \"a b\" c\\ d '' x", "ls a\\;b \"x;y\" '|' \\\n z", "ls -- \"#\" x#y '#[i]'"]
    {
        let script = format!("ls() {{ printf '%s\\n' \"$@\"; }}\n{line}\n");
        let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        let seen = String::from_utf8(output.stdout).unwrap();
        let found = commands(line).unwrap();
        let expected = found[0][1..].iter().map(|word| format!("{word}\n")).collect::<String>();
        assert_eq!(seen, expected, "{line:?}");
    }
}

#[test]
fn prefixes_that_run_other_programs_cannot_be_granted() {
    let prefix = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for good in ["cargo test", "ls", "git status", "./script.sh", "make"] {
        assert!(is_grantable(&prefix(good)), "{good}");
    }
    for bad in
        ["sh -c", "env", "/usr/bin/env x", "xargs", "sudo ls", "python3", "$x", "a;b", "*", "", "a 'b'"]
    {
        assert!(!is_grantable(&prefix(bad)), "{bad}");
    }
    assert!(!is_grantable(&[]));
}

#[test]
fn suggested_prefix_names_the_program_and_its_subcommand() {
    let suggest = |line: &str| suggested(&commands(line).unwrap()[0]).map(|words| words.join(" "));
    assert_eq!(suggest("cargo test --workspace").as_deref(), Some("cargo test"));
    assert_eq!(suggest("ls -la").as_deref(), Some("ls"));
    assert_eq!(suggest("tail /etc/x").as_deref(), Some("tail"));
    for none in ["sh -c x", "git -C x status", "python3 x.py", "env"] {
        assert_eq!(suggest(none), None, "{none}");
    }
}
