//! Real clients through the egress proxy, with nothing but the environment variables.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use futures_util::FutureExt;
use gantry_net::testing::on_a_private_internet;
use gantry_net::testing::site::answer;
use gantry_net::{EgressDecision, EgressOptions, EgressOutcome, proxy_environment};
use tokio::process::Command;

use crate::egress::{Proxy, start, with_www};

/// Runs a program with only the proxy's environment. Returns its status and everything it printed.
async fn run(proxy: &Proxy, folder: &Path, program: &str, arguments: &[&str]) -> (bool, String) {
    let authority = folder.join("authority.pem");
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("CURL_CA_BUNDLE", &authority)
        .env("GIT_SSL_CAINFO", &authority)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("SSL_CERT_FILE", &authority)
        .env("NODE_EXTRA_CA_CERTS", &authority)
        .envs(proxy_environment(proxy.address))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap_or_else(|err| panic!("{program} is needed: {err}"));
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

/// Returns a new folder with the authority's certificate.
fn folder(name: &str, authority: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gantry-egress-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("authority.pem"), authority).unwrap();
    folder
}

/// Starts a proxy that allows `www.example.com` only.
fn only_www() -> Proxy {
    start(EgressOptions::default(), |wanted| {
        let decision = match wanted.host.as_str() {
            "www.example.com" => EgressDecision::Allow,
            _ => EgressDecision::Deny { reason: "the operator said no".into() },
        };
        async { decision }.boxed()
    })
}

/// Node as the project's setup installs it.
fn node() -> String {
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mcp/node_modules/node/bin/node");
    node.to_str().unwrap().to_owned()
}

const PYTHON: &str = "import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.reason); sys.exit(1)
except OSError as error:
    print(error); sys.exit(1)
";

const NODE: &str = "fetch(process.argv[1]).then(async answer => {
    console.log(answer.status, await answer.text()); process.exit(answer.ok ? 0 : 1)
}, error => { console.log(error, error.cause); process.exit(1) })";

#[test]
fn clients_work_with_the_environment_alone() {
    on_a_private_internet("egress_clients::clients_work_with_the_environment_alone", |internet| async move {
        with_www(&internet);
        let folder = folder("clients", &internet.authority);
        let proxy = only_www();
        let socks = format!("socks5h://{}", proxy.address);
        let node = node();
        for (program, arguments) in [
            ("curl", &["-sS", "-f", "URL"][..]),
            ("curl", &["-sS", "-f", "--proxy", &socks, "URL"]),
            ("curl", &["-sS", "-f", "--proxytunnel", "URL"]),
            ("curl", &["-sS", "-f", "--http2", "URL", "URL"]),
            ("curl", &["-sS", "-f", "--data", "x=y", "URL"]),
            ("python3", &["-c", PYTHON, "URL"]),
            (node.as_str(), &["-e", NODE, "URL"]),
        ] {
            for scheme in ["http", "https"] {
                let to = |host: &str| -> Vec<String> {
                    let url = format!("{scheme}://{host}/");
                    arguments.iter().map(|part| part.replace("URL", &url)).collect()
                };
                let own = |list: &[String]| list.to_vec();
                let allowed = own(&to("www.example.com"));
                let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
                let (worked, printed) = run(&proxy, &folder, program, &allowed).await;
                assert!(worked && printed.contains("public"), "{program} {allowed:?}: {printed}");
                let denied = own(&to("other.example.com"));
                let denied: Vec<&str> = denied.iter().map(String::as_str).collect();
                let (worked, printed) = run(&proxy, &folder, program, &denied).await;
                assert!(!worked, "{program} {denied:?}: {printed}");
            }
        }
        // The reason is visible: in the body for http, and in the status line for https.
        let (_, printed) = run(&proxy, &folder, "curl", &["-sS", "http://other.example.com/"]).await;
        assert!(printed.contains("other.example.com is not allowed: the operator said no"), "{printed}");
        assert!(printed.contains("egress.allow"), "{printed}");
        let (_, printed) = run(&proxy, &folder, "curl", &["-v", "https://other.example.com/"]).await;
        assert!(
            printed.contains("HTTP/1.1 403 other.example.com is not allowed: the operator said no"),
            "{printed}"
        );
        let (_, printed) =
            run(&proxy, &folder, "python3", &["-c", PYTHON, "https://other.example.com/"]).await;
        assert!(printed.contains("403 other.example.com is not allowed: the operator said no"), "{printed}");
        // Without the proxy nothing gets out of the test by accident: each connection has a record.
        let records = proxy.records(28).await;
        assert!(
            records.iter().all(|record| {
                matches!(
                    record.outcome,
                    EgressOutcome::Finished | EgressOutcome::Denied { .. } | EgressOutcome::Failed { .. }
                )
            }),
            "{records:?}"
        );
        internet.assert_untouched("clients");
        std::fs::remove_dir_all(folder).unwrap();
    });
}

fn files_below(root: &Path, prefix: &str, into: &mut HashMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), &name, into);
        } else {
            into.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
}

#[test]
fn git_clones_over_https_and_http_and_not_over_ssh() {
    let name = "egress_clients::git_clones_over_https_and_http_and_not_over_ssh";
    on_a_private_internet(name, |internet| async move {
        with_www(&internet);
        let folder = folder("git", &internet.authority);
        let proxy = only_www();
        let script = "git init -q -b main work && cd work && echo hello > file && git add file \
            && git -c user.name=a -c user.email=a@example.com commit -q -m one && cd .. \
            && git clone -q --bare work repo.git && git -C repo.git update-server-info";
        let (worked, printed) = run(&proxy, &folder, "sh", &["-c", script]).await;
        assert!(worked, "{printed}");
        let mut files = HashMap::new();
        files_below(&folder.join("repo.git"), "/repo.git", &mut files);
        let files = Arc::new(files);
        internet.answer_with(move |heard| {
            let path = heard.target.split('?').next().unwrap();
            match files.get(path) {
                Some(bytes) => answer("200 OK", &[("Content-Type", "text/plain")], bytes),
                None => answer("404 Not Found", &[], b""),
            }
        });
        for (position, scheme) in ["https", "http"].iter().enumerate() {
            let url = format!("{scheme}://www.example.com/repo.git");
            let to = format!("clone{position}");
            let (worked, printed) = run(&proxy, &folder, "git", &["clone", &url, &to]).await;
            assert!(worked, "{printed}");
            assert_eq!(std::fs::read_to_string(folder.join(&to).join("file")).unwrap(), "hello\n");
            let denied = format!("{scheme}://other.example.com/repo.git");
            let (worked, printed) = run(&proxy, &folder, "git", &["clone", &denied, "denied"]).await;
            assert!(!worked && printed.contains("403"), "{printed}");
        }
        // ssh through the proxy is refused with a hint.
        let ssh = ["-v", "--proxytunnel", "telnet://www.example.com:22"];
        let proxy_url = format!("http://{}", proxy.address);
        let (worked, printed) =
            run(&proxy, &folder, "curl", &[&ssh[..], &["--proxy", &proxy_url]].concat()).await;
        assert!(
            !worked && printed.contains("port 22 (ssh) of www.example.com is closed; use https"),
            "{printed}"
        );
        internet.assert_untouched("git");
        std::fs::remove_dir_all(folder).unwrap();
    });
}
