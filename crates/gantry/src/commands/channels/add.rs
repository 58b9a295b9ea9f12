//! `gantry channels add`: asks for what a chat service needs, stores its credentials, writes the configuration and checks it.
//! Without a terminal it prints the steps.

use std::io::IsTerminal;

use anyhow::Result;
use clap::ValueEnum;
use gantry_net::Url;
use gantry_protocol::{ChannelParams, ChannelTest};
use serde_json::{Map, Value, json};

use crate::client::{Client, Target};
use crate::commands::secrets::hidden_input;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::{Output, question};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Service {
    Telegram,
    Slack,
    Discord,
    Whatsapp,
    Matrix,
    Email,
    Webhook,
    Bridge,
}

/// A key of an account's section.
struct Field {
    key: &'static str,
    /// What a person is asked for.
    label: &'static str,
    kind: Kind,
}

enum Kind {
    /// A value in the configuration, with an example.
    Text(&'static str),
    /// Like [`Kind::Text`], and may be left out.
    Optional(&'static str),
    /// A credential that is sent to these hosts only.
    Secret { name: &'static str, hosts: Hosts },
}

#[derive(Clone, Copy)]
enum Hosts {
    Fixed(&'static [&'static str]),
    /// The hosts of other fields: URLs, or `host:port`.
    Of(&'static [&'static str]),
}

const fn secret(key: &'static str, label: &'static str, name: &'static str, hosts: Hosts) -> Field {
    Field { key, label, kind: Kind::Secret { name, hosts } }
}

const fn text(key: &'static str, label: &'static str, sample: &'static str) -> Field {
    Field { key, label, kind: Kind::Text(sample) }
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Telegram => "telegram",
            Service::Slack => "slack",
            Service::Discord => "discord",
            Service::Whatsapp => "whatsapp",
            Service::Matrix => "matrix",
            Service::Email => "email",
            Service::Webhook => "webhook",
            Service::Bridge => "bridge",
        }
    }

    fn fields(self) -> Vec<Field> {
        const META: Hosts = Hosts::Fixed(&["graph.facebook.com"]);
        match self {
            Service::Telegram => {
                let hosts = Hosts::Fixed(&["api.telegram.org"]);
                vec![secret("token", "Token from @BotFather", "TELEGRAM", hosts)]
            }
            Service::Slack => vec![
                secret("botToken", "Bot token (xoxb-…)", "SLACK_BOT", Hosts::Fixed(&["slack.com"])),
                secret("appToken", "App-level token (xapp-…)", "SLACK_APP", Hosts::Fixed(&["slack.com"])),
            ],
            Service::Discord => {
                vec![secret("token", "Bot token", "DISCORD", Hosts::Fixed(&["discord.com"]))]
            }
            Service::Whatsapp => vec![
                text("phoneNumberId", "Phone number id at Meta", "106540352242922"),
                secret(
                    "token",
                    "Access token of the system user",
                    "WHATSAPP",
                    // Files of people are at the second host.
                    Hosts::Fixed(&["graph.facebook.com", "lookaside.fbsbx.com"]),
                ),
                secret("appSecret", "App secret", "WHATSAPP_APP", META),
                secret(
                    "verifyToken",
                    "Verify token (choose one, and enter it at Meta)",
                    "WHATSAPP_VERIFY",
                    META,
                ),
            ],
            Service::Matrix => vec![
                text("homeserver", "Homeserver", "https://matrix.example.org"),
                secret("token", "Access token", "MATRIX", Hosts::Of(&["homeserver"])),
            ],
            Service::Email => vec![
                text("address", "Address of the mailbox", "agent@example.org"),
                text("imap", "IMAP server and port", "mail.example.org:993"),
                text("smtp", "SMTP server and port", "mail.example.org:465"),
                text(
                    "authservId",
                    "Name of the receiving server in Authentication-Results",
                    "mail.example.org",
                ),
                secret("password", "Password", "MAIL", Hosts::Of(&["imap", "smtp"])),
            ],
            Service::Webhook => vec![
                Field {
                    key: "url",
                    label: "Address that gets the answers (empty: none)",
                    kind: Kind::Optional("https://hooks.example.org/gantry"),
                },
                secret(
                    "secret",
                    "Key of the signatures, at least 16 characters",
                    "HOOK",
                    Hosts::Of(&["url"]),
                ),
            ],
            Service::Bridge => vec![text("tokenName", "Name of the bridge's client token", "bridge")],
        }
    }
}

