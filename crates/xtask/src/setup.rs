//! Installs the programs that the checks need in addition to cargo, on Debian and its derivatives.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::{page, shell};

/// A program the tests compare with, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 17] = [
    ("rg", "ripgrep"),
    ("fdfind", "fd-find"),
    ("patch", "patch"),
    ("git", "git"),
    ("curl", "curl"),
    ("zsh", "zsh"),
    ("python3", "python3"),
    ("setsid", "util-linux"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("strace", "strace"),
    ("nc", "netcat-openbsd"),
    ("npm", "npm"),
    ("dovecot", "dovecot-imapd"),
    ("nginx", "nginx-light"),
    ("openssl", "openssl"),
    ("systemd-analyze", "systemd"),
];

/// Clients and servers of the Model Context Protocol, its conformance suite, and clients of OpenAI's
/// interface, with the runtime they need. Old versions are installed under names of their own.
const NODE_PACKAGES: [&str; 16] = [
    "node@24",
    "@ai-sdk/openai-compatible@3.0.90",
    "@anthropic-ai/claude-code@2.1.197",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@openai/codex@0.169.0",
    "ai@7.0.170",
    // A server of Slack's Web API.
    "emulate@0.12.2",
    // Counts tokens of the tool list with the o200k vocabulary.
    "gpt-tokenizer@4.0.0",
    "mcp-sdk-1.12@npm:@modelcontextprotocol/sdk@1.12.3",
    "mcp-sdk-1.9@npm:@modelcontextprotocol/sdk@1.9.0",
    "openai@7.55.0",
    "opencode-ai@1.18.33",
];

/// Environments of Python packages by folder: versions of one package exclude each other.
const PYTHON_ENVIRONMENTS: [(&str, &[&str]); 11] = [
    ("venv", &["mcp==2.3.0", "openai==3.49.0"]),
    ("venv-agents", &["langchain-mcp-adapters==0.3.2", "langchain-openai==1.7.3", "openai-agents==0.24.0"]),
    ("venv-chat", &["discord.py==2.7.1", "python-telegram-bot==22.8", "pywa==4.5.0", "slack_sdk==3.46.0"]),
    ("venv-cron", &["croniter==6.2.4", "tzdata==2026.6"]),
    ("venv-fastmcp", &["fastmcp==4.1.2"]),
    // Their descriptions of Google's APIs are what requests are checked with.
    ("venv-google", &["google-api-python-client==2.202.0", "google-auth==2.62.2", "gspread==6.2.1"]),
    ("venv-litellm", &["litellm==1.106.2"]),
    ("venv-mail", &["aiosmtpd==1.4.6"]),
    ("venv-matrix", &["matrix-synapse==1.163.2"]),
    ("venv-mcp-1.6", &["mcp==1.6.0", "pydantic==2.11.7"]),
    ("venv-mcp-1.9", &["mcp==1.9.4", "pydantic==2.11.7"]),
];

/// Installs Python packages; pip takes several times as long.
const UV: &str = "uv==0.13.8";

/// A program from crates.io, and the package that has it.
const CARGO_PROGRAMS: [(&str, &[&str]); 3] = [
    ("cargo-nextest", &["cargo-nextest"]),
    ("cargo-deny", &["cargo-deny"]),
    // The S3-compatible server that the object store is tested with.
    ("s3s-fs", &["s3s-fs@0.14.1", "--features", "binary"]),
];

/// Programs that only the benchmarks compare with.
const BENCH_PROGRAMS: [(&str, &str); 1] = [("lynx", "lynx")];

/// Programs that the tests of the web page need, with the browser that they drive.
const PAGE_PROGRAMS: [(&str, &str); 3] = [("node", "nodejs"), ("npm", "npm"), ("chromium", "chromium")];

/// Installs what the tests of the web page need: programs, and development packages beside the tests.
pub(crate) fn for_page() -> Result<()> {
    install_programs(&PAGE_PROGRAMS)?;
    shell::step(&["npm", "--prefix", page::FOLDER, "ci", "--no-audit", "--no-fund"])
}

/// Installs the programs that the benchmarks need.
pub(crate) fn for_benchmarks() -> Result<()> {
    install_programs(&BENCH_PROGRAMS)?;
    run()
}

fn install_programs(programs: &[(&str, &'static str)]) -> Result<()> {
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !shell::exists(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() { Ok(()) } else { install_packages(&missing) }
}

pub(crate) fn run() -> Result<()> {
    install_programs(&PROGRAMS)?;
    for (program, wanted) in CARGO_PROGRAMS {
        if !shell::exists(program) {
            shell::step(&[&["cargo", "install", "--locked"], wanted].concat())?;
        }
    }
    install_mcp()
}

/// Where the tests find them.
fn mcp_folder() -> PathBuf {
    shell::root().join("target/mcp")
}

/// The runtime that was installed, not the system's, which may be too old.
pub(crate) fn node() -> PathBuf {
    mcp_folder().join("node_modules/node/bin/node")
}

/// A file of a package.
pub(crate) fn package(path: &str) -> PathBuf {
    mcp_folder().join("node_modules").join(path)
}

fn install_mcp() -> Result<()> {
    let folder = mcp_folder();
    let stamp = folder.join("installed");
    let python = PYTHON_ENVIRONMENTS.iter().flat_map(|(_, packages)| *packages);
    let wanted: Vec<&str> = NODE_PACKAGES.iter().chain([&UV]).chain(python).copied().collect();
    let wanted = wanted.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
    let place = folder.to_string_lossy().into_owned();
    let npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", &place];
    shell::step(&[&npm, &NODE_PACKAGES[..]].concat())?;
    let installer = format!("{place}/venv-uv");
    shell::step(&["python3", "-m", "venv", &installer])?;
    shell::step(&[&format!("{installer}/bin/pip"), "install", "--quiet", UV])?;
    let uv = format!("{installer}/bin/uv");
    for (name, packages) in PYTHON_ENVIRONMENTS {
        let environment = format!("{place}/{name}");
        shell::step(&[&uv, "venv", "--quiet", "--clear", "--python", "python3", &environment])?;
        let into = [&*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", &environment];
        shell::step(&[&into, packages].concat())?;
    }
    Ok(std::fs::write(&stamp, wanted)?)
}

fn install_packages(packages: &[&str]) -> Result<()> {
    if !shell::exists("apt-get") {
        bail!("please install: {}", packages.join(", "));
    }
    let root = shell::output(&["id", "-u"], &[])?.trim() == "0";
    let lead: &[&str] = if root { &[] } else { &["sudo"] };
    shell::step(&[lead, &["apt-get", "update", "-qq"]].concat())?;
    let install: &[&str] = &["apt-get", "install", "-y", "-qq", "--no-install-recommends"];
    shell::step_with(&[lead, install, packages].concat(), &[("DEBIAN_FRONTEND", "noninteractive")])
}
