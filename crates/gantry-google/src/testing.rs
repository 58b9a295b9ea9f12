//! A real gate over the tools, with accounts that signed in at the checking server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_net::{Client, ClientOptions, HostPattern, NetworkPolicy, Request, Url};
use gantry_store::{DataDir, Secrets};
use gantry_testkit::google::{CLIENT_ID, CLIENT_SECRET, DEVICE_CLIENT_ID, DEVICE_CLIENT_SECRET, FakeGoogle};
use gantry_tool::testing::{MemoryAudit, call_as, gate};
use gantry_tool::{
    Approval, Approver, Autonomy, Call, Consent, Gate, Masker, Principal, QuestionText, Surface, ToolError,
};
use jiff::tz::TimeZone;
use serde_json::Value;
use tempfile::TempDir;

use crate::accounts::Accounts;
use crate::api::{Api, google_client};
use crate::credentials::{Credentials, OAuthClient};
use crate::declare::Google;
use crate::sign_ins::SignIns;
use crate::workspace::{FileFuture, WorkspaceFiles};

pub(crate) const ANN: &str = "ann@example.com";
/// A secret that is stored, so no message may contain it.
pub(crate) const STORED_SECRET: &str = "correct-horse-battery";
/// The folder of storage.
const STORAGE: &str = "storage";

pub(crate) struct Bench {
    pub(crate) google: Arc<Google>,
    pub(crate) fake: FakeGoogle,
    pub(crate) gate: Gate,
    pub(crate) audit: Arc<MemoryAudit>,
    pub(crate) accounts: Accounts,
    pub(crate) folder: TempDir,
}

/// How a person answers the questions of an agent's call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    Agrees,
    Refuses,
    /// The agent is autonomous, so nobody is asked.
    Absent,
}

/// The workspace is a folder, and so is storage.
struct TestFiles(PathBuf);

impl WorkspaceFiles for TestFiles {
    fn touched(&self, _: &Call, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn read(&self, _: &Call, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        let bytes =
            std::fs::read(self.0.join(path)).map_err(|err| ToolError::failed(format!("{path}: {err}")))?;
        match bytes.len() as u64 > max {
            true => Err(ToolError::failed(format!("{path} has more than {max} bytes"))),
            false => Ok(bytes),
        }
    }

    fn create(&self, _: &Call, path: &str, content: &[u8]) -> Result<(), ToolError> {
        let failed = |err: std::io::Error| ToolError::failed(format!("{path}: {err}"));
        let mut file = std::fs::File::create_new(self.0.join(path)).map_err(failed)?;
        std::io::Write::write_all(&mut file, content).map_err(failed)
    }

    fn read_stored<'a>(&'a self, call: &'a Call, path: &'a str, max: u64) -> FileFuture<'a, Vec<u8>> {
        Box::pin(async move { self.read(call, &format!("{STORAGE}/{path}"), max) })
    }

    fn create_stored<'a>(&'a self, call: &'a Call, path: &'a str, content: Vec<u8>) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let place = format!("{STORAGE}/{path}");
            std::fs::create_dir_all(self.0.join(&place).parent().unwrap()).unwrap();
            self.create(call, &place, &content)
        })
    }
}

/// The credentials of the checking server's clients.
pub(crate) fn credentials(fake: &FakeGoogle, scopes: &[&str]) -> Credentials {
    let client = |id: &str, secret: &str| Some(OAuthClient { id: id.to_owned(), secret: secret.to_owned() });
    Credentials {
        client: client(CLIENT_ID, CLIENT_SECRET),
        device_client: client(DEVICE_CLIENT_ID, DEVICE_CLIENT_SECRET),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        api_url: Url::parse(&fake.url()).ok(),
        ..Credentials::default()
    }
}

pub(crate) fn accounts_in(folder: &TempDir, credentials: Credentials) -> Accounts {
    let client = google_client(&ClientOptions::default(), credentials.api_url.as_ref());
    let data = DataDir::new(folder.path().join("data"));
    Accounts::new(credentials, client, &data, Secrets::new(&data, None))
}

/// Opens a page and follows its redirects, as a browser does. Returns the status and the text of the last page.
pub(crate) async fn browse(url: &Url) -> (u16, String) {
    let options = ClientOptions {
        private_hosts: HostPattern::parse("127.0.0.1").into_iter().collect(),
        ..ClientOptions::default()
    };
    let request = Request::get(url.clone(), tokio::time::Instant::now() + Duration::from_secs(5));
    let response = Client::new(options).send(request).await.unwrap();
    let status = response.status.as_u16();
    let body = response.body.read(64 * 1024).await.unwrap();
    (status, String::from_utf8(body.bytes).unwrap())
}

impl Bench {
    /// Ann has signed in and granted these scopes.
    pub(crate) async fn with_scopes(scopes: &[&str]) -> Bench {
        let bench = Bench::without_account(scopes).await;
        let sign_in = bench.accounts.begin_browser(&[]).await.unwrap();
        let url = sign_in.url.clone();
        let (account, _) = tokio::join!(bench.accounts.finish_browser(sign_in), browse(&url));
        assert_eq!(account.unwrap().email, ANN);
        bench
    }

    pub(crate) async fn without_account(scopes: &[&str]) -> Bench {
        let fake = FakeGoogle::start().await;
        let credentials = credentials(&fake, scopes);
        Bench::of(fake, credentials)
    }

