// The TypeScript SDK in some version: initializes, lists and calls over one transport; prints what it saw as one line of
// JSON. Arguments: the folder of the SDK, the transport, and the program or the address.
const [sdk, transport, target] = process.argv.slice(2);
const load = (path) => import(`${sdk}/dist/esm/client/${path}.js`);
const { Client } = await load("index");
const client = new Client({ name: "short-client", version: "1" });
if (transport === "stdio") {
  const { StdioClientTransport } = await load("stdio");
  await client.connect(new StdioClientTransport({ command: target, args: ["mcp"], env: process.env }));
} else {
  const { StreamableHTTPClientTransport } = await load("streamableHttp");
  const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } }));
}
const { tools } = await client.listTools();
const read = await client.callTool({ name: "Read", arguments: { path: "a.txt" } });
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), read: read.content[0].text }));
await client.transport.terminateSession?.();
await client.close();
