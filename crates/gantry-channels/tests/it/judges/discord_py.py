"""Uses a server with discord.py. Arguments: the API's address, the gateway's address, the token, and a file's address."""

import asyncio
import io
import sys

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

api, gateway, token, file_url = sys.argv[1:]
CHANNEL, THREAD, DIRECT = 1040000000000008001, 1040000000000008101, 1040000000000007001
BOT, ADA, HIDDEN = 1040000000000000099, 1040000000000000007, 1040000000000008666
Route.BASE = api
DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway)
connect = DiscordWebSocket.from_client.__func__


@classmethod
async def without_compression(cls, client, **options):
    return await connect(cls, client, compress=False, **options)


DiscordWebSocket.from_client = without_compression

intents = discord.Intents.none()
intents.guilds = intents.guild_messages = intents.dm_messages = intents.message_content = True
client = discord.Client(intents=intents)
seen, failures = {}, []


async def refuses(status, code, call):
    try:
        await call
    except discord.HTTPException as error:
        assert (error.status, error.code) == (status, code), error
    else:
        raise AssertionError((status, code))


class Question(discord.ui.View):
    @discord.ui.button(label="Yes", custom_id="q:1:0")
    async def yes(self, interaction, button):
        seen["press"] = interaction
        await interaction.response.send_message("recorded", ephemeral=True)


async def use():
    channel = client.get_channel(CHANNEL)
    assert channel.name == "general" and channel.get_thread(THREAD).parent_id == CHANNEL
    first = await channel.send("hello", nonce="n1", suppress_embeds=True, allowed_mentions=discord.AllowedMentions.none())
    assert first.nonce == "n1" and first.author.id == BOT, first
    again = await channel.send("hello", nonce="n1")
    assert again.id == first.id, "a nonce that is enforced makes one message"
    reply = await channel.send("reply", reference=first)
    assert reply.reference.message_id == first.id
    edited = await first.edit(content="changed", view=None)
    assert edited.content == "changed" and edited.edited_at
    thread = await channel.get_thread(THREAD).send("in the thread")
    assert thread.channel.parent_id == CHANNEL
    sent = await channel.send("a file", file=discord.File(io.BytesIO(b"data"), filename="a.txt"))
    assert sent.attachments[0].filename == "a.txt" and sent.attachments[0].size == 4
    direct = await (await client.fetch_channel(DIRECT)).send("direct")
    assert isinstance(direct.channel, discord.DMChannel)
    history = [message.id async for message in channel.history(after=discord.Object(first.id - 1), limit=50)]
    assert history[0] == first.id and sent.id in history, history
    async with channel.typing():
        pass
    # The sixth message within the window is held back by the limit, and arrives.
    for number in range(7):
        await channel.send(f"burst {number}")
    await refuses(400, 50035, channel.send("x" * 2001))
    await refuses(400, 50006, channel.send(""))
    await refuses(403, 50001, client.fetch_channel(HIDDEN))
    await refuses(404, 10003, client.fetch_channel(1))
    async with aiohttp.ClientSession() as session, session.get(file_url) as answer:
        assert await answer.read() == b"PNG"
    await channel.send("Really?", view=Question(timeout=60))
    # The client knows its buttons only now.
    await channel.send("Please press")


@client.event
async def on_ready():
    try:
        assert client.user.id == BOT and client.application_flags.gateway_message_content_limited
        await use()
        print("ready", flush=True)
    except BaseException as error:
        failures.append(error)
        await client.close()


@client.event
async def on_message(message):
    if message.author.id != BOT:
        seen.setdefault("messages", []).append(message)


@client.event
async def on_resumed():
    seen["resumed"] = True


async def drive():
    task = asyncio.create_task(client.start(token, reconnect=True))
    for _ in range(400):
        if failures or task.done() or {"press", "resumed"} <= seen.keys() and len(seen.get("messages", [])) == 3:
            break
        await asyncio.sleep(0.05)
    if failures:
        raise failures[0]
    if task.done():
        task.result()
    guild, direct, missed = seen["messages"]
    assert guild.content == f"<@{BOT}> hello" and client.user in guild.mentions and guild.guild.name == "Example"
    assert guild.attachments[0].content_type == "image/png"
    assert direct.guild is None and direct.author.id == ADA and direct.channel.id == DIRECT
    assert missed.content == "while away", missed
    assert seen["press"].data["custom_id"] == "q:1:0" and seen["press"].user.id == ADA
    await client.close()
    other = discord.Client(intents=intents)
    try:
        await other.login("wrong.token.x")
    except discord.LoginFailure:
        pass
    else:
        raise AssertionError("a wrong token is refused")
    await other.close()


asyncio.run(asyncio.wait_for(drive(), 40))
print("ok")
