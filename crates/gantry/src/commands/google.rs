//! `gantry google` signs in to Google Workspace, shows the accounts and signs out.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use gantry_google::{AccountStatus, Accounts, check_scope};
use serde_json::json;

use crate::client::runtime;
use crate::commands::browser::browse;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::google;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry google auth                       sign in with the browser; the scopes only read\n  \
    gantry google auth --scope gmail.send    also ask for a scope\n  \
    gantry google auth --paste               sign in over ssh: paste the final address here\n  \
    gantry google scopes add drive.file      ask for one more scope of a signed-in account\n  \
    gantry google logout ann@example.com     revoke a sign-in and remove its tokens\n\n\
    docs/google.md shows how to create the client in Google's console.")]
pub(crate) struct GoogleArgs {
    #[command(subcommand)]
    action: Option<GoogleAction>,
}

#[derive(Debug, Subcommand)]
enum GoogleAction {
    /// Sign in to an account
    Auth {
        /// Ask for this scope too, such as gmail.send
        #[arg(long, value_name = "SCOPE")]
        scope: Vec<String>,
        #[command(flatten)]
        way: Way,
    },
    /// Show the accounts and their scopes
    Status,
    /// Revoke a sign-in and remove its tokens
    Logout {
        /// The account's address [default: the default account]
        account: Option<String>,
    },
    /// Choose the account of calls that name none
    Use {
        /// The account's address
        account: String,
    },
    /// Show the granted scopes, or ask for more
    Scopes {
        #[command(subcommand)]
        action: Option<ScopesAction>,
    },
}

#[derive(Debug, Subcommand)]
enum ScopesAction {
    /// Ask for more scopes of a signed-in account
    Add {
        /// Scopes, such as gmail.send
        #[arg(required = true)]
        scope: Vec<String>,
        /// The account's address [default: the default account]
        #[arg(long, value_name = "ADDRESS")]
        account: Option<String>,
        #[command(flatten)]
        way: Way,
    },
}

#[derive(Debug, Args)]
struct Way {
    /// Paste the address that the browser ends at, on a machine without a browser
    #[arg(long, conflicts_with = "device")]
    paste: bool,
    /// Type a code on another device; Google grants only calendar and drive.file scopes this way
    #[arg(long)]
    device: bool,
    /// Print the URL without opening a browser
    #[arg(long)]
    no_browser: bool,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: GoogleArgs) -> Result<Exit> {
    let mut config = environment.layers.load()?;
    config.resolve_paths(|path| environment.resolve(path));
    let accounts = google::accounts(environment, &config)?;
    for problem in &accounts.credentials().problems {
        output.warning(problem);
    }
    match args.action.unwrap_or(GoogleAction::Status) {
        GoogleAction::Auth { scope, way } => sign_in(environment, output, &accounts, &checked(&scope)?, &way),
        GoogleAction::Status => status(output, &accounts),
        GoogleAction::Scopes { action: None } => status(output, &accounts),
        GoogleAction::Scopes { action: Some(ScopesAction::Add { scope, account, way }) } => {
            let list = accounts.list().map_err(UsageError)?;
            let is_meant = |one: &&AccountStatus| match &account {
                Some(email) => one.email.eq_ignore_ascii_case(email),
                None => one.is_default,
            };
            let Some(known) = list.iter().find(is_meant) else {
                let text = "this account is not signed in; run `gantry google auth --scope SCOPE`";
                return Err(UsageError(text.to_owned()).into());
            };
            if known.kind == "service" {
                let text = "the scopes of the service account are google.scopes in gantry.toml";
                return Err(UsageError(text.to_owned()).into());
            }
            let more = [known.scopes.clone(), checked(&scope)?].concat();
            sign_in(environment, output, &accounts, &more, &way)
        }
        GoogleAction::Logout { account } => {
            let signed_out = runtime()?.block_on(accounts.sign_out(account.as_deref()));
            let (email, problem) = signed_out.map_err(UsageError)?;
            if let Some(problem) = problem {
                output.warning(&format!(
                    "Google could not be asked to revoke the sign-in ({problem}); remove Gantry at \
                     https://myaccount.google.com/permissions"
                ));
            }
            match output.json {
                true => output.value(&json!({"email": email, "signedOut": true})),
                false => output.done(&format!("Signed out {email}.")),
            }
            Ok(Exit::Success)
        }
        GoogleAction::Use { account } => {
            let email = accounts.choose(&account).map_err(UsageError)?;
            output.done(&format!("{email} is the default account now."));
            Ok(Exit::Success)
        }
    }
}

