"""Reads messages with Python's email package, and writes messages for the reader under test.

Reads one JSON object: {"messages": [base64, ...], "count": N, "seed": S}.
Writes one JSON object: {"read": [...], "written": [{"raw": base64, "truth": {...}}, ...]}.
"""

import base64
import email
import json
import random
import sys
from email import policy
from email.header import decode_header, make_header
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import getaddresses


def normal(text):
    return text.replace("\r\n", "\n").rstrip("\n")


def leaves(message):
    found = []
    for part in message.walk():
        if part.is_multipart():
            continue
        content = part.get_payload(decode=True) or b""
        leaf = {"mime": part.get_content_type(), "name": part.get_filename() or ""}
        leaf["attachment"] = part.get_content_disposition() == "attachment"
        if part.get_content_maintype() == "text":
            leaf["text"] = normal(content.decode(part.get_content_charset() or "ascii", "replace"))
        else:
            leaf["bytes"] = base64.b64encode(content).decode()
        found.append(leaf)
    return found


def decoded(value):
    """Decodes words as RFC 2047 says. The newer header classes put spaces between adjacent words."""
    return str(make_header(decode_header(value.replace("\r\n", "").replace("\n", ""))))


def mailboxes(message, name):
    values = [value.replace("\r\n", "").replace("\n", "") for value in message.get_all(name, [])]
    return [[decoded(shown), address] for shown, address in getaddresses(values)]


def read(raw):
    message = email.message_from_bytes(raw, policy=policy.default)
    plain = email.message_from_bytes(raw, policy=policy.compat32)
    return {
        "to": mailboxes(plain, "To"),
        "cc": mailboxes(plain, "Cc"),
        "bcc": mailboxes(plain, "Bcc"),
        "from": mailboxes(plain, "From"),
        "subject": decoded(plain["Subject"] or ""),
        "in_reply_to": str(message["In-Reply-To"] or "").strip(),
        "references": str(message["References"] or "").split(),
        "headers": sorted(name.lower() for name in message.keys()),
        "leaves": leaves(message),
        # A missing date or a strange header would be a defect.
        "defects": [type(defect).__name__ for part in message.walk() for defect in part.defects],
        "longest": max(len(line) for line in raw.split(b"\r\n")),
    }


TEXTS = {
    "utf-8": "Grüße 日本語 Ελλάδα Привет 👩‍🚀 𝄞",
    "us-ascii": "plain words = and more",
    "iso-8859-1": "Grüße, año, naïve café",
    "iso-8859-2": "Zażółć gęślą jaźń",
    "iso-8859-5": "Привет, мир",
    "iso-8859-7": "Καλημέρα κόσμε",
    "iso-8859-15": "Preis 10 €, Œuvre",
    "windows-1250": "Příliš žluťoučký kůň",
    "windows-1251": "Съешь ещё этих булок",
    "windows-1252": "“quoted” – dash… €",
    "koi8-r": "Широкая электрификация",
    "shift_jis": "日本語のテキスト",
    "euc-jp": "日本語のテキスト",
    "iso-2022-jp": "日本語のテキスト",
    "gb2312": "中文文本",
    "gb18030": "中文文本𠀀",
    "big5": "繁體中文",
    "euc-kr": "한국어 텍스트",
    "utf-7": "Grüße, 日本",
    "utf-16": "Grüße 日本",
}
NAMES = [
    "Ann Example",
    "Doe, John",
    'John "JD" Doe',
    "Jürgen Müller",
    "日本 太郎",
    "a@b.example via list",
    "O'Neil (Sales)",
    "back\\slash",
    "x" * 120,
    "Größe " * 20,
]
FILES = ["a.pdf", "ä ö.txt", "日本語.csv", "semi;colon.bin", "two  spaces.zip", "x" * 100 + ".dat", "it's.txt", 'quo"te.txt']


def text_part(choose):
    charset = choose.choice(sorted(TEXTS))
    text = "\n".join(choose.choice(["", " ", "> "]) + TEXTS[charset] for _ in range(choose.randint(1, 6)))
    if choose.random() < 0.2 and charset == "utf-8":
        text += "\n" + "långer " * 300
    encoding = choose.choice(["base64", "quoted-printable"])
    part = EmailMessage(policy=policy.SMTP)
    part["Content-Type"] = f'text/plain; charset="{charset}"'
    part["Content-Transfer-Encoding"] = encoding
    encoded = text.replace("\n", "\r\n").encode(charset)
    if encoding == "base64":
        body = base64.encodebytes(encoded).decode().replace("\n", "\r\n")
    else:
        import quopri

        body = quopri.encodestring(encoded.replace(b"\r\n", b"\n"), quotetabs=False).decode()
        body = body.replace("\n", "\r\n")
        if charset.startswith("utf-16"):
            # Line ends are not single bytes here.
            return text_part(choose)
    part.set_payload(body)
    return part, {"mime": "text/plain", "name": "", "attachment": False, "text": normal(text)}


def file_part(choose):
    name = choose.choice(FILES)
    content = bytes(choose.randrange(256) for _ in range(choose.randint(0, 400)))
    part = EmailMessage(policy=policy.SMTP)
    part.set_content(content, maintype="application", subtype="octet-stream", filename=name)
    del part["MIME-Version"]
    leaf = {"mime": "application/octet-stream", "name": name, "attachment": True}
    return part, dict(leaf, bytes=base64.b64encode(content).decode())


def tree(choose, depth):
    if depth == 0 or choose.random() < 0.3:
        part, leaf = text_part(choose) if choose.random() < 0.6 else file_part(choose)
        return part, [leaf]
    kind = choose.choice(["mixed", "alternative", "related", "signed", "x-own"])
    whole = EmailMessage(policy=policy.SMTP)
    whole["Content-Type"] = f"multipart/{kind}"
    whole.set_payload([])
    found = []
    for _ in range(choose.randint(1, 4)):
        part, inner = tree(choose, depth - 1)
        whole.attach(part)
        found += inner
    return whole, found


def write(choose):
    message, found = tree(choose, 3)
    subject = " ".join(choose.choice(sorted(TEXTS.values())) for _ in range(choose.randint(1, 5)))
    names = [choose.choice(NAMES) for _ in range(choose.randint(1, 5))]
    people = [Address(name, f"user{number}", "example.org") for number, name in enumerate(names)]
    message["Subject"] = subject
    message["From"] = people[0]
    message["To"] = people
    references = [f"<id{number}.{choose.randint(0, 999)}@example.org>" for number in range(choose.randint(0, 30))]
    message["Message-ID"] = "<own@example.org>"
    if references:
        message["References"] = " ".join(references)
    raw = message.as_bytes(policy=policy.SMTP)
    plain = email.message_from_bytes(raw, policy=policy.compat32)
    truth = {
        # Folding may lose a space between words, so what counts is what a reader gets.
        "subject": decoded(plain["Subject"]),
        "to": mailboxes(plain, "To"),
        "references": [one.strip("<>") for one in references],
        "leaves": found,
    }
    is_readable = [address for _, address in truth["to"]] == [person.addr_spec for person in people]
    if not is_readable or b"=?utf-8?q?=2C?=" in raw:
        # Python's folding can split a name inside an escape, or encode the comma between two addresses.
        return write(choose)
    return {"raw": base64.b64encode(raw).decode(), "truth": truth}


def main():
    task = json.load(sys.stdin)
    choose = random.Random(task["seed"])
    answer = {
        "read": [read(base64.b64decode(raw)) for raw in task["messages"]],
        "written": [write(choose) for _ in range(task["count"])],
    }
    json.dump(answer, sys.stdout)


main()
