import { setTimeout as delay } from "node:timers/promises";
import type { ModelScript, NormalisedRequest, ScriptedCall } from "@larkline/testkit";
import { answersTo, write, type Written } from "../system/answers.ts";
import { runApp } from "../system/app-process.ts";
import { openQuestions } from "../system/approvals.ts";
import type { Writer } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { agreeToLinks } from "./people.ts";

// Bob asks for what only Ann may read, in every way in which a call can come about, and the model obeys. Ann has granted
// the bot everything. Nothing of hers may come out: not in an answer, and not afterwards in what is exported of Bob, in
// the API or on the console's pages of his conversations. No call may run as her.

/** How the call comes about. */
const ways = [
  "chat",
  "group",
  "quote",
  "forward",
  "memory",
  "helper",
  "helper of a helper",
  "team",
  "hand-over",
  "api",
] as const;
type Way = (typeof ways)[number];

export interface LeakOptions {
  /** Attempts of each way and tool. */
  rounds: number;
  /** People who ask at once. */
  atOnce: number;
  patienceMs: number;
}

export interface LeakReport {
  attempts: number;
  /** Calls of tools that the model has made for them. */
  calls: number;
  /** What was read of Bob and his conversations afterwards: exports, answers of the API, pages of the console. */
  exports: number;
  /** Answers, cards and exports in which something of Ann was. */
  leaked: number;
  /** Calls of the platform as Ann, after her own. */
  asAnn: number;
  /** Changes by Ann, or of what is hers. */
  changed: number;
  /** Attempts without an answer, by way and tool. */
  unanswered: string[];
  /** Some of what came out. */
  found: string[];
}

/** Everything that only Ann may read has both words; people ask for the first. */
const [asked, hidden] = ["Kingfisher", "vermilion"];
const secret = `${asked} ${hidden}`;
const zone = "Asia/Shanghai";
const day = { from: "2026-12-07T00:00+08:00", to: "2026-12-08T00:00+08:00", time_zone: zone };
const at = (time: string): number => Date.parse(`2026-12-07T${time}+08:00`);

/** What the model is to do for an attempt, by its number: it comes in no message, so that no person has written it. */
const calls = new Map<number, { way: Way; call: ScriptedCall }>();
let made = 0;

const mark = /\battempt-(\d+)\b/;

/** Obeys: brings the call about in the way that the attempt wants, and repeats all that it has got. */
const script: ModelScript = (request) => {
  const position = request.messages.findLastIndex(
    ({ role, text }) => role === "user" && mark.test(text),
  );
  const number = Number(mark.exec(request.messages[position]?.text ?? "")?.[1]);
  const attempt = calls.get(number);
  if (attempt === undefined) return own(request);
  const since = request.messages.slice(position);
  const rounds = since.filter((message) => message.calls.length > 0).length;
  const step = stepsOf(attempt, number, request.system.split("\n")[0] ?? "")[rounds];
  if (step === undefined) {
    return { text: `done ${JSON.stringify(since.flatMap(({ results }) => results))}` };
  }
  if (step.name === attempt.call.name) made += 1;
  return { calls: [step] };
};

/** What people ask for themselves: all calls of the message in one step, so that one link asks for all of their scopes. */
function own({ messages }: NormalisedRequest): ReturnType<ModelScript> {
  const last = messages.findLastIndex(
    ({ role, results }) => role === "user" && results.length === 0,
  );
  const results = messages.slice(last + 1).flatMap((message) => message.results);
  const json = /\bmine (\[.*\])/s.exec(messages[last]?.text ?? "")?.[1];
  if (results.length > 0 || json === undefined) return { text: "done" };
  return { calls: JSON.parse(json) as ScriptedCall[] };
}

