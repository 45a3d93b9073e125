import type {
  NormalisedMessage,
  NormalisedRequest,
  ScriptedCall,
  ScriptedReply,
} from "./model-server-script.ts";

// The work that the demo model does in Feishu as the person who asks: it finds the plan of the project, adds a row to
// the table that the plan names, books a meeting with a colleague in a room that is free, and tells the group. Each step needs what the one
// before it has found, as with a model.

const wish = /\b(?:find|read|prepare)\b[^\n]{0,20}\b(?:project|plan)\b|项目计划|安排项目/i;

/** The zone of the playground's people. */
const zone = { name: "Asia/Shanghai", offset: "+08:00", ms: 8 * 3_600_000 };

/** What the tools have found so far. */
interface Found {
  document: string | undefined;
  base: string | undefined;
  table: string | undefined;
  /** The first field of the table. */
  field: string | undefined;
  colleague: { name: string; id: string } | undefined;
  group: { name: string; id: string } | undefined;
  /** A room that is free at that time. */
  room: string | undefined;
}

function foundIn(text: string): Found {
  const link = (kind: string): string | undefined =>
    new RegExp(`https?://[\\w.:/-]+?/${kind}/[\\w-]+`).exec(text)?.[0];
  const named = (kind: string): { name: string; id: string } | undefined => {
    const [, name, id] = new RegExp(`^- ${kind} (.+): (o[uc]_\\w+)$`, "m").exec(text) ?? [];
    return name === undefined || id === undefined ? undefined : { name, id };
  };
  const [, table, fields = ""] = /: table (tbl\w+), fields ([^\n]*)/.exec(text) ?? [];
  const [, field] = /^[^\p{L}]*((?:[\p{L}\p{N}]| (?=\p{L}))+)/u.exec(fields) ?? [];
  return {
    document: link("docx"),
    base: link("base"),
    table,
    field,
    colleague: named("person"),
    group: named("group"),
    room: /\b(omm_\w+)/.exec(text)?.[1],
  };
}

/** Ten o'clock of the next day there. */
function tomorrow(nowMs: number): { start: string; end: string } {
  const day = new Date(nowMs + zone.ms + 86_400_000).toISOString().slice(0, 10);
  return { start: `${day}T10:00${zone.offset}`, end: `${day}T10:30${zone.offset}` };
}

/** The calls of the next step; none when there is nothing left that can be done. */
function nextCalls(
  { document, base, table, field, colleague, group, room }: Found,
  done: Set<string>,
  zh: boolean,
) {
  const calls: ScriptedCall[] = [];
  const step = (name: string, parameters: Record<string, unknown>): void => {
    if (!done.has(name)) calls.push({ name, arguments: parameters });
  };
  if (!done.has("find_documents")) {
    step("find_documents", { query: zh ? "项目计划" : "Project plan" });
    // The other one of the playground's two people: the result marks the one who asks.
    for (const name of ["Alice", "Wei"]) {
      calls.push({ name: "find_people", arguments: { name, kind: "people" } });
    }
    calls.push({ name: "find_people", arguments: { name: "Project", kind: "groups" } });
    return calls;
  }
  const people = colleague === undefined ? [] : [colleague.id];
  const { start, end } = tomorrow(Date.now());
  if (document !== undefined) step("read_document", { document });
  const span = { from: start, to: end, minutes: 30, time_zone: zone.name };
  step("find_free_time", { people, ...span, room: "" });
  if (calls.length === 0 && base !== undefined) step("list_tables", { base });
  if (calls.length > 0) return calls;
  const [title, task] = zh
    ? ["项目讨论", "准备上线"]
    : ["Talk about the project", "Prepare the launch"];
  if (base !== undefined && table !== undefined && field !== undefined) {
    step("add_records", { base, table, rows: [{ [field]: task }] });
  }
  const rooms = room === undefined ? [] : [room];
  step("create_event", { title, start, end, time_zone: zone.name, people, rooms });
  if (calls.length > 0 || group === undefined) return calls;
  const text = zh ? `明天 10:00：${title}。` : `Tomorrow at 10:00: ${title}.`;
  step("send_as_person", { to: group.id, to_name: group.name, text });
  return calls;
}

/** What people read before each step, by its first call. */
const announcements: Readonly<Record<string, readonly [zh: string, en: string]>> = {
  find_documents: ["我先找到计划。", "Let me find the plan first."],
  read_document: [
    "我来读计划，并看看大家何时有空。",
    "I read the plan, and look when people and rooms are free.",
  ],
  find_free_time: ["我看看大家何时有空。", "I look when people and rooms are free."],
  list_tables: ["我看看表格。", "I look at the table."],
  add_records: ["我来加一行，并约一个会。", "I add a row, and book a meeting."],
  create_event: ["我来约一个会。", "I book a meeting."],
  send_as_person: ["最后告诉群里。", "Last, I tell the group."],
};

/** The next step of the work, where a text asks for it and the tools are offered; undefined otherwise. */
export function workReply(
  text: string,
  round: readonly NormalisedMessage[],
  tools: readonly NormalisedRequest["tools"][number][],
): ScriptedReply | undefined {
  if (!wish.test(text) || !tools.some(({ name }) => name === "find_documents")) return undefined;
  const zh = /[\u4e00-\u9fff]/.test(text);
  const results = round.flatMap((message) => message.results);
  const done = new Set(round.flatMap((message) => message.calls.map(({ name }) => name)));
  const content = results.filter(({ isError }) => !isError).map((result) => result.content);
  const calls = nextCalls(foundIn(content.join("\n")), done, zh);
  const [first] = calls;
  if (first === undefined) return undefined; // all results are reported
  return { text: announcements[first.name]?.[zh ? 0 : 1] ?? "", calls, firstDelayMs: 300 };
}
