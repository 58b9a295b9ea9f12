"""Builds and reads messages with Python's email package, as the example `mails` of gantry-google does."""

import sys
from email import message_from_bytes, policy
from email.message import EmailMessage

count = int(sys.argv[1])
attachment = bytes(number * 31 % 251 for number in range(30_000))
total = 0
for number in range(count):
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = f"Ann Example <user{number}@example.org>"
    message["To"] = f"Jürgen Müller <user{number}@example.org>"
    message["Subject"] = f"Grüße aus Köln, Nummer {number}"
    message.set_content("Liebe Grüße,\nund noch eine Zeile.\n" * 50)
    for name in ("Bericht.pdf", "Übersicht.pdf"):
        message.add_attachment(attachment, maintype="application", subtype="pdf", filename=name)
    read = message_from_bytes(message.as_bytes(), policy=policy.default)
    assert read["Subject"] and read["To"] and read["From"]
    total += len(read.get_body(("plain",)).get_content().encode())
    total += sum(len(part.get_content()) for part in read.iter_attachments())
print(total)
