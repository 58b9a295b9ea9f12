//! The objects that Discord sends.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{ADA, APPLICATION, BOT, CHANNEL, DIRECT, GROUP, GUILD, OTHER_DIRECT, THREAD, World};

const EPOCH: u64 = 1_420_070_400_000;
const JOINED: &str = "2026-01-01T00:00:00.000000+00:00";

/// The smallest id of a time in milliseconds.
pub fn id_at(ms: u64) -> String {
    (ms.saturating_sub(EPOCH) << 22).to_string()
}

/// The time of an id in Discord's form.
pub(super) fn timestamp(id: &str) -> String {
    let ms = (id.parse::<u64>().unwrap_or(0) >> 22) + EPOCH;
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    // The civil date of a day, by counting from March of year 0.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1_000 % 60, rest % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}000+00:00")
}

/// A person.
pub fn user(id: &str, name: &str) -> Value {
    json!({
        "id": id, "username": name, "discriminator": "0", "global_name": null, "avatar": null, "bot": false,
        "public_flags": 0,
    })
}

pub(super) fn own_user() -> Value {
    json!({
        "id": BOT, "username": "gantry", "discriminator": "0", "global_name": null, "avatar": null, "bot": true,
        "mfa_enabled": true, "verified": true, "email": null, "flags": 0, "public_flags": 0,
    })
}

pub(super) fn application(flags: u64) -> Value {
    json!({
        "id": APPLICATION, "name": "gantry", "icon": null, "description": "", "summary": "", "flags": flags,
        "bot_public": true, "bot_require_code_grant": false, "verify_key": "00", "team": null,
        "owner": user(ADA, "ada"), "rpc_origins": [], "redirect_uris": [], "interactions_endpoint_url": null,
    })
}

pub(super) fn channels() -> HashMap<String, Value> {
    let direct = |id: &str, kind: u8, people: &[Value]| json!({ "id": id, "type": kind, "last_message_id": null, "flags": 0, "recipients": people });
    let text = json!({
        "id": CHANNEL, "type": 0, "guild_id": GUILD, "name": "general", "position": 0, "permission_overwrites": [],
        "nsfw": false, "topic": null, "last_message_id": null, "parent_id": null, "rate_limit_per_user": 0, "flags": 0,
    });
    let thread = json!({
        "id": THREAD, "type": 11, "guild_id": GUILD, "parent_id": CHANNEL, "owner_id": ADA, "name": "a thread",
        "last_message_id": null, "message_count": 1, "member_count": 2, "rate_limit_per_user": 0, "flags": 0,
        "total_message_sent": 1,
        "thread_metadata": {
            "archived": false, "auto_archive_duration": 1440, "archive_timestamp": "2026-01-01T00:00:00.000000+00:00",
            "locked": false,
        },
    });
    let ada = user(ADA, "ada");
    let bob = user("1040000000000000008", "bob");
    HashMap::from([
        (CHANNEL.to_owned(), text),
        (THREAD.to_owned(), thread),
        (DIRECT.to_owned(), direct(DIRECT, 1, std::slice::from_ref(&ada))),
        (OTHER_DIRECT.to_owned(), direct(OTHER_DIRECT, 1, std::slice::from_ref(&bob))),
        (GROUP.to_owned(), direct(GROUP, 3, &[ada, bob])),
    ])
}

