//! [`People`] knows who is who: the owner, members and strangers, by the provider's stable ids. Reads come from memory.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use gantry_store::{Database, DatabaseError, LinkOutcome, PairingRequest, PersonRole, PersonRow};

use crate::address::{Address, PeerKind, Person};

/// How long a stranger's code is valid.
const CODE_MS: i64 = 3600 * 1000;
/// How long a link code is valid.
const LINK_MS: i64 = 10 * 60 * 1000;
/// Letters and digits of codes: without those that look alike.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// The beginning of a link code.
pub(crate) const LINK_PREFIX: &str = "gantry-link-";

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Linked by the operator: may approve and use commands.
    Owner,
    /// Admitted by the operator: may talk, in a session of their own.
    Member,
    Stranger,
    Blocked,
}

/// The people of each chat of two, by channel, account and chat, with the addresses that they wrote at.
type Writers = HashMap<(String, String, String), Vec<(String, Address)>>;

pub(crate) struct People {
    database: Database,
    /// By channel, account and id.
    known: RwLock<HashMap<(String, String, String), PersonRow>>,
    chats: RwLock<Writers>,
    /// When the newest link code of an account expires, by channel and account.
    links: RwLock<HashMap<(String, String), i64>>,
}

impl People {
    pub(crate) async fn load(database: Database) -> Result<People, DatabaseError> {
        let people =
            People { database, known: RwLock::default(), chats: RwLock::default(), links: RwLock::default() };
        people.reload().await?;
        Ok(people)
    }

    async fn reload(&self) -> Result<(), DatabaseError> {
        let rows = self.database.channel_people(None).await?;
        let known = rows
            .into_iter()
            .map(|row| ((row.channel.clone(), row.account.clone(), row.id.clone()), row))
            .collect();
        let mut chats = Writers::new();
        for (channel, account, person, address) in self.database.channel_chats().await? {
            if let Ok(address) = serde_json::from_str::<Address>(&address) {
                chats.entry((channel, account, address.chat.clone())).or_default().push((person, address));
            }
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        *self.chats.write().unwrap_or_else(PoisonError::into_inner) = chats;
        Ok(())
    }

    /// The people who wrote in a chat of two.
    fn people_of(&self, address: &Address) -> Vec<PersonRow> {
        let key = (address.channel.clone(), address.account.clone(), address.chat.clone());
        let chats = self.chats.read().unwrap_or_else(PoisonError::into_inner);
        let mut ids: Vec<String> =
            chats.get(&key).into_iter().flatten().map(|(person, _)| person.clone()).collect();
        drop(chats);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let newest = known.values().filter(|row| chat_of(row).is_some_and(|chat| chat.is_same_chat(address)));
        ids.extend(newest.map(|row| row.id.clone()));
        ids.sort();
        ids.dedup();
        let row = |id: String| known.get(&(address.channel.clone(), address.account.clone(), id)).cloned();
        ids.into_iter().filter_map(row).collect()
    }

    /// Whether a known person wrote at exactly this address, its thread included.
    pub(crate) fn has_written_in(&self, address: &Address) -> bool {
        let key = (address.channel.clone(), address.account.clone(), address.chat.clone());
        let chats = self.chats.read().unwrap_or_else(PoisonError::into_inner);
        address.kind != PeerKind::Dm
            || chats.get(&key).is_some_and(|known| known.iter().any(|(_, known)| known == address))
    }

    /// A chat in words: the person of a chat of two, otherwise the place.
    pub(crate) fn name_of(&self, address: &Address) -> String {
        let people = if address.kind == PeerKind::Dm { self.people_of(address) } else { Vec::new() };
        let names: Vec<String> = people
            .iter()
            .map(
                |row| if row.name.is_empty() { row.id.clone() } else { format!("{} ({})", row.name, row.id) },
            )
            .collect();
        match names.is_empty() {
            true => crate::chat_channel::describe(address),
            false => format!("{} in {}", names.join(" and "), address.channel),
        }
    }

    fn find(&self, channel: &str, account: &str, id: &str) -> Option<PersonRow> {
        let key = (channel.to_owned(), account.to_owned(), id.to_owned());
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    pub(crate) fn role(&self, channel: &str, account: &str, person: &Person) -> Role {
        let row = self.find(channel, account, &person.id);
        let row =
            row.or_else(|| person.alias.as_deref().and_then(|alias| self.find(channel, account, alias)));
        match row.map(|row| row.role) {
            Some(PersonRole::Owner) => Role::Owner,
            Some(PersonRole::Member) => Role::Member,
            Some(PersonRole::Blocked) => Role::Blocked,
            Some(PersonRole::Pending) | None => Role::Stranger,
        }
    }

    /// Whether a chat of two is the owner's.
    pub(crate) fn is_owners(&self, address: &Address) -> bool {
        address.kind == PeerKind::Dm && self.chat_role(address) == Some(PersonRole::Owner)
    }

    /// Whether messages may be sent to a chat of two: its person is the owner or a member.
    pub(crate) fn may_receive(&self, address: &Address) -> bool {
        matches!(self.chat_role(address), Some(PersonRole::Owner | PersonRole::Member))
    }

    fn chat_role(&self, address: &Address) -> Option<PersonRole> {
        let people = self.people_of(address);
        let is = |row: &PersonRow, role: PersonRole| row.role == role;
        // A chat in which somebody else wrote is not the owner's alone.
        match people.as_slice() {
            [] => None,
            people if people.iter().all(|row| is(row, PersonRole::Owner)) => Some(PersonRole::Owner),
            people if people.iter().any(|row| is(row, PersonRole::Owner) || is(row, PersonRole::Member)) => {
                Some(PersonRole::Member)
            }
            people => Some(people[0].role),
        }
    }

    /// The owner's chats of two at an account.
    pub(crate) fn owner_chats(&self, channel: &str, account: &str) -> Vec<Address> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let owners = known
            .values()
            .filter(|row| row.role == PersonRole::Owner && row.channel == channel && row.account == account);
        owners.filter_map(chat_of).collect()
    }

    /// The chat of two with a person who may receive messages, by the person's id or the chat's.
    pub(crate) fn chat_with(&self, channel: &str, account: &str, id: &str) -> Option<Address> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let may_receive = |row: &&PersonRow| {
            matches!(row.role, PersonRole::Owner | PersonRole::Member)
                && row.channel == channel
                && row.account == account
        };
        let rows = known.values().filter(may_receive);
        rows.filter_map(|row| chat_of(row).map(|chat| (row, chat)))
            .find(|(row, chat)| row.id == id || chat.chat == id)
            .map(|(_, chat)| chat)
    }

