"""Uses a server with python-telegram-bot. Arguments: the server's address and the token."""

import asyncio
import sys

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, InputFile, LinkPreviewOptions, MessageEntity
from telegram.error import BadRequest, Conflict, InvalidToken
from telegram.request import HTTPXRequest

address, token = sys.argv[1:]


def bot(token):
    return Bot(token, base_url=f"{address}/bot", base_file_url=f"{address}/file/bot", request=HTTPXRequest())


async def fails(call, error):
    try:
        await call
    except error:
        return
    raise AssertionError(error)


async def main():
    async with bot(token) as client:
        assert (client.username, client.id) == ("gantry_test_bot", 123456789), client
        await client.delete_webhook()
        updates = await client.get_updates(timeout=5, allowed_updates=["message", "callback_query"])
        message, press, photo = updates
        assert (message.message.text, message.message.chat.type) == ("hello", "private"), message
        assert message.message.from_user.full_name == "Ada L", message
        assert (press.callback_query.data, press.callback_query.from_user.id) == ("q:1:0", 42), press
        assert photo.message.media_group_id == "1" and photo.message.caption == "see", photo
        await press.callback_query.answer("Allowed.")
        # An offset confirms everything before it.
        assert await client.get_updates(offset=photo.update_id + 1, timeout=0) == ()

        entities = [MessageEntity(MessageEntity.BOLD, 0, 2)]
        sent = await client.send_message(
            42,
            "hi there",
            entities=entities,
            reply_markup=InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="q:1:0")]]),
            link_preview_options=LinkPreviewOptions(is_disabled=True),
        )
        assert sent.entities == tuple(entities) and sent.chat.id == 42, sent
        edited = await client.edit_message_text("done", chat_id=42, message_id=sent.message_id)
        assert (edited.message_id, edited.text) == (sent.message_id, "done"), edited
        document = InputFile(b"data", filename="a.txt")
        filed = await client.send_document(42, document, caption="see")
        assert filed.document is not None and filed.caption == "see", filed
        await client.send_chat_action(42, "typing")
        file = await client.get_file(photo.message.photo[-1].file_id)
        assert bytes(await file.download_as_bytearray()) == b"JPEG"

        await fails(client.send_message(42, "x" * 5000), BadRequest)
        await fails(client.send_message(42, "x", entities=[MessageEntity("bold", 5, 9)]), BadRequest)
        await fails(client.get_file("unknown"), BadRequest)
        await client.set_webhook("https://example.org/hook", secret_token="hook-secret")
        assert (await client.get_webhook_info()).url == "https://example.org/hook"
        await fails(client.get_updates(timeout=0), Conflict)
        await fails(client.set_webhook("http://example.org/hook"), BadRequest)
        await client.delete_webhook()
    await fails(bot("123456789:AAEwrongwrongwrongwrongwrong").initialize(), InvalidToken)
    print("ok")


asyncio.run(main())