    /// Ann's token is valid at another server.
    pub(crate) async fn at(server: &Url, token: &str, scopes: &[&str]) -> Bench {
        let fake = FakeGoogle::start().await;
        let mut credentials = credentials(&fake, scopes);
        credentials.api_url = Some(server.clone());
        let bench = Bench::of(fake, credentials);
        bench.accounts.add_for_test(ANN, token, scopes);
        bench
    }

    fn of(fake: FakeGoogle, credentials: Credentials) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let accounts = accounts_in(&folder, credentials.clone());
        let client = google_client(&ClientOptions::default(), credentials.api_url.as_ref());
        let masker = Masker::new([STORED_SECRET.to_owned()]);
        let google = Arc::new(Google {
            api: Api::new(
                SignIns::new(accounts.clone(), masker.clone()),
                client,
                credentials.api_url,
                Arc::new(|_| NetworkPolicy::AllowAll),
            ),
            files: Arc::new(TestFiles(folder.path().to_owned())),
            masker,
            zone: TimeZone::get("Europe/Berlin").unwrap(),
        });
        // Without a masker, so that a token that gets anywhere is seen.
        let (gate, audit) = gate(crate::tools::all(&google));
        Bench { google, fake, gate, audit, accounts, folder }
    }

    /// A file of the workspace.
    pub(crate) fn file(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(path)).unwrap()
    }

    /// A file of the agent's storage.
    pub(crate) fn stored(&self, path: &str) -> Vec<u8> {
        self.file(&format!("{STORAGE}/{path}"))
    }

    pub(crate) fn call_of(&self, principal: Principal, surface: Surface) -> Call {
        Call::new(principal, surface, self.folder.path().to_owned())
    }

    /// Calls as the operator. Both outcomes are texts.
    pub(crate) async fn call(&self, tool: &str, input: Value) -> Result<String, String> {
        let call = self.call_of(Principal::Operator, Surface::Cli);
        texts(call_as(&self.gate, call, tool, input).await)
    }

    /// Calls as an agent. Returns the outcome and the questions.
    pub(crate) async fn as_agent(
        &self,
        tool: &str,
        input: Value,
        person: Person,
    ) -> (Result<String, String>, Vec<Approval>) {
        let call = self.call_of(Principal::Agent { id: "main".to_owned() }, Surface::Agent);
        self.asked(call, tool, input, person).await
    }

    /// As [`Bench::as_agent`], in a run that has read untrusted and private content.
    pub(crate) async fn as_labelled_agent(
        &self,
        tool: &str,
        input: Value,
        person: Person,
    ) -> (Result<String, String>, Vec<Approval>) {
        let mut call = self.call_of(Principal::Agent { id: "main".to_owned() }, Surface::Agent);
        call.holds_both = Some("the conversation holds both labels".to_owned());
        self.asked(call, tool, input, person).await
    }

    async fn asked(
        &self,
        mut call: Call,
        tool: &str,
        input: Value,
        person: Person,
    ) -> (Result<String, String>, Vec<Approval>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let own = asked.clone();
        call.autonomy = if person == Person::Absent { Autonomy::Autonomous } else { Autonomy::Guided };
        call.approver = Some(Approver::new(move |approval| {
            own.lock().unwrap().push(approval);
            async move {
                match person {
                    Person::Agrees => Consent::Allowed,
                    Person::Refuses | Person::Absent => Consent::Denied("the user said no".to_owned()),
                }
            }
        }));
        let outcome = texts(call_as(&self.gate, call, tool, input).await);
        let asked = asked.lock().unwrap().clone();
        (outcome, asked)
    }

    /// Checks that an action asks an agent's person, is denied without one, and does nothing when denied. Returns the text
    /// of the question and the result after a yes.
    pub(crate) async fn confirmed(&self, tool: &str, input: Value, method: &str) -> (String, String) {
        let before = self.fake.seen_of(method).len();
        for person in [Person::Absent, Person::Refuses] {
            let (denied, asked) = self.as_agent(tool, input.clone(), person).await;
            assert!(denied.unwrap_err().contains("denied"), "an unconfirmed {input} ran");
            assert_eq!(asked.len(), usize::from(person == Person::Refuses));
        }
        assert_eq!(self.fake.seen_of(method).len(), before, "a denied call had an effect");
        let (result, asked) = self.as_agent(tool, input, Person::Agrees).await;
        assert_eq!(asked.len(), 1, "one question");
        (QuestionText::new(&asked[0].action).whole(), result.unwrap())
    }

    /// Checks that an action asks nobody in an ordinary run. Returns its result.
    pub(crate) async fn unasked(&self, tool: &str, input: Value) -> String {
        let (result, asked) = self.as_agent(tool, input, Person::Absent).await;
        assert_eq!(asked.len(), 0);
        result.unwrap()
    }
}

fn texts(outcome: Result<Value, Value>) -> Result<String, String> {
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    outcome.map(text).map_err(text)
}

/// The part of a result that stands outside the fences.
pub(crate) fn outside_fences(text: &str) -> String {
    let mut outside = Vec::new();
    let mut mark: Option<String> = None;
    for line in text.lines() {
        match &mark {
            Some(open) if line == format!("[end of data {open}]") => mark = None,
            Some(_) => {}
            None if line.starts_with("[data from ") => {
                let word = line.split(' ').rev().nth(2).unwrap_or_default();
                mark = Some(word.trim_end_matches(',').to_owned());
            }
            None => outside.push(line),
        }
    }
    assert!(mark.is_none(), "an open fence: {text}");
    outside.join("\n")
}