    /// Everybody, for lists.
    pub(crate) fn all(&self) -> Vec<PersonRow> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<PersonRow> = known.values().cloned().collect();
        all.sort_by(|a, b| (&a.channel, &a.account, &a.id).cmp(&(&b.channel, &b.account, &b.id)));
        all
    }

    /// Notes the name and the chat of a known person, if they changed.
    pub(crate) async fn note(
        &self,
        address: &Address,
        person: &Person,
        now: i64,
    ) -> Result<(), DatabaseError> {
        let Some(mut row) = self.find(&address.channel, &address.account, &person.id) else { return Ok(()) };
        let chat = (address.kind == PeerKind::Dm).then(|| address_json(address));
        let name = display_name(&person.name);
        let is_new_chat = chat.is_some() && !self.has_written_in(address);
        let is_new =
            (!name.is_empty() && row.name != name) || (chat.is_some() && chat != row.chat) || is_new_chat;
        if !is_new {
            return Ok(());
        }
        if !name.is_empty() {
            row.name = name;
        }
        if let Some(address) = &chat {
            self.database.note_channel_chat(&row, address, now).await?;
        }
        row.chat = chat.or(row.chat);
        self.database.note_channel_person(&row, now).await?;
        self.reload().await
    }

    /// Records a stranger's request. Returns the code to send, if any.
    pub(crate) async fn request(
        &self,
        address: &Address,
        person: &Person,
        now: i64,
    ) -> Result<Option<String>, DatabaseError> {
        let row = new_row(address, person);
        let told = self.database.request_pairing(&row, &code(8), CODE_MS, now).await?;
        self.reload().await?;
        Ok(match told {
            PairingRequest::Told(code) => Some(code),
            PairingRequest::Silent => None,
        })
    }

    /// Decides about the stranger with this code.
    pub(crate) async fn decide(
        &self,
        code: &str,
        role: PersonRole,
        now: i64,
    ) -> Result<Option<PersonRow>, DatabaseError> {
        let code = code.trim().to_uppercase();
        let Some(person) = self.database.pending_person(&code, now).await? else { return Ok(None) };
        self.set_role(&person, role, now).await?;
        Ok(Some(person))
    }

    pub(crate) async fn set_role(
        &self,
        person: &PersonRow,
        role: PersonRole,
        now: i64,
    ) -> Result<bool, DatabaseError> {
        let changed =
            self.database.set_person_role(&person.channel, &person.account, &person.id, role, now).await?;
        self.reload().await?;
        Ok(changed)
    }

    pub(crate) async fn remove(&self, person: &PersonRow) -> Result<bool, DatabaseError> {
        let removed = self.database.remove_person(&person.channel, &person.account, &person.id).await?;
        self.reload().await?;
        Ok(removed)
    }

    /// Makes a code with which the owner links an account. Only its hash is stored.
    pub(crate) async fn new_link(
        &self,
        channel: &str,
        account: &str,
        now: i64,
    ) -> Result<(String, i64), DatabaseError> {
        let code = format!("{LINK_PREFIX}{}", code(26).to_lowercase());
        let expires = now.saturating_add(LINK_MS);
        self.database.add_channel_link(&hash(&code), channel, account, expires, now).await?;
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        links.insert((channel.to_owned(), account.to_owned()), expires);
        Ok((code, expires))
    }

    /// Whether the owner may be about to link an account: a code was made that has not expired.
    pub(crate) fn is_linking(&self, channel: &str, account: &str, now: i64) -> bool {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        links.get(&(channel.to_owned(), account.to_owned())).is_some_and(|expires| now < *expires)
    }

    /// Uses a link code that somebody sent in a chat of two.
    pub(crate) async fn link(
        &self,
        code: &str,
        address: &Address,
        person: &Person,
        now: i64,
    ) -> Result<LinkOutcome, DatabaseError> {
        let row = new_row(address, person);
        let outcome = self.database.use_channel_link(&hash(&code.trim().to_lowercase()), &row, now).await?;
        self.reload().await?;
        Ok(outcome)
    }
}

