//! Why a request to Discord failed, and what follows from it.

use std::time::Duration;

use gantry_net::NetError;

use crate::adapter::{ListenError, Problem, SendOutcome};
use crate::connection::failed;

pub(super) const PORTAL: &str = "discord.com/developers/applications";

#[derive(Debug, Clone)]
pub(super) enum ApiError {
    /// The token cannot be used here.
    Secret(String),
    Net(NetError),
    Limited {
        doing: &'static str,
        after: Duration,
    },
    /// Discord failed, perhaps after it did what was asked.
    Server {
        doing: &'static str,
        status: u16,
    },
    Unreadable {
        doing: &'static str,
    },
    /// Discord refused: the status, and the code from its list of errors.
    Refused {
        doing: &'static str,
        status: u16,
        code: u64,
    },
}

impl ApiError {
    /// Reports whether the operator must store another token.
    fn is_login(&self) -> bool {
        matches!(self, ApiError::Secret(_) | ApiError::Refused { status: 401, .. })
    }

    /// Reports whether the object is gone, or the bot may not see it.
    pub(super) fn is_out_of_reach(&self) -> bool {
        matches!(self, ApiError::Refused { status: 403 | 404, .. })
    }

    /// What the operator can do.
    pub(super) fn fix(&self) -> String {
        match self {
            _ if self.is_login() => format!(
                "open {PORTAL}, Bot, Reset Token, and store the new token as the secret of token with \
                 `gantry secrets set NAME --host discord.com`"
            ),
            ApiError::Refused { code: 50_007, .. } => {
                "the person must share a server with the bot and allow direct messages from its members".to_owned()
            }
            ApiError::Refused { code: 50_013, .. } => {
                "allow the bot in the channel's permissions: View Channel, Send Messages, Send Messages in Threads, \
                 Attach Files and Read Message History"
                    .to_owned()
            }
            ApiError::Refused { code: 10_003 | 50_001, .. } | ApiError::Refused { status: 403 | 404, .. } => {
                "invite the bot to the server, and allow View Channel and Send Messages in the channel's permissions"
                    .to_owned()
            }
            ApiError::Net(_) | ApiError::Server { .. } | ApiError::Unreadable { .. } => {
                "check the connection to discord.com, a proxy or a firewall".to_owned()
            }
            ApiError::Limited { .. } => "wait and try again".to_owned(),
            ApiError::Secret(_) | ApiError::Refused { .. } => {
                "look the code up in Discord's documentation, under Opcodes and Status Codes".to_owned()
            }
        }
    }

    pub(super) fn problem(&self) -> Problem {
        Problem { message: self.to_string(), fix: self.fix() }
    }

    pub(super) fn stops_listening(&self) -> ListenError {
        match self {
            ApiError::Limited { after, .. } => {
                ListenError::Again { why: self.to_string(), after: Some(*after) }
            }
            ApiError::Net(
                NetError::NotAllowed { .. }
                | NetError::ForbiddenAddress { .. }
                | NetError::ForbiddenName { .. }
                | NetError::BadUrl { .. },
            ) => ListenError::Refused(self.to_string()),
            ApiError::Net(_) | ApiError::Server { .. } | ApiError::Unreadable { .. } => {
                ListenError::Again { why: self.to_string(), after: None }
            }
            _ if self.is_login() => ListenError::NeedsLogin(format!("{self}: {}", self.fix())),
            ApiError::Secret(_) | ApiError::Refused { .. } => {
                ListenError::Refused(format!("{self}: {}", self.fix()))
            }
        }
    }

    /// The outcome of a request that sends something.
    pub(super) fn outcome(&self) -> SendOutcome {
        match self {
            ApiError::Net(err) => failed(err),
            // The operator may store the secret until the next attempt.
            ApiError::Secret(_) => SendOutcome::Retry { why: self.to_string(), after: None },
            ApiError::Limited { after, .. } => {
                SendOutcome::Retry { why: self.to_string(), after: Some(*after) }
            }
            ApiError::Server { .. } | ApiError::Unreadable { .. } => SendOutcome::Unknown(self.to_string()),
            ApiError::Refused { .. } => SendOutcome::Refused(format!("{self}: {}", self.fix())),
        }
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApiError::Secret(why) => f.write_str(why),
            // The URL of an answer to a press contains a token.
            ApiError::Net(NetError::BadUrl { reason, .. }) => {
                write!(f, "the address cannot be reached: {reason}")
            }
            ApiError::Net(err) => err.fmt(f),
            ApiError::Limited { doing, after } => {
                write!(f, "cannot {doing}: Discord asks to wait {:.1} seconds", after.as_secs_f64())
            }
            ApiError::Server { doing, status } => write!(f, "cannot {doing}: Discord answered {status}"),
            ApiError::Unreadable { doing } => write!(f, "cannot {doing}: Discord's answer is unreadable"),
            ApiError::Refused { status: 401, .. } => {
                f.write_str("Discord does not accept the token: it is wrong, or it was reset (401)")
            }
            ApiError::Refused { doing, status, code } => match meaning(*code) {
                "" => write!(f, "cannot {doing}: Discord refused with {status} (code {code})"),
                meaning => write!(f, "cannot {doing}: {meaning} (Discord's code {code})"),
            },
        }
    }
}

/// The codes that operators meet.
fn meaning(code: u64) -> &'static str {
    match code {
        10_003 => "the channel does not exist",
        10_008 => "the message does not exist",
        10_062 => "the press is too old",
        40_005 => "the file is too large",
        50_001 => "the bot cannot see the channel",
        50_005 => "the message is not the bot's own",
        50_006 => "the message is empty",
        50_007 => "the person takes no messages from the bot",
        50_013 => "the bot has no permission for it",
        50_035 => "the request is invalid",
        50_083 => "the thread is archived",
        160_005 => "the thread is locked",
        _ => "",
    }
}
