import { textOf, type Message } from "@larkline/protocol/content";
import { SessionRetention, SessionStore } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import { startRedis } from "@larkline/testkit";

/** Memory of one conversation in Redis, in bytes. */
export interface MemoryNumbers {
  turns: number;
  /** The texts of its messages alone: less cannot be. */
  texts: number;
  /** All keys of the conversation at once, and of these its history. */
  all: number;
  history: number;
  /** When the events and the ids of messages have gone. */
  dayLater: number;
  /** The same, when the model sees the last 20 messages and `retention.historyMessages` is 100. */
  bounded: number;
}

const question =
  "What does the report of last week say about the incident on Tuesday, and who was on call? ";
const answer =
  "The incident began at 09:12 and was over at 09:47; the cause was a certificate that had expired. ".repeat(
    6,
  );
/** What the stream of an answer is written in. */
const deltas = 12;

/** One turn as a worker writes it: the answer in deltas, then question and answer in the commit. */
async function talk(store: SessionStore, session: string, turn: number): Promise<void> {
  const text = `${turn}: ${question}`;
  const { wakeGen = 0, seq } = await store.append({
    v: 1,
    session,
    id: `om_${"x".repeat(28)}${turn}`,
    app: "cli_0123456789abcdef",
    sender: { id: `ou_${"y".repeat(32)}`, name: "陈小明" },
    chatType: "p2p",
    parts: [{ type: "text", text }],
    createdAtMs: Date.now(),
    reply: { channel: "none" },
  });
  const claim = await store.claim(session, wakeGen, "worker");
  const epoch = claim?.epoch ?? "";
  const runId = `${session}-${seq}`;
  const piece = answer.slice(0, Math.ceil(answer.length / deltas));
  for (let at = 0; at < deltas; at += 1) {
    await store.emit({
      session,
      epoch,
      events: [{ runId, event: { type: "text_delta", text: piece } }],
    });
  }
  const history: Message[] = [
    { role: "user", content: [{ type: "text", text }] },
    { role: "assistant", content: [{ type: "text", text: answer }] },
  ];
  await store.commit({ session, epoch, seq, history, events: [], more: false });
}

async function bytesOf(redis: RedisConnection, pattern: string): Promise<number> {
  const keys = await redis.keys(pattern);
  const sizes = await Promise.all(
    keys.map(async (key) => Number(await redis.call("MEMORY", "USAGE", key, "SAMPLES", "0"))),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

async function measure(redis: RedisConnection, turns: number): Promise<MemoryNumbers> {
  const namespace = `memory-${turns}`;
  const store = new SessionStore({ redis, namespace, stateKey: "0".repeat(64) });
  const session = `cli_0123456789abcdef.oc_${"z".repeat(32)}`;
  for (let turn = 1; turn <= turns; turn += 1) await talk(store, session, turn);
  const messages = await store.history(session);
  const texts = messages.map(textOf);
  const all = await bytesOf(redis, `{${namespace}:*`);
  const history = await bytesOf(redis, `{${namespace}:*}:h:*`);
  for (const kind of ["ev", "seen"]) {
    await redis.del(...(await redis.keys(`{${namespace}:*}:${kind}:*`)));
  }
  const dayLater = await bytesOf(redis, `{${namespace}:*`);
  await bound(store, session);
  await new SessionRetention({ redis, namespace }).trim(session, { keep: 100 });
  for (const kind of ["ev", "seen"]) {
    await redis.del(...(await redis.keys(`{${namespace}:*}:${kind}:*`)), "none");
  }
  const bounded = await bytesOf(redis, `{${namespace}:*`);
  return { turns, texts: Buffer.byteLength(texts.join("")), all, history, dayLater, bounded };
}

/** What compaction leaves of the context. */
async function bound(store: SessionStore, session: string): Promise<void> {
  const { gen } = await store.summary(session);
  const { wakeGen = 0, seq } = await store.append({
    v: 1,
    session,
    id: `om_last${gen}`,
    app: "cli_0123456789abcdef",
    sender: { id: `ou_${"y".repeat(32)}` },
    chatType: "p2p",
    parts: [{ type: "text", text: "/compact" }],
    createdAtMs: Date.now(),
    reply: { channel: "none" },
  });
  const epoch = (await store.claim(session, wakeGen, "worker"))?.epoch ?? "";
  const summary: Message = { role: "user", content: [{ type: "text", text: answer }] };
  const context = { keep: 20, summary };
  await store.commit({ session, epoch, seq, history: [], events: [], more: false, context });
}

/** Lets a conversation grow to each of the lengths and asks Redis what its keys hold. */
export async function measureMemory(lengths: readonly number[]): Promise<MemoryNumbers[]> {
  const server = await startRedis();
  const redis = connectRedis(server.url);
  try {
    const numbers: MemoryNumbers[] = [];
    for (const turns of lengths) numbers.push(await measure(redis, turns));
    return numbers;
  } finally {
    await closeRedis(redis);
    await server.stop();
  }
}

function kilobytes(bytes: number): string {
  return (bytes / 1_024).toFixed(1);
}

/** KB per conversation. */
export function conversationMemoryTable(numbers: readonly MemoryNumbers[]): string {
  const header =
    "| memory of a conversation, KB | its texts alone | all keys | of these history | a day later | bounded |";
  const rows = numbers.map(
    ({ turns, texts, all, history, dayLater, bounded }) =>
      `| ${turns} ${turns === 1 ? "turn" : "turns"} | ${[texts, all, history, dayLater, bounded].map(kilobytes).join(" | ")} |`,
  );
  return [header, "| --- | --- | --- | --- | --- | --- |", ...rows].join("\n");
}
