//! `gantry channels` shows the accounts of chat services, links the owner and admits people.

mod add;

use add::Service;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use gantry_flow::relative_text;
use gantry_protocol::{
    ChannelLink, ChannelList, ChannelPairParams, ChannelParams, ChannelPeople, ChannelPerson,
    ChannelRoleParams, ChannelTest, Empty,
};

use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry channels                      list accounts and whether they are connected\n  \
    gantry channels add telegram         add a Telegram bot\n  \
    gantry channels link telegram        make a code that links you as the owner\n  \
    gantry channels pair approve K7QM2XPA   admit a person who wrote to the bot\n  \
    gantry channels test telegram        check credentials and settings")]
pub(crate) struct ChannelsArgs {
    #[command(subcommand)]
    action: Option<ChannelsAction>,
}

#[derive(Debug, Subcommand)]
enum ChannelsAction {
    /// List accounts: state, last event, messages that wait
    List,
    /// Add an account of a chat service; without a terminal, print the steps
    Add {
        /// The chat service
        channel: Service,
        /// The account's name in the configuration
        #[arg(long, value_name = "NAME", default_value = "default")]
        account: String,
    },
    /// Connect an account again, after its credential or a setting was fixed
    Login {
        /// The account, such as telegram:default, or its channel
        id: String,
    },
    /// Make a code that links you as the owner: send it to the bot within 10 minutes
    Link {
        /// The account, such as telegram:default, or its channel
        id: String,
    },
    /// Admit or block a person who wrote to the bot
    Pair {
        /// What to do with the request
        decision: Decision,
        /// The code that the person was told
        code: String,
    },
    /// List the owner, members and people who wait
    People,
    /// Change what a person may do
    Role {
        /// The account, such as telegram:default, or its channel
        id: String,
        /// The person's id, as `gantry channels people` lists it
        person: String,
        /// The new role
        role: NewRole,
    },
    /// Check credentials and settings with the chat service
    Test {
        /// The account, such as telegram:default, or its channel
        id: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Decision {
    Approve,
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NewRole {
    Member,
    Blocked,
    /// A stranger again
    None,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: ChannelsArgs) -> Result<Exit> {
    let action = args.action.unwrap_or(ChannelsAction::List);
    if let ChannelsAction::Add { channel, account } = &action {
        return add::run(environment, output, *channel, account);
    }
    let address = Target::gateway(environment, output)?;
    match action {
        ChannelsAction::Add { .. } => {}
        ChannelsAction::List => list(output, &Client::once(&address, output, "channels.list", &Empty {})?),
        ChannelsAction::Login { id } => {
            list(output, &Client::once(&address, output, "channels.restart", &ChannelParams { id })?);
        }
        ChannelsAction::Link { id } => {
            let link: ChannelLink = Client::once(&address, output, "channels.link", &ChannelParams { id })?;
            show_link(output, &link);
        }
        ChannelsAction::Pair { decision, code } => {
            let params = ChannelPairParams { code, approve: decision == Decision::Approve };
            let person: ChannelPerson = Client::once(&address, output, "channels.pair", &params)?;
            match output.json {
                true => output.value(&person),
                false => output.done(&format!(
                    "{} is {} of {}.",
                    named(&person),
                    a_role(&person.role),
                    person.account
                )),
            }
        }
        ChannelsAction::People => {
            people(output, &Client::once(&address, output, "channels.people", &Empty {})?)
        }
        ChannelsAction::Role { id, person, role } => {
            let role = match role {
                NewRole::Member => "member",
                NewRole::Blocked => "blocked",
                NewRole::None => "none",
            };
            let params = ChannelRoleParams { account: id, person, role: role.to_owned() };
            people(output, &Client::once(&address, output, "channels.role", &params)?);
        }
        ChannelsAction::Test { id } => {
            let test: ChannelTest = Client::once(&address, output, "channels.test", &ChannelParams { id })?;
            return Ok(show_test(output, &test));
        }
    }
    Ok(Exit::Success)
}

fn list(output: &Output, listed: &ChannelList) {
    if output.json {
        return output.value(listed);
    }
    if listed.accounts.is_empty() {
        output.done("No chat account is configured. `gantry channels add telegram` shows how to add one.");
    }
    let now = jiff::Timestamp::now().as_millisecond();
    for account in &listed.accounts {
        let mut facts = vec![format!("agent {}", account.agent)];
        facts.extend(account.last_event.map(|at| format!("last event {}", relative_text(at, now))));
        if account.backlog > 0 {
            facts.push(format!("{} messages wait", account.backlog));
        }
        if !account.linked {
            facts.push(format!("no owner: gantry channels link {}", account.id));
        }
        let bot = if account.bot.is_empty() { String::new() } else { format!("  {}", account.bot) };
        let facts = output.dim(&facts.join(" · "));
        output.line(&format!(
            "{}  {}{bot}  {facts}",
            output.bold(&account.id),
            account.state.replace('_', " ")
        ));
        if let Some(error) = &account.error {
            output.line(&format!("  {error}"));
        }
    }
}

fn show_link(output: &Output, link: &ChannelLink) {
    if output.json {
        return output.value(link);
    }
    let bot = if link.bot.is_empty() { format!("the bot of {}", link.id) } else { link.bot.clone() };
    output.line(&format!("Send this to {bot} in a one-to-one chat, within 10 minutes:"));
    output.page(&format!("\n  {}\n", output.bold(&link.code)));
    output.line("Whoever sends it becomes the owner there. Do not forward it.");
}

fn people(output: &Output, listed: &ChannelPeople) {
    if output.json {
        return output.value(listed);
    }
    if listed.people.is_empty() {
        output.done("Nobody is known yet. `gantry channels link ACCOUNT` links you.");
    }
    for person in &listed.people {
        let code = person.code.as_ref().map_or(String::new(), |code| format!("  code {code}"));
        let name = output.bold(&named(person));
        output.line(&format!(
            "{name}  {}  {}  {}{code}",
            person.role,
            person.account,
            output.dim(&person.id)
        ));
    }
}

fn show_test(output: &Output, test: &ChannelTest) -> Exit {
    if output.json {
        output.value(test);
    } else if test.ok {
        output.done(&format!("{} works{}.", test.id, bot(test)));
        test.warnings.iter().for_each(|warning| output.line(&format!("  {warning}")));
    } else {
        let problem = test.problem.as_deref().unwrap_or("the chat service refused");
        output.line(&format!("{} does not work: {problem}", output.bold(&test.id)));
        if let Some(fix) = &test.fix {
            output.line(&format!("  To fix it: {fix}"));
        }
    }
    if test.ok { Exit::Success } else { Exit::Failure }
}

fn bot(test: &ChannelTest) -> String {
    if test.bot.is_empty() { String::new() } else { format!(" as {}", test.bot) }
}

fn named(person: &ChannelPerson) -> String {
    if person.name.is_empty() { person.id.clone() } else { person.name.clone() }
}

fn a_role(role: &str) -> String {
    match role {
        "member" => "a member".to_owned(),
        role => role.to_owned(),
    }
}
