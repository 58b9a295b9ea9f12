"""A submission server for tests. It stores each mail as JSON, read by Python's own mail package."""

import email
import email.policy
import json
import os
import sys
import time

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult


def read(envelope):
    mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    return {
        "from": envelope.mail_from,
        "to": envelope.rcpt_tos,
        "headers": [[name, str(value)] for name, value in mail.items()],
        "text": text and text.get_content(),
        "html": html and html.get_content(),
        "files": [[part.get_filename(), part.get_content_type(), part.get_content().hex()] for part in mail.iter_attachments()],
        "defects": [str(defect) for part in mail.walk() for defect in part.defects],
        "longest": max(map(len, envelope.content.split(b"\r\n"))),
    }


class Handler:
    count = 0

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("busy@"):
            return "451 try again later"
        if address.startswith("never@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        if envelope.rcpt_tos[0].startswith("late@"):
            return "451 not now"
        Handler.count += 1
        place = os.path.join(sys.argv[2], f"{Handler.count:04}.json")
        with open(place + ".new", "w") as file:
            json.dump(read(envelope), file)
        os.rename(place + ".new", place)
        if envelope.rcpt_tos[0].startswith("cut@"):
            server.transport.abort()
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    is_right = data.login == b"agent@example.org" and data.password == b"password"
    return AuthResult(success=is_right, handled=is_right)


controller = Controller(
    Handler(),
    hostname="127.0.0.1",
    port=int(sys.argv[1]),
    authenticator=authenticate,
    auth_required=True,
    auth_require_tls=False,
    auth_exclude_mechanism=sys.argv[3:],
    data_size_limit=1_000_000,
)
controller.start()
while True:
    time.sleep(60)