/// Adds an account at a terminal, or prints the steps.
pub(super) fn run(
    environment: &Environment,
    output: &Output,
    service: Service,
    account: &str,
) -> Result<Exit> {
    if output.json || !std::io::stdin().is_terminal() || environment.gateway.is_some() {
        output.page(&steps(service, account));
        return Ok(Exit::Success);
    }
    let name = service.name();
    output.line(&format!("The guide is docs/channels{}.md.", guide(service)));
    let mut section = Map::new();
    let mut secrets: Vec<(String, String, Vec<String>)> = Vec::new();
    for field in service.fields() {
        match field.kind {
            Kind::Text(sample) | Kind::Optional(sample) => {
                let is_optional = matches!(field.kind, Kind::Optional(_));
                let value = ask(&format!("{} (such as {sample}): ", field.label))?;
                match value.is_empty() {
                    true if is_optional => {}
                    true => return Err(UsageError(format!("{} is required", field.label)).into()),
                    false => drop(section.insert(field.key.to_owned(), json!(value))),
                }
            }
            Kind::Secret { name, hosts } => {
                let value = String::from_utf8(hidden_input::read_line(&format!("{}: ", field.label))?);
                let value =
                    value.map_err(|_| UsageError("the value is not UTF-8 text".into()))?.trim().to_owned();
                if value.is_empty() {
                    return Err(UsageError(format!("{} is required", field.label)).into());
                }
                let name = secret_name(name, account);
                section.insert(field.key.to_owned(), json!(format!("secret:{name}")));
                secrets.push((name, value, hosts_of(hosts, &section)));
            }
        }
    }
    environment.data.create()?;
    let now = jiff::Timestamp::now().as_millisecond();
    for (name, value, hosts) in &secrets {
        environment.secrets().set(name, value, hosts, now)?;
    }
    environment.layers.write_section(&format!("channels.{name}.{account}"), &section)?;
    output.done(&format!("Added {name}:{account} to {}.", environment.layers.file.display()));
    check(environment, output, service, account)
}

/// Checks the new account with the gateway that runs here, if there is one.
fn check(environment: &Environment, output: &Output, service: Service, account: &str) -> Result<Exit> {
    let id = format!("{}:{account}", service.name());
    let next = match service {
        Service::Bridge => {
            format!("gantry tokens add NAME --read-only, then start the bridge; gantry channels link {id}")
        }
        _ => format!("gantry channels link {id}"),
    };
    let address = match Target::find(environment, output, false)? {
        Target::Gateway(address) => address,
        Target::InProcess => {
            output.done(&format!("Next: gantry up, then {next}"));
            return Ok(Exit::Success);
        }
    };
    // The gateway notices the changed file within a second or two.
    let mut tested = None;
    for _ in 0..20 {
        let params = ChannelParams { id: id.clone() };
        match Client::once::<ChannelTest>(&address, output, "channels.test", &params) {
            Ok(test) => {
                tested = Some(test);
                break;
            }
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(500)),
        }
    }
    let Some(test) = tested else {
        output.done(&format!("The gateway has not taken the account yet. Try: gantry channels test {id}"));
        return Ok(Exit::Success);
    };
    let exit = super::show_test(output, &test);
    if test.ok {
        output.done(&format!("Next: {next}"));
    }
    Ok(exit)
}

fn ask(prompt: &str) -> Result<String> {
    question(prompt);
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Err(UsageError("nothing was added".into()).into());
    }
    Ok(line.trim().to_owned())
}

