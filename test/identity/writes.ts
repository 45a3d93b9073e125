import { setTimeout as delay } from "node:timers/promises";
import type { ModelScript, ScriptedCall } from "@larkline/testkit";
import { killUntil, type Kills } from "../chaos/attacks.ts";
import { createRandom, type SeededRandom } from "../chaos/random.ts";
import { answersTo, write } from "../system/answers.ts";
import { decide, openQuestions } from "../system/approvals.ts";
import type { Writer } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { agreeToLinks } from "./people.ts";

// Writes of the work tools while runners and workers die under them, and answers of the platform are lost.

export interface WritesOptions {
  seed: number;
  /** Half of them run again under their key when their runner has died; the others, in turn, look or are asked about. */
  writes: number;
  people: number;
  workers: number;
  runners: number;
  killPauseMs: number;
  /** One of so many calls of the platform is applied, and its answer lost. */
  loseOneOf: number;
  patienceMs: number;
}

interface Counted {
  asked: number;
  answered: number;
  /** Objects that are there, each once. */
  made: number;
  doubled: number;
  /** Not there, although the answer does not say so. */
  lost: number;
  /** Questions to people what became of a call. */
  questions: number;
}

export interface WritesReport {
  withKey: Counted;
  /** Whose call looks for what it has made when its runner has died. */
  looking: Counted;
  /** Which are asked about when their runner has died, with a key for lost answers or without one. */
  asking: Counted;
  lostAnswers: number;
  kills: Kills;
  /** Some of the answers to writes that are not there. */
  odd: string[];
}

interface Person extends Writer {
  base: string;
  group: string;
  document: string;
  /** A file, of which copies are made. */
  file: string;
  space: string;
  spreadsheet: string;
  sheet: string;
  address: string;
}

interface Write {
  tool: Tool;
  key: string;
  text: string;
  questions: number;
}

const withKey = ["create_task", "add_records", "send_as_person"] as const;
const looking = [
  "create_document",
  "comment_task",
  "comment_on_document",
  "create_wiki_page",
  "create_folder",
  "upload_text_file",
  "copy_file",
  "create_event",
] as const;
const asking = ["append_to_document", "add_field", "append_rows", "draft_mail"] as const;
const others = [...looking, ...asking];
type Tool = (typeof withKey | typeof looking | typeof asking)[number];

/** What the simulated platform notes down of it. */
const kinds: Readonly<Record<Tool, string>> = {
  create_task: "task.create",
  add_records: "base.record",
  send_as_person: "message.send",
  create_document: "document.create",
  comment_task: "task.comment",
  comment_on_document: "document.comment",
  create_wiki_page: "wiki.create",
  create_folder: "drive.folder",
  upload_text_file: "drive.upload",
  copy_file: "drive.copy",
  create_event: "event.create",
  append_to_document: "document.block",
  add_field: "base.field",
  append_rows: "sheet.append",
  draft_mail: "mail.draft",
};
const groupName = "The team";

/** Makes the call that the last message has in JSON. */
const script: ModelScript = ({ messages }) => {
  const at = messages.findLastIndex(({ role, results }) => role === "user" && results.length === 0);
  const results = messages.slice(at + 1).flatMap((message) => message.results);
  if (results.length > 0) {
    return { text: `done: ${results.map(({ content }) => content).join(" ")}` };
  }
  const json = /\{.*\}/s.exec(messages[at]?.text ?? "")?.[0] ?? "{}";
  return { calls: [JSON.parse(json) as ScriptedCall] };
};

export async function runWrites(options: WritesOptions): Promise<WritesReport> {
  const random = createRandom(options.seed);
  const system = await startProcesses({
    workers: options.workers,
    runners: options.runners,
    ingresses: 2,
    script,
    env: {
      GRANT_KEY: "a1".repeat(32),
      RUNNER_NAME: "feishu",
      RUNNER_TOOLS: "@larkline/feishu-tools",
    },
    config: {
      permissions: [{ tools: Object.keys(kinds), do: "allow" }],
      approvals: { learnAfter: 0, maxDenials: 1_000 },
    },
  });
  try {
    const people = Array.from({ length: options.people }, (_, at) => personOf(system, at));
    const over = new AbortController();
    // The calls of a write take longer than a process takes to die: it dies between any two of them.
    const losing = loseAnswers(system, { random, oneOf: options.loseOneOf });
    const killing = killUntil(
      system,
      { kinds: ["tool-runner", "agent-worker"], pauseMs: options.killPauseMs, random },
      over.signal,
    );
    const each = Math.ceil(options.writes / options.people);
    const written = await Promise.all(
      people.map(
        async (person, at) => await writeAs(system, person, { at, each, random, options }),
      ),
    ).finally(() => over.abort());
    const kills = await killing;
    losing.stop();
    const all = written.flat();
    const of = (tools: readonly Tool[]) => all.filter(({ tool }) => tools.includes(tool));
    const odd = all.filter((one) => madeOf(system, one) === 0 && !isSaid(one.text));
    return {
      withKey: count(system, of(withKey)),
      looking: count(system, of(looking)),
      asking: count(system, of(asking)),
      lostAnswers: losing.lost(),
      kills,
      odd: odd.slice(0, 5).map(({ tool, key, text }) => `${tool} ${key} ${text}`),
    };
  } finally {
    await system.close();
  }
}