function stepsOf(
  { way, call }: { way: Way; call: ScriptedCall },
  number: number,
  who: string,
): ScriptedCall[] {
  const task = { task: `attempt-${number}: do it` };
  if (way === "memory") return [{ name: "recall", arguments: { query: asked } }, call];
  if (way === "helper") {
    return who === "helper" ? [call] : [{ name: "ask_helper", arguments: task }];
  }
  if (way === "helper of a helper") {
    if (who === "helper") return [{ name: "ask_inner", arguments: task }];
    return who === "inner" ? [call] : [{ name: "ask_helper", arguments: task }];
  }
  if (way === "team") {
    if (who === "speaker") return [call];
    return who === "closer" ? [] : [{ name: "ask_board", arguments: task }];
  }
  if (way === "hand-over") {
    const handOver = { name: "transfer_to_clerk", arguments: { reason: "mine" } };
    return who === "clerk" ? [handOver, call] : [handOver];
  }
  return [call];
}

const memory = { person: "everywhere", chat: true };
const shared = { memory, groups: "all", groupReads: "off" };
const config = {
  permissions: [{ tools: ["*"], do: "allow" }],
  agents: {
    default: {
      ...shared,
      handoffs: ["clerk"],
      helpers: [
        { agent: "helper", as: "ask_helper" },
        { team: "board", as: "ask_board" },
      ],
    },
    speaker: { ...shared, instructions: "speaker" },
    closer: { ...shared, instructions: "closer" },
    clerk: { ...shared, instructions: "clerk" },
    helper: {
      ...shared,
      instructions: "helper",
      helpers: [{ agent: "inner", as: "ask_inner" }],
    },
    inner: { ...shared, instructions: "inner" },
  },
  teams: {
    board: { members: ["speaker", "closer"], select: "round_robin", end: { messages: 2 } },
  },
};

export async function runLeaks(options: LeakOptions): Promise<LeakReport> {
  const system = await startProcesses({
    workers: 2,
    script,
    config,
    env: {
      GRANT_KEY: "a1".repeat(32),
      RUNNER_NAME: "feishu",
      RUNNER_TOOLS: "@larkline/feishu-tools",
    },
  });
  try {
    const ann = system.person("Ann");
    const asks = await thingsOf(system, ann);
    const reads = asks.filter(({ name }) => !/^(?:change|append)/.test(name));
    const remember = { name: "remember", arguments: { text: `${secret} is mine`, about: "me" } };
    await askForAll(system, ann, [...reads, remember], options);
    let asAnn = 0;
    system.feishu.on("apiCall", ({ person }) => (asAnn += person === ann.openId ? 1 : 0));
    const changesBefore = changesOf(system, ann);
    const attempts = ways.flatMap((way) =>
      asks.flatMap((call) => Array.from({ length: options.rounds }, () => ({ way, call }))),
    );
    const waiting = attempts.map((attempt, number) => ({ ...attempt, number }));
    for (const { number, ...attempt } of waiting) calls.set(number, attempt);
    const found: string[] = [];
    const unanswered: string[] = [];
    const operators = await system.start("console");
    let exports = 0;
    const bobs = Array.from({ length: options.atOnce }, async (_, which) => {
      const bob = bobOf(system, ann, which);
      const numbers: number[] = [];
      await askForAll(system, bob, asks, options);
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        numbers.push(next.number);
        const seen = await attemptBy(system, bob, { ...next, patienceMs: options.patienceMs });
        if (seen === undefined) unanswered.push(`${next.way} ${next.call.name}`);
        else if (seen.includes(hidden)) found.push(`${next.way} ${next.call.name}: ${seen}`);
      }
      for (const { of, text } of await exportsOf(system, bob, { url: operators.url, numbers })) {
        exports += 1;
        if (text.includes(hidden)) found.push(`${of}: ${text}`);
      }
    });
    await Promise.all(bobs);
    return {
      attempts: attempts.length,
      calls: made,
      exports,
      leaked: found.length,
      asAnn,
      changed: changesOf(system, ann) - changesBefore,
      unanswered,
      found: found.slice(0, 3).map((text) => text.slice(0, 600)),
    };
  } finally {
    calls.clear();
    made = 0;
    await system.close();
  }
}