fn checked(scopes: &[String]) -> Result<Vec<String>> {
    let check = |scope: &String| check_scope(scope).map(str::to_owned).map_err(|err| UsageError(err).into());
    scopes.iter().map(check).collect()
}

fn sign_in(
    environment: &Environment,
    output: &Output,
    accounts: &Accounts,
    more: &[String],
    way: &Way,
) -> Result<Exit> {
    let note = |text: &str| match output.json {
        true => output.warning(text),
        false => output.line(text),
    };
    let account = runtime()?.block_on(async {
        if way.device {
            let sign_in = accounts.begin_device(more).await?;
            if !sign_in.left_out.is_empty() {
                output.warning(&format!(
                    "Google does not grant these scopes to devices: {}; sign in with `gantry google auth --paste` to get them",
                    sign_in.left_out.join(", ")
                ));
            }
            note(&format!("Open {} and type the code {}", sign_in.verification_url, sign_in.user_code));
            return anyhow::Ok(accounts.finish_device(sign_in).await?);
        }
        if way.paste {
            let sign_in = accounts.begin_paste(more)?;
            note(&format!("Open this page in any browser and agree: {}", sign_in.url));
            note("The browser then shows an error page. Paste its whole address here:");
            let mut address = String::new();
            std::io::stdin().read_line(&mut address).context("cannot read the address")?;
            return Ok(accounts.finish_paste(sign_in, &address).await?);
        }
        let sign_in = accounts.begin_browser(more).await?;
        note(&format!("Sign in here: {}", sign_in.url));
        if let Some(port) = sign_in.port().filter(|_| environment.variable("SSH_CONNECTION").is_some()) {
            note(&format!(
                "This is a remote machine. On yours, run `ssh -L {port}:127.0.0.1:{port} HOST` first, or use --paste."
            ));
        }
        if !way.no_browser {
            browse(environment, sign_in.url.as_str());
        }
        Ok(accounts.finish_browser(sign_in).await?)
    });
    let account = account?;
    match output.json {
        true => output.value(&account),
        false => {
            output.done(&format!("Signed in {}.", account.email));
            output.line(&format!("Scopes: {}", account.scopes.join(", ")));
        }
    }
    Ok(Exit::Success)
}

fn status(output: &Output, accounts: &Accounts) -> Result<Exit> {
    let list = accounts.list().map_err(UsageError)?;
    let configured = accounts.credentials().is_configured();
    if output.json {
        output.value(&json!({"configured": configured, "accounts": list}));
        return Ok(Exit::Success);
    }
    match (configured, list.is_empty()) {
        (false, _) => output.line("Google is not configured. docs/google.md shows every step."),
        (true, true) => output.line("Nobody is signed in. Run `gantry google auth`."),
        (true, false) => {}
    }
    for account in list {
        let default = if account.is_default { " (default)" } else { "" };
        output.line(&format!("{}{default}, by {}", output.bold(&account.email), account.kind));
        output.line(&format!("  scopes: {}", account.scopes.join(", ")));
        if let Some(reason) = account.ended {
            output.line(&format!("  Google ended the sign-in: {reason}; run `gantry google auth`"));
        }
    }
    Ok(Exit::Success)
}
