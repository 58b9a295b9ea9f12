//! The one decision about who may do what in a chat: messages, edits, commands and presses of buttons.

use crate::adapter::Addressed;
use crate::address::PeerKind;
use crate::config::{Access, DmPolicy};
use crate::people::Role;

/// Commands that members may use in a chat of two.
const MEMBER_COMMANDS: [&str; 3] = ["help", "stop", "new"];

/// Something that a person did in a chat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Act<'a> {
    pub(crate) role: Role,
    pub(crate) is_bot: bool,
    pub(crate) kind: PeerKind,
    pub(crate) chat: &'a str,
    pub(crate) person: &'a str,
    pub(crate) what: What<'a>,
    /// The channel's senders cannot be forged, so the owner may approve there.
    pub(crate) may_approve: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Message(Addressed),
    Edit,
    /// A command's name, without the slash.
    Command(&'a str),
    /// A command that only the owner may use, in a chat of two: it answers a question or changes what is trusted.
    PrivateCommand,
    Press,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It becomes a message to the session.
    Run,
    Command,
    /// The press may answer its question.
    Press,
    /// A stranger gets a code.
    Pair,
    /// Nothing happens.
    Ignore,
    /// Nothing happens, and the person gets the reason.
    Tell(&'static str),
}

/// Decides about an act. Everything is closed unless a rule here opens it.
pub(crate) fn authorise(access: &Access, act: Act<'_>) -> Decision {
    if act.is_bot || act.role == Role::Blocked || act.what == What::Edit {
        return Decision::Ignore;
    }
    match act.kind {
        PeerKind::Dm => in_a_chat_of_two(access, act),
        PeerKind::Group | PeerKind::Channel | PeerKind::Thread => in_a_group(access, act),
    }
}

fn in_a_chat_of_two(access: &Access, act: Act<'_>) -> Decision {
    match (act.role, act.what) {
        (Role::Stranger, What::Message(_) | What::Command(_) | What::PrivateCommand)
            if access.dm_policy == DmPolicy::Pairing =>
        {
            Decision::Pair
        }
        (Role::Stranger | Role::Blocked, _) | (_, What::Edit) => Decision::Ignore,
        (Role::Owner | Role::Member, What::Message(_)) => Decision::Run,
        (Role::Owner, What::Press) if act.may_approve => Decision::Press,
        (Role::Owner | Role::Member, What::Press) => Decision::Tell("Only the owner can answer this."),
        (Role::Owner, What::PrivateCommand) if !act.may_approve => Decision::Tell(
            "This is not possible in this channel, because senders can be forged here. Use another chat, or the gateway's own tools.",
        ),
        (Role::Owner, What::Command(_) | What::PrivateCommand) => Decision::Command,
        (Role::Member, What::Command(name)) if MEMBER_COMMANDS.contains(&name) => Decision::Command,
        (Role::Member, What::Command(_) | What::PrivateCommand) => {
            Decision::Tell("You can use /help, /stop and /new.")
        }
    }
}

fn in_a_group(access: &Access, act: Act<'_>) -> Decision {
    let Some(group) = access.groups.get(act.chat) else { return Decision::Ignore };
    let is_allowed = act.role != Role::Stranger || group.allow.iter().any(|id| id == "*" || id == act.person);
    if !is_allowed {
        return Decision::Ignore;
    }
    match act.what {
        What::Edit => Decision::Ignore,
        What::Press => Decision::Tell("Only the owner can answer this, in a chat of two with the bot."),
        What::Message(Addressed::No) if !group.answer_all => Decision::Ignore,
        What::Message(_) => Decision::Run,
        What::PrivateCommand if act.role == Role::Owner => {
            Decision::Tell("Please write this in our chat of two.")
        }
        What::Command(_) if act.role == Role::Owner => Decision::Command,
        What::Command(_) | What::PrivateCommand => Decision::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::GroupConfig;

    fn access() -> Access {
        let open = GroupConfig { allow: vec!["*".into()], answer_all: false };
        let some = GroupConfig { allow: vec!["7".into()], answer_all: false };
        let all = GroupConfig { allow: vec!["*".into()], answer_all: true };
        Access {
            agent: "main".into(),
            dm_policy: DmPolicy::Pairing,
            groups: BTreeMap::from([
                ("open".to_owned(), open),
                ("some".to_owned(), some),
                ("closed".to_owned(), GroupConfig::default()),
                ("all".to_owned(), all),
            ]),
            stale_minutes: 60,
        }
    }

    const MENTION: What<'_> = What::Message(Addressed::Mention);

    fn act<'a>(role: Role, kind: PeerKind, chat: &'a str, what: What<'a>) -> Act<'a> {
        Act { role, is_bot: false, kind, chat, person: "9", what, may_approve: true }
    }

    #[test]
    fn strangers_bots_and_blocked_people_reach_nothing() {
        let access = access();
        let acts = [
            MENTION,
            What::Message(Addressed::Direct),
            What::Message(Addressed::Reply),
            What::Edit,
            What::Command("new"),
            What::PrivateCommand,
            What::Press,
        ];
        for what in acts {
            for (kind, chat) in
                [(PeerKind::Dm, "d"), (PeerKind::Group, "closed"), (PeerKind::Thread, "unknown")]
            {
                let stranger = authorise(&access, act(Role::Stranger, kind, chat, what));
                assert!(
                    matches!(stranger, Decision::Ignore | Decision::Pair),
                    "{what:?} {kind:?}: {stranger:?}"
                );
                assert_eq!(authorise(&access, act(Role::Blocked, kind, chat, what)), Decision::Ignore);
                let bot = Act { is_bot: true, ..act(Role::Owner, kind, chat, what) };
                assert_eq!(authorise(&access, bot), Decision::Ignore);
            }
        }
        let closed = Access { dm_policy: DmPolicy::Allowlist, ..access };
        let direct = act(Role::Stranger, PeerKind::Dm, "d", What::Message(Addressed::Direct));
        assert_eq!(authorise(&closed, direct), Decision::Ignore);
    }

    #[test]
    fn only_the_owner_answers_questions_and_only_in_a_chat_of_two() {
        let access = access();
        let press = |role, kind, chat| authorise(&access, act(role, kind, chat, What::Press));
        assert_eq!(press(Role::Owner, PeerKind::Dm, "d"), Decision::Press);
        for (role, kind, chat) in [
            (Role::Owner, PeerKind::Group, "open"),
            (Role::Member, PeerKind::Dm, "d"),
            (Role::Member, PeerKind::Group, "open"),
            (Role::Stranger, PeerKind::Dm, "d"),
            (Role::Stranger, PeerKind::Group, "open"),
        ] {
            assert_ne!(press(role, kind, chat), Decision::Press, "{role:?} {kind:?}");
            let decision = authorise(&access, act(role, kind, chat, What::PrivateCommand));
            assert_ne!(decision, Decision::Command, "{role:?} {kind:?}");
        }
        // Senders of mail and webhooks can be forged.
        let mail = Act { may_approve: false, ..act(Role::Owner, PeerKind::Dm, "d", What::Press) };
        assert_ne!(authorise(&access, mail), Decision::Press);
        let mail = Act { what: What::PrivateCommand, ..mail };
        assert!(matches!(authorise(&access, mail), Decision::Tell(_)));
        let direct = act(Role::Owner, PeerKind::Dm, "d", What::PrivateCommand);
        assert_eq!(authorise(&access, direct), Decision::Command);
    }

    #[test]
    fn groups_must_be_listed_and_address_the_bot() {
        let access = access();
        let group = |role, chat, what| authorise(&access, act(role, PeerKind::Group, chat, what));
        assert_eq!(group(Role::Stranger, "open", MENTION), Decision::Run);
        assert_eq!(group(Role::Stranger, "open", What::Message(Addressed::No)), Decision::Ignore);
        assert_eq!(group(Role::Stranger, "all", What::Message(Addressed::No)), Decision::Run);
        assert_eq!(group(Role::Stranger, "some", MENTION), Decision::Ignore);
        let listed = Act { person: "7", ..act(Role::Stranger, PeerKind::Group, "some", MENTION) };
        assert_eq!(authorise(&access, listed), Decision::Run);
        assert_eq!(group(Role::Member, "closed", MENTION), Decision::Run);
        assert_eq!(group(Role::Owner, "unlisted", MENTION), Decision::Ignore);
        assert_eq!(group(Role::Owner, "closed", What::Command("stop")), Decision::Command);
        assert_eq!(group(Role::Member, "closed", What::Command("stop")), Decision::Ignore);
    }

    #[test]
    fn members_have_three_commands_and_edits_start_nothing() {
        let access = access();
        let direct = |role, what| authorise(&access, act(role, PeerKind::Dm, "d", what));
        for name in ["help", "stop", "new"] {
            assert_eq!(direct(Role::Member, What::Command(name)), Decision::Command);
        }
        for name in ["model", "status", "compact", "think", "unknown"] {
            assert!(matches!(direct(Role::Member, What::Command(name)), Decision::Tell(_)), "{name}");
        }
        assert!(matches!(direct(Role::Member, What::PrivateCommand), Decision::Tell(_)));
        assert_eq!(direct(Role::Owner, What::Command("model")), Decision::Command);
        assert_eq!(direct(Role::Owner, What::Edit), Decision::Ignore);
    }
}