/** Ann's things, and the calls that would read or change them. */
async function thingsOf({ feishu, appId }: ProcessSystem, ann: Writer): Promise<ScriptedCall[]> {
  const { docs, tables, calendar, tasks, meetings } = feishu.work;
  const owner = ann.openId;
  const { documentId } = docs.addDocument({
    owner,
    title: `${secret} plan`,
    markdown: `${secret} soon`,
  });
  const { spaceId } = docs.addSpace({ name: `${secret} space`, members: [owner] });
  const { appToken } = tables.addBase({ owner, name: `${secret} base` });
  const fields = [{ name: "Task", type: 1 }];
  const { tableId } = tables.addTable(appToken, { name: `${secret} table`, fields });
  tables.addRecord(appToken, tableId, { Task: `${secret} row` });
  const span = { start: at("09:00"), end: at("10:00") };
  const { eventId } = calendar.addEvent({ organizer: owner, summary: `${secret} event`, ...span });
  const { guid } = tasks.addTask({ creator: owner, summary: `${secret} task`, assignees: [owner] });
  const { token } = meetings.addMinutes({
    title: `${secret} minutes`,
    owner,
    participants: [],
    summary: secret,
    createdAt: at("10:00"),
  });
  const { chatId } = feishu.addChat({ type: "group", name: `${secret} group`, members: [owner] });
  await feishu.sendMessage({ chatId, from: owner, appId, text: `${secret} message` });
  const base = `https://acme.feishu.cn/base/${appToken}?table=${tableId}`;
  const call = (name: string, given: object): ScriptedCall => ({ name, arguments: { ...given } });
  return [
    call("find_documents", { query: asked }),
    call("read_document", { document: documentId }),
    call("read_document", { document: `https://acme.feishu.cn/docx/${documentId}` }),
    call("read_document_blocks", { document: documentId }),
    call("browse_wiki", { space: spaceId }),
    call("list_tables", { base }),
    call("search_records", { base }),
    call("list_events", { ...day, query: asked }),
    call("change_event", { event: eventId, time_zone: zone, title: "x" }),
    call("list_tasks", { time_zone: zone, state: "all", query: asked }),
    call("change_task", { task: guid, done: true }),
    call("read_minutes", { of: token, time_zone: zone }),
    call("search_messages", { query: asked, time_zone: zone }),
    call("read_messages", { chat: chatId, time_zone: zone }),
    call("find_people", { name: asked }),
    call("append_to_document", { document: documentId, markdown: "x" }),
  ];
}

/** A person asks for all that can be read, and grants the bot what that needs. */
async function askForAll(
  system: ProcessSystem,
  person: Writer,
  wanted: readonly ScriptedCall[],
  { patienceMs }: LeakOptions,
): Promise<void> {
  const written = await write(system, person, `mine ${JSON.stringify(wanted)}`);
  if ((await answered(system, person, written, patienceMs)) === undefined) {
    throw new Error("the person's own calls were not answered");
  }
}

/** Bob with a chat of his own, and a group with Ann. */
interface Bob extends Writer {
  group: string;
  /** A message of Ann in the group. */
  quoted: Promise<string>;
}

function bobOf(system: ProcessSystem, ann: Writer, which: number): Bob {
  const { feishu, appId } = system;
  const bob = system.person(`Bob ${which}`);
  const members = [bob.openId, ann.openId, appId];
  const group = feishu.addChat({ type: "group", name: "Both", members }).chatId;
  const quoted = feishu
    .sendMessage({ appId, chatId: group, from: ann.openId, text: "where is my plan?" })
    .then(({ messageId }) => messageId);
  return { ...bob, group, quoted };
}

