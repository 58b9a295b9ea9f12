import sys

import gspread
import requests
from google.oauth2.credentials import Credentials
from gspread.http_client import HTTPClient

base, token, spreadsheet = sys.argv[1:4]


class Redirected(HTTPClient):
    def request(self, method, endpoint, *args, **kwargs):
        endpoint = endpoint.replace("https://sheets.googleapis.com", base).replace("https://www.googleapis.com", base)
        return super().request(method, endpoint, *args, **kwargs)


client = gspread.authorize(Credentials(token), http_client=Redirected)
book = client.open_by_key(spreadsheet)
sheet = book.sheet1
assert sheet.get_all_values() == [["a", "b"], ["1", "2"]], sheet.get_all_values()
sheet.append_row(["x", "", "z"])
assert sheet.get("A3:C3") == [["x", "", "z"]], sheet.get("A3:C3")
sheet.update([["=1+1", 5]], "A4", raw=True)
assert sheet.row_values(4) == ["=1+1", "5"], sheet.row_values(4)
assert sheet.acell("B2").value == "2"
sheet.format("A1:B1", {"textFormat": {"bold": True}})
assert book.title == "Budget"
print("ok")
