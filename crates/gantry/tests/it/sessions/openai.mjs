// OpenAI's client for Node and Vercel's AI SDK, with the retries that they make by themselves; prints what they saw as
// one line of JSON. Arguments: the folder of the packages and the base URL.
const [packages, baseURL] = process.argv.slice(2);
const load = (path) => import(`${packages}/${path}`);
const apiKey = process.env.TOKEN;
const { default: OpenAI } = await load("openai/index.mjs");
const { generateText, streamText } = await load("ai/dist/index.js");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible/dist/index.js");

const messages = (content) => [{ role: "user", content }];
async function errorOf(call) {
  try {
    await call();
    return { status: null };
  } catch (error) {
    return { status: error.status ?? error.statusCode ?? null, message: String(error.message) };
  }
}

const client = new OpenAI({ baseURL, apiKey });
const ask = (content) => client.chat.completions.create({ model: "main", messages: messages(content) });
async function streamed(content) {
  const stream = await client.chat.completions.create({ model: "main", messages: messages(content), stream: true });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
}

const model = createOpenAICompatible({ name: "gantry", baseURL, apiKey })("main");
const vercel = (prompt) => generateText({ model, prompt });
async function vercelStreamed(prompt) {
  let text = "";
  for await (const piece of streamText({ model, prompt, onError() {} }).textStream) text += piece;
  return text;
}

const seen = {
  openai: {
    whole: (await ask("which file?")).choices[0].message.content,
    streamed: await streamed("which file?"),
    failed: await errorOf(() => ask("write and fail")),
  },
  vercel: {
    whole: (await vercel("which file?")).text,
    streamed: await vercelStreamed("which file?"),
    failed: await errorOf(() => vercel("write and fail")),
  },
};
console.log(JSON.stringify(seen));