impl World {
    pub(super) fn is_guild(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel["guild_id"].is_string())
    }

    pub(super) fn built(&self, id: &str, channel: &str, text: &str, author: Value) -> Value {
        let mut message = json!({
            "id": id, "channel_id": channel, "type": 0, "content": text, "author": author, "attachments": [],
            "embeds": [], "mentions": mentions(text), "mention_roles": [], "mention_everyone": text.contains("@everyone"),
            "pinned": false, "tts": false, "timestamp": timestamp(id), "edited_timestamp": null, "flags": 0,
            "components": [],
        });
        if self.is_guild(channel) {
            message["guild_id"] = json!(GUILD);
            message["member"] = member();
        }
        message
    }

    pub(super) fn guild(&self) -> Value {
        let of_guild = |kind: u64| {
            let channels = self.channels.values().filter(move |channel| channel["guild_id"] == GUILD);
            channels.filter(|channel| channel["type"] == kind).cloned().collect::<Vec<Value>>()
        };
        let mut own = member();
        own["user"] = own_user();
        let mut guild = json!({
            "id": GUILD, "name": "Example", "owner_id": ADA, "afk_timeout": 300, "joined_at": JOINED, "large": false,
            "member_count": 2, "members": [own], "preferred_locale": "en-US", "premium_progress_bar_enabled": false,
            "unavailable": false, "channels": of_guild(0), "threads": of_guild(11),
            "roles": [{
                "id": GUILD, "name": "@everyone", "color": 0, "hoist": false, "icon": null, "managed": false,
                "mentionable": false, "permissions": "559623605571137", "position": 0, "unicode_emoji": null, "flags": 0,
                "colors": { "primary_color": 0, "secondary_color": null, "tertiary_color": null },
            }],
        });
        let numbers = [
            "default_message_notifications",
            "explicit_content_filter",
            "mfa_level",
            "nsfw_level",
            "premium_subscription_count",
            "premium_tier",
            "system_channel_flags",
            "verification_level",
        ];
        numbers.iter().for_each(|field| guild[field] = json!(0));
        let lists = [
            "emojis",
            "features",
            "presences",
            "stage_instances",
            "stickers",
            "voice_states",
            "guild_scheduled_events",
            "soundboard_sounds",
        ];
        lists.iter().for_each(|field| guild[field] = json!([]));
        let absent = [
            "afk_channel_id",
            "application_id",
            "banner",
            "description",
            "discovery_splash",
            "icon",
            "public_updates_channel_id",
            "rules_channel_id",
            "splash",
            "system_channel_id",
            "vanity_url_code",
        ];
        absent.iter().for_each(|field| guild[field] = Value::Null);
        guild
    }

    pub(super) fn interaction(
        &self,
        id: &str,
        token: &str,
        channel: &str,
        message: &str,
        person: Value,
        custom_id: &str,
    ) -> Value {
        let shown = self.messages.iter().find(|known| known["id"] == message).cloned();
        let shown = shown.unwrap_or_else(|| self.built(message, channel, "?", own_user()));
        let mut data = json!({
            "id": id, "application_id": APPLICATION, "type": 3, "token": token, "version": 1, "channel_id": channel,
            "channel": self.channels.get(channel), "message": shown, "locale": "en-US", "entitlements": [],
            "app_permissions": "559623605571137", "authorizing_integration_owners": { "0": GUILD },
            "attachment_size_limit": 10_485_760, "context": 0,
            "data": { "component_type": 2, "custom_id": custom_id, "id": 2 },
        });
        if self.is_guild(channel) {
            let mut member = member();
            member["user"] = person;
            member["permissions"] = json!("559623605571137");
            data["member"] = member;
            data["guild_id"] = json!(GUILD);
            data["guild_locale"] = json!("en-US");
            data["guild"] = json!({ "id": GUILD, "locale": "en-US", "features": [] });
        } else {
            data["user"] = person;
            data["context"] = json!(1);
        }
        data
    }
}

fn member() -> Value {
    json!({
        "roles": [], "joined_at": JOINED, "deaf": false, "mute": false, "flags": 0,
        "nick": null, "avatar": null, "communication_disabled_until": null, "pending": false, "premium_since": null,
    })
}

/// The people whom a text mentions.
fn mentions(text: &str) -> Vec<Value> {
    let parts = text.split("<@").skip(1).filter_map(|part| part.split_once('>'));
    let ids = parts.map(|(id, _)| id.trim_start_matches('!'));
    let ids = ids.filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()));
    ids.map(|id| if id == BOT { own_user() } else { user(id, &format!("name{}", &id[id.len() - 1..])) })
        .collect()
}
