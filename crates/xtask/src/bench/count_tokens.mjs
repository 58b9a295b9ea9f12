// Reads an MCP tool list on standard input and prints how many o200k tokens a model is sent of it.
import { readFileSync } from "node:fs";
import { encode } from "gpt-tokenizer/encoding/o200k_base";

const tools = JSON.parse(readFileSync(0, "utf8"));
const sent = tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }));
console.log(encode(JSON.stringify(sent)).length);
