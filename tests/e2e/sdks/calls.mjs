// Anthropic's and OpenAI's clients for Node, as a program uses them.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const said = {};
const messages = [{ role: 'user', content: 'hi' }];
const tell = async (name, call) => {
  try {
    said[name] = await call();
  } catch (error) {
    said[name] = [error.status ?? 0, String(error.message)];
  }
};
const all = async (stream, pick) => {
  const found = [];
  for await (const each of stream) {
    const piece = pick(each);
    if (piece) found.push(piece);
  }
  return found;
};

const anthropic = new Anthropic({ maxRetries: 0 });
const ask = (model, more) => anthropic.messages.create({ model, max_tokens: 64, messages, ...more });
const weather = { name: 'get_weather', input_schema: { type: 'object', properties: {} } };
const search = { type: 'web_search_20250305', name: 'web_search' };
await tell('a.plain', async () => (await ask('plain')).content[0].text);
await tell('a.stream', async () => all(await ask('plain', { stream: true }), (e) => e.delta?.text));
await tell('a.tool', async () => (await ask('tools', { tools: [weather, search] })).content[0].name);
for (const name of ['limited', 'overloaded', 'echo']) await tell(`a.${name}`, () => ask(name));
await tell('a.cut', async () => all(await ask('cut', { stream: true }), (e) => e.delta?.text));

const openai = new OpenAI({ maxRetries: 0 });
const chat = (model, more) => openai.chat.completions.create({ model, messages, ...more });
const tool = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } };
const delta = (e) => e.choices[0]?.delta?.content;
await tell('o.plain', async () => (await chat('plain')).choices[0].message.content);
await tell('o.stream', async () => all(await chat('plain', { stream: true }), delta));
await tell('o.tool', async () =>
  (await chat('tools', { tools: [tool] })).choices[0].message.tool_calls[0].function.name);
await tell('o.response', async () =>
  (await openai.responses.create({ model: 'plain', input: 'hi' })).output_text);
for (const name of ['limited', 'overloaded', 'echo']) await tell(`o.${name}`, () => chat(name));
await tell('o.cut', async () => all(await chat('cut', { stream: true }), delta));
console.log(JSON.stringify(said));