/// The account `default` has the short name.
fn secret_name(name: &str, account: &str) -> String {
    let account: String = account
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    if account == "DEFAULT" { name.to_owned() } else { format!("{name}_{account}") }
}

fn hosts_of(hosts: Hosts, section: &Map<String, Value>) -> Vec<String> {
    match hosts {
        Hosts::Fixed(hosts) => hosts.iter().map(|host| (*host).to_owned()).collect(),
        Hosts::Of(keys) => {
            let values = keys.iter().filter_map(|key| section.get(*key).and_then(Value::as_str));
            let mut found: Vec<String> = values.filter_map(host_of).collect();
            found.dedup();
            if found.is_empty() { vec!["localhost".to_owned()] } else { found }
        }
    }
}

/// The host of a URL or of `host:port`.
fn host_of(text: &str) -> Option<String> {
    match text.parse::<Url>() {
        Ok(url) if url.has_host() => url.host_str().map(str::to_owned),
        _ => text.rsplit_once(':').map(|(host, _)| host.to_owned()),
    }
}

/// The page of a service below `docs/`.
fn guide(service: Service) -> String {
    match service {
        Service::Webhook | Service::Bridge => String::new(),
        service => format!("/{}", service.name()),
    }
}

/// The steps to add an account: the secrets to store, and the lines for `gantry.toml`.
fn steps(service: Service, account: &str) -> String {
    let name = service.name();
    let mut commands = String::new();
    let mut lines = String::new();
    // Examples stand for what a person would type.
    let mut section = Map::new();
    for field in service.fields() {
        match field.kind {
            Kind::Text(sample) | Kind::Optional(sample) => {
                section.insert(field.key.to_owned(), json!(sample));
                lines.push_str(&format!("     {} = {sample:?}\n", field.key));
            }
            Kind::Secret { name, hosts } => {
                let name = secret_name(name, account);
                let hosts: String =
                    hosts_of(hosts, &section).iter().map(|host| format!(" --host {host}")).collect();
                commands.push_str(&format!("     gantry secrets set {name}{hosts}\n"));
                lines.push_str(&format!("     {} = \"secret:{name}\"\n", field.key));
            }
        }
    }
    let first = match service {
        Service::Bridge => {
            "1. Make a token for the bridge:\n\n     gantry tokens add bridge --read-only\n".to_owned()
        }
        _ => format!("1. Store the credentials. Each is sent to its hosts only:\n\n{commands}"),
    };
    format!(
        "{first}\n2. Add this to gantry.toml (`gantry config path` shows where it is):\n\n     [channels.{name}.{account}]\n{lines}\n\
         3. Link yourself, so that the bot knows its owner:\n\n     gantry channels test {name}:{account}\n     \
         gantry channels link {name}:{account}\n\nThe guide is docs/channels{}.md.\n",
        guide(service)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_bound_to_the_hosts_of_their_account() {
        let section = |key: &str, value: &str| Map::from_iter([(key.to_owned(), json!(value))]);
        let of = Hosts::Of(&["homeserver", "imap"]);
        assert_eq!(hosts_of(of, &section("homeserver", "https://m.example.org/x")), ["m.example.org"]);
        assert_eq!(hosts_of(of, &section("imap", "mail.example.org:993")), ["mail.example.org"]);
        assert_eq!(hosts_of(of, &Map::new()), ["localhost"]);
        assert_eq!(secret_name("SLACK_BOT", "default"), "SLACK_BOT");
        assert_eq!(secret_name("SLACK_BOT", "work-2"), "SLACK_BOT_WORK_2");
    }

    #[test]
    fn steps_name_every_key_of_an_account() {
        for service in Service::value_variants() {
            let text = steps(*service, "default");
            for field in service.fields() {
                assert!(text.contains(&format!("     {} = ", field.key)), "{text}");
            }
            assert!(text.contains(&format!("[channels.{}.default]", service.name())), "{text}");
        }
    }
}
