// The official JavaScript client of MCP against the tools of a sandbox, run inside it.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, CreateMessageRequestSchema, ListRootsRequestSchema,
  LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const told = (what, more = {}) => console.log(JSON.stringify({ what, ...more }));

async function connected(name, capabilities = {}) {
  const client = new Client({ name: "tests", version: "1" }, { capabilities });
  const transport = new StreamableHTTPClientTransport(new URL(process.env[name]));
  return [client, transport];
}

async function call(client, name, args, options) {
  try {
    const found = await client.callTool({ name, arguments: args }, undefined, options);
    return { text: found.content[0]?.text ?? "", isError: !!found.isError };
  } catch (error) {
    return { error: error.code, message: error.message };
  }
}

const [client, transport] = await connected("LNK_TOOL_EVERYTHING", { sampling: {}, roots: {} });
client.setRequestHandler(CreateMessageRequestSchema, async (request) => {
  told("sampling", { asked: request.params.messages[0].content.text });
  return { role: "assistant", model: "m", content: { type: "text", text: "sampled" } };
});
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [] }));
client.setNotificationHandler(LoggingMessageNotificationSchema, () => {});
await client.connect(transport);
told("version", { version: transport.protocolVersion });
const { tools } = await client.listTools();
told("tools", { names: tools.map((tool) => tool.name) });
told("allowed", await call(client, "echo", { message: "hello" }));
told("approved", await call(client, "get-sum", { a: 2, b: 3 }));
told("refused", await call(client, "get-sum", { a: 4, b: 5 }));
const steps = [];
const long = await call(client, "trigger-long-running-operation", { duration: 1, steps: 4 },
  { onprogress: (progress) => steps.push(progress.progress) });
told("progress", { steps, ...long });
const abort = new AbortController();
const slow = call(client, "trigger-long-running-operation", { duration: 60, steps: 2 },
  { signal: abort.signal });
setTimeout(() => abort.abort(), 500);
told("cancelled", { ended: (await slow).message });
told("late", await call(client, "trigger-long-running-operation", { duration: 60, steps: 2 },
  { timeout: 500 }));
told("sampled", await call(client, "trigger-sampling-request", { prompt: "p", maxTokens: 5 }));
const subscribed = await client.listResources();
told("resources", { count: subscribed.resources.length });
await transport.terminateSession();
await client.close();

const [own, way] = await connected("LNK_TOOL_MODERN");
await own.connect(way);
async function toldBy(due) {
  let said;
  for (let tries = 0; tries < 200; tries++) {
    said = await call(own, "waited", {});
    if (said.text === due) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return said.text;
}
const stop = new AbortController();
const waits = call(own, "wait", {}, { signal: stop.signal });
await toldBy("1 begun, 0 cancelled");
stop.abort();
await waits;
told("stopped", { waited: { text: await toldBy("1 begun, 1 cancelled") } });
await own.close();

const [files, disk] = await connected("LNK_TOOL_FILES", { roots: {} });
files.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [] }));
await files.connect(disk);
told("read", await call(files, "read_text_file", { path: process.argv[2] }));
told("outside", await call(files, "read_text_file", { path: "/etc/passwd" }));
await files.close();