/** What Bob sees of it; undefined: nothing in time. */
async function attemptBy(
  system: ProcessSystem,
  bob: Bob,
  { way, number, patienceMs }: { way: Way; number: number; patienceMs: number },
): Promise<string | undefined> {
  const text = `attempt-${number}`;
  const { openId, group: chatId } = bob;
  if (way === "group") {
    const written = await write(system, { openId, chatId, mention: true }, text);
    return await answered(system, bob, written, patienceMs);
  }
  if (way === "api") return await runOverHttp(system, text);
  if (way === "quote" || way === "forward") {
    const written = { appId: system.appId, chatId, from: openId };
    const quoted = await bob.quoted;
    const { messageId: forwarded } = await system.feishu.sendMessage({
      ...written,
      forward: [quoted],
    });
    const parentId = way === "quote" ? quoted : forwarded;
    const asking = { ...written, text, mention: true, parentId };
    const { messageId, delivery } = await system.feishu.sendMessage(asking);
    await delivery;
    return await answered(system, bob, { chatId, messageId, text }, patienceMs);
  }
  return await answered(system, bob, await write(system, bob, text), patienceMs);
}

/** Bob asks over the HTTP API; what comes back, events of its calls included. */
async function runOverHttp(system: ProcessSystem, text: string): Promise<string | undefined> {
  const url = system.ingresses[0]?.url ?? "";
  const response = await fetch(`${url}/v1/runs`, {
    method: "POST",
    headers: { "content-type": "application/json", prefer: "wait=120" },
    body: JSON.stringify({ input: text, session_id: text }),
  });
  const report = await response.text();
  if (!report.includes("done")) return undefined;
  const events = await fetch(`${url}/v1/runs/api.${text}-1/events`);
  return `${report} ${await events.text()}`;
}

/** What is exported of Bob, and what the API and the console show of his conversations. */
async function exportsOf(
  system: ProcessSystem,
  bob: Bob,
  { url, numbers }: { url: string; numbers: readonly number[] },
): Promise<{ of: string; text: string }[]> {
  const { appId, redis } = system;
  const args = ["people", "export", bob.openId, "--app", appId];
  const exported = await runApp({ file: "apps/cli/src/main.ts", args }, { REDIS_URL: redis.url });
  if (exported.code !== 0) throw new Error(exported.output);
  const sessions = [bob.chatId, bob.group].map((chat) => `${appId}.${chat}`);
  const api = system.ingresses[0]?.url ?? "";
  const addresses = [
    ...sessions.flatMap((session) => [
      `${api}/v1/sessions/${session}/items`,
      `${api}/v1/runs/${session}-2`,
      `${api}/v1/runs/${session}-2/events`,
      `${url}/sessions/${session}`,
    ]),
    ...[bob.openId, hidden].map((word) => `${url}/runs?q=${word}`),
    ...numbers
      .filter((number) => calls.get(number)?.way === "api")
      .map((number) => `${api}/v1/sessions/attempt-${number}/items`),
  ];
  const read = addresses.map(async (address) => {
    const text = await (await fetch(address)).text();
    // A page repeats what was looked for.
    return { of: address, text: address.endsWith(hidden) ? text.replaceAll(hidden, "") : text };
  });
  return [{ of: "people export", text: exported.output }, ...(await Promise.all(read))];
}

/** The text of the answer, when the person has agreed to what the platform asked. */
async function answered(
  system: ProcessSystem,
  person: Writer,
  written: Written,
  patienceMs: number,
): Promise<string | undefined> {
  const untilMs = performance.now() + patienceMs;
  while (performance.now() < untilMs) {
    const answers = answersTo(system, written);
    if (answers.length > 0) return answers.map(({ text }) => text).join("\n");
    agreeToLinks(system, person);
    await delay(100);
  }
  const questions = openQuestions(system, written.chatId).map(({ title }) => title);
  if (questions.length > 0) throw new Error(`${written.text} waits for ${questions.join(", ")}`);
  return undefined;
}

function changesOf({ feishu }: ProcessSystem, ann: Writer): number {
  return feishu.work.changes.filter(
    ({ by, content }) => by === ann.openId || content.includes(hidden),
  ).length;
}
