"""A model server with OpenAI's Responses interface, which Codex needs. Prints its address.

It calls the tool Read of the MCP server gantry once, then says what the tool returned.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def next_item(request):
    results = [item["output"] for item in request["input"] if item["type"] == "function_call_output"]
    if results:
        content = [{"type": "output_text", "text": "Read returned: " + json.dumps(results[-1])}]
        return {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    call = {"call_id": "call_1", "namespace": "mcp__gantry", "name": "Read", "arguments": '{"path": "a.txt"}'}
    return {"type": "function_call", "id": "fc_1", **call}


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        usage |= {"input_tokens_details": None, "output_tokens_details": None}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in [
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": next_item(request)},
            {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
        ]:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