pub(crate) fn address_json(address: &Address) -> String {
    // Strings and a plain enumeration always have a JSON form.
    serde_json::to_string(address).unwrap_or_default()
}

fn chat_of(row: &PersonRow) -> Option<Address> {
    row.chat.as_deref().and_then(|chat| serde_json::from_str(chat).ok())
}

fn new_row(address: &Address, person: &Person) -> PersonRow {
    PersonRow {
        channel: address.channel.clone(),
        account: address.account.clone(),
        id: person.id.clone(),
        name: display_name(&person.name),
        role: PersonRole::Pending,
        chat: Some(address_json(address)),
        code: None,
        code_expires: None,
        created: 0,
        updated: 0,
    }
}

/// A name that is safe to show.
fn display_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(100).collect()
}

/// A random text of the alphabet: 5 bits a character.
fn code(length: usize) -> String {
    let bytes = (0..length.div_ceil(16)).flat_map(|_| uuid_bytes());
    bytes.take(length).map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// 14 of 16 bytes of a random id are used: the other two have fixed bits.
fn uuid_bytes() -> impl Iterator<Item = u8> {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let other = uuid::Uuid::new_v4().into_bytes();
    bytes
        .into_iter()
        .chain(other)
        .enumerate()
        .filter(|(at, _)| !matches!(at % 16, 6 | 8))
        .map(|(_, byte)| byte)
}

fn hash(code: &str) -> String {
    blake3::hash(code.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn people(folder: &std::path::Path) -> People {
        let data = gantry_store::DataDir::new(folder.to_owned());
        data.create().unwrap();
        People::load(Database::open(&data).await.unwrap()).await.unwrap()
    }

    fn chat(id: &str) -> Address {
        let (channel, account) = ("matrix".to_owned(), "default".to_owned());
        Address { channel, account, kind: PeerKind::Dm, chat: id.to_owned(), thread: None }
    }

    fn somebody(id: &str) -> Person {
        Person { id: id.to_owned(), alias: None, name: format!("{id}\u{1b}[2J"), is_bot: false }
    }

    #[tokio::test]
    async fn a_chat_that_others_write_in_is_not_the_owners_and_older_chats_still_get_answers() {
        let folder = tempfile::tempdir().unwrap();
        let people = people(folder.path()).await;
        let (ann, bob) = (somebody("ann"), somebody("bob"));
        let (code, _) = people.new_link("matrix", "default", 1).await.unwrap();
        assert_eq!(people.link(&code, &chat("one"), &ann, 2).await.unwrap(), LinkOutcome::Linked);
        people.note(&chat("one"), &ann, 3).await.unwrap();
        people.note(&chat("two"), &ann, 4).await.unwrap();
        assert!(people.is_owners(&chat("one")) && people.is_owners(&chat("two")), "both are hers");
        let told = people.request(&chat("three"), &bob, 5).await.unwrap().unwrap();
        people.decide(&told, PersonRole::Member, 6).await.unwrap().unwrap();
        people.note(&chat("two"), &bob, 7).await.unwrap();
        assert!(!people.is_owners(&chat("two")) && people.may_receive(&chat("two")), "bob reads it too");
        let named = people.name_of(&chat("two"));
        assert_eq!(named, "ann[2J (ann) and bob[2J (bob) in matrix", "names cannot control a terminal");
        assert!(!people.has_written_in(&Address { thread: Some("t".to_owned()), ..chat("one") }));
    }

    #[tokio::test]
    async fn wrong_codes_lock_their_sender_only() {
        let folder = tempfile::tempdir().unwrap();
        let people = people(folder.path()).await;
        let (code, _) = people.new_link("matrix", "default", 1).await.unwrap();
        for _ in 0..5 {
            let wrong = people.link("gantry-link-no", &chat("x"), &somebody("eve"), 2).await.unwrap();
            assert_eq!(wrong, LinkOutcome::Wrong);
        }
        assert_eq!(people.link(&code, &chat("x"), &somebody("eve"), 3).await.unwrap(), LinkOutcome::Locked);
        assert_eq!(people.link(&code, &chat("one"), &somebody("ann"), 4).await.unwrap(), LinkOutcome::Linked);
    }

    #[test]
    fn codes_are_random_and_readable() {
        let (one, other) = (code(26), code(26));
        assert_ne!(one, other);
        assert_eq!((one.len(), code(8).len()), (26, 8));
        assert!(one.bytes().all(|byte| ALPHABET.contains(&byte)), "{one}");
    }
}
