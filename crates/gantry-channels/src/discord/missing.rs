//! Reads messages that were written while no session could be resumed: in chats of two that are known, in the channels that
//! the configuration lists, and in their active threads.

use gantry_net::Method;
use serde_json::Value;

use super::api::Call;
use super::cursor::{is_id, number};
use super::error::ApiError;
use super::gateway::{Ended, stop};
use super::listen::{Listening, not_stored};
use super::places::Place;
use crate::address::PeerKind;

/// The most channels that are read, and the most answers of one channel with 100 messages each.
const MAX_CHANNELS: usize = 200;
const MAX_PAGES: usize = 5;
const PAGE: usize = 100;

impl Listening<'_> {
    /// Reads what is missing. The cursor says so until it is done, so that a restart begins again.
    pub(super) async fn read_missing(&self) -> Result<(), Ended> {
        let Some(after) = self.progress().missing_after() else { return Ok(()) };
        for (channel, place) in self.channels().await? {
            self.read_channel(&channel, &place, &after).await?;
        }
        self.progress().nothing_is_missing();
        self.save().await.map_err(|err| not_stored(&err))
    }

    async fn channels(&self) -> Result<Vec<(String, Place)>, Ended> {
        let direct = self.progress().direct();
        let mut found: Vec<(String, Place)> = Vec::new();
        let mut guilds: Vec<String> = Vec::new();
        for channel in direct.iter().chain(&self.discord.listed).filter(|channel| is_id(channel)) {
            match self.discord.place(channel).await {
                Ok(place) => {
                    let guild = place.guild.clone().filter(|guild| !guilds.contains(guild));
                    guilds.extend(guild);
                    found.push((channel.clone(), place));
                }
                Err(err) if err.is_out_of_reach() => {}
                Err(err) => return Err(stop(err)),
            }
        }
        for guild in guilds {
            found.extend(self.threads(&guild).await?);
        }
        if found.len() > MAX_CHANNELS {
            let account = &self.discord.connection.account;
            tracing::warn!(
                account,
                "messages in some channels were missed: there are too many channels to read"
            );
            found.truncate(MAX_CHANNELS);
        }
        Ok(found)
    }

    /// The active threads of listed channels.
    async fn threads(&self, guild: &str) -> Result<Vec<(String, Place)>, Ended> {
        let path = ["guilds", guild, "threads", "active"];
        let mut call = Call::new(Method::GET, "list threads", &path);
        call.object = guild;
        let answer: Value = match self.discord.call(call).await {
            Ok(answer) => answer,
            Err(err) if err.is_out_of_reach() => return Ok(Vec::new()),
            Err(err) => return Err(stop(err)),
        };
        let threads = answer["threads"].as_array().into_iter().flatten();
        let placed = threads.filter_map(|thread| {
            let place = self.discord.places.insert(thread, Some(guild))?;
            let is_listed = place.parent.as_ref().is_some_and(|parent| self.discord.listed.contains(parent));
            let id = thread["id"].as_str()?.to_owned();
            (place.kind == PeerKind::Thread && is_listed).then_some((id, place))
        });
        Ok(placed.collect())
    }

    async fn read_channel(&self, channel: &str, place: &Place, after: &str) -> Result<(), Ended> {
        let mut after = after.to_owned();
        for _ in 0..MAX_PAGES {
            let mut messages = match self.page(channel, &after).await {
                Ok(messages) => messages,
                Err(err) if err.is_out_of_reach() => return Ok(()),
                Err(err) => return Err(stop(err)),
            };
            // Discord lists the newest first.
            messages.sort_by_key(|message| message["id"].as_str().and_then(number));
            let count = messages.len();
            let newest = messages.last().and_then(|message| message["id"].as_str()).map(str::to_owned);
            for message in messages {
                self.message(message, false, None, Some(place)).await?;
            }
            match newest.filter(|newest| count >= PAGE && number(newest) > number(&after)) {
                Some(newest) => after = newest,
                None => return Ok(()),
            }
        }
        let account = &self.discord.connection.account;
        tracing::warn!(account, channel, "messages were missed: the channel has too many to read");
        Ok(())
    }

    async fn page(&self, channel: &str, after: &str) -> Result<Vec<Value>, ApiError> {
        let path = ["channels", channel, "messages"];
        let limit = PAGE.to_string();
        let query = [("after", after), ("limit", &*limit)];
        let mut call = Call::get("read messages", &path);
        (call.object, call.query) = (channel, &query);
        self.discord.call(call).await
    }
}