function personOf(system: ProcessSystem, at: number): Person {
  const { feishu } = system;
  const writer = system.person(`writer ${at}`);
  const { appToken } = feishu.work.tables.addBase({ owner: writer.openId, name: "Launch" });
  const { tableId } = feishu.work.tables.addTable(appToken, {
    name: "Tasks",
    fields: [{ name: "Task", type: 1 }],
  });
  const members = [writer.openId];
  const { chatId: group } = feishu.addChat({ type: "group", name: groupName, members });
  const base = `https://acme.feishu.cn/base/${appToken}?table=${tableId}`;
  const own = { owner: writer.openId };
  const { work } = feishu;
  const book = work.sheets.addSpreadsheet({ ...own, title: "Costs", rows: [["Old", 1]] });
  return {
    ...writer,
    base,
    group,
    document: work.docs.addDocument({ ...own, title: "Notes", markdown: "Old" }).documentId,
    file: work.drive.addFile({ ...own, name: "plan.txt" }).token,
    space: work.docs.addSpace({ name: "Team", members }).spaceId,
    spreadsheet: book.token,
    sheet: book.sheets[0]?.sheetId ?? "",
    address: work.mail.addressOf(writer.openId),
  };
}

/** Holds every call of a work tool back for a moment, and loses the answers of some. */
function loseAnswers(
  { feishu }: ProcessSystem,
  { random, oneOf }: { random: SeededRandom; oneOf: number },
): { stop(): void; lost(): number } {
  const path =
    /^\/open-apis\/(?:task|docx|bitable|drive|suite|sheets|mail|wiki|calendar|im\/v1\/messages\?receive)/;
  let lost = 0;
  const timer = setInterval(() => {
    lost += 1;
    feishu.faults.add({ match: { path }, times: 1, action: { kind: "lose_response" } });
    feishu.faults.add({
      match: { path },
      times: 1 + random.below(2 * oneOf),
      action: { kind: "delay", delayMs: 150 },
    });
  }, 400);
  return {
    stop: () => {
      clearInterval(timer);
      feishu.faults.clear();
    },
    lost: () => lost - feishu.faults.size / 2,
  };
}

/** Writes one message after the other, agrees to what the platform asks, and decides what is asked. */
async function writeAs(
  system: ProcessSystem,
  person: Person,
  {
    at,
    each,
    random,
    options,
  }: { at: number; each: number; random: SeededRandom; options: WritesOptions },
): Promise<Write[]> {
  const done: Write[] = [];
  let task = "";
  for (let number = 0; number < each; number += 1) {
    const key = `key-${at}-${number}.`;
    const turn = others[(at * each + (number - 1) / 2) % others.length] ?? "create_document";
    const other = turn === "comment_task" && task === "" ? "create_document" : turn;
    const tool = number % 2 === 0 ? random.pick(withKey) : other;
    const call = { name: tool, arguments: argumentsOf(tool, key, { ...person, task }) };
    const written = await write(system, person, `write ${JSON.stringify(call)}`);
    const decided = new Set<string>();
    const untilMs = performance.now() + options.patienceMs;
    while (answersTo(system, written).length === 0 && performance.now() < untilMs) {
      agreeToLinks(system, person);
      for (const card of openQuestions(system, person.chatId)) {
        const isAboutEnd = JSON.stringify(card.shown).includes("outcome is unknown");
        if (!isAboutEnd || decided.has(card.message.messageId)) continue;
        decided.add(card.message.messageId);
        const wanted = { larkline: "outcome", action: "abort" };
        await decide(system, card, { openId: person.openId, wanted });
      }
      await delay(200);
    }
    const text = answersTo(system, written)
      .map((answer) => answer.text)
      .join(" ");
    task ||= /id ([0-9a-f-]{36})/.exec(text)?.[1] ?? "";
    done.push({ tool, key, text, questions: decided.size });
  }
  return done;
}

function argumentsOf(
  tool: Tool,
  key: string,
  person: Person & { task: string },
): Record<string, unknown> {
  const { base, group, task, document, file, space, spreadsheet, sheet, address } = person;
  const zone = "Asia/Shanghai";
  const time = { start: "2026-12-07T10:00+08:00", end: "2026-12-07T11:00+08:00", time_zone: zone };
  const all: Readonly<Record<Tool, Record<string, unknown>>> = {
    create_task: { summary: key },
    add_records: { base, rows: [{ Task: key }] },
    send_as_person: { to: group, to_name: groupName, text: key },
    create_document: { title: key },
    comment_task: { task, text: key },
    comment_on_document: { document, text: key },
    create_wiki_page: { space, title: key },
    create_folder: { name: key },
    upload_text_file: { name: key, text: "Some words" },
    copy_file: { token: file, type: "file", name: key },
    create_event: { title: key, ...time },
    append_to_document: { document, markdown: key },
    add_field: { base, name: key, type: "text" },
    append_rows: { spreadsheet, sheet, rows: [[key, 2]] },
    draft_mail: { to: [address], subject: key, text: "Some words" },
  };
  return all[tool];
}

/** How often it took effect. */
function madeOf({ feishu }: ProcessSystem, { tool, key }: Write): number {
  return feishu.work.changes.filter(
    ({ kind, content }) => kind === kinds[tool] && content.includes(key),
  ).length;
}

/** Whether the person reads that it was not done, or that this is not known. */
function isSaid(text: string): boolean {
  const claims = text.replaceAll(/whether[^.]*/g, "");
  return !/Created|Added|Sent to|has taken|was written|is on |Uploaded|Copied|draft is in|has the field/i.test(
    claims,
  );
}

function count(system: ProcessSystem, writes: readonly Write[]): Counted {
  const made = writes.map((one) => madeOf(system, one));
  return {
    asked: writes.length,
    answered: writes.filter(({ text }) => text !== "").length,
    made: made.filter((times) => times === 1).length,
    doubled: made.filter((times) => times > 1).length,
    lost: writes.filter((one, at) => made[at] === 0 && !isSaid(one.text)).length,
    questions: writes.reduce((sum, { questions }) => sum + questions, 0),
  };
}
